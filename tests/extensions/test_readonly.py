"""Read-only means read-only: what is refused, who can switch it, and what the model is told of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from branchwork.agent.events import TextStreamed
from branchwork.agent.toolset import Effect, ToolArgs, ToolContext
from branchwork.errors import UserError
from branchwork.extensions import BUILTIN
from branchwork.extensions.readonly import ISSUE_TYPE, TOGGLE_TYPE, ReadOnly, ReadOnlyChanged, nudge_text
from branchwork.host.assembly import SessionChoice
from branchwork.host.extension import ExtensionAPI
from branchwork.host.host import Host
from branchwork.host.tool_decorator import tool
from branchwork.models.scripted import ScriptedModel, calls, ends, fails, says
from branchwork.session.entries import CustomEntry
from branchwork.testing.recording_ui import RecordingScreen
from tests.host.workshop import Workshop, say, texts


@pytest_asyncio.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    await made.close()


async def opened(workshop: Workshop, script: Any = (), **options: Any) -> Host:
    return await workshop.open(script, builtin=BUILTIN, **options)


def entries(host: Host, custom_type: str = TOGGLE_TYPE) -> list[Any]:
    found = [entry for entry in host.agent.session.branch().entries() if isinstance(entry, CustomEntry)]
    return [entry.data for entry in found if entry.custom_type == custom_type]


def nudged(workshop: Workshop, number: int = -1) -> str:
    """What one request said of read-only; empty when nothing."""
    last = workshop.model.seen[number].messages[-1]
    text = str(getattr(last, "content", "")) if getattr(last, "custom_type", "") == "context" else ""
    return text if "[readonly]" in text else ""


async def press(host: Host) -> None:
    shortcut = host.registry.shortcuts.get("ctrl+shift+r")
    assert shortcut is not None
    await shortcut.handler(host.command_context("readonly"))


def skill(workshop: Workshop, name: str, readonly: str | None) -> None:
    folder = workshop.home / "skills" / name
    folder.mkdir(parents=True)
    line = "" if readonly is None else f"readonly: {readonly}\n"
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: A skill.\n{line}---\nDo it.\n")


def template(workshop: Workshop, name: str, readonly: str) -> None:
    folder = workshop.home / "prompts"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(f"---\ndescription: A prompt.\nreadonly: {readonly}\n---\nDo it.\n")


class NoArgs(ToolArgs, frozen=True):
    pass


# ---- what is refused ------------------------------------------------------------------------------

CALLS = {
    "read": calls("read", path="a.txt"),
    "reading command": calls("bash", command="cat a.txt"),
    "plan": calls("workflow_plan_save", plan="# P"),
    "delegate": calls("delegate"),
    "write": calls("write", path="new.txt", content="x"),
    "edit": calls("edit", path="a.txt", edits=[{"oldText": "one", "newText": "two"}]),
    "writing command": calls("bash", command="echo x > new.txt"),
    "removing command": calls("bash", command="rm -rf a.txt"),
    "unknown writer": calls("writer"),
}
ALLOWED = {"read", "reading command", "plan", "delegate"}


def strangers(api: ExtensionAPI) -> None:
    @tool(effects={Effect.WRITE})
    async def writer(args: NoArgs, ctx: ToolContext) -> str:
        """A tool that writes and does not say where."""
        return "ran"

    @tool(effects={Effect.DELEGATE})
    async def delegate(args: NoArgs, ctx: ToolContext) -> str:
        """A tool that starts a reader."""
        return "ran"

    api.add_tool(writer)
    api.add_tool(delegate)


@pytest.mark.parametrize("switch", ["flag", "command", "entry"])
async def test_each_tool_in_read_only(workshop: Workshop, switch: str) -> None:
    workshop.add("strangers", strangers)
    (workshop.project / "a.txt").write_text("one\n")
    names = list(CALLS)
    script = [step for name in names for step in (CALLS[name], says("x"))]
    host = await opened(workshop, script, flags=("--readonly",) if switch == "flag" else ())
    if switch == "command":
        await host.submit("/readonly on")
    elif switch == "entry":
        host.tree.record(TOGGLE_TYPE, {"enabled": True})
    allowed = set()
    for name in names:
        await host.submit("go")
        if "Readonly mode" not in texts(host)[-1]:
            allowed.add(name)
    assert allowed == ALLOWED
    assert (workshop.project / "a.txt").read_text() == "one\n"
    assert not (workshop.project / "new.txt").exists()
    refusal = next(text for text in texts(host) if "new.txt" in text)
    assert "Do not try another way of writing" in refusal


async def test_switched_off_again_everything_passes(workshop: Workshop) -> None:
    host = await opened(workshop, [calls("write", path="new.txt", content="x"), says("x")])
    await host.submit("/readonly on")
    await host.submit("/readonly off")
    await host.submit("go")
    assert (workshop.project / "new.txt").exists()


async def test_it_only_narrows_what_a_mode_leaves(workshop: Workshop) -> None:
    host = await opened(workshop, [calls("write", path="docs/design/x.md", content="x"), says("x")])
    await host.submit("/mode design")
    await host.submit("/readonly on")
    await host.submit("go")
    assert "Readonly mode" in texts(host)[0]
    await host.submit("/mode build")
    assert host.posture().read_only


async def test_a_switch_during_a_run_counts_for_its_next_call(workshop: Workshop) -> None:
    hosts: list[Host] = []

    def register(api: ExtensionAPI) -> None:
        @tool(effects=())
        async def switch(args: NoArgs, ctx: ToolContext) -> str:
            """The person types while the run goes on."""
            return (await hosts[0].submit("/readonly on")).say or ""

        api.add_tool(switch)

    workshop.add("switcher", register)
    hosts.append(await opened(workshop, [calls("switch"), calls("write", path="b.txt", content="x"), says("x")]))
    await hosts[0].submit("go")
    assert not (workshop.project / "b.txt").exists()
    assert [bool(nudged(workshop, number)) for number in range(3)] == [False, True, False]


# ---- switching ------------------------------------------------------------------------------------


async def test_the_command_toggles_for_a_person_and_shows_it(workshop: Workshop) -> None:
    screen = RecordingScreen()
    host = await opened(workshop, screen=screen)
    await host.submit("/readonly")
    assert screen.statuses["readonly", "readonly"] == "🔒 readonly"
    await host.submit("/readonly")
    assert ("readonly", "readonly") not in screen.statuses
    assert entries(host) == [{"enabled": True}, {"enabled": False}]


async def test_without_a_person_only_a_clear_word_switches(workshop: Workshop) -> None:
    host = await opened(workshop)
    assert "is off" in await say(host, "/readonly")
    await press(host)
    assert entries(host) == []
    await host.submit("/readonly on")
    await host.submit("/readonly on")
    assert entries(host) == [{"enabled": True}]
    with pytest.raises(UserError, match="on or off"):
        await host.submit("/readonly maybe")


async def test_the_key_works_between_runs_only(workshop: Workshop) -> None:
    hosts: list[Host] = []

    def register(api: ExtensionAPI) -> None:
        @tool(effects=())
        async def key(args: NoArgs, ctx: ToolContext) -> str:
            """The person presses the key while the run goes on."""
            await press(hosts[0])
            return "pressed"

        api.add_tool(key)

    workshop.add("presser", register)
    hosts.append(await opened(workshop, [calls("key"), says("x")], screen=RecordingScreen()))
    await hosts[0].submit("go")
    assert entries(hosts[0]) == []
    await press(hosts[0])
    assert entries(hosts[0]) == [{"enabled": True}]


@pytest.mark.parametrize(
    ("recorded", "flags", "wanted"),
    [([{"enabled": False}, {"enabled": True}], (), True), ([{"enabled": False}], ("--readonly",), False),
     ([None], (), False), ([{"enabled": True}, None], (), False), ([{"enabled": 1}], (), False), ([], (), False),
     ([], ("--readonly",), True), ([{"enabled": True}, "junk"], (), True)],
)  # fmt: skip
async def test_the_newest_entry_wins_over_the_flag(
    workshop: Workshop, recorded: list[Any], flags: tuple[str, ...], wanted: bool
) -> None:
    host = await opened(workshop, [says("x")], flags=flags)
    for data in recorded:
        host.tree.record(TOGGLE_TYPE, data)
    await host.submit("go")
    target = host.agent.session.header.id
    await host.aclose()
    host = await opened(workshop, flags=flags, session=SessionChoice(kind="resume", target=target))
    assert host.posture().read_only is wanted
    assert await host.bus.request(ReadOnly()) is wanted
    if recorded == [{"enabled": False}]:
        assert any("--readonly has no effect" in text for text in workshop.told())


async def test_another_branch_has_its_own_state(workshop: Workshop) -> None:
    heard: list[bool] = []
    workshop.add("listener", lambda api: api.subscribe(ReadOnlyChanged, lambda note: heard.append(note.enabled)))
    host = await opened(workshop, [says("a"), says("b"), says("c")], screen=RecordingScreen())
    await host.submit("go")
    before = host.agent.session.leaf_id
    await host.submit("/readonly on")
    await host.submit("go")
    await host.submit(f"/tree {before}")
    assert not host.posture().read_only
    await host.submit("go")
    assert "is off" in nudged(workshop)
    assert heard == [True, False]


# ---- what the model is told -----------------------------------------------------------------------


async def test_a_change_is_told_with_one_request(workshop: Workshop) -> None:
    host = await opened(workshop, [says("a"), calls("ls"), says("b"), says("c"), says("d")])
    await host.submit("go")
    await host.submit("/readonly on")
    await host.submit("go")
    await host.submit("/readonly off")
    await host.submit("go")
    found = [nudged(workshop, number) for number in range(4)]
    assert [bool(text) for text in found] == [False, True, False, True]
    assert "mode is on" in found[1]
    assert "mode is off" in found[3]
    assert "Context at" not in found[3]
    assert "[readonly]" not in workshop.asked(2)


async def test_a_request_that_fails_does_not_lose_the_note(workshop: Workshop) -> None:
    host = await opened(workshop, [fails("rejected", message="no"), says("b")])
    await host.submit("/readonly on")
    await host.submit("go")
    await host.submit("go")
    assert [bool(nudged(workshop, number)) for number in range(2)] == [True, True]


async def test_a_change_while_a_reply_arrives_is_told_with_the_request_after_it(workshop: Workshop) -> None:
    arriving = asyncio.Event()
    model = ScriptedModel([says("Let me see. " * 50) + calls("ls"), says("x")], delay_s=0.001, clock=workshop.clock)
    host = await opened(workshop, given_model=model)
    workshop.model = model
    host.subscribe(lambda event: arriving.set() if isinstance(event, TextStreamed) else None)
    running = asyncio.ensure_future(host.submit("go"))
    await asyncio.wait_for(arriving.wait(), 5)
    await host.submit("/readonly on")
    await running
    assert [bool(nudged(workshop, number)) for number in range(2)] == [False, True]


async def test_a_start_with_the_flag_and_a_resume_are_told_once(workshop: Workshop) -> None:
    host = await opened(workshop, [says("a"), says("b")], flags=("--readonly",))
    await host.submit("go")
    await host.submit("go")
    assert [bool(nudged(workshop, number)) for number in range(2)] == [True, False]
    await host.submit("/readonly off")
    await host.submit("/readonly on")
    target = host.agent.session.header.id
    await host.aclose()
    host = await opened(workshop, [says("a"), says("b")], session=SessionChoice(kind="resume", target=target))
    await host.submit("go")
    await host.submit("go")
    assert [bool(nudged(workshop, number)) for number in range(2)] == [True, False]


async def test_the_note_about_the_end_says_how_full_the_window_is(workshop: Workshop) -> None:
    host = await opened(workshop, [says("a") + ends(input=79_000, output=1_000), says("b")])
    await host.submit("/readonly on")
    await host.submit("go")
    await host.submit("/readonly off")
    await host.submit("go")
    assert "Context at 40%" in nudged(workshop)
    assert "handoff" not in nudged(workshop)


def test_the_wording_of_the_notes() -> None:
    assert nudge_text(True, 90, can_hand_off=True).startswith("[readonly]")
    assert "refused" in nudge_text(True, 90, can_hand_off=True)
    assert "Context" not in nudge_text(False, 29, can_hand_off=True)
    assert "Context" not in nudge_text(False, None, can_hand_off=True)
    assert "Context at 30%. If research is over" in nudge_text(False, 30, can_hand_off=True)


# ---- frontmatter ----------------------------------------------------------------------------------


async def test_a_skill_that_wants_read_only_gets_it_with_and_without_a_person(workshop: Workshop) -> None:
    skill(workshop, "look", "true")
    for screen in (None, RecordingScreen()):
        host = await opened(workshop, [calls("write", path="a.txt", content="x"), says("x")], screen=screen)
        await host.submit("/skill:look at it")
        assert "Readonly mode" in texts(host)[0]
        assert entries(host) == [{"enabled": True}]


async def test_a_template_can_switch_too_and_only_a_person_is_let_out(workshop: Workshop) -> None:
    template(workshop, "begin", "false")
    template(workshop, "look", "true")
    host = await opened(workshop, [says("x")], flags=("--readonly",))
    await host.submit("/begin")
    assert entries(host) == []
    assert host.posture().read_only
    screen = RecordingScreen()
    host = await opened(workshop, [says("x"), says("y"), says("z")], screen=screen)
    await host.submit("/begin")
    assert entries(host) == []
    await host.submit("/look")
    await host.submit("/begin")
    assert entries(host) == [{"enabled": True}, {"enabled": False}]
    assert any("/look asks for it" in text for _, _, text in screen.notices)


@pytest.mark.parametrize("value", ['"yes"', "1", "[true]", "yes", "null"])
async def test_a_value_that_is_no_boolean_is_recorded_and_told(workshop: Workshop, value: str) -> None:
    skill(workshop, "odd", value)
    host = await opened(workshop, [says("x"), says("y")])
    await host.submit("/skill:odd")
    issue = {"kind": "invalid-readonly-value", "filePath": str(workshop.home / "skills" / "odd" / "SKILL.md")}
    assert entries(host, ISSUE_TYPE) == [{"name": "odd", "type": "skill", "issue": issue}]
    assert any("/skill:odd" in text and "SKILL.md" in text for text in workshop.told())
    assert entries(host) == []


async def test_a_skill_without_the_key_and_plain_text_change_nothing(workshop: Workshop) -> None:
    skill(workshop, "plain", None)
    host = await opened(workshop, [says("x"), says("y"), says("z")])
    for text in ("/skill:plain", "/etc/hosts is a file", "skill:plain"):
        await host.submit(text)
    assert entries(host) == []
    assert entries(host, ISSUE_TYPE) == []


async def test_what_extensions_send_does_not_switch(workshop: Workshop) -> None:
    skill(workshop, "look", "true")
    host = await opened(workshop, [says("x")])
    await host.submit("/skill:look", source="extension")
    assert entries(host) == []


async def test_during_a_run_true_counts_at_once_and_false_with_the_next_run(workshop: Workshop) -> None:
    skill(workshop, "look", "true")
    skill(workshop, "begin", "false")
    hosts: list[Host] = []

    def register(api: ExtensionAPI) -> None:
        @tool(effects=())
        async def typed(args: NoArgs, ctx: ToolContext) -> str:
            """The person types while the run goes on."""
            await hosts[0].submit("/skill:look")
            await hosts[0].submit("/skill:begin")
            return "typed"

        api.add_tool(typed)

    workshop.add("typist", register)
    script = [calls("typed"), calls("write", path="a.txt", content="x"), says("x"), says("y"), says("z")]
    hosts.append(await opened(workshop, script, screen=RecordingScreen()))
    await hosts[0].submit("go")
    assert not (workshop.project / "a.txt").exists()
    assert entries(hosts[0]) == [{"enabled": True}]
    await hosts[0].submit("go")
    assert entries(hosts[0]) == [{"enabled": True}, {"enabled": False}]
