import asyncio

import pytest

from branchwork.models.base import (
    Model,
    ModelFailure,
    ModelRequest,
    ReplyEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSignature,
    ToolSpec,
    Transcript,
)
from branchwork.models.reply import ReplyBuilder
from branchwork.models.scripted import (
    ScriptedModel,
    ScriptExhausted,
    calls,
    calls_raw,
    ends,
    fails,
    hangs,
    says,
    scripted_info,
    thinks,
)
from branchwork.session.entries import AssistantMessage, ToolCall, UserMessage
from branchwork.testing.clock import FakeClock


def request(*texts: str, transcript: Transcript | None = None, extra: tuple[UserMessage, ...] = ()) -> ModelRequest:
    messages = [UserMessage(content=text, timestamp=1) for text in texts]
    return ModelRequest(
        system="Be brief.",
        transcript=transcript or Transcript(messages),
        tools=(ToolSpec("read", "Read.", {"type": "object"}),),
        max_tokens=100,
        extra=extra,
    )


async def events(model: ScriptedModel, asked: ModelRequest | None = None) -> list[StreamEvent]:
    return [event async for event in model.stream(asked or request("hi"))]


async def reply(model: ScriptedModel, asked: ModelRequest | None = None) -> AssistantMessage:
    builder = ReplyBuilder(model.info, "off", 0)
    for event in await events(model, asked):
        builder.feed(event)
    return builder.finish(0)


async def test_each_request_takes_the_next_step() -> None:
    model = ScriptedModel([says("one"), says("two")])
    checked: Model = model
    assert [(await reply(model)).text, (await reply(model)).text] == ["one", "two"]
    assert checked.info.api == "scripted"


async def test_text_comes_in_small_deltas() -> None:
    deltas = [
        event.text
        for event in await events(ScriptedModel([says("abcdefg")], delta_chars=3))
        if isinstance(event, TextDelta)
    ]
    assert deltas == ["abc", "def", "g"]


async def test_steps_add_up_to_parallel_calls_with_ids_of_their_own() -> None:
    model = ScriptedModel([says("Look.") + calls("read", path="a") + calls("write", path="b", tool="x")])
    message = await reply(model)
    assert message.tool_calls == (
        ToolCall(id="call_1_1", name="read", arguments={"path": "a"}),
        ToolCall(id="call_1_2", name="write", arguments={"path": "b", "tool": "x"}),
    )
    assert (message.text, message.stop_reason) == ("Look.", "toolUse")


async def test_call_ids_differ_between_requests() -> None:
    model = ScriptedModel([calls("read"), calls("read")])
    first, second = await reply(model), await reply(model)
    assert first.tool_calls[0].id != second.tool_calls[0].id


async def test_thinking_has_its_signature() -> None:
    found = await events(ScriptedModel([thinks("Hm.", signature="s") + says("x")]))
    assert found[:2] == [ThinkingDelta(0, "Hm."), ThinkingSignature(0, "s")]


async def test_broken_arguments_are_sent_as_written() -> None:
    (call,) = (await reply(ScriptedModel([calls_raw("read", '{"path": ')]))).tool_calls
    assert call.arguments_text == '{"path": '


async def test_a_step_may_fail_after_a_number_of_parts() -> None:
    model = ScriptedModel([fails("rate_limit", after=2, retry_after=3.0)])
    found: list[StreamEvent] = []
    stream = model.stream(request("hi"))
    with pytest.raises(ModelFailure) as caught:
        while True:
            found.append(await anext(stream))
    assert found == [TextDelta(0, "part 1 "), TextDelta(1, "part 2 ")]
    assert (caught.value.kind, caught.value.retry_after, caught.value.retryable) == ("rate_limit", 3.0, True)


async def test_a_failure_is_not_repeated() -> None:
    model = ScriptedModel([fails("server"), says("ok")])
    with pytest.raises(ModelFailure):
        await events(model)
    assert (await reply(model)).text == "ok"


