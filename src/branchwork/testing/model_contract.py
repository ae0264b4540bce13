"""What every implementation of `branchwork.models.base.Model` promises, as checks that any of them can run.

A *rig* is a model together with what it talks to, answering with the given `Reply`s in turn:

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=check_name)
    async def test_the_model_keeps_the_contract(check: Check) -> None:
        await check(lambda replies: http_rig(replies, make_model))

`make_model` gets the running `FakeModelServer` and returns the model. `HTTP_CHECKS` are for models that speak
HTTP, on top of `MODEL_CHECKS`. A broken promise raises `ContractBroken`.
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, cast

from msgspec import Struct

from branchwork.models.base import (
    Model,
    ModelFailure,
    ModelRequest,
    ReplyEnd,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    ToolSpec,
    Transcript,
)
from branchwork.models.reply import ReplyBuilder
from branchwork.models.scripted import ScriptedModel, Step, calls_raw, ends, fails, hangs, says, thinks
from branchwork.session.entries import (
    AssistantMessage,
    AssistantPart,
    BranchSummaryMessage,
    CustomMessage,
    Message,
    ResultPart,
    StopReason,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from branchwork.session.entries import Text as TextPart
from branchwork.session.entries import Thinking as ThinkingPart
from branchwork.testing.faults import Cut, Framing, Hang, RefusalKind, Refused, StreamError
from branchwork.testing.script import Call, Part, Reply, Text, Thinking, Tokens, replies
from branchwork.testing.server import FakeModelServer

PROMPTLY_S = 2.0
"""How long closing a connection may take; generous, because test machines are busy."""


class ContractBroken(AssertionError):
    """The model did not keep a promise; the text says which."""


class Rig(Struct, frozen=True):
    """A model and the server on the far side of it, if there is one."""

    model: Model
    server: FakeModelServer | None = None

    @property
    def requests(self) -> int:
        """How many requests were made."""
        if self.server is not None:
            return len(self.server.requests)
        return len(self.model.seen) if isinstance(self.model, ScriptedModel) else 0

    @property
    def rejections(self) -> list[str]:
        """Why the server found requests malformed."""
        return [] if self.server is None else [request.error or "" for request in self.server.rejected]

    async def arrived(self, count: int = 1) -> None:
        """Wait until `count` requests have been made."""
        if self.server is not None:
            await asyncio.to_thread(self.server.wait_requests, count)
        else:
            await asyncio.sleep(0)  # a task that was just created makes its request now
        _promise(self.requests >= count, f"request {count} is made without delay")

    async def hung_up(self, count: int = 1) -> bool:
        """Whether the connection of request `count` is closed by the client before long."""
        if self.server is None:
            return True
        await self.arrived(count)
        return await asyncio.to_thread(self.server.requests[count - 1].wait_hung_up, PROMPTLY_S)


RigMaker: TypeAlias = Callable[[Sequence[Reply]], AbstractAsyncContextManager[Rig]]
Check: TypeAlias = Callable[[RigMaker], Awaitable[None]]


@contextlib.asynccontextmanager
async def http_rig(answers: Sequence[Reply], make_model: Callable[[FakeModelServer], Model]) -> AsyncIterator[Rig]:
    """A rig around a fake model server; the model is closed at the end."""
    with FakeModelServer(replies(*answers)) as server:
        model = make_model(server)
        try:
            yield Rig(model, server)
        finally:
            await model.aclose()


@contextlib.asynccontextmanager
async def scripted_rig(answers: Sequence[Reply]) -> AsyncIterator[Rig]:
    """A rig around a `ScriptedModel` that gives the same answers."""
    steps = [scripted_step(reply) for reply in answers]
    yield Rig(ScriptedModel([*steps, *steps[-1:] * 3], delta_chars=3))


def scripted_step(reply: Reply) -> Step:
    """The step of a scripted model that answers as a server with this reply would."""
    pieces = [_scripted_part(part) for part in reply.parts]
    match reply.fault:
        case Refused(kind=kind, retry_after=retry_after):
            return fails(kind, retry_after=retry_after)
        case Cut():
            return _sum([*pieces, fails("connection")])
        case StreamError(kind=kind):
            return _sum([*pieces, fails(kind)])
        case Hang(after=0):
            return hangs()
        case Hang():
            return _sum([*pieces, hangs()])
        case None:
            usage = reply.usage or Tokens()
            stop: StopReason | None = "length" if reply.stop_reason == "length" else None
            end = ends(stop, input=usage.input, output=usage.output, cache_read=usage.cache_read)
            return _sum([*pieces, end])


def _scripted_part(part: Part) -> Step:
    match part:
        case Text(text=text):
            return says(text)
        case Thinking(text=text, signature=signature):
            return thinks(text, signature=signature)
        case Call(tool=tool, id=call_id):
            return calls_raw(tool, part.arguments_text, id=call_id)


def _sum(steps: Sequence[Step]) -> Step:
    return Step(tuple(piece for step in steps for piece in step.pieces))


async def check_model(make_rig: RigMaker, *, http: bool = False) -> None:
    """Run every check, one after the other."""
    for check in (*MODEL_CHECKS, *(HTTP_CHECKS if http else ())):
        await check(make_rig)


def check_name(check: Check) -> str:
    """For `pytest.mark.parametrize(ids=…)`."""
    return getattr(check, "__name__", "check")


# ---- what checks are made of ------------------------------------------------------------------------

READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def request_of(model: Model, *messages: Message) -> ModelRequest:
    """A request with one tool; without messages, a plain question."""
    conversation = messages or (UserMessage(content="Hello?", timestamp=1),)
    return ModelRequest(
        system="You are a test.",
        transcript=Transcript(conversation),
        tools=(READ,),
        max_tokens=min(4_000, model.info.max_tokens),
    )


def _promise(kept: object, sentence: str) -> None:
    if not kept:
        raise ContractBroken(sentence)


async def _events(model: Model, request: ModelRequest | None = None) -> list[StreamEvent]:
    return [event async for event in model.stream(request or request_of(model))]


async def _failure(model: Model) -> tuple[list[StreamEvent], ModelFailure]:
    events: list[StreamEvent] = []
    stream = model.stream(request_of(model))
    try:
        while (event := await anext(stream, None)) is not None:
            events.append(event)
    except ModelFailure as failure:
        return events, failure
    raise ContractBroken(f"a failing request raises ModelFailure; this one ended with {events[-1:]!r}")


def _built(model: Model, events: Sequence[StreamEvent]) -> AssistantMessage:
    builder = ReplyBuilder(model.info, "off", 0)
    for event in events:
        builder.feed(event)
    return builder.finish(0)


async def _answers(model: Model) -> None:
    message = _built(model, await _events(model))
    _promise(message.text == "Still here.", f"the model can be used again; it answered {message.text!r}")


STILL_HERE = Reply(parts=(Text("Still here."),))


# ---- the promises -----------------------------------------------------------------------------------


async def the_end_comes_last_and_once(make_rig: RigMaker) -> None:
    async with make_rig([Reply(parts=(Text("A plain answer."),))]) as rig:
        events = await _events(rig.model)
        ends_at = [index for index, event in enumerate(events) if isinstance(event, ReplyEnd)]
        _promise(ends_at == [len(events) - 1], f"ReplyEnd comes last and once, not at {ends_at} of {len(events)}")
        end = cast(ReplyEnd, events[-1])
        _promise(end.stop_reason == "stop", f"a plain answer ends with 'stop', not {end.stop_reason!r}")
        _promise(_built(rig.model, events).text == "A plain answer.", "the text arrives whole")


async def text_is_streamed_in_pieces(make_rig: RigMaker) -> None:
    text = "Several pieces, as they come: 日本語 and ünïcödé 🎈. " * 3
    async with make_rig([Reply(parts=(Text(text),), delta_chars=5)]) as rig:
        pieces = [event for event in await _events(rig.model) if isinstance(event, TextDelta)]
        _promise(len(pieces) > 3, f"text is passed on as it comes, not in {len(pieces)} pieces")
        _promise("".join(piece.text for piece in pieces) == text, "pieces of text join to what was sent")


async def parts_of_all_kinds_arrive_whole_and_in_order(make_rig: RigMaker) -> None:
    parts = (Thinking("First I think."), Text("Then I speak."), Call("read", {"path": "ä/b.txt"}, id="call_a"))
    async with make_rig([Reply(parts=parts)]) as rig:
        events = await _events(rig.model)
        message = _built(rig.model, events)
        thinking = [part.thinking for part in message.content if isinstance(part, ThinkingPart)]
        _promise(thinking == ["First I think."], f"thinking arrives whole, not {thinking!r}")
        _promise(message.text == "Then I speak.", f"text arrives whole, not {message.text!r}")
        expected = (ToolCall(id="call_a", name="read", arguments={"path": "ä/b.txt"}),)
        _promise(message.tool_calls == expected, f"the call arrives whole, not {message.tool_calls!r}")
        kinds = [type(part) for part in message.content]
        _promise(kinds == [ThinkingPart, TextPart, ToolCall], f"parts keep their order, not {kinds}")
        _promise(message.stop_reason == "toolUse", f"calls end with 'toolUse', not {message.stop_reason!r}")


async def parallel_calls_keep_their_indexes_apart(make_rig: RigMaker) -> None:
    parts = tuple(Call("read", {"path": f"file-{number}.txt"}, id=f"call_{number}") for number in range(4))
    async with make_rig([Reply(parts=parts, interleave=True, delta_chars=3)]) as rig:
        events = await _events(rig.model)
        starts = {event.index: event.id for event in events if isinstance(event, ToolCallStart)}
        _promise(len(starts) == 4, f"each call has an index of its own, not {starts}")
        pieces = {event.index for event in events if isinstance(event, ToolCallDelta)}
        _promise(pieces <= starts.keys(), f"arguments belong to announced calls, not {pieces - starts.keys()}")
        found = [(call.id, call.arguments) for call in _built(rig.model, events).tool_calls]
        expected = [(f"call_{number}", {"path": f"file-{number}.txt"}) for number in range(4)]
        _promise(found == expected, f"parallel calls keep their arguments apart, not {found}")


async def broken_arguments_are_passed_on_as_they_came(make_rig: RigMaker) -> None:
    async with make_rig([Reply(parts=(Call("read", '{"path": "a'),))]) as rig:
        (call,) = _built(rig.model, await _events(rig.model)).tool_calls
        _promise(call.arguments_text == '{"path": "a', f"broken arguments are kept, not {call!r}")


async def an_answer_cut_at_the_output_limit_says_so(make_rig: RigMaker) -> None:
    async with make_rig([Reply(parts=(Text("And then"),), stop="length")]) as rig:
        reason = _built(rig.model, await _events(rig.model)).stop_reason
        _promise(reason == "length", f"the stop reason is 'length', not {reason!r}")


async def usage_keeps_cached_tokens_apart(make_rig: RigMaker) -> None:
    async with make_rig([Reply(parts=(Text("x"),), usage=Tokens(input=11, output=7, cache_read=300))]) as rig:
        end = cast(ReplyEnd, (await _events(rig.model))[-1])
        found = (end.input, end.output, end.cache_read)
        _promise(found == (11, 7, 300), f"input, output and cache reads are (11, 7, 300), not {found}")


async def a_cut_stream_is_a_lost_connection(make_rig: RigMaker) -> None:
    for clean in (False, True):
        answer = Reply(parts=(Text("This will not be complete."),), fault=Cut(4, clean=clean))
        async with make_rig([answer, STILL_HERE]) as rig:
            events, failure = await _failure(rig.model)
            _promise(events, "what came before the cut is passed on")
            _promise(not any(isinstance(event, ReplyEnd) for event in events), "a cut stream has no ReplyEnd")
            _promise(failure.kind == "connection", f"a cut (clean={clean}) is 'connection', not {failure.kind!r}")
            await _answers(rig.model)


async def refusals_have_their_kind(make_rig: RigMaker) -> None:
    kinds: tuple[RefusalKind, ...] = ("rate_limit", "quota", "server", "overloaded", "auth", "overflow", "rejected")
    for kind in kinds:
        async with make_rig([Reply(fault=Refused(kind)), STILL_HERE]) as rig:
            events, failure = await _failure(rig.model)
            _promise(not events, f"a refused request has no parts, not {events!r}")
            _promise(failure.kind == kind, f"the failure's kind is {kind!r}, not {failure.kind!r} ({failure})")
            _promise(rig.requests == 1, f"retrying is the agent's matter; {rig.requests} requests were made")
            await _answers(rig.model)


async def the_wait_that_the_server_asks_for_is_told(make_rig: RigMaker) -> None:
    async with make_rig([Reply(fault=Refused("rate_limit", retry_after=7))]) as rig:
        _, failure = await _failure(rig.model)
        _promise(failure.retry_after == 7, f"retry_after is 7 seconds, not {failure.retry_after!r}")


async def an_error_inside_the_stream_is_a_failure(make_rig: RigMaker) -> None:
    answer = Reply(parts=(Text("This will not be complete."),), fault=StreamError("overloaded", after=4))
    async with make_rig([answer, STILL_HERE]) as rig:
        _, failure = await _failure(rig.model)
        _promise(failure.kind in {"overloaded", "server"}, f"the kind is that of the error, not {failure.kind!r}")
        await _answers(rig.model)


async def cancelling_closes_the_connection(make_rig: RigMaker) -> None:
    for after in (0, 4):
        answer = Reply(parts=(Text("This is going to hang."),), fault=Hang(after))
        async with make_rig([answer, STILL_HERE]) as rig:
            started = asyncio.Event()

            async def consume(model: Model = rig.model, started: asyncio.Event = started) -> None:
                async for _ in model.stream(request_of(model)):
                    started.set()

            task = asyncio.create_task(consume())
            await (rig.arrived() if after == 0 else started.wait())
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            cancelled = isinstance(outcome, asyncio.CancelledError)
            _promise(cancelled, f"a cancelled request raises CancelledError, not {outcome!r}")
            _promise(await rig.hung_up(), "cancelling closes the connection promptly")
            await _answers(rig.model)


async def a_consumer_that_leaves_closes_the_connection(make_rig: RigMaker) -> None:
    answer = Reply(parts=(Text("This is going to hang."),), fault=Hang(4))
    async with make_rig([answer, STILL_HERE]) as rig:
        stream = rig.model.stream(request_of(rig.model))
        await anext(stream)
        close = getattr(stream, "aclose", None)
        if close is None:
            raise ContractBroken("a stream can be closed early, with `aclose`")
        await close()
        _promise(await rig.hung_up(), "closing the stream closes the connection promptly")
        await _answers(rig.model)


async def a_closed_model_can_be_used_again(make_rig: RigMaker) -> None:
    async with make_rig([STILL_HERE]) as rig:
        await _answers(rig.model)
        await rig.model.aclose()
        await rig.model.aclose()
        await _answers(rig.model)


async def a_long_conversation_is_a_correct_request(make_rig: RigMaker) -> None:
    async with make_rig([STILL_HERE]) as rig:
        request = request_of(rig.model, *_conversation(rig.model))
        before = copy.deepcopy(request.transcript.messages)
        await _events(rig.model, request)
        _promise(rig.rejections == [], f"the server found no fault with the request, not {rig.rejections}")
        _promise(request.transcript.messages == before, "the transcript is left as it was")


def _conversation(model: Model) -> list[Message]:
    """What real sessions hold: parallel calls, failures, foreign ids, empty texts, neighbours of one role."""
    foreign_id = "call_" + "x" * 30 + "|fc_" + "y" * 30

    def assistant(*content: AssistantPart, stop: StopReason = "stop") -> AssistantMessage:
        info = model.info
        return AssistantMessage(
            content=content,
            api=info.api,
            provider=info.provider,
            model=info.id,
            usage=Usage(),
            stop_reason=stop,
            timestamp=2,
        )

    def result(call_id: str, *content: ResultPart, is_error: bool = False) -> ToolResultMessage:
        return ToolResultMessage(
            tool_call_id=call_id, tool_name="read", content=content, is_error=is_error, timestamp=3
        )

    first, second = (ToolCall(id=f"call_{name}", name="read", arguments={"path": name}) for name in "ab")
    foreign = ToolCall(id=foreign_id, name="read", arguments={}, arguments_text='{"path": ')
    return [
        UserMessage(content="A question.", timestamp=1),
        UserMessage(content=(TextPart(text="And another."),), timestamp=1),
        assistant(ThinkingPart(thinking="Hm.", thinking_signature="sig-1"), first, second, stop="toolUse"),
        result("call_a", TextPart(text="contents")),
        result("call_b", TextPart(text="no such file"), is_error=True),
        assistant(TextPart(text="  "), foreign, stop="toolUse"),
        result(foreign_id, is_error=True),
        CustomMessage(custom_type="note", content="From an extension.", timestamp=4),
        assistant(TextPart(text="Partly"), stop="aborted"),
        BranchSummaryMessage(summary="What was tried elsewhere.", from_id="00000001", timestamp=5),
        assistant(stop="error"),
        UserMessage(content="Go on.", timestamp=6),
    ]


# ---- promises of models that speak HTTP ---------------------------------------------------------------


async def every_legal_framing_reads_the_same(make_rig: RigMaker) -> None:
    parts = (Text("Ünïcödé 日本語 🎈\n\nand lines"), Call("read", {"path": "a\n.txt"}, id="call_a"))
    for flags in range(16):
        crlf, noise, several, tight = (bool(flags & 1 << bit) for bit in range(4))
        framing = Framing(crlf, noise, several, tight, piece_bytes=(0, 1, 7)[flags % 3])
        async with make_rig([Reply(parts=parts, framing=framing)]) as rig:
            message = _built(rig.model, await _events(rig.model))
            whole = message.text == parts[0].text and message.tool_calls[0].arguments == {"path": "a\n.txt"}
            _promise(whole, f"every legal framing reads the same; {framing} gave {message.content!r}")


async def usage_that_was_not_reported_is_unknown(make_rig: RigMaker) -> None:
    async with make_rig([Reply(parts=(Text("x"),), usage=None)]) as rig:
        end = cast(ReplyEnd, (await _events(rig.model))[-1])
        _promise((end.input, end.output) == (None, None), f"usage is unknown, not {(end.input, end.output)}")


async def an_answer_of_a_proxy_is_a_server_failure(make_rig: RigMaker) -> None:
    page = Refused("server", status=502, plain="<html>Bad gateway</html>")
    async with make_rig([Reply(fault=page), STILL_HERE]) as rig:
        _, failure = await _failure(rig.model)
        found = (failure.kind, failure.status)
        _promise(found == ("server", 502), f"a page with status 502 is a server failure, not {found}")
        await _answers(rig.model)


async def half_a_character_does_not_stop_a_request(make_rig: RigMaker) -> None:
    async with make_rig([STILL_HERE]) as rig:
        question = UserMessage(content="A lone surrogate, \ud83c, cannot be encoded.", timestamp=1)
        await _events(rig.model, request_of(rig.model, question))
        _promise(rig.rejections == [], f"the server found no fault with the request, not {rig.rejections}")


async def connections_are_used_again(make_rig: RigMaker) -> None:
    async with make_rig([STILL_HERE]) as rig:
        for _ in range(3):
            await _answers(rig.model)
        connections = rig.server.connections if rig.server is not None else 1
        _promise(connections == 1, f"three requests in a row share a connection, not {connections}")


async def a_server_that_is_gone_is_a_lost_connection(make_rig: RigMaker) -> None:
    async with make_rig([STILL_HERE]) as rig:
        await _answers(rig.model)
        if rig.server is not None:
            rig.server.stop()
            _, failure = await _failure(rig.model)
            _promise(failure.kind == "connection", f"the kind is 'connection', not {failure.kind!r}")


HTTP_CHECKS: tuple[Check, ...] = (
    every_legal_framing_reads_the_same,
    usage_that_was_not_reported_is_unknown,
    an_answer_of_a_proxy_is_a_server_failure,
    half_a_character_does_not_stop_a_request,
    connections_are_used_again,
    a_server_that_is_gone_is_a_lost_connection,
)

MODEL_CHECKS: tuple[Check, ...] = (
    the_end_comes_last_and_once,
    text_is_streamed_in_pieces,
    parts_of_all_kinds_arrive_whole_and_in_order,
    parallel_calls_keep_their_indexes_apart,
    broken_arguments_are_passed_on_as_they_came,
    an_answer_cut_at_the_output_limit_says_so,
    usage_keeps_cached_tokens_apart,
    a_cut_stream_is_a_lost_connection,
    refusals_have_their_kind,
    the_wait_that_the_server_asks_for_is_told,
    an_error_inside_the_stream_is_a_failure,
    cancelling_closes_the_connection,
    a_consumer_that_leaves_closes_the_connection,
    a_closed_model_can_be_used_again,
    a_long_conversation_is_a_correct_request,
)
