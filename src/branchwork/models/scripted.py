"""A model that follows a script: what `branchwork demo` runs on, and what tests of the agent talk to.

    ScriptedModel([thinks("They want a file.") + calls("write", path="a.txt", content="hi"), says("Done.")])

Each request takes the next step. A step is a sum of pieces, streamed in their order.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias, assert_never

import msgspec
from msgspec import Struct

from branchwork.clock import Clock, SystemClock
from branchwork.models.base import (
    FailureKind,
    ModelFailure,
    ModelInfo,
    ModelRequest,
    ReplyEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSignature,
    ToolCallDelta,
    ToolCallStart,
    ToolSpec,
    Transcript,
)
from branchwork.session.entries import JSONObject, Message, StopReason, ThinkingLevel

CHARS_PER_TOKEN = 4
"""The usual rule of thumb for English text and code."""


class Say(Struct, frozen=True):
    text: str


class Think(Struct, frozen=True):
    text: str
    signature: str | None


class CallTool(Struct, frozen=True):
    tool: str
    arguments_text: str
    id: str | None


class Fail(Struct, frozen=True):
    kind: FailureKind
    message: str
    retry_after: float | None


class Hang(Struct, frozen=True):
    pass


class End(Struct, frozen=True):
    stop: StopReason | None
    input: int | None
    output: int | None
    cache_read: int = 0


Piece: TypeAlias = Say | Think | CallTool | Fail | Hang | End


class Step(Struct, frozen=True):
    """The answer to one request; steps are joined with `+`."""

    pieces: tuple[Piece, ...]

    def __add__(self, other: "Step") -> "Step":
        return Step(self.pieces + other.pieces)


def says(text: str) -> Step:
    return Step((Say(text),))


def thinks(text: str, *, signature: str | None = "scripted") -> Step:
    return Step((Think(text, signature),))


def calls(tool: str, /, **arguments: Any) -> Step:
    """A tool call; add several for parallel calls."""
    return Step((CallTool(tool, msgspec.json.encode(arguments).decode(), None),))


def calls_raw(tool: str, arguments_text: str, *, id: str | None = None) -> Step:
    """A tool call whose arguments are sent as they are, valid JSON or not."""
    return Step((CallTool(tool, arguments_text, id),))


def fails(
    kind: FailureKind, *, after: int = 0, message: str = "scripted failure", retry_after: float | None = None
) -> Step:
    """`after` pieces of text, then a `ModelFailure`."""
    said = tuple(Say(f"part {number} ") for number in range(1, after + 1))
    return Step((*said, Fail(kind, message, retry_after)))


def hangs() -> Step:
    """Sends nothing more until the request is cancelled."""
    return Step((Hang(),))


def ends(
    stop: StopReason | None = None, *, input: int | None = None, output: int | None = None, cache_read: int = 0
) -> Step:
    """How the reply ends: its stop reason and usage in tokens. What is not given follows from the rest."""
    return Step((End(stop, input, output, cache_read),))


StepFunction: TypeAlias = Callable[[ModelRequest], Step]


class Seen(Struct, frozen=True):
    """What one request held when it was made."""

    system: str
    messages: tuple[Message, ...]
    """The transcript and the messages for this request only."""
    tools: tuple[ToolSpec, ...]
    thinking: ThinkingLevel
    max_tokens: int


class ScriptExhausted(ModelFailure):
    """The agent asked more often than the script foresaw."""


class ScriptedModel:
    """Implements `branchwork.models.base.Model`.

    `script` is a list of steps or functions of the request, or one function for all requests. `delay_s` is
    the time before each delta, by `clock`. Usage that a step does not state is estimated from lengths.
    """

    def __init__(
        self,
        script: Iterable[Step | StepFunction] | StepFunction = (),
        *,
        info: ModelInfo | None = None,
        delta_chars: int = 12,
        delay_s: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self.script: list[Step | StepFunction] = [] if callable(script) else list(script)
        """The steps that are left; more may be added at any time."""
        self.seen: list[Seen] = []
        self._always = script if callable(script) else None
        self._info = info or scripted_info()
        self._delta_chars = delta_chars
        self._delay_s = delay_s
        self._clock = clock or SystemClock()
        self._counter = _Counter()

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        import asyncio

        messages = (*request.transcript.messages, *request.extra)
        self.seen.append(Seen(request.system, messages, request.tools, request.thinking, request.max_tokens))
        number = len(self.seen)
        step = self._next(request, number)
        end = End(None, None, None)
        for index, piece in enumerate(step.pieces):
            match piece:
                case Say() | Think() | CallTool():
                    for event in self._events(piece, index, number):
                        await self._clock.sleep(self._delay_s)
                        yield event
                case Fail(kind=kind, message=message, retry_after=retry_after):
                    raise ModelFailure(kind, message, retry_after=retry_after)
                case Hang():
                    await asyncio.get_running_loop().create_future()
                case End():
                    end = piece
                case _:
                    assert_never(piece)
        yield self._end(request, step, end, number)

    async def aclose(self) -> None:
        return None

    def _next(self, request: ModelRequest, number: int) -> Step:
        if self._always is not None:
            return self._always(request)
        if not self.script:
            raise ScriptExhausted("protocol", f"the script is used up: it has no step for request {number}")
        step = self.script.pop(0)
        return step if isinstance(step, Step) else step(request)

    def _events(self, piece: Say | Think | CallTool, index: int, number: int) -> Iterator[StreamEvent]:
        match piece:
            case Say(text=text):
                yield from (TextDelta(index, delta) for delta in self._deltas(text))
            case Think(text=text, signature=signature):
                yield from (ThinkingDelta(index, delta) for delta in self._deltas(text))
                if signature is not None:
                    yield ThinkingSignature(index, signature)
            case CallTool(tool=tool, arguments_text=text, id=call_id):
                yield ToolCallStart(index, call_id or f"call_{number}_{index}", tool)
                yield from (ToolCallDelta(index, delta) for delta in self._deltas(text))
            case _:
                assert_never(piece)

    def _deltas(self, text: str) -> Iterator[str]:
        for start in range(0, len(text), self._delta_chars):
            yield text[start : start + self._delta_chars]

    def _end(self, request: ModelRequest, step: Step, end: End, number: int) -> ReplyEnd:
        called = any(isinstance(piece, CallTool) for piece in step.pieces)
        stop: Literal["toolUse", "stop"] = "toolUse" if called else "stop"
        return ReplyEnd(
            stop_reason=end.stop or stop,
            input=self._counter.tokens(request) if end.input is None else end.input,
            output=sum(map(_chars, step.pieces)) // CHARS_PER_TOKEN + 1 if end.output is None else end.output,
            cache_read=end.cache_read,
            response_id=f"scripted-{number}",
        )


def scripted_info(**changes: Any) -> ModelInfo:
    """The catalogue entry of a scripted model; `changes` are fields of `ModelInfo`."""
    fields: JSONObject = {
        "provider": "scripted",
        "id": "demo",
        "api": "scripted",
        "name": "Scripted",
        "context_window": 200_000,
        "thinking": ("low", "medium", "high"),
    }
    return ModelInfo(**{**fields, **changes})


class _Counter:
    """Estimates the size of requests; a transcript that only grew is not counted again."""

    def __init__(self) -> None:
        self._transcript: Transcript | None = None
        self._generation = 0
        self._counted = 0
        self._chars = 0

    def tokens(self, request: ModelRequest) -> int:
        transcript = request.transcript
        if transcript is not self._transcript or transcript.generation != self._generation:
            self._transcript, self._generation = transcript, transcript.generation
            self._counted = self._chars = 0
        self._chars += _size(transcript.messages[self._counted :])
        self._counted = len(transcript.messages)
        return (len(request.system) + self._chars + _size(request.extra)) // CHARS_PER_TOKEN + 1


def _size(messages: Iterable[Message]) -> int:
    return sum(len(repr(message)) for message in messages)


def _chars(piece: Piece) -> int:
    match piece:
        case Say(text=text) | Think(text=text) | CallTool(arguments_text=text):
            return len(text)
        case Fail() | Hang() | End():
            return 0
        case _:
            assert_never(piece)
