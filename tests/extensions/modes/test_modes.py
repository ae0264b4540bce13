"""Modes in a running session: what the model is told, what it may do, and where the mode is kept."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext
from branchwork.errors import UserError
from branchwork.extensions import BUILTIN
from branchwork.extensions.modes.requests import CurrentMode, WorkflowChanged
from branchwork.extensions.modes.state import MODES
from branchwork.host.assembly import SessionChoice
from branchwork.host.extension import ExtensionAPI
from branchwork.host.host import Host
from branchwork.host.tool_decorator import tool
from branchwork.models.scripted import calls, says
from branchwork.session.entries import CustomEntry, CustomMessageEntry
from branchwork.testing.recording_ui import RecordingScreen
from tests.host.workshop import Workshop, say, texts


@pytest_asyncio.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    await made.close()


async def opened(workshop: Workshop, script: Any = (), **options: Any) -> Host:
    return await workshop.open(script, builtin=BUILTIN, **options)


def entries(host: Host, custom_type: str) -> list[Any]:
    """The data of all custom entries of a type, with their times left out."""
    found = [entry for entry in host.agent.session.branch().entries() if isinstance(entry, CustomEntry)]
    return [{**entry.data, "at": 0} for entry in found if entry.custom_type == custom_type]


def announcements(host: Host) -> list[CustomMessageEntry]:
    return [entry for entry in host.agent.session.branch().entries() if isinstance(entry, CustomMessageEntry)]


def told_in(workshop: Workshop, number: int = -1) -> str:
    """The mode text of one request; empty without one."""
    last = workshop.model.seen[number].messages[-1]
    return str(getattr(last, "content", "")) if getattr(last, "custom_type", "") == "context" else ""


# ---- the command ----------------------------------------------------------------------------------


async def test_setting_a_mode_is_one_entry_and_no_message(workshop: Workshop) -> None:
    host = await opened(workshop)
    assert (await say(host, "/mode planning")).startswith("Mode: Plan")
    assert entries(host, "workflow-mode-set") == [{"mode": "plan", "at": 0}]
    assert announcements(host) == []


async def test_a_mode_that_there_is_not_changes_nothing(workshop: Workshop) -> None:
    host = await opened(workshop)
    with pytest.raises(UserError, match="off, discuss, plan, build, review, design"):
        await host.submit("/mode zzz")
    assert entries(host, "workflow-mode-set") == []


async def test_without_a_name_the_modes_are_listed_or_chosen_from(workshop: Workshop) -> None:
    host = await opened(workshop)
    answer = await say(host, "/mode")
    assert all(mode in answer for mode in MODES)
    assert "* off" in answer
    screen = RecordingScreen("design", None)
    host = await opened(workshop, screen=screen)
    assert "Design" in await say(host, "/mode")
    assert await say(host, "/mode") == ""
    assert entries(host, "workflow-mode-set") == [{"mode": "design", "at": 0}]
    assert screen.statuses["modes", "workflow"] == "Mode: Design · Plan: none · Style: terse"


async def test_completions_have_descriptions(workshop: Workshop) -> None:
    host = await opened(workshop)
    command = host.registry.commands.get("mode")
    assert command is not None
    assert command.complete is not None
    found = command.complete("d", host.command_context("modes"))
    assert [each.value for each in found] == ["discuss", "design"]
    assert all(each.description for each in found)


# ---- what the model is told -----------------------------------------------------------------------


async def test_each_request_ends_with_the_mode_and_the_prompt_stays_as_it_is(workshop: Workshop) -> None:
    host = await opened(workshop, [calls("ls"), says("a"), says("b"), says("c"), says("d")])
    for mode in ("plan", "build", "review", "off"):
        await host.submit(f"/mode {mode}")
        await host.submit("go")
    told = [told_in(workshop, number) for number in range(5)]
    for text, label in zip(told, ("Plan", "Plan", "Build", "Review"), strict=False):
        assert text.startswith(f"[workflow-modes] Active workflow mode: {label}.")
    assert told[4] == ""
    assert len({seen.system for seen in workshop.model.seen}) == 1
    assert "Active workflow mode: Plan" not in workshop.asked(4)


async def test_leaving_is_said_once_and_stays_in_the_conversation(workshop: Workshop) -> None:
    host = await opened(workshop, [says("a"), says("b")])
    for mode in ("off", "plan", "off", "off"):
        await host.submit(f"/mode {mode}")
    (entry,) = announcements(host)
    assert entry.custom_type == "workflow-mode-transition"
    assert entry.display is False
    await host.submit("go")
    await host.submit("on")
    assert workshop.asked().count("Active workflow mode: OFF.") == 1


async def test_the_style_is_said_with_the_mode_and_can_be_changed(workshop: Workshop) -> None:
    host = await opened(workshop, [says("a"), says("b")])
    assert await say(host, "/style normal") == "Style: normal (inactive until a mode is set)"
    await host.submit("/mode build")
    await host.submit("go")
    assert "Style: normal" in told_in(workshop)
    assert await say(host, "/style") == "Style: terse"
    await host.submit("go")
    assert "Style: terse" in told_in(workshop)
    assert entries(host, "caveman-mode-state") == [{"enabled": False, "at": 0}, {"enabled": True, "at": 0}]
    with pytest.raises(UserError, match="terse and normal"):
        await host.submit("/style loud")


async def test_build_speaks_of_a_design_system_that_is_there(workshop: Workshop) -> None:
    host = await opened(workshop, [says("a"), says("b")])
    await host.submit("/mode build")
    await host.submit("go")
    assert "design system" not in told_in(workshop)
    (workshop.project / "docs" / "design").mkdir(parents=True)
    (workshop.project / "docs" / "design" / "manifest.json").write_text("broken")
    await host.submit("go")
    assert "has a design system" in told_in(workshop)


# ---- what it may do -------------------------------------------------------------------------------


class NoArgs(ToolArgs, frozen=True):
    pass


def stranger(name: str, *effects: Effect) -> Tool:
    @tool(name=name, effects=effects)
    async def run(args: NoArgs, ctx: ToolContext) -> str:
        """A tool that the program knows nothing else of."""
        return f"{name} ran"

    return run


STRANGERS = {
    "reads": (Effect.READ,),
    "writes": (Effect.WRITE,),
    "runs": (Effect.EXECUTE,),
    "calls_out": (Effect.NETWORK,),
    "asks_readers": (Effect.DELEGATE, Effect.READ),
    "hires": (Effect.DELEGATE, Effect.WRITE),
}
CALLS = {
    "read": calls("read", path="a.txt"),
    "ls": calls("ls"),
    "write": calls("write", path="new.txt", content="x"),
    "write-design": calls("write", path="docs/design/x.md", content="x"),
    "edit": calls("edit", path="a.txt", edits=[{"oldText": "one", "newText": "two"}]),
    "bash-reads": calls("bash", command="cat a.txt | wc -l"),
    "bash-writes": calls("bash", command="echo x > new.txt"),
    "bash-removes": calls("bash", command="ls\nrm a.txt"),
    "bash-network": calls("bash", command="curl http://127.0.0.1:9/"),
    **{name: calls(name) for name in STRANGERS},
}
READS = {"read", "ls", "bash-reads", "reads", "asks_readers"}
ALLOWED = {
    "off": set(CALLS),
    "build": set(CALLS),
    "discuss": READS,
    "plan": READS,
    "review": READS | {"calls_out"},
    "design": READS | {"write-design"},
}


@pytest.mark.parametrize("mode", ALLOWED)
async def test_each_tool_in_each_mode(workshop: Workshop, mode: str) -> None:
    def register(api: ExtensionAPI) -> None:
        for name, effects in STRANGERS.items():
            api.add_tool(stranger(name, *effects))

    workshop.add("strangers", register)
    (workshop.project / "a.txt").write_text("one\n")
    names = [name for name in CALLS if mode not in ("off", "build") or name != "bash-removes"]
    script = [step for name in names for step in (CALLS[name], says("x"))]
    host = await opened(workshop, script)
    await host.submit(f"/mode {mode}")
    allowed = set()
    for name in names:
        await host.submit("go")
        refused = ("Refused by", "blocked", "was active")
        if not any(word in texts(host)[-1] for word in refused):
            allowed.add(name)
    assert allowed == ALLOWED[mode] & set(names)
    if mode not in ("off", "build"):
        assert (workshop.project / "a.txt").read_text() == "one\n"
        assert not (workshop.project / "new.txt").exists()


async def test_a_switch_during_a_run_counts_for_its_next_call(workshop: Workshop) -> None:
    hosts: list[Host] = []

    def register(api: ExtensionAPI) -> None:
        @tool(effects=())
        async def switch(args: NoArgs, ctx: ToolContext) -> str:
            """The person types while the run goes on."""
            return (await hosts[0].submit("/mode plan")).say or ""

        api.add_tool(switch)

    workshop.add("switcher", register)
    write = calls("write", path="a.txt", content="x")
    hosts.append(await opened(workshop, [write, calls("switch"), calls("write", path="b.txt", content="x"), says("x")]))
    await hosts[0].submit("go")
    assert (workshop.project / "a.txt").exists()
    assert not (workshop.project / "b.txt").exists()
    assert "It counts from the next call on" in texts(hosts[0])[1]
    assert texts(hosts[0])[2].startswith("Refused by Plan mode")
    assert "Active workflow mode: Plan" in told_in(workshop)


async def test_leaving_a_mode_during_a_run_does_not_disturb_the_conversation(workshop: Workshop) -> None:
    hosts: list[Host] = []

    def register(api: ExtensionAPI) -> None:
        @tool(effects=())
        async def switch(args: NoArgs, ctx: ToolContext) -> str:
            """The person types while the run goes on."""
            return (await hosts[0].submit("/mode off")).say or ""

        api.add_tool(switch)

    workshop.add("switcher", register)
    hosts.append(await opened(workshop, [calls("switch"), calls("write", path="b.txt", content="x"), says("x")]))
    await hosts[0].submit("/mode plan")
    finished = (await hosts[0].submit("go")).finished
    assert finished is not None
    assert finished.end == "done"
    assert (workshop.project / "b.txt").exists()
    assert workshop.asked().count("Active workflow mode: OFF.") == 1


@pytest.mark.parametrize("answer", [True, False, None])
async def test_review_publishes_only_what_the_person_agrees_to(workshop: Workshop, answer: bool | None) -> None:
    (workshop.home / "settings.toml").write_text("[shell]\nprefix = 'gh() { echo \"published $*\"; }'\n")
    screen = RecordingScreen(answer)
    command = "gh pr comment 1 --body 'fine'"
    host = await opened(workshop, [calls("bash", command=command), says("x")], screen=screen)
    await host.submit("/mode review")
    await host.submit("go")
    assert command in str(screen.dialogs)
    assert ("did not agree" in texts(host)[0]) is (answer is not True)
    assert ("published pr comment 1" in texts(host)[0]) is (answer is True)


async def test_review_publishes_nothing_without_a_person(workshop: Workshop) -> None:
    script = [calls("bash", command="gh pr review 1 --approve"), calls("bash", command="gh api /user"), says("x")]
    host = await opened(workshop, script)
    await host.submit("/mode review")
    await host.submit("go")
    assert "did not agree" in texts(host)[0]
    assert "bash was blocked" in texts(host)[1]
    assert "Review mode was active" in texts(host)[1]
    assert "/mode" not in texts(host)[1]


async def test_design_asks_before_its_own_surface_is_widened(workshop: Workshop) -> None:
    path = workshop.project / "docs" / "design" / "manifest.json"
    path.parent.mkdir(parents=True)
    step = calls("write", path="@docs/design/manifest.json", content="{}")
    screen = RecordingScreen(False, True)
    host = await opened(workshop, [step, says("x"), step, says("x")], screen=screen)
    await host.submit("/mode design")
    await host.submit("go")
    assert not path.exists()
    assert "the person must agree" in texts(host)[0]
    await host.submit("go")
    assert len(screen.dialogs) == 2


# ---- where it is kept -----------------------------------------------------------------------------


async def test_a_resumed_session_has_its_mode(workshop: Workshop) -> None:
    host = await opened(workshop, [says("a")])
    await host.submit("/mode review")
    await host.submit("go")
    target = host.agent.session.header.id
    await host.aclose()
    host = await opened(workshop, [calls("write", path="a.txt", content="x"), says("b")],
                        session=SessionChoice(kind="resume", target=target))  # fmt: skip
    await host.submit("go")
    assert texts(host)[-1].startswith("Refused by Review mode")


async def test_another_branch_has_its_own_mode_and_a_fork_that_of_its_path(workshop: Workshop) -> None:
    host = await opened(workshop, [says("a"), says("b"), says("c")])
    await host.submit("go")
    before = host.agent.session.leaf_id
    await host.submit("/mode plan")
    await host.submit("go")
    later = host.agent.session.leaf_id
    assert "* plan" in await say(host, "/mode")
    await host.submit(f"/tree {before}")
    assert "* off" in await say(host, "/mode")
    await host.submit(f"/tree {later}")
    assert "* plan" in await say(host, "/mode")
    await host.submit("/clone")
    assert "* plan" in await say(host, "/mode")
    await host.submit("/new")
    assert "* off" in await say(host, "/mode")


async def test_the_flag_begins_in_a_mode_and_is_recorded(workshop: Workshop) -> None:
    host = await opened(workshop, [calls("write", path="a.txt", content="x"), says("b")], flags=("--mode=Planning",))
    assert entries(host, "workflow-mode-set") == [{"mode": "plan", "at": 0}]
    await host.submit("go")
    assert texts(host)[0].startswith("Refused by Plan mode")
    await host.submit("/mode build")
    await host.submit("/new")
    assert "* plan" in await say(host, "/mode")


async def test_the_flag_counts_before_the_session_has_started(workshop: Workshop) -> None:
    host = await opened(workshop, flags=("--mode=plan",), start=False)
    assert host.posture().read_only


async def test_a_flag_with_a_slip_opens_nothing(workshop: Workshop) -> None:
    host = await opened(workshop, [calls("write", path="a.txt", content="x"), says("b")], flags=("--mode=pln",))
    assert any("no such mode" in text for text in workshop.told())
    await host.submit("go")
    assert texts(host)[0].startswith("Refused by --mode=pln")
    await host.submit("/mode build")
    assert not host.posture().read_only


async def test_other_extensions_can_ask_and_are_told(workshop: Workshop) -> None:
    heard: list[WorkflowChanged] = []
    workshop.add("listener", lambda api: api.subscribe(WorkflowChanged, heard.append))
    host = await opened(workshop, [says("x")])
    await host.submit("/mode design")
    await host.submit("/mode design")
    assert await host.bus.request(CurrentMode()) == "design"
    assert [note.mode for note in heard] == ["off", "design"]


class Refusing:
    """A session in which speech cannot be stored."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def say(self, *args: Any, **options: Any) -> str:
        raise UserError("the disk is full")


async def test_a_mode_that_cannot_be_left_properly_is_not_left(workshop: Workshop) -> None:
    from branchwork.extensions.modes.plans import Workflow
    from tests.extensions.modes.test_state import Kit

    kit = Kit()

    class Context:
        tree: Any = Refusing(kit.tree)

        def flag(self, name: str) -> bool:
            return False

    kit.tree.record("workflow-mode-set", {"mode": "plan"})
    workflow, ctx = Workflow(kit.states), Context()
    with pytest.raises(UserError, match="full"):
        workflow.set_mode(ctx, "off")  # type: ignore[arg-type]
    assert workflow.mode(ctx) == "plan"  # type: ignore[arg-type]
    assert [node.custom_type for node in kit.tree.branch().nodes] == ["workflow-mode-set"] * 3
