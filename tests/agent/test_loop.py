"""The loop: turns, parallel calls, queues, limits, endings."""

import asyncio
from typing import Annotated

from msgspec import Meta

from branchwork.agent.events import (
    MessageAdded,
    QueueChanged,
    TextStreamed,
    ToolFinished,
    ToolProgressed,
    ToolRefused,
    ToolStarted,
)
from branchwork.agent.gate import Refusal
from branchwork.agent.run import Limits
from branchwork.agent.toolset import Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.models.base import ModelRequest
from branchwork.models.scripted import Step, calls, calls_raw, ends, hangs, says, thinks
from branchwork.session.entries import AssistantMessage, ToolCall, ToolResultMessage, UserMessage, text_of
from branchwork.testing.harness import Harness, check_pairing, make_tool


class EchoArgs(ToolArgs, frozen=True):
    text: Annotated[str, Meta(description="What to give back")]
    times: int = 1
    tags: list[str] | None = None


async def echo(args: EchoArgs, ctx: ToolContext) -> ToolOutput:
    return text_output(args.text * args.times, details={"tags": args.tags})


ECHO = make_tool("echo", echo, args=EchoArgs)


async def test_a_plain_answer_is_one_turn_and_stored_with_the_prompt_state() -> None:
    harness = Harness([says("Hello there.")], tools=[ECHO])
    finished = await harness.prompt("hi")
    assert (finished.end, finished.turns, finished.tool_calls) == ("done", 1, 0)
    roles = [type(message).__name__ for message in harness.messages()]
    assert roles == ["SystemMessage", "UserMessage", "AssistantMessage"]
    assert "".join(event.text for event in harness.of(TextStreamed)) == "Hello there."


async def test_a_plain_answer_tells_its_events_in_this_order() -> None:
    harness = Harness([thinks("hm", signature="s") + says("Hello")], tools=[ECHO])
    await harness.prompt("hi")
    kinds = [kind for kind in harness.kinds() if kind != "entry_appended"]
    assert kinds == [
        "run_started", "turn_started", "message_added", "message_added", "request_started", "thinking", "text",
        "message_added", "reply_finished", "turn_finished", "run_finished",
    ]  # fmt: skip
    assert [event.seq for event in harness.events] == list(range(1, len(harness.events) + 1))


async def test_a_tool_result_reaches_the_model_in_the_next_request() -> None:
    harness = Harness([calls("echo", text="abc"), says("done")], tools=[ECHO])
    finished = await harness.prompt()
    assert finished.turns == 2
    last = harness.model.seen[1].messages[-1]
    assert isinstance(last, ToolResultMessage)
    assert last.text == "abc"
    check_pairing(harness.messages())


async def test_parallel_results_are_told_in_completion_order_and_stored_in_call_order() -> None:
    gates = {"a": asyncio.Event(), "b": asyncio.Event(), "c": asyncio.Event()}
    gates["c"].set()

    async def wait(args: EchoArgs, ctx: ToolContext) -> ToolOutput:
        await gates[args.text].wait()
        following = {"c": "b", "b": "a"}.get(args.text)
        if following:
            gates[following].set()
        return text_output(args.text)

    script = [calls("wait", text="a") + calls("wait", text="b") + calls("wait", text="c"), says("done")]
    harness = Harness(script, tools=[make_tool("wait", wait, args=EchoArgs)])
    await harness.prompt()
    assert [event.result.text for event in harness.of(ToolFinished)] == ["c", "b", "a"]
    assert [result.text for result in harness.results()] == ["a", "b", "c"]


async def test_one_sequential_tool_makes_the_whole_batch_sequential() -> None:
    running: list[str] = []
    overlaps: list[int] = []

    async def watch(args: EchoArgs, ctx: ToolContext) -> ToolOutput:
        running.append(args.text)
        await asyncio.sleep(0)
        overlaps.append(len(running))
        running.remove(args.text)
        return text_output(args.text)

    alone = make_tool("alone", watch, args=EchoArgs, sequential=True)
    together = make_tool("together", watch, args=EchoArgs)
    script = [calls("together", text="a") + calls("alone", text="b") + calls("together", text="c"), says("x")]
    await Harness(script, tools=[alone, together]).prompt()
    assert overlaps == [1, 1, 1]


