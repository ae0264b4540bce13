"""Every hook point, at its place, in every front end; every field of what a hook may return."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from branchwork.agent.events import CompactionFinished, RunFinished, ToolRefused, ToolStarted
from branchwork.agent.hooks import CompactionAnswer
from branchwork.agent.toolset import ToolOutput, text_output
from branchwork.errors import UserError
from branchwork.host import points
from branchwork.host.extension import ExtensionAPI
from branchwork.host.host import Host
from branchwork.host.points import (
    Block,
    ChangeArguments,
    Decide,
    Handled,
    Input,
    Observe,
    ResourcePaths,
    Transform,
    Veto,
)
from branchwork.models.scripted import calls, hangs, says
from branchwork.session.entries import (
    CompactionEntry,
    Cost,
    CustomMessage,
    CustomMessageEntry,
    Image,
    Text,
    Usage,
)
from tests.host.workshop import FRONTS, Workshop, echo, results, say, texts

LONG = "word " * 20_000


def recorder(seen: list[tuple[str, str, str]]) -> Callable[[ExtensionAPI], None]:
    """Takes part in every point and notes the point, the extension and the front end."""

    def extension(api: ExtensionAPI) -> None:
        api.add_tool(echo)
        for point in points.ALL:

            def handler(payload: Any, *rest: Any, point: points.Point = point) -> None:
                assert isinstance(payload, point.payload)
                seen.append((point.name, rest[-1].owner, rest[-1].front_end))

            match point:
                case Observe():
                    api.observe(point, handler)
                case Transform():
                    api.transform(point, handler)
                case Decide():
                    api.decide(point, handler)

    return extension


async def go_everywhere(host: Host) -> None:
    """Something of everything that a person can do."""
    await host.submit("hello")
    await host.submit(LONG)
    await say(host, "/compact")
    with_failure = host.agent.compact()
    assert not await with_failure
    await say(host, "/thinking low")
    first = next(node for node in host.agent.session.nodes() if node.role == "user")
    await say(host, f"/tree {first.id}")
    await say(host, "/fork")
    await say(host, "/new")
    await host.aclose()


@pytest.mark.parametrize("front", FRONTS)
async def test_every_point_is_asked_in_every_front_end_and_knows_whom_it_asks(workshop: Workshop, front: str) -> None:
    seen: list[tuple[str, str, str]] = []
    workshop.add("recorder", recorder(seen))
    (workshop.home / "settings.toml").write_text("[compaction]\nkeep_recent_tokens = 10\n")
    (workshop.home / "models.toml").write_text(
        '[providers.local]\napi = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
        '[[providers.local.models]]\nid = "m"\n'
    )
    host = await workshop.open([calls("echo", text="a"), says("one"), says("two"), says("The notes.")], front=front)
    await say(host, "/model local/m")
    host.select_model(None, "off")
    host.agent.select(workshop.model, "off")
    await go_everywhere(host)
    assert {(owner, name) for _, owner, name in seen} == {("recorder", front)}
    assert {point for point, _, _ in seen} == {point.name for point in points.ALL}


async def test_the_order_of_points_in_a_run_is_that_of_the_loop(workshop: Workshop) -> None:
    seen: list[tuple[str, str, str]] = []
    workshop.add("recorder", recorder(seen))
    host = await workshop.open([calls("echo", text="a"), says("done")])
    await host.submit("hello")
    await host.aclose()
    assert [point for point, _, _ in seen] == [
        "discovering",
        "session_started",
        "input",
        "run_starting",
        "request_starting",
        "tool_call",
        "tool_result",
        "turn_ended",
        "request_starting",
        "turn_ended",
        "run_ended",
        "settled",
        "session_ending",
    ]


async def test_two_extensions_at_one_point_each_get_a_context_of_their_own(workshop: Workshop) -> None:
    seen: list[str] = []
    for name in ("alpha", "beta"):
        workshop.add(name, lambda api: api.observe(points.SETTLED, lambda _, ctx: seen.append(ctx.owner)))
    host = await workshop.open([says("x")])
    await host.submit("hello")
    assert seen == ["alpha", "beta"]


# ---- what a hook returns --------------------------------------------------------------------------

Check = Callable[[Workshop], Any]
CASES: dict[tuple[type, str], Check] = {}
"""By type and field of what a hook may return: a test that the field counts."""


def honours(kind: type, *fields: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CASES.update({(kind, field): check for field in fields})
        return check

    return add


def hook(point: points.Point, answer: Any) -> Callable[[ExtensionAPI], None]:
    def extension(api: ExtensionAPI) -> None:
        api.add_tool(echo)
        match point:
            case Transform():
                api.transform(point, lambda *_: answer)
            case Decide():
                api.decide(point, lambda *_: answer)
            case Observe():
                raise AssertionError(point)

    return extension


async def with_hook(workshop: Workshop, point: points.Point, answer: Any, script: Any = (), **options: Any) -> Host:
    workshop.add("hook", hook(point, answer))
    return await workshop.open(script, **options)


@honours(Block, "reason")
async def block_reason(workshop: Workshop) -> None:
    answer = Block(reason="Not on Sundays.")
    host = await with_hook(workshop, points.TOOL_CALL, answer, [calls("echo", text="a"), says("x")])
    await host.submit("go")
    assert texts(host) == ["Not on Sundays."]
    assert workshop.of(ToolRefused)[0].rule == "extension:hook"
    assert workshop.of(ToolStarted) == []


@honours(Block, "terminate")
async def block_terminate(workshop: Workshop) -> None:
    answer = Block(reason="Stop.", terminate=True)
    host = await with_hook(workshop, points.TOOL_CALL, answer, [calls("echo", text="a")])
    assert (await host.submit("go")).finished
    assert len(workshop.model.seen) == 1


@honours(ChangeArguments, "arguments")
async def changed_arguments(workshop: Workshop) -> None:
    answer = ChangeArguments(arguments={"text": "b", "times": "2"})
    host = await with_hook(workshop, points.TOOL_CALL, answer, [calls("echo", text="a"), says("x")])
    await host.submit("go")
    assert texts(host) == ["b b"]
    assert workshop.of(ToolStarted)[0].arguments == {"text": "b", "times": "2"}


@honours(Input, "text", "images")
async def replaced_input(workshop: Workshop) -> None:
    answer = Input(text="other words", images=(Image(data="aGk=", mime_type="image/png"),))
    host = await with_hook(workshop, points.INPUT, answer, [says("x")])
    await host.submit("go")
    assert "other words" in workshop.asked()
    assert "aGk=" in workshop.asked()


@honours(Handled, "say")
async def handled_input(workshop: Workshop) -> None:
    host = await with_hook(workshop, points.INPUT, Handled(say="Done already."))
    submitted = await host.submit("go")
    assert (submitted.kind, submitted.say) == ("handled", "Done already.")
    assert workshop.model.seen == []


@honours(ToolOutput, "content", "details", "is_error", "usage")
async def replaced_result(workshop: Workshop) -> None:
    usage = Usage(input=7, output=3, cost=Cost(total=0.5))
    answer = ToolOutput(content=(Text(text="changed"),), details={"a": [1]}, is_error=True, usage=usage)
    host = await with_hook(workshop, points.TOOL_RESULT, answer, [calls("echo", text="a"), says("x")])
    finished = (await host.submit("go")).finished
    (result,) = results(host)
    assert (result.content, result.details, result.is_error) == (answer.content, {"a": [1]}, True)
    assert result.usage == usage
    assert finished is not None
    assert finished.usage.cost.total >= 0.5


@honours(ToolOutput, "terminate")
async def terminating_result(workshop: Workshop) -> None:
    answer = ToolOutput(content=(Text(text="x"),), terminate=True)
    host = await with_hook(workshop, points.TOOL_RESULT, answer, [calls("echo", text="a")])
    await host.submit("go")
    assert len(workshop.model.seen) == 1


@honours(CustomMessageEntry, "custom_type", "content", "display", "details")
async def added_message(workshop: Workshop) -> None:
    entry = CustomMessageEntry(custom_type="hint", content="Mind the gap.", display=False, details={"n": 1})
    host = await with_hook(workshop, points.RUN_STARTING, [entry], [says("x")])
    await host.submit("go")
    (stored,) = (each for each in host.tree.branch().entries() if isinstance(each, CustomMessageEntry))
    assert (stored.custom_type, stored.content, stored.display, stored.details) == (
        "hint", "Mind the gap.", False, {"n": 1},
    )  # fmt: skip
    assert stored.id
    assert "Mind the gap." in workshop.asked()


@honours(CustomMessageEntry, "id", "parent_id", "timestamp")
async def placed_message(workshop: Workshop) -> None:
    """These are the session's to give: an entry that has one is refused as a whole."""
    refused = (
        CustomMessageEntry(custom_type="hint", content="No.", display=True, id="x"),
        CustomMessageEntry(custom_type="hint", content="No.", display=True, parent_id=None),
        CustomMessageEntry(custom_type="hint", content="No.", display=True, timestamp="2020"),
    )
    for number, entry in enumerate(refused):
        workshop.add(f"hook{number}", hook_of(entry))
    host = await workshop.open([says("x")])
    await host.submit("go")
    assert "No." not in workshop.asked()
    for number in range(3):
        assert any("has no id, parent or time" in text for text in workshop.told(f"hook{number}"))


