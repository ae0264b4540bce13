"""Plans in a running session: saved, ticked, chosen, and right wherever the session goes."""

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from branchwork.errors import UserError
from branchwork.extensions.modes.requests import CurrentPlan, SavePlan, TickTask
from branchwork.host.assembly import SessionChoice
from branchwork.host.bus import RequestFailed
from branchwork.host.host import Host
from branchwork.models.scripted import calls, says
from branchwork.testing.recording_ui import RecordingScreen
from tests.extensions.modes.test_modes import entries, opened, told_in
from tests.host.workshop import Workshop, results, say, texts

PLAN = "# My plan\n\n## Section 4 — Tasks\n\n- [ ] A\n- [ ] First task\n"
A, FIRST = "task-42b43758f2663b3f", "task-a3e4185a81812b83"


@pytest_asyncio.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    await made.close()


def save(text: str = PLAN) -> Any:
    return calls("workflow_plan_save", plan=text)


def tick(task: str) -> Any:
    return calls("workflow_plan_tick", taskId=task)


def stored(workshop: Workshop) -> list[Path]:
    return sorted((workshop.home / "plans").glob("*.md"))


async def test_saving_keeps_the_text_and_records_a_pointer_and_a_choice(workshop: Workshop) -> None:
    host = await opened(workshop, [save(), says("x")])
    await host.submit("go")
    (path,) = stored(workshop)
    assert path.read_text() == PLAN
    first, second = entries(host, "workflow-plan")
    details = results(host)[0].details
    assert details == {"planId": path.stem, "path": str(path), "savedAt": first["savedAt"], "taskCount": 2}
    tasks = [{"id": A, "title": "A", "metadata": {}}, {"id": FIRST, "title": "First task", "metadata": {}}]
    assert first == {"event": "set", "planId": path.stem, "path": str(path), "savedAt": first["savedAt"],
                     "tasks": tasks, "at": 0}  # fmt: skip
    assert second == {"event": "activate", "planId": path.stem, "at": 0}
    assert A in texts(host)[0]
    assert FIRST in texts(host)[0]


async def test_ticks_are_told_and_recorded_once(workshop: Workshop) -> None:
    host = await opened(workshop, [save(), tick(A), tick(f" {A} "), tick("nope"), tick(FIRST), says("x")])
    await host.submit("go")
    found = [result.details for result in results(host)]
    assert found[1]["progress"] == {"done": 1, "total": 2}
    assert found[1]["nextTask"] == {"id": FIRST, "title": "First task"}
    assert found[1]["idempotent"] is False
    assert found[2]["idempotent"] is True
    assert "already ticked" in texts(host)[2]
    assert f"open: {FIRST}" in texts(host)[3]
    assert "nextTask" not in found[4]
    assert [entry["event"] for entry in entries(host, "workflow-plan")] == ["set", "activate", "tick", "tick"]
    assert stored(workshop)[0].read_text() == PLAN


@pytest.mark.parametrize(
    "arguments", [{"taskId": ""}, {"taskId": "x" * 129}, {"taskId": A, "more": 1}, {}, {"taskId": 3}]
)
async def test_odd_ticks_are_refused(workshop: Workshop, arguments: dict[str, Any]) -> None:
    host = await opened(workshop, [save(), calls("workflow_plan_tick", **arguments), says("x")])
    await host.submit("go")
    assert results(host)[1].is_error
    assert len(entries(host, "workflow-plan")) == 2


async def test_without_a_plan_nothing_is_ticked(workshop: Workshop) -> None:
    host = await opened(workshop, [tick(A), says("x")])
    await host.submit("go")
    assert "no active plan" in texts(host)[0]


@pytest.mark.parametrize("text", ["", "  \n", "x" * 262_145, "é" * 131_073])
async def test_what_is_no_plan_leaves_nothing_behind(workshop: Workshop, text: str) -> None:
    host = await opened(workshop, [save(text), says("x")])
    await host.submit("go")
    assert results(host)[0].is_error
    assert stored(workshop) == []
    assert entries(host, "workflow-plan") == []


async def test_a_plan_without_tasks_says_how_tasks_are_written(workshop: Workshop) -> None:
    host = await opened(workshop, [save("# P\n- [ ] A"), says("x")])
    await host.submit("go")
    assert "## Section 4" in texts(host)[0]


async def test_saving_the_active_text_again_keeps_its_ticks(workshop: Workshop) -> None:
    host = await opened(workshop, [save(), tick(A), save(), save("# Other"), save(), says("x")])
    await host.submit("go")
    assert "its progress stays" in texts(host)[2]
    plan = await host.bus.request(CurrentPlan())
    assert plan is not None
    assert plan.done == (A,)
    assert len(stored(workshop)) == 2