async def test_calls_that_cannot_run_get_an_error_result_that_says_why() -> None:
    batch = (
        calls("nosuch", a=1)
        + calls_raw("echo", '{"text": "cut of')
        + calls("echo", times=2)
        + calls("echo", text="x", invented=3)
    )
    harness = Harness([batch, says("ok")], tools=[ECHO])
    await harness.prompt()
    unknown, malformed, missing, invented = harness.results()
    assert all(result.is_error for result in harness.results())
    assert unknown.text == "Tool nosuch not found. Available tools: echo."
    assert '{"text": "cut of' in malformed.text
    assert "`text`" in missing.text
    assert '{"times":2}' in missing.text
    assert "invented" in invented.text
    assert harness.of(ToolStarted) == []
    check_pairing(harness.messages())


async def test_understandable_arguments_are_brought_into_shape() -> None:
    harness = Harness([calls("echo", text="ab", times="2", tags="one", extra=None), says("ok")], tools=[ECHO])
    await harness.prompt()
    (result,) = harness.results()
    assert (result.text, result.details) == ("abab", {"tags": ["one"]})


async def test_a_tool_that_raises_is_an_answer_to_the_model_not_a_crash() -> None:
    async def broken(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        raise ZeroDivisionError("division by zero")

    async def failing(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        raise ToolError("no such row", details={"row": 7})

    tools = [make_tool("broken", broken), make_tool("failing", failing)]
    harness = Harness([calls("broken") + calls("failing"), says("ok")], tools=tools)
    assert (await harness.prompt()).end == "done"
    first, second = harness.results()
    assert first.text == "broken failed: ZeroDivisionError: division by zero"
    assert (second.text, second.details, second.is_error) == ("no such row", {"row": 7}, True)


async def test_calls_of_a_reply_cut_at_the_output_limit_are_not_run() -> None:
    harness = Harness([calls("echo", text="x") + ends("length"), says("shorter")], tools=[ECHO])
    assert (await harness.prompt()).end == "done"
    (result,) = harness.results()
    assert result.is_error
    assert "output limit" in result.text
    assert harness.of(ToolStarted) == []


async def test_an_answer_cut_at_the_output_limit_is_kept_and_named() -> None:
    harness = Harness([says("half an ans") + ends("length")])
    finished = await harness.prompt()
    assert finished.end == "length"
    last = harness.messages()[-1]
    assert isinstance(last, AssistantMessage)
    assert last.text == "half an ans"


async def test_a_refused_call_never_starts_and_the_model_reads_why() -> None:
    class NoEcho:
        async def check(self, call: ToolCall, tool: Tool, args: ToolArgs) -> Refusal | None:
            return Refusal(rule="read-only", reason="echo is not allowed now")

    harness = Harness([calls("echo", text="x"), says("I see")], tools=[ECHO], gate=NoEcho())
    await harness.prompt()
    (refused,) = harness.of(ToolRefused)
    assert (refused.rule, refused.reason) == ("read-only", "echo is not allowed now")
    assert harness.of(ToolStarted) == []
    assert harness.results()[0].is_error


async def test_a_gate_that_fails_refuses() -> None:
    class Broken:
        async def check(self, call: ToolCall, tool: Tool, args: ToolArgs) -> Refusal | None:
            raise RuntimeError("no rules loaded")

    harness = Harness([calls("echo", text="x"), says("ok")], tools=[ECHO], gate=Broken())
    await harness.prompt()
    assert harness.of(ToolRefused)[0].rule == "gate-failed"
    assert harness.of(ToolStarted) == []


async def test_steering_is_delivered_before_the_next_request_and_follow_up_at_the_end() -> None:
    async def interrupt(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        harness.agent.follow_up("and then this")
        harness.agent.steer("no, that way")
        return text_output("ok")

    script = [calls("interrupt"), says("turned"), says("followed")]
    harness = Harness(script, tools=[make_tool("interrupt", interrupt)])
    finished = await harness.prompt("go")
    assert finished.turns == 3
    said = [text_of(message.content) for message in harness.messages() if isinstance(message, UserMessage)]
    assert said == ["go", "no, that way", "and then this"]
    assert len(harness.model.seen[1].messages) == len(harness.model.seen[0].messages) + 3
    assert harness.of(QueueChanged)[-1].steering == ()
    assert harness.of(QueueChanged)[-1].follow_up == ()
    check_pairing(harness.messages())


async def test_queued_messages_can_be_taken_back() -> None:
    harness = Harness([])
    harness.agent.steer("one")
    harness.agent.follow_up("two")
    assert [text_of(message.content) for message in harness.agent.take_back()] == ["one", "two"]
    assert harness.of(QueueChanged)[-1].follow_up == ()


async def test_the_turn_limit_ends_the_run_with_its_results_stored() -> None:
    harness = Harness(lambda request: calls("echo", text=str(len(request.transcript.messages))), tools=[ECHO])
    finished = await harness.prompt(limits=Limits(max_turns=3))
    assert (finished.end, finished.turns) == ("max_turns", 3)
    check_pairing(harness.messages())


async def test_the_time_limit_ends_the_run() -> None:
    harness = Harness([says("a") + hangs()])
    finished = await harness.prompt(limits=Limits(time_limit_s=0.05))
    assert finished.end == "time_limit"


async def test_a_repeated_call_is_reminded_then_stopped() -> None:
    harness = Harness(lambda request: calls("echo", text="same"), tools=[ECHO])
    finished = await harness.prompt()
    assert (finished.end, finished.tool_calls) == ("repeating", 12)
    reminded = [number for number, result in enumerate(harness.results(), 1) if "in a row" in result.text]
    assert reminded == [3, 5, 8]


async def test_a_call_with_other_arguments_starts_the_count_again() -> None:
    def step(request: ModelRequest) -> Step:
        number = sum(isinstance(message, ToolResultMessage) for message in request.transcript.messages)
        return says("enough") if number == 40 else calls("echo", text="odd" if number % 2 else "even")

    assert (await Harness(step, tools=[ECHO]).prompt()).end == "done"


async def test_a_batch_whose_results_all_terminate_ends_the_run() -> None:
    async def last(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        return ToolOutput(terminate=True)

    tools = [make_tool("last", last), ECHO]
    both = Harness([calls("last") + calls("last")], tools=tools)
    assert (await both.prompt()).end == "done"
    assert len(both.model.seen) == 1
    mixed = Harness([calls("last") + calls("echo", text="x"), says("on")], tools=tools)
    await mixed.prompt()
    assert len(mixed.model.seen) == 2


async def test_progress_is_told_and_nothing_after_the_result() -> None:
    late: list[ToolContext] = []

    async def talk(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        ctx.progress(text_output("half"))
        late.append(ctx)
        return text_output("whole")

    harness = Harness([calls("talk"), says("ok")], tools=[make_tool("talk", talk)])
    await harness.prompt()
    late[0].progress(text_output("too late"))
    assert [event.content for event in harness.of(ToolProgressed)] == [text_output("half").content]


async def test_usage_and_cost_of_nested_work_are_added_up() -> None:
    from branchwork.session.entries import Cost, Usage

    async def nested(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        return ToolOutput(usage=Usage(input=1000, cost=Cost(total=0.5, source="test")))

    script = [calls("nested") + ends(input=10, output=5), says("ok") + ends(input=20, output=7)]
    finished = await Harness(script, tools=[make_tool("nested", nested)]).prompt()
    assert (finished.usage.input, finished.usage.output) == (1030, 12)
    assert finished.usage.cost.total == 0.5


async def test_messages_are_durable_before_they_are_told() -> None:
    harness = Harness([calls("echo", text="x"), says("ok")], tools=[ECHO])
    known: list[bool] = []

    def look(event: object) -> None:
        if isinstance(event, MessageAdded):
            known.append(harness.session.node(event.entry_id) is not None)

    harness.agent.subscribe(look)
    await harness.prompt()
    assert len(known) == 5
    assert all(known)


async def test_what_cannot_be_stored_does_not_end_the_run() -> None:
    async def odd(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        return text_output("fine", details={"handle": object()})

    async def rubbish(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        return "text"  # type: ignore[return-value]

    tools = [make_tool("odd", odd), make_tool("rubbish", rubbish)]
    harness = Harness([calls("odd") + calls("rubbish"), says("ok")], tools=tools)
    assert (await harness.prompt()).end == "done"
    first, second = harness.results()
    assert first.text == "fine"
    assert "unstorable" in first.details
    assert second.is_error
    assert "returned str" in second.text


async def test_half_a_character_in_arguments_and_results_ends_nothing() -> None:
    script = [calls_raw("echo", r'{"text": "cut \ud83d here"}'), says("ok")]
    harness = Harness(script, tools=[ECHO])
    assert (await harness.prompt()).end == "done"
    assert harness.results()[0].text == "cut \ufffd here"