def hook_of(entry: CustomMessageEntry) -> Callable[[ExtensionAPI], None]:
    def extension(api: ExtensionAPI) -> None:
        api.transform(points.RUN_STARTING, lambda *_: [entry])

    return extension


@honours(CustomMessage, "custom_type", "content", "display", "details", "timestamp")
async def message_of_a_request(workshop: Workshop) -> None:
    message = CustomMessage(custom_type="hint", content="Only now.", display=True, details={"n": 1}, timestamp=5)
    host = await with_hook(workshop, points.REQUEST_STARTING, (message,), [says("x")])
    await host.submit("go")
    assert workshop.model.seen[0].messages[-1] == message
    assert not any(isinstance(entry, CustomMessageEntry) for entry in host.tree.branch().entries())


@honours(ResourcePaths, "skills", "prompts", "agents")
async def more_places(workshop: Workshop) -> None:
    more = workshop.home / "more"
    for name, text in {
        "skills/sew/SKILL.md": "---\nname: sew\ndescription: Sews.\n---\nSew.",
        "prompts/wash.md": "---\ndescription: Washes.\n---\nWash $1.",
        "agents/maid.md": "---\nname: maid\ndescription: Cleans.\n---\nClean.",
    }.items():
        (more / name).parent.mkdir(parents=True)
        (more / name).write_text(text)
    answer = ResourcePaths(
        skills=(str(more / "skills"),), prompts=(str(more / "prompts"),), agents=(str(more / "agents"),)
    )
    host = await with_hook(workshop, points.DISCOVERING, answer, [says("x")])
    assert host.resources.skill("sew") is not None
    assert host.resources.template("wash") is not None
    assert "maid" in [agent.name for agent in host.resources.agents]
    assert "sew" in await say(host, "/help")
    await host.submit("/wash socks")
    assert "Wash socks." in workshop.asked()