async def test_a_hanging_step_ends_only_by_cancellation() -> None:
    model = ScriptedModel([says("abc") + hangs()])
    seen = asyncio.Event()

    async def consume() -> None:
        async for _ in model.stream(request("hi")):
            seen.set()

    task = asyncio.create_task(consume())
    await seen.wait()
    done, _ = await asyncio.wait([task], timeout=0)
    assert not done
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_step_may_be_a_function_of_the_request() -> None:
    model = ScriptedModel([lambda asked: says(f"{len(asked.transcript.messages)} messages"), says("last")])
    assert (await reply(model, request("a", "b"))).text == "2 messages"
    assert (await reply(model)).text == "last"


async def test_a_script_may_be_one_function_for_all_requests() -> None:
    model = ScriptedModel(lambda asked: says(asked.system))
    assert [(await reply(model)).text for _ in range(3)] == ["Be brief."] * 3


async def test_a_used_up_script_says_which_request_it_did_not_foresee() -> None:
    model = ScriptedModel([says("one")])
    await events(model)
    with pytest.raises(ScriptExhausted, match="no step for request 2") as caught:
        await events(model)
    assert not caught.value.retryable


async def test_steps_can_be_added_while_the_model_is_in_use() -> None:
    model = ScriptedModel()
    model.script.append(says("later"))
    assert (await reply(model)).text == "later"


async def test_what_a_request_held_is_kept_although_the_transcript_grows() -> None:
    transcript = Transcript([UserMessage(content="a", timestamp=1)])
    model = ScriptedModel([says("x")])
    await events(model, request(transcript=transcript, extra=(UserMessage(content="only now", timestamp=2),)))
    transcript.append(UserMessage(content="b", timestamp=3))
    (seen,) = model.seen
    assert [message.content for message in seen.messages if isinstance(message, UserMessage)] == ["a", "only now"]
    assert (seen.system, [tool.name for tool in seen.tools], seen.max_tokens) == ("Be brief.", ["read"], 100)


async def test_each_delta_waits_for_the_clock() -> None:
    clock = FakeClock()
    await events(ScriptedModel([says("abcdef")], delta_chars=2, delay_s=0.5, clock=clock))
    assert clock.sleeps == [0.5, 0.5, 0.5]


async def test_other_tasks_run_between_deltas() -> None:
    order: list[str] = []
    model = ScriptedModel([says("abcdef")], delta_chars=1)

    async def other() -> None:
        for _ in range(3):
            order.append("other")
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    stream = model.stream(request("hi"))
    while await anext(stream, None) is not None:
        order.append("delta")
    await task
    assert order[:4] == ["other", "delta", "other", "delta"]


async def test_usage_and_ending_are_as_stated() -> None:
    model = ScriptedModel([says("x") + ends("length", input=9, output=8, cache_read=7)])
    end = (await events(model))[-1]
    assert isinstance(end, ReplyEnd)
    assert (end.stop_reason, end.input, end.output, end.cache_read) == ("length", 9, 8, 7)


async def test_estimated_usage_grows_with_the_conversation_and_shrinks_with_it() -> None:
    transcript = Transcript([UserMessage(content="x" * 400, timestamp=1)])
    model = ScriptedModel(lambda asked: says("ok"))

    async def size() -> int:
        end = (await events(model, request(transcript=transcript)))[-1]
        assert isinstance(end, ReplyEnd)
        return end.input or 0

    small = await size()
    transcript.append(UserMessage(content="y" * 4000, timestamp=2))
    large = await size()
    transcript.replace(transcript.messages[:1])
    assert 100 <= small < 200
    assert 1000 <= large - small < 1100
    assert await size() == small


async def test_closing_is_harmless() -> None:
    model = ScriptedModel([says("ok")], info=scripted_info(id="other"))
    await model.aclose()
    assert (await reply(model)).text == "ok"
    assert model.info.ref == "scripted/other"
