"""An extension that misbehaves cannot stop or silently change a run, and is named."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from branchwork.agent.events import ToolStarted
from branchwork.agent.toolset import ToolContext
from branchwork.errors import UserError
from branchwork.host import points
from branchwork.host.context import Stale
from branchwork.host.extension import ExtensionAPI
from branchwork.host.points import Decide, Observe, Transform
from branchwork.host.tool_decorator import tool
from branchwork.models.scripted import calls, says
from tests.host.workshop import EchoArgs, Workshop, echo, say, texts

BUDGET = 0.05


class Evil(BaseException):
    pass


def raiser(error: BaseException) -> Callable[..., Any]:
    def handler(*_: Any) -> None:
        raise error

    return handler


def spins(*_: Any) -> None:
    while True:
        pass


def spins_and_swallows(*_: Any) -> None:
    while True:
        try:
            while True:
                pass
        except Exception:  # noqa: BLE001 - what a careless author writes
            continue


async def waits(*_: Any) -> None:
    await asyncio.Event().wait()


async def waits_whatever_comes(*_: Any) -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def closes_stdout(*_: Any) -> None:
    sys.stdout.close()


HOSTILE: dict[str, Callable[..., Any]] = {
    "raises": raiser(ValueError("no")),
    "exits": raiser(SystemExit(3)),
    "cancels": raiser(asyncio.CancelledError()),
    "raises what is no Exception": raiser(Evil("boo")),
    "spins": spins,
    "spins and swallows": spins_and_swallows,
    "waits": waits,
    "waits whatever comes": waits_whatever_comes,
    "returns rubbish": lambda *_: 7,
}


def everywhere(handler: Callable[..., Any]) -> Callable[[ExtensionAPI], None]:
    def extension(api: ExtensionAPI) -> None:
        for point in points.ALL:
            match point:
                case Observe():
                    api.observe(point, handler, budget=BUDGET)
                case Transform():
                    api.transform(point, handler, budget=BUDGET)
                case Decide():
                    if point is not points.TOOL_CALL:
                        api.decide(point, handler, budget=BUDGET)

    return extension


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_handler_at_every_point_changes_nothing_and_is_named(workshop: Workshop, name: str) -> None:
    workshop.add("evil", everywhere(HOSTILE[name]))
    workshop.add("good", lambda api: api.add_tool(echo))
    host = await workshop.open([calls("echo", text="a"), says("The answer.")])
    submitted = await host.submit("hello")
    assert submitted.finished is not None
    assert submitted.finished.end == "done"
    assert texts(host) == ["a"]
    assert "hello" in workshop.asked(0)
    refused = await say(host, "/new")
    assert "evil" in refused, "a veto that fails counts as a veto"
    told = workshop.told("evil")
    assert any(text.startswith("input") for text in told)
    assert len(told) == len(set(told))


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_guard_that_fails_refuses_the_call_and_the_run_goes_on(workshop: Workshop, name: str) -> None:
    def extension(api: ExtensionAPI) -> None:
        api.add_tool(echo)
        api.decide(points.TOOL_CALL, HOSTILE[name], budget=BUDGET)

    workshop.add("evil", extension)
    host = await workshop.open([calls("echo", text="a"), says("Understood.")])
    submitted = await host.submit("go")
    assert submitted.finished is not None
    assert submitted.finished.end == "done"
    assert workshop.of(ToolStarted) == []
    assert "refused, because extension evil" in texts(host)[0]


@pytest.mark.parametrize("name", ["raises", "exits", "cancels", "raises what is no Exception", "returns rubbish"])
async def test_a_tool_that_misbehaves_is_an_error_the_model_reads(workshop: Workshop, name: str) -> None:
    @tool(effects=())
    async def evil(args: EchoArgs, ctx: ToolContext) -> Any:
        """Misbehave."""
        return HOSTILE[name]()

    def extension(api: ExtensionAPI) -> None:
        api.add_tool(evil)
        api.add_tool(echo)

    workshop.add("evil", extension)
    host = await workshop.open([calls("evil", text="a") + calls("echo", text="b"), says("x")])
    submitted = await host.submit("go")
    assert submitted.finished is not None
    assert submitted.finished.end == "done"
    assert texts(host)[1] == "b"
    assert "evil failed" in texts(host)[0]


@pytest.mark.parametrize("name", ["raises", "exits", "cancels", "raises what is no Exception", "returns rubbish"])
async def test_a_command_that_misbehaves_is_an_error_for_the_person(workshop: Workshop, name: str) -> None:
    async def evil(*_: Any) -> Any:
        return HOSTILE[name]()

    workshop.add("villain", lambda api: api.add_command("evil", evil, description="Misbehave"))
    host = await workshop.open([says("x")])
    with pytest.raises(UserError, match="/evil of villain failed"):
        await host.submit("/evil")
    assert (await host.submit("hello")).kind == "ran"


@pytest.mark.parametrize("name", ["raises", "exits", "cancels", "raises what is no Exception", "returns rubbish"])
async def test_providers_and_completers_that_misbehave_say_nothing(workshop: Workshop, name: str) -> None:
    async def fine(*_: Any) -> None:
        return None

    def extension(api: ExtensionAPI) -> None:
        api.add_section("evil", HOSTILE[name])
        api.add_context(HOSTILE[name])
        api.add_command("fine", fine, description="Fine", complete=HOSTILE[name])

    workshop.add("evil", extension)
    host = await workshop.open([says("x")])
    assert host.completions("/fine a") == ()
    assert (await host.submit("hello")).kind == "ran"
    assert len(workshop.told("evil")) == 3


LOADING = {
    "raises": "raise ValueError('no')",
    "exits": "import sys\nsys.exit(0)",
    "has a syntax error": "def extension(api:\n",
    "has no function": "x = 1",
    "has something else": "extension = 5",
    "is not text": "\x00",
    "raises late": "def extension(api):\n    api.add_command('mine', None, description='x')\n    raise KeyError(1)",
    "takes a tool": "from tests.host import workshop as w\ndef extension(api):\n    api.add_tool(w.tool_named('read'))",
    "takes a command": "def extension(api):\n    api.add_command('help', None, description='x')",
    "takes a flag": "def extension(api):\n    api.add_flag('model', help='x')",
    "takes a section": "def extension(api):\n    api.add_section('preamble', lambda ctx: 'I am evil')",
    "takes a setting": (
        "from msgspec import Struct\nclass T(Struct):\n    a: int = 1\n"
        "def extension(api):\n    api.settings('retry', T)"
    ),
    "names a command badly": "def extension(api):\n    api.add_command('Bad name', None, description='x')",
    "hooks a point wrongly": (
        "from branchwork import points\ndef extension(api):\n    api.observe(points.TOOL_CALL, print)"
    ),
    "hangs": "def extension(api):\n    import asyncio\n    raise asyncio.CancelledError",
}


@pytest.mark.parametrize("name", LOADING)
async def test_an_extension_that_cannot_be_loaded_is_named_and_withdrawn_and_the_rest_works(
    workshop: Workshop, name: str
) -> None:
    workshop.write("evil", LOADING[name])
    workshop.add("good", lambda api: api.add_tool(echo))
    host = await workshop.open([calls("echo", text="a"), says("x")])
    (evil,) = (loaded for loaded in host.extensions if loaded.name == "evil")
    assert evil.state == "failed"
    assert evil.reason
    assert any("cannot be loaded" in text for text in workshop.told("evil"))
    assert not any(shelf.names_of("evil") for shelf in host.registry.shelves().values())
    assert host.hook_names("evil") == ()
    await host.submit("go")
    assert texts(host) == ["a"]
    assert "I am evil" not in workshop.model.seen[0].system
    assert "List the commands" in await say(host, "/help")


async def test_of_two_that_want_one_name_the_first_keeps_it_and_the_other_is_withdrawn_whole(
    workshop: Workshop,
) -> None:
    async def one(*_: Any) -> str:
        return "one"

    async def two(*_: Any) -> str:
        return "two"

    def second(api: ExtensionAPI) -> None:
        api.add_command("other", two, description="Another")
        api.observe(points.SETTLED, lambda *_: None)
        api.add_command("mine", two, description="Mine")

    workshop.add("a", lambda api: api.add_command("mine", one, description="Mine"))
    workshop.add("b", second)
    host = await workshop.open()
    assert await say(host, "/mine") == "one"
    assert host.registry.commands.get("other") is None
    assert "belongs to a already" in workshop.told("b")[0]


async def test_what_a_handler_does_to_its_payload_changes_nothing(workshop: Workshop) -> None:
    def extension(api: ExtensionAPI) -> None:
        api.add_tool(echo)

        def guard(payload: points.CallChecked, _: Any) -> None:
            payload.arguments["text"] = "evil"
            payload.call.arguments["text"] = "evil"

        def result(payload: Any, output: Any, _: Any) -> None:
            payload.call.arguments["text"] = "evil"
            output.details["n"] = "evil"

        def turn(payload: Any, _: Any) -> None:
            for call in payload.message.tool_calls:
                call.arguments["text"] = "evil"

        api.decide(points.TOOL_CALL, guard)
        api.transform(points.TOOL_RESULT, result)
        api.observe(points.TURN_ENDED, turn)

    workshop.add("evil", extension)
    host = await workshop.open([calls("echo", text="good"), calls("echo", text="good"), says("x")])
    await host.submit("go")
    assert texts(host) == ["good", "good"]
    assert [event.arguments for event in workshop.of(ToolStarted)] == [{"text": "good"}] * 2
    assert "evil" not in workshop.asked()


async def test_a_context_that_was_kept_is_stale_after_a_reload_and_after_the_end(workshop: Workshop) -> None:
    kept: list[Any] = []

    async def keep(arguments: str, ctx: Any) -> None:
        kept.append(ctx)

    def extension(api: ExtensionAPI) -> None:
        api.observe(points.SESSION_STARTED, lambda _, ctx: kept.append(ctx))
        api.add_command("keep", keep, description="Keep")

    workshop.add("keeper", extension)
    host = await workshop.open()
    await host.submit("/keep")
    await say(host, "/reload")
    old, new = kept[:2], kept[2]
    assert new.tree is host.tree
    for context in old:
        with pytest.raises(Stale, match="keeper"):
            context.tree.leaf_id  # noqa: B018 - the attribute is what raises
    await host.aclose()
    with pytest.raises(Stale):
        new.send("hello")


async def test_registering_after_loading_is_refused(workshop: Workshop) -> None:
    kept: list[ExtensionAPI] = []
    workshop.add("keeper", kept.append)
    await workshop.open()
    for attempt in (
        lambda: kept[0].add_tool(echo),
        lambda: kept[0].observe(points.SETTLED, print),
        lambda: kept[0].add_section("x", lambda _: "x"),
    ):
        with pytest.raises(RuntimeError, match="keeper: registration is over"):
            attempt()


async def test_ending_a_hook_twice_does_no_harm(workshop: Workshop) -> None:
    ends: list[Callable[[], None]] = []
    seen: list[int] = []

    def extension(api: ExtensionAPI) -> None:
        ends.append(api.observe(points.SETTLED, lambda *_: seen.append(1)))
        api.observe(points.SETTLED, lambda *_: seen.append(2))

    workshop.add("quitter", extension)
    host = await workshop.open([says("x")])
    ends[0]()
    ends[0]()
    await host.submit("go")
    assert seen == [2]


async def test_an_extension_that_withdraws_a_hook_while_it_is_asked_disturbs_nobody(workshop: Workshop) -> None:
    seen: list[str] = []

    def extension(api: ExtensionAPI) -> None:
        end = api.observe(points.SETTLED, lambda *_: (end(), raiser(ValueError("x"))()))
        api.observe(points.SETTLED, lambda *_: seen.append("second"))

    workshop.add("quitter", extension)
    host = await workshop.open([says("x"), says("y")])
    await host.submit("go")
    await host.submit("go")
    assert seen == ["second", "second"]


async def test_a_broken_limit_forbids_changes_and_is_named(workshop: Workshop) -> None:
    workshop.add("evil", lambda api: api.add_limit(raiser(SystemExit(1))))
    host = await workshop.open([calls("write", path="a.txt", content="x"), calls("ls"), says("x")])
    await host.submit("go")
    assert not (workshop.project / "a.txt").exists()
    assert workshop.told("evil")
    assert "evil" in texts(host)[0]