async def test_plans_are_saved_in_every_mode_and_shown_in_active_ones(workshop: Workshop) -> None:
    host = await opened(workshop, [save(), says("x"), says("y")])
    await host.submit("/mode discuss")
    await host.submit("go")
    assert f"next `{A}` A." in told_in(workshop)
    await host.submit("/mode off")
    await host.submit("go")
    assert told_in(workshop) == ""


# ---- where it goes --------------------------------------------------------------------------------


async def test_forks_clones_and_resumed_sessions_have_plan_text_and_ticks(workshop: Workshop) -> None:
    host = await opened(workshop, [save(), tick(A), says("x"), *[says("y")] * 9])
    await host.submit("/mode build")
    await host.submit("go")
    for command in ("/clone", "/fork"):
        await host.submit(command)
        await host.submit("go")
        assert f"1/2 tasks done; next `{FIRST}`" in told_in(workshop)
        assert "# My plan" in told_in(workshop)
    target = host.agent.session.header.id
    await host.aclose()
    host = await opened(workshop, [says("x")], session=SessionChoice(kind="resume", target=target))
    assert "# My plan" in await say(host, "/plan view")
    assert f"✓ {A}" in await say(host, "/plan view")


async def test_a_branch_from_before_a_tick_does_not_have_it(workshop: Workshop) -> None:
    host = await opened(workshop, [save(), says("x"), tick(A), says("y")])
    await host.submit("go")
    before = host.agent.session.leaf_id
    await host.submit("go")
    assert "1/2" in await say(host, "/plan list")
    await host.submit(f"/tree {before}")
    assert "0/2" in await say(host, "/plan list")


async def test_a_text_that_is_gone_is_told_once_and_the_tasks_stay(workshop: Workshop) -> None:
    host = await opened(workshop, [save(), says("x"), says("y"), tick(A), says("z")])
    await host.submit("/mode build")
    await host.submit("go")
    stored(workshop)[0].unlink()
    await host.submit("go")
    await host.submit("go")
    assert sum("is gone" in text for text in workshop.told()) == 1
    assert "cannot be read" in told_in(workshop)
    assert f"next `{FIRST}`" in told_in(workshop)


async def test_a_plan_of_the_npm_package_gets_its_tasks_with_the_first_tick(workshop: Workshop) -> None:
    folder = Path.home() / ".pi" / "agent" / "plans" / "session-1"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "plan-1.md"
    path.write_text(PLAN)
    host = await opened(workshop, [tick(A), says("x")])
    data = {"event": "set", "planId": "plan-1", "path": str(path), "savedAt": 1_700_000_000_000, "at": 1}
    host.tree.record("workflow-plan", data)
    await host.submit("go")
    assert results(host)[0].details["progress"] == {"done": 1, "total": 2}
    assert "# My plan" in await say(host, "/plan view")
    path.unlink()


# ---- the command ----------------------------------------------------------------------------------


async def test_save_asks_the_model_and_complains_when_it_does_not(workshop: Workshop) -> None:
    host = await opened(workshop, [calls("ls"), save(), says("x"), says("no"), says("y")])
    await host.submit("/plan save")
    assert "`workflow_plan_save` once" in workshop.asked(0)
    assert len(entries(host, "workflow-plan")) == 2
    assert not any("did not save" in text for text in workshop.told())
    await host.submit("/plan save")
    await host.submit("go on")
    assert sum("did not save" in text for text in workshop.told()) == 1


@pytest.mark.parametrize("command", ["/plan save --last", "/plan save   --LAST"])
async def test_the_last_answer_can_be_saved_as_it_is(workshop: Workshop, command: str) -> None:
    host = await opened(workshop, [says(PLAN)])
    with pytest.raises(UserError, match="no answer"):
        await host.submit(command)
    await host.submit("go")
    assert "(2 tasks)" in await say(host, command)
    assert stored(workshop)[0].read_text() == PLAN.strip()
    assert len(workshop.model.seen) == 1