@honours(Veto, "reason")
async def vetoes(workshop: Workshop) -> None:
    def extension(api: ExtensionAPI) -> None:
        api.decide(points.MOVING, lambda *_: Veto(reason="I like it here."))
        api.decide(points.FORKING, lambda *_: Veto(reason="I like it here."))
        api.decide(points.SWITCHING, lambda *_: Veto(reason="I like it here."))

    workshop.add("hook", extension)
    host = await workshop.open([says("x")])
    await host.submit("go")
    session, leaf = host.agent.session, host.tree.leaf_id
    for command in ("/new", "/resume nothing", "/fork", "/clone", f"/tree {host.agent.session.nodes()[0].id}"):
        assert "I like it here." in await say(host, command)
    assert host.agent.session is session
    assert host.tree.leaf_id == leaf


async def compacting(workshop: Workshop, answer: CompactionAnswer, *notes: str) -> Host:
    (workshop.home / "settings.toml").write_text("[compaction]\nkeep_recent_tokens = 10\n")
    script = [says("one"), says("two"), *map(says, notes)]
    host = await with_hook(workshop, points.COMPACTING, answer, script)
    await host.submit("first prompt")
    await host.submit(LONG)
    return host


@honours(CompactionAnswer, "cancel")
async def cancelled_compaction(workshop: Workshop) -> None:
    host = await compacting(workshop, CompactionAnswer(cancel="Not now."))
    assert not await host.agent.compact()
    assert workshop.of(CompactionFinished)[-1].error == "Not now."


@honours(CompactionAnswer, "summary", "first_kept", "details")
async def replaced_notes(workshop: Workshop) -> None:
    host = await compacting(workshop, CompactionAnswer(summary="My notes.", first_kept="", details={"n": 1}))
    assert await host.agent.compact()
    (entry,) = (each for each in host.tree.branch().entries() if isinstance(each, CompactionEntry))
    assert entry.summary.startswith("My notes.")
    assert entry.first_kept_entry_id == entry.id
    assert entry.details["extension"] == {"n": 1}
    workshop.model.script.append(says("x"))
    await host.submit("again")
    assert "My notes." in workshop.asked()
    assert LONG not in workshop.asked()


@pytest.mark.parametrize("check", list(dict.fromkeys(CASES.values())), ids=lambda check: check.__name__)
async def test_what_a_hook_returns_counts(workshop: Workshop, check: Check) -> None:
    await check(workshop)


