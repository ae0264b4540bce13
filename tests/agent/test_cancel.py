"""Abort anywhere: every call is answered once, nothing is lost, the session can go on."""

import asyncio
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from branchwork.agent.calls import ABORTED
from branchwork.agent.events import ToolFinished, ToolStarted
from branchwork.agent.toolset import ToolArgs, ToolContext, ToolOutput, text_output
from branchwork.errors import UserError
from branchwork.models.scripted import Step, calls, fails, hangs, says, thinks
from branchwork.session.entries import AssistantMessage
from branchwork.testing.harness import Harness, check_pairing, make_tool


async def quick(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
    return text_output("quick")


async def slow(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
    for step in range(6):
        ctx.progress(text_output(f"step {step}"))
        await asyncio.sleep(0)
    return text_output("slow")


async def tidy(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
    """Needs several awaits to clean up after a cancellation."""
    try:
        for _ in range(6):
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        for _ in range(3):
            await asyncio.sleep(0)
        raise
    return text_output("tidy")


TOOLS = [
    make_tool("quick", quick),
    make_tool("slow", slow),
    make_tool("tidy", tidy),
    make_tool("alone", slow, sequential=True),
]
BATCHES: list[Step] = [
    calls("slow"),
    calls("quick") + calls("slow") + calls("tidy"),
    calls("tidy") + calls("alone") + calls("quick"),
    calls("nosuch") + calls("slow"),
    thinks("hm") + says("text before") + calls("tidy"),
    fails("overloaded"),
]


@given(
    batches=st.lists(st.sampled_from(BATCHES), min_size=1, max_size=3),
    ticks=st.integers(0, 90),
    from_outside=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_cancelling_at_any_await_leaves_every_call_with_exactly_one_result(
    batches: list[Step], ticks: int, from_outside: bool
) -> None:
    async def scenario() -> None:
        harness = Harness([*batches, says("done")], tools=TOOLS)
        task = asyncio.create_task(harness.prompt())
        for _ in range(ticks):
            await asyncio.sleep(0)
        if from_outside:
            task.cancel()
        else:
            harness.agent.abort()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(ended, BaseException):
            assert from_outside
            assert isinstance(ended, asyncio.CancelledError)
        else:
            assert ended.end in ("aborted", "done")
        check_whole(harness)
        await check_goes_on(harness)

    asyncio.run(scenario())


def check_whole(harness: Harness) -> None:
    check_pairing(harness.messages())
    started = [event.call_id for event in harness.of(ToolStarted)]
    finished = [event.call_id for event in harness.of(ToolFinished)]
    assert len(finished) == len(set(finished))
    assert set(started) <= set(finished)
    assert len(asyncio.all_tasks()) == 1, "a task was left behind"


async def check_goes_on(harness: Harness) -> None:
    harness.model.script[:] = [says("still here")]
    assert (await harness.prompt("and now?")).end == "done"
    check_pairing(harness.messages())


async def test_an_abort_keeps_the_text_that_had_arrived_but_no_unmade_call() -> None:
    harness = Harness([says("I was about to ") + calls("quick") + hangs()], tools=TOOLS)
    harness.agent.subscribe(lambda event: harness.agent.abort() if "Call" in type(event).__name__ else None)
    finished = await harness.prompt()
    assert finished.end == "aborted"
    last = harness.messages()[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.stop_reason, last.tool_calls) == ("I was about to ", "aborted", ())


async def test_an_aborted_call_keeps_the_output_it_had_shown() -> None:
    async def endless(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        ctx.progress(text_output("line 1\n", details={"so": "far"}))
        harness.agent.abort()
        await asyncio.Event().wait()
        return text_output("never")

    harness = Harness([calls("endless")], tools=[make_tool("endless", endless)])
    await harness.prompt()
    (result,) = harness.results()
    assert result.text == f"line 1\n{ABORTED}"
    assert result.details == {"so": "far"}


async def test_finished_calls_of_an_aborted_batch_keep_their_results() -> None:
    async def stop(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        harness.agent.abort()
        await asyncio.Event().wait()
        return text_output("never")

    harness = Harness([calls("quick") + calls("stop")], tools=[*TOOLS, make_tool("stop", stop)])
    await harness.prompt()
    assert [result.text for result in harness.results()] == ["quick", ABORTED]


async def test_an_abort_during_a_retry_pause_ends_the_run() -> None:
    harness = Harness([fails("overloaded"), says("never")], tools=TOOLS)
    harness.agent.subscribe(lambda event: harness.agent.abort() if "RetryScheduled" in type(event).__name__ else None)
    assert (await harness.prompt()).end == "aborted"
    assert len(harness.model.seen) == 1


async def test_only_one_thing_happens_at_a_time() -> None:
    harness = Harness([hangs()])
    task = asyncio.create_task(harness.prompt())
    await asyncio.sleep(0)
    with pytest.raises(UserError, match="while running"):
        await harness.agent.prompt("another")
    with pytest.raises(UserError, match="while running"):
        harness.agent.navigate(None)
    with pytest.raises(UserError, match="while running"):
        await harness.agent.compact()
    harness.agent.abort()
    assert (await task).end == "aborted"
    assert harness.agent.activity == "idle"


async def test_closing_a_running_agent_ends_the_run_and_frees_the_session() -> None:
    harness = Harness([calls("slow"), hangs()], tools=TOOLS)
    task = asyncio.create_task(harness.prompt())
    for _ in range(5):
        await asyncio.sleep(0)
    await harness.agent.aclose()
    assert (await task).end == "aborted"
    await harness.agent.aclose()
    check_pairing(harness.messages())


async def test_a_front_end_that_fails_is_removed_and_the_run_goes_on() -> None:
    harness = Harness([says("ok")])
    numbers = count()

    def broken(event: object) -> None:
        next(numbers)
        raise KeyError("widget")

    harness.agent.subscribe(broken)
    assert (await harness.prompt()).end == "done"
    assert next(numbers) == 1
    assert "diagnostic" in harness.kinds()


async def test_a_reader_that_is_gone_ends_the_run_with_the_session_whole() -> None:
    harness = Harness([calls("quick") + calls("slow"), says("never")], tools=TOOLS)

    def closed(event: object) -> None:
        if isinstance(event, ToolStarted):
            raise BrokenPipeError("reader is gone")

    harness.agent.subscribe(closed)
    with pytest.raises(BrokenPipeError):
        await harness.prompt()
    check_pairing(harness.messages())
    assert harness.agent.activity == "idle"
