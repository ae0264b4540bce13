"""Going to another session, and reloading: what is told, what is kept, what is gone."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from branchwork.agent.events import Diagnosed, SessionOpened
from branchwork.host import points
from branchwork.host.bus import NoOwner, Note, Request
from branchwork.host.extension import ExtensionAPI
from branchwork.host.host import Host
from branchwork.host.ui import lines
from branchwork.models.scripted import calls, says
from branchwork.session.entries import CustomEntry, MessageEntry, ToolResultMessage, UserMessage
from branchwork.session.operations import session_directory
from branchwork.session.tree import Session
from branchwork.testing.recording_ui import RecordingScreen, Stays
from branchwork.testing.script import says as server_says
from branchwork.testing.server import FakeModelServer
from tests.host.workshop import PARTS, Workshop, echo, say, texts

MODELS = (
    '[providers.local]\napi = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
    '[[providers.local.models]]\nid = "m"\nthinking = ["low", "high"]\n'
)


def answering(request: Any) -> Any:
    return says("x")


def watcher(seen: list[str]) -> Callable[[ExtensionAPI], None]:
    def extension(api: ExtensionAPI) -> None:
        api.observe(points.SESSION_STARTED, lambda event, ctx: seen.append(f"started {event.reason} {event.previous}"))
        api.observe(points.SESSION_ENDING, lambda event, ctx: seen.append(f"ending {event.reason}"))

    return extension


async def test_each_way_to_another_session_tells_its_reason_and_where_it_comes_from(workshop: Workshop) -> None:
    seen: list[str] = []
    workshop.add("watcher", watcher(seen))
    host = await workshop.open(answering)
    await host.submit("hello")
    first = host.agent.session.path
    assert first is not None
    for command, reason in (
        ("/new", "new"),
        (f"/resume {first}", "resume"),
        ("/fork", "fork"),
        ("/clone", "fork"),
        ("/reload", "reload"),
    ):
        seen.clear()
        before = None if command == "/reload" else host.agent.session.path
        await say(host, command)
        assert seen == [f"ending {reason}", f"started {reason} {before}"]
    seen.clear()
    await host.aclose()
    await host.aclose()
    assert seen == ["ending quit"]


async def test_every_session_is_announced_on_the_one_stream_with_rising_numbers(workshop: Workshop) -> None:
    host = await workshop.open(answering)
    await host.submit("hello")
    await say(host, "/new")
    await say(host, "/reload")
    opened = workshop.of(SessionOpened)
    assert [event.resumed for event in opened] == [False, False, False]
    assert len({event.session_id for event in opened}) == 2
    numbers = [event.seq for event in workshop.events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_what_an_extension_writes_at_the_end_of_a_loading_is_there_in_the_next(workshop: Workshop) -> None:
    def extension(api: ExtensionAPI) -> None:
        api.observe(points.SESSION_ENDING, lambda _, ctx: ctx.tree.say("bye", "So long."))

    workshop.add("polite", extension)
    with FakeModelServer(server_says("ok")) as server:
        (workshop.home / "models.toml").write_text(MODELS.replace("http://127.0.0.1:9/v1", server.openai_url))
        host = await workshop.open(answering)
        await say(host, "/model local/m")
        await host.submit("hello")
        await say(host, "/reload")
        assert "extension bye" in await say(host, "/context")
        await host.submit("again")
        await host.aclose()
        assert "So long." in repr(server.requests[-1].body)


async def test_a_session_that_cannot_be_opened_leaves_everything_as_it_is(workshop: Workshop) -> None:
    seen: list[str] = []
    workshop.add("watcher", watcher(seen))
    host = await workshop.open(answering)
    await host.submit("hello")
    folder = workshop.home.parent / "elsewhere"
    folder.mkdir()
    gone = session_in(workshop, folder)
    folder.rmdir()
    seen.clear()
    session = host.agent.session
    assert "is gone" in await say(host, f"/resume {gone}")
    assert host.agent.session is session
    assert seen == []
    assert (await host.submit("still there?")).kind == "ran"


async def test_a_new_session_after_a_resume_is_in_the_folder_of_the_resumed_one(workshop: Workshop) -> None:
    folder = workshop.home.parent / "elsewhere"
    folder.mkdir()
    path = session_in(workshop, folder)
    host = await workshop.open(answering)
    await say(host, f"/resume {path}")
    await say(host, "/new")
    assert host.cwd == folder
    assert host.agent.session.path is not None
    assert host.agent.session.path.parent == path.parent


def session_in(workshop: Workshop, folder: Path) -> Path:
    session = Session.create(
        cwd=str(folder), directory=session_directory(workshop.home, str(folder)), clock=workshop.clock, ids=workshop.ids
    )
    session.append(MessageEntry(message=UserMessage(content="x", timestamp=0)))
    path = session.path
    session.close()
    assert path is not None
    return path


async def test_settings_that_break_under_a_running_program_do_not_end_it(workshop: Workshop) -> None:
    workshop.add("parrot", lambda api: api.add_tool(echo))
    host = await workshop.open(answering, tools=("read", "echo"))
    (workshop.extensions / "parrot.py").unlink()
    (workshop.home / "settings.toml").write_text("this is no TOML")
    await say(host, "/reload")
    assert [tool.name for tool in host.agent.tools] == ["read"]
    assert any("echo" in text for text in workshop.told("tools"))
    assert any("settings.toml" in text for text in workshop.told("settings"))
    assert (await host.submit("hello")).kind == "ran"


async def test_model_and_thinking_stay_over_a_reload_and_a_new_session(workshop: Workshop) -> None:
    (workshop.home / "models.toml").write_text(MODELS)
    host = await workshop.open(answering)
    await say(host, "/model local/m:high")
    for command in ("/reload", "/new", "/reload"):
        await say(host, command)
        assert await say(host, "/model") == "local/m, thinking high"


async def test_a_resumed_session_has_its_own_model_and_thinking(workshop: Workshop) -> None:
    host = await workshop.open(answering)
    await say(host, "/thinking low")
    await host.submit("hello")
    path = host.agent.session.path
    await say(host, "/new")
    await say(host, "/thinking high")
    await say(host, f"/resume {path}")
    assert host.agent.thinking == "low"


def chooser(api: ExtensionAPI) -> None:
    async def only(arguments: str, ctx: Any) -> str:
        ctx.choose_tools(tuple(arguments.split()))
        return ", ".join(ctx.tools)

    api.add_command("only", only, description="Choose tools")


async def test_chosen_tools_follow_the_branch_and_stay_over_reload_resume_and_fork(workshop: Workshop) -> None:
    path = workshop.add("chooser", chooser)
    host = await workshop.open(answering)
    everything = {tool.name for tool in host.agent.tools}
    await host.submit("first")
    before = host.tree.leaf_id
    assert await say(host, "/only read ls nothing") == "read, ls"
    await host.submit("second")
    assert {tool.name for tool in workshop.model.seen[-1].tools} == {"read", "ls"}
    for command in ("/reload", "/fork"):
        await say(host, command)
        assert {tool.name for tool in host.agent.tools} == {"read", "ls"}, command
    await say(host, f"/tree {before}")
    assert {tool.name for tool in host.agent.tools} == everything
    session = host.agent.session.path
    await say(host, "/new")
    assert {tool.name for tool in host.agent.tools} == everything
    await say(host, "/only read")
    await host.submit("third")
    third = host.agent.session.path
    await say(host, f"/resume {session}")
    assert {tool.name for tool in host.agent.tools} == everything
    await say(host, f"/resume {third}")
    assert {tool.name for tool in host.agent.tools} == {"read"}
    path.unlink()
    await say(host, "/reload")
    assert {tool.name for tool in host.agent.tools} == everything, "nobody could take the choice back"
    assert any("chooser is not loaded" in text for text in workshop.told("tools"))


async def test_choosing_tools_never_goes_beyond_what_was_asked_for_at_the_start(workshop: Workshop) -> None:
    workshop.add("chooser", chooser)
    host = await workshop.open(tools=("read", "ls"))
    assert await say(host, "/only bash write read") == "read"
    await say(host, "/only read")
    choices = [entry for entry in host.tree.branch().entries() if isinstance(entry, CustomEntry)]
    assert len(choices) == 1, "an unchanged choice is recorded once"


class Ask(Request[str], frozen=True):
    pass


class Told(Note, frozen=True):
    pass


async def test_bus_dialogs_status_and_widgets_of_an_extension_end_with_its_loading(workshop: Workshop) -> None:
    heard: list[int] = []

    def extension(api: ExtensionAPI) -> None:
        api.serve(Ask, lambda _: "yes")
        api.subscribe(Told, lambda _: heard.append(1))

        def show(_: Any, ctx: Any) -> None:
            ctx.ui.status("key", "busy")
            ctx.ui.widget("key", lines("a\nb"))

        api.observe(points.SESSION_STARTED, show)

    path = workshop.add("shower", extension)
    screen = RecordingScreen()
    host = await workshop.open(screen=screen)
    old = host.bus
    assert await host.bus.request(Ask()) == "yes"
    assert (len(screen.statuses), len(screen.widgets)) == (1, 1)
    await say(host, "/reload")
    assert (len(screen.statuses), len(screen.widgets)) == (1, 1)
    host.bus.publish(Told())
    old.publish(Told())
    assert heard == [1]
    path.unlink()
    await say(host, "/reload")
    assert (len(screen.statuses), len(screen.widgets)) == (0, 0)
    with pytest.raises(NoOwner):
        await host.bus.request(Ask())


async def test_an_open_dialog_is_closed_by_the_end_of_its_extension(workshop: Workshop) -> None:
    answers: list[bool] = []
    tasks: list[Any] = []

    def extension(api: ExtensionAPI) -> None:
        async def ask(ctx: Any) -> None:
            answers.append(await ctx.ui.confirm("Sure?", "Really?", default=True))

        api.observe(points.SESSION_STARTED, lambda _, ctx: tasks.append(asyncio.ensure_future(ask(ctx))))

    workshop.add("asker", extension)
    screen = RecordingScreen(Stays(), Stays())
    host = await workshop.open(screen=screen)
    await host.submit("/help")
    for _ in range(10):  # the dialog's own tasks
        await asyncio.sleep(0)
    assert screen.visible
    await host.aclose()
    await tasks[0]
    assert answers == [False]
    assert screen.visible == []


async def test_without_a_person_every_dialog_is_answered_no_and_notes_are_told_each_time(workshop: Workshop) -> None:
    answers: list[Any] = []

    async def ask(arguments: str, ctx: Any) -> None:
        answers.append(await ctx.ui.confirm("Sure?", "Really?", default=True))
        answers.append(await ctx.ui.input("Name?"))
        ctx.ui.notify("Asked.", "warning")

    workshop.add("asker", lambda api: api.add_command("ask", ask, description="Ask"))
    host = await workshop.open()
    await host.submit("/ask")
    await host.submit("/ask")
    assert answers == [False, None, False, None]
    assert [event.message for event in workshop.of(Diagnosed) if event.source == "asker"] == ["Asked.", "Asked."]


async def test_nothing_of_twenty_loadings_is_left_but_the_last(workshop: Workshop) -> None:
    ringing = calls("ring", text="a")
    agents: list[weakref.ref[Any]] = []
    contexts: list[weakref.ref[Any]] = []
    modules: list[weakref.ref[Any]] = []

    def note(host: Host) -> None:
        agents.append(weakref.ref(host.agent))

    def keep(ctx: Any, function: Any = None) -> None:
        contexts.append(weakref.ref(ctx))
        modules.append(weakref.ref(function))

    key = f"{workshop.home}:keep"
    PARTS[key] = keep
    workshop.write(
        "everything",
        "from msgspec import Struct\n"
        "from branchwork import ToolArgs, ToolContext, points, tool, Note\n"
        "from tests.host.workshop import PARTS\n"
        "class Args(ToolArgs, frozen=True):\n    text: str\n"
        "class Change(Struct, frozen=True):\n    n: int\n"
        "class Rang(Note, frozen=True):\n    pass\n"
        "@tool(effects=())\nasync def ring(args: Args, ctx: ToolContext) -> str:\n    'Ring.'\n    return args.text\n"
        "async def bell(arguments, ctx):\n    STATE.record(ctx.tree, Change(n=1))\n"
        f"def started(event, ctx):\n    PARTS[{key!r}](ctx, bell)\n"
        "def extension(api):\n    global STATE\n"
        "    STATE = api.branch_state(0, Change, lambda n, change: n + change.n)\n"
        "    api.add_tool(ring)\n    api.add_command('bell', bell, description='x')\n"
        "    api.add_section('bell', lambda ctx: 'Bells.')\n"
        "    api.add_context(lambda ctx: str(STATE.read(ctx.tree)))\n"
        "    api.observe(points.SESSION_STARTED, started)\n    api.subscribe(Rang, print)\n",
    )
    host = await workshop.open(
        lambda request: says("x") if isinstance(request.transcript.messages[-1], ToolResultMessage) else ringing
    )
    for _ in range(20):
        note(host)
        await host.submit("/bell")
        await host.submit("hello")
        await say(host, "/reload")
    workshop.events.clear()
    gc.collect()
    assert texts(host)
    assert len(contexts) == 21
    assert sum(ref() is not None for ref in agents) == 0
    assert sum(ref() is not None for ref in contexts) <= 1
    assert sum(ref() is not None for ref in modules) <= 1