def names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind))


def test_every_field_of_what_a_hook_may_return_has_its_test() -> None:
    kinds: set[type] = set()
    for point in points.ALL:
        if isinstance(point, Transform):
            kinds |= {point.items} if point.items is not None else set(point.returns)
        elif isinstance(point, Decide):
            kinds |= set(point.returns)
    fields = {(kind, field) for kind in kinds for field in names(kind)}
    assert set(CASES) == fields


# ---- what is wrong ---------------------------------------------------------------------------------


async def test_changed_arguments_that_do_not_fit_refuse_the_call(workshop: Workshop) -> None:
    answer = ChangeArguments(arguments={"text": 5, "unknown": 1})
    host = await with_hook(workshop, points.TOOL_CALL, answer, [calls("echo", text="a"), says("x")])
    await host.submit("go")
    assert workshop.of(ToolStarted) == []
    assert "refused, because extension hook: tool_call" in texts(host)[0]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (CompactionAnswer(summary="  "), "empty"),
        (CompactionAnswer(summary="x", first_kept="nowhere"), "nowhere"),
        (CompactionAnswer(first_kept=""), "needs a `summary`"),
    ],
)
async def test_notes_that_would_lose_the_conversation_give_way_to_the_default(
    workshop: Workshop, answer: CompactionAnswer, why: str
) -> None:
    host = await compacting(workshop, answer, "The default notes.")
    assert await host.agent.compact()
    (entry,) = (each for each in host.tree.branch().entries() if isinstance(each, CompactionEntry))
    assert entry.summary.startswith("The default notes.")
    assert any(why in text for text in workshop.told("hook"))


async def test_an_aborted_run_ends_with_its_hooks_asked(workshop: Workshop) -> None:
    ended: list[str] = []

    def extension(api: ExtensionAPI) -> None:
        api.observe(points.RUN_ENDED, lambda finished, _: ended.append(finished.end))
        api.observe(points.SETTLED, lambda settled, _: ended.append(f"aborted={settled.aborted}"))

    workshop.add("watcher", extension)
    host = await workshop.open([hangs()])
    host.subscribe(lambda event: host.agent.abort() if event.__struct_config__.tag == "request_started" else None)
    await host.submit("go")
    assert ended == ["aborted", "aborted=True"]


async def test_what_an_extension_sends_when_a_run_ends_is_run_next_and_settles_once(workshop: Workshop) -> None:
    settled: list[bool] = []

    def extension(api: ExtensionAPI) -> None:
        def more(finished: RunFinished, ctx: Any) -> None:
            if len(workshop.model.seen) < 3:
                ctx.send("go on")

        api.observe(points.RUN_ENDED, more)
        api.observe(points.SETTLED, lambda event, _: settled.append(event.aborted))

    workshop.add("pusher", extension)
    host = await workshop.open([says("1"), says("2"), says("3")])
    await host.submit("go")
    assert len(workshop.model.seen) == 3
    assert settled == [False]


async def test_an_extension_that_never_stops_sending_is_stopped(workshop: Workshop) -> None:
    workshop.add("pusher", lambda api: api.observe(points.RUN_ENDED, lambda _, ctx: ctx.send("more")))
    host = await workshop.open(lambda request: says("x"))
    await host.submit("go")
    assert len(workshop.model.seen) == 51
    assert "50 runs" in workshop.told("extensions")[0]


async def test_messages_of_a_hook_are_checked_one_by_one(workshop: Workshop) -> None:
    host = await with_hook(workshop, points.RUN_STARTING, ["a string"], [says("x")])
    await host.submit("go")
    assert "str instead of CustomMessageEntry" in workshop.told("hook")[0]
    assert msgspec.to_builtins(results(host)) == []


async def test_a_command_that_fails_says_whose_it_is(workshop: Workshop) -> None:
    async def broken(arguments: str, ctx: Any) -> str:
        raise ZeroDivisionError("no")

    workshop.add("maths", lambda api: api.add_command("divide", broken, description="Divide"))
    host = await workshop.open()
    with pytest.raises(UserError, match="/divide of maths failed: ZeroDivisionError: no"):
        await host.submit("/divide 1")


async def test_a_tool_output_that_cannot_be_stored_is_refused_and_the_old_one_stays(workshop: Workshop) -> None:
    answer = text_output("new", details={"a": object()})
    host = await with_hook(workshop, points.TOOL_RESULT, answer, [calls("echo", text="old"), says("x")])
    await host.submit("go")
    assert texts(host) == ["old"]
    assert "does not fit" in workshop.told("hook")[0]
