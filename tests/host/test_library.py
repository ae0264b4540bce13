"""Branchwork inside another program."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from branchwork import Agent, AgentRequest, Limits, RunFailed, Session, UserError, World, library
from branchwork.agent.events import ReplyFinished, RunFinished, SessionOpened, TextStreamed
from branchwork.models.scripted import ScriptedModel, calls, fails, hangs, says
from branchwork.session.entries import MessageEntry
from branchwork.testing.clock import FakeClock
from branchwork.testing.script import says as server_says
from branchwork.testing.server import FakeModelServer
from tests.host.workshop import Workshop

ROOT = Path(__file__).parents[2]


def program(text: str) -> str:
    """The first program of a page or docstring, without its indentation."""
    found = re.search(r"^( *)import asyncio\n.*?^\1asyncio\.run\(main\(\)\)$", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return "\n".join(line.removeprefix(found.group(1)) for line in found.group().splitlines()) + "\n"


def world(workshop: Workshop) -> World:
    return World(home=workshop.home, cwd=workshop.project, env={"HOME": str(workshop.home.parent)}, clock=FakeClock())


async def opened(workshop: Workshop, *script: Any, **options: Any) -> Agent:
    options.setdefault("session", Session.in_memory())
    return await Agent.open(model=ScriptedModel(list(script)), world=world(workshop), **options)


def test_the_ten_lines_of_the_documentation_run_as_they_stand(tmp_path: Path) -> None:
    text = program((ROOT / "docs" / "library.md").read_text(encoding="utf-8"))
    assert text == program(library.__doc__ or "")
    assert len(text.splitlines()) <= 10
    with FakeModelServer(server_says("Two files.")) as server:
        (tmp_path / "models.toml").write_text(f'[providers.ollama]\nbase_url = "{server.openai_url}"\n')
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False,
            env={"HOME": str(tmp_path), "BRANCHWORK_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "RunFinished" in done.stdout.splitlines()[-1]
    assert "Two files." in done.stdout


async def test_events_come_while_the_run_goes_on_and_end_with_it(workshop: Workshop) -> None:
    async with await opened(workshop, says("A long answer in several pieces.")) as agent:
        kinds = [type(event) async for event in agent.run("go")]
    assert kinds[-1] is RunFinished
    assert kinds.count(TextStreamed) > 1
    assert SessionOpened not in kinds


async def test_prompt_gives_the_answer_or_says_how_the_run_ended(workshop: Workshop) -> None:
    script = (calls("ls"), says("It is empty."), fails("rejected", message="no credit"), says("x"))
    async with await opened(workshop, *script) as agent:
        assert await agent.prompt("What is here?") == "It is empty."
        with pytest.raises(RunFailed, match="no credit") as caught:
            await agent.prompt("again")
        assert caught.value.finished is not None
        with pytest.raises(RunFailed, match="handled by a command"):
            await agent.prompt("/help")
        with pytest.raises(UserError, match="no command /nothing"):
            await agent.prompt("/nothing")
        assert await agent.prompt("go on", limits=Limits(max_turns=3)) == "x"


async def test_leaving_the_loop_early_aborts_and_saves_and_the_next_run_works(workshop: Workshop) -> None:
    session = Session.create(
        cwd=str(workshop.project), directory=workshop.home / "s", clock=workshop.clock, ids=workshop.ids
    )
    script = (says("Some words ") + hangs(), says("fine"))
    async with await opened(workshop, *script, session=session) as agent:
        async for event in agent.run("go"):
            if isinstance(event, TextStreamed):
                break
        assert await agent.prompt("next") == "fine"
        assert session.path is not None
        assert b"Some words" in session.path.read_bytes()


async def test_closing_the_events_waits_until_the_run_is_over(workshop: Workshop) -> None:
    async with await opened(workshop, hangs(), says("fine")) as agent:
        events = agent.run("go")
        await anext(events)
        with pytest.raises(UserError, match="steer it, wait, or abort"):
            await agent.prompt("too early")
        await events.aclose()
        await events.aclose()
        assert agent.host.agent.activity == "idle"
        assert [event async for event in events] == []
        assert await agent.prompt("next") == "fine"


async def test_cancelling_whoever_listens_aborts_the_run(workshop: Workshop) -> None:
    async with await opened(workshop, hangs(), says("fine")) as agent:
        task = asyncio.ensure_future(agent.prompt("go"))
        while agent.host.agent.activity == "idle":  # noqa: ASYNC110 - the run begins within a few turns of the loop
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await agent.prompt("next") == "fine"


async def test_two_agents_work_at_once(workshop: Workshop) -> None:
    first = await opened(workshop, calls("ls"), says("one"))
    second = await opened(workshop, calls("ls"), says("two"))
    async with first, second:
        answers = await asyncio.gather(first.prompt("a"), second.prompt("b"))
    assert list(answers) == ["one", "two"]
    assert first.host is not second.host


async def test_a_child_reads_nothing_that_a_person_set_up(workshop: Workshop) -> None:
    workshop.write("rude", "def extension(api):\n    api.add_section('rude', lambda ctx: 'Be rude.')\n")
    (workshop.project / "AGENTS.md").write_text("Always use tabs.")
    (workshop.home / "skills" / "sew").mkdir(parents=True)
    (workshop.home / "skills" / "sew" / "SKILL.md").write_text("---\nname: sew\ndescription: Sews.\n---\nSew.")
    seen: list[str] = []

    def answer(request: Any) -> Any:
        seen.append(request.system)
        return says("x")

    for options in (AgentRequest(), AgentRequest(discover=False)):
        async with await Agent.open(
            model=ScriptedModel(answer), session=Session.in_memory(), tools=["read"], options=options,
            world=world(workshop),
        ) as agent:  # fmt: skip
            await agent.prompt("go")
            assert [tool.name for tool in agent.host.agent.tools] == ["read"]
    for text in ("Be rude.", "Always use tabs.", "Sews."):
        assert text in seen[0]
        assert text not in seen[1]


async def test_options_count_where_nothing_else_is_said(workshop: Workshop) -> None:
    options = AgentRequest(
        given_model=ScriptedModel([says("x")]), given_session=Session.in_memory(), tools=("ls",), thinking="low"
    )
    async with await Agent.open(options=options, world=world(workshop)) as agent:
        assert [tool.name for tool in agent.host.agent.tools] == ["ls"]
        assert agent.host.agent.thinking == "low"
        assert agent.session is options.given_session
        assert await agent.prompt("go") == "x"


async def test_a_session_in_memory_leaves_nothing_behind(workshop: Workshop) -> None:
    async with await opened(workshop, says("x")) as agent:
        await agent.prompt("go")
        assert agent.session.path is None
    assert list(workshop.home.rglob("*.jsonl")) == []


async def test_steering_reaches_the_run_that_goes_on(workshop: Workshop) -> None:
    async with await opened(workshop, calls("ls"), says("done")) as agent:
        async for event in agent.run("go"):
            if isinstance(event, ReplyFinished) and event.message.tool_calls:
                agent.steer("and quickly")
        entries = [entry for entry in agent.session.branch().entries() if isinstance(entry, MessageEntry)]
        assert "and quickly" in repr(entries)


async def test_a_model_that_is_not_there_is_an_error_for_a_person_and_closes_the_session(workshop: Workshop) -> None:
    session = Session.in_memory()
    with pytest.raises(UserError, match="nowhere"):
        await Agent.open(model="nowhere/x", session=session, world=world(workshop))
