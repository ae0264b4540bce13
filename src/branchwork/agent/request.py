"""One model reply: streams it, retries what may be retried, never loses what arrived."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from branchwork.agent.events import (
    AgentEvent,
    ArgumentsStreamed,
    CallStreamed,
    RequestStarted,
    RetryFinished,
    RetryScheduled,
    TextStreamed,
    ThinkingStreamed,
)
from branchwork.clock import Clock
from branchwork.models.base import (
    Model,
    ModelFailure,
    ModelRequest,
    ReplyEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSignature,
    ToolCallDelta,
    ToolCallStart,
)
from branchwork.models.reply import ReplyBuilder
from branchwork.session.entries import AssistantMessage


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often a failed request is sent again; only before the first part of the reply arrived."""

    max_retries: int = 3
    base_delay_s: float = 2.0
    """Doubles with every attempt."""
    max_delay_s: float = 60.0
    """A server that asks for a longer pause is not waited for."""

    def delay(self, attempt: int, failure: ModelFailure) -> float | None:
        """Seconds to wait before attempt + 1, or None to give up."""
        if not failure.retryable or attempt > self.max_retries:
            return None
        wanted: float = max(self.base_delay_s * 2.0 ** (attempt - 1), failure.retry_after or 0.0)
        if failure.retry_after is not None and failure.retry_after > self.max_delay_s:
            return None
        return min(wanted, self.max_delay_s)


class Overflow(Exception):
    """The request does not fit into the model's context window."""


class Requester:
    """Sends one request and keeps the reply as far as it has come in `builder`.

    `run` may be cancelled; `cut` then gives the message of what had arrived.
    """

    def __init__(self, model: Model, clock: Clock, emit: Callable[[AgentEvent], None], retry: RetryPolicy) -> None:
        self._model = model
        self._clock = clock
        self._emit = emit
        self._retry = retry
        self._builder: ReplyBuilder | None = None
        self.failure: ModelFailure | None = None

    async def run(self, request: ModelRequest) -> AssistantMessage:
        """The reply; a failure is a message with stop reason `error`. Raises `Overflow` only."""
        attempt = 1
        while True:
            builder = self._builder = ReplyBuilder(self._model.info, request.thinking, self._clock.now_ms())
            self._emit(RequestStarted(model=self._model.info.ref, thinking=request.thinking, attempt=attempt))
            try:
                await self._consume(request, builder)
            except ModelFailure as failure:
                if failure.kind == "overflow":
                    raise Overflow(str(failure)) from failure
                delay = None if builder.started else self._retry.delay(attempt, failure)
                if delay is None:
                    return self._give_up(builder, failure, attempt)
                self._emit(
                    RetryScheduled(
                        attempt=attempt, max_attempts=self._retry.max_retries, delay_s=delay, error=str(failure)
                    )
                )
                await self._clock.sleep(delay)
                attempt += 1
                continue
            if attempt > 1:
                self._emit(RetryFinished(success=True, attempt=attempt - 1))
            message = builder.finish(self._clock.now_ms())
            return self._refused(message) if message.stop_reason == "error" else message

    def _refused(self, message: AssistantMessage) -> AssistantMessage:
        """A whole reply that its server declares to be none: a refusal, or one that its filter stopped."""
        why = f"{self._model.info.ref} gave no answer: {message.raw_stop_reason or 'refused'}"
        self.failure = ModelFailure("rejected", why)
        return _without_calls(replace(message, error_message=why))

    def cut(self, reason: str) -> AssistantMessage | None:
        """What had arrived when the run was aborted; None when nothing had."""
        if self._builder is None or not self._builder.started:
            return None
        return _without_calls(self._builder.finish(self._clock.now_ms(), stop_reason="aborted", error=reason))

    async def _consume(self, request: ModelRequest, builder: ReplyBuilder) -> None:
        async for event in self._model.stream(request):
            builder.feed(event)
            shown = _shown(event)
            if shown is not None:
                self._emit(shown)
        if builder.end is None:
            raise ModelFailure("connection", f"{self._model.info.ref}: the reply was cut off before its end")

    def failed(self, failure: ModelFailure) -> AssistantMessage:
        """The reply that records a failure in which no request was sent."""
        builder = ReplyBuilder(self._model.info, "off", self._clock.now_ms())
        return self._give_up(builder, failure, 1)

    def _give_up(self, builder: ReplyBuilder, failure: ModelFailure, attempt: int) -> AssistantMessage:
        self.failure = failure
        if attempt > 1:
            self._emit(RetryFinished(success=False, attempt=attempt - 1, error=str(failure)))
        message = builder.finish(self._clock.now_ms(), stop_reason="error", error=str(failure))
        return _without_calls(message)


def _without_calls(message: AssistantMessage) -> AssistantMessage:
    """A reply that did not finish keeps what it said; the calls it had begun to write were never made."""
    calls = set(map(id, message.tool_calls))
    return replace(message, content=tuple(part for part in message.content if id(part) not in calls))


def _shown(event: StreamEvent) -> AgentEvent | None:
    match event:
        case TextDelta(index=index, text=text):
            return TextStreamed(index=index, text=text)
        case ThinkingDelta(index=index, text=text):
            return ThinkingStreamed(index=index, text=text)
        case ToolCallStart(index=index, id=call_id, name=name):
            return CallStreamed(index=index, call_id=call_id, tool=name)
        case ToolCallDelta(index=index, text=text):
            return ArgumentsStreamed(index=index, text=text)
        case ThinkingSignature() | ReplyEnd():
            return None