async def test_plans_are_listed_chosen_and_cleared(workshop: Workshop) -> None:
    host = await opened(workshop, [save("# One"), save("# Two"), says("x")])
    assert await say(host, "/plan list") == "This branch has no plan."
    assert "no plan" in await say(host, "/plan select")
    assert "no active plan" in await say(host, "/plan clear")
    await host.submit("go")
    one, two = (path.stem for path in stored(workshop))
    assert f"{two} (active)" in await say(host, "/plan")
    assert one in await say(host, f"/plan activate {one}")
    assert "# One" in await say(host, "/plan show")
    with pytest.raises(UserError, match="/plan list"):
        await host.submit("/plan select nope")
    with pytest.raises(UserError, match="save, select"):
        await host.submit("/plan burn")
    assert f"Active now: {two}" in await say(host, "/plan clear")
    await host.submit("/plan remove")
    assert await say(host, "/plan view") == "This branch has no active plan."
    assert len(stored(workshop)) == 2


async def test_a_person_chooses_and_confirms(workshop: Workshop) -> None:
    screen = RecordingScreen()
    host = await opened(workshop, [save("# One"), save("# Two"), says("x")], screen=screen)
    await host.submit("go")
    one, two = (path.stem for path in stored(workshop))
    screen.answers.extend([one, False, True])
    assert one in await say(host, "/plan select")
    assert await say(host, "/plan clear") == ""
    assert "off this branch" in await say(host, "/plan clear")
    assert f"{two} 0/0" in screen.statuses["modes", "workflow"]


async def test_completions_name_actions_and_plans(workshop: Workshop) -> None:
    host = await opened(workshop, [save(), says("x")])
    await host.submit("go")
    command = host.registry.commands.get("plan")
    assert command is not None
    assert command.complete is not None
    ctx = host.command_context("modes")
    assert [each.value for each in command.complete("s", ctx)] == ["save", "select"]
    assert [each.value for each in command.complete("select ", ctx)] == [f"select {stored(workshop)[0].stem}"]
    assert [each.value for each in command.complete("save ", ctx)] == ["save --last"]
    assert list(command.complete("view ", ctx)) == []


async def test_collecting_keeps_what_other_branches_and_sessions_show(workshop: Workshop) -> None:
    host = await opened(workshop, [says("x"), save("# Kept"), says("y"), says("z")])
    await host.submit("go")
    before = host.agent.session.leaf_id
    await host.submit("go")
    await host.submit(f"/tree {before}")
    await host.submit("/new")
    loose = workshop.home / "plans" / "loose-0123456789abcdef.md"
    loose.write_text("# Loose")
    for path in stored(workshop):
        os.utime(path, (1, 1))
    assert await say(host, "/plan collect") == "1 unused plans were deleted."
    assert [path.read_text() for path in stored(workshop)] == ["# Kept"]


async def test_a_start_collects_beside_the_session(workshop: Workshop) -> None:
    (workshop.home / "plans").mkdir()
    loose = workshop.home / "plans" / "loose-0123456789abcdef.md"
    loose.write_text("# Loose")
    os.utime(loose, (1, 1))
    with ThreadPoolExecutor(max_workers=1) as one_after_the_other:
        asyncio.get_running_loop().set_default_executor(one_after_the_other)
        host = await opened(workshop)
        await asyncio.to_thread(lambda: None)
        assert not loose.exists()
        await host.aclose()


# ---- requests -------------------------------------------------------------------------------------


async def test_other_extensions_save_tick_and_read(workshop: Workshop) -> None:
    host = await opened(workshop, [])
    assert await host.bus.request(CurrentPlan()) is None
    saved = await host.bus.request(SavePlan(PLAN))
    assert [task.id for task in saved.tasks] == [A, FIRST]
    ticked = await host.bus.request(TickTask(A, saved.id))
    assert ticked.already is False
    assert (await host.bus.request(TickTask(A))).already is True
    plan = await host.bus.request(CurrentPlan())
    assert plan is not None
    assert plan.body == PLAN
    assert plan.done == (A,)
    assert plan.next_task is not None
    assert plan.next_task.id == FIRST
    for bad in (SavePlan(" "), TickTask("nope"), TickTask(A, "other"), TickTask("")):
        with pytest.raises(RequestFailed):
            await host.bus.request(bad)


async def test_requests_before_the_session_has_started_fail(workshop: Workshop) -> None:
    host = await opened(workshop, start=False)
    with pytest.raises(RequestFailed, match="not started"):
        await host.bus.request(SavePlan(PLAN))


async def test_a_session_elsewhere_pins_its_plans(workshop: Workshop, tmp_path: Path) -> None:
    from branchwork.session.tree import Session

    path = tmp_path / "elsewhere"
    path.mkdir()
    session = Session.create(cwd=str(workshop.project), directory=path, clock=workshop.clock, ids=workshop.ids)
    host = await opened(workshop, given_session=session)
    assert isinstance(host, Host)
    await host.bus.request(SavePlan(PLAN))
    assert stored(workshop)[0].with_suffix(".pin").exists()
