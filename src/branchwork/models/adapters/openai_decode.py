"""Streams of OpenAI's chat completions API and its many relatives."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from branchwork.models.adapters.failures import Reported, ReportedError, reported_in
from branchwork.models.adapters.lenient import count, decode
from branchwork.models.adapters.openai_calls import CallAssembler, CallDelta, random_call_id
from branchwork.models.base import ReplyEnd, StreamEvent, TextDelta, ThinkingDelta
from branchwork.session.entries import StopReason

DONE = b"[DONE]"

_STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "model_length": "length",  # Mistral
    "tool_calls": "toolUse",
    "function_call": "toolUse",
    "content_filter": "error",
}
"""Reasons not listed count as `stop`; with calls in it, the reply is then a `toolUse` all the same."""


class _Delta(Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_text: Any = None
    refusal: Any = None
    tool_calls: list[CallDelta] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    """In place of `delta` when the server does not stream."""
    finish_reason: Any = None
    usage: Any = None
    """Moonshot puts it here."""


class _Chunk(Struct):
    id: Any = None
    model: Any = None
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


_CHUNKS = msgspec.json.Decoder(_Chunk)


class ChatParser:
    """One reply. It is complete with a finish reason or `[DONE]`; usage may come after either, or never."""

    def __init__(self, new_id: Callable[[], str] = random_call_id) -> None:
        self.ended = False
        self._indexes = 0
        self._kind = ""
        self._index = 0
        self._calls = CallAssembler(self._next_index, new_id)
        self._finish: str | None = None
        self._usage: Any = None
        self._id: str | None = None
        self._model: str | None = None

    def feed(self, data: bytes) -> list[StreamEvent]:
        if data.strip() == DONE:
            self.ended = True
            return []
        chunk = decode(_CHUNKS, data)
        if chunk.error:
            raise ReportedError(reported_in({"error": chunk.error}))
        if self._id is None and isinstance(chunk.id, str):
            self._id = chunk.id
        if self._model is None and isinstance(chunk.model, str):
            self._model = chunk.model
        if chunk.usage:
            self._usage = chunk.usage
        events: list[StreamEvent] = []
        for choice in chunk.choices or ():
            delta = choice.delta or choice.message
            if delta is not None:
                self._delta(delta, events)
            if choice.usage:
                self._usage = choice.usage
            if choice.finish_reason:
                self._end(str(choice.finish_reason))
        return events

    def finish(self) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        self._calls.finish(events)
        events.append(_reply_end(self._finish, self._usage, self._id, self._model))
        return events

    def _delta(self, delta: _Delta, events: list[StreamEvent]) -> None:
        thinking = delta.reasoning_content or delta.reasoning or delta.reasoning_text
        if thinking and isinstance(thinking, str):
            events.append(ThinkingDelta(self._part("thinking"), thinking))
        content = delta.content or delta.refusal
        if content:
            if isinstance(content, str):
                events.append(TextDelta(self._part("text"), content))
            elif isinstance(content, list):
                self._parts(content, events)
        if delta.tool_calls:
            self._kind = "call"
            self._calls.feed(delta.tool_calls, events)

    def _parts(self, parts: list[Any], events: list[StreamEvent]) -> None:
        """Content as a list of parts, where thinking is one kind of them (Mistral)."""
        for part in parts:
            match part:
                case {"type": "text", "text": str(text)} if text:
                    events.append(TextDelta(self._part("text"), text))
                case {"type": "thinking", "thinking": list(inner)}:
                    text = "".join(str(each.get("text") or "") for each in inner if isinstance(each, dict))
                    if text:
                        events.append(ThinkingDelta(self._part("thinking"), text))

    def _part(self, kind: str) -> int:
        if kind != self._kind:
            self._kind = kind
            self._index = self._next_index()
        return self._index

    def _next_index(self) -> int:
        self._indexes += 1
        return self._indexes - 1

    def _end(self, reason: str) -> None:
        if reason in ("error", "network_error"):
            raise ReportedError(Reported(f"the reply ended with {reason!r}"))
        self._finish = reason
        self.ended = True


def _reply_end(finish: str | None, usage: Any, response_id: str | None, model: str | None) -> ReplyEnd:
    stop = _STOPS.get(finish or "stop", "stop")
    if not isinstance(usage, dict):
        return ReplyEnd(stop_reason=stop, raw_stop_reason=finish, response_id=response_id, response_model=model)
    prompt_details = usage.get("prompt_tokens_details") or {}
    output_details = usage.get("completion_tokens_details") or {}
    # DeepSeek has prompt_cache_hit_tokens, Moonshot cached_tokens at the top, OpenRouter cache_write_tokens.
    cached = count(prompt_details, "cached_tokens") or count(usage, "prompt_cache_hit_tokens", "cached_tokens")
    written = count(prompt_details, "cache_write_tokens")
    prompt, output = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    reasoning = count(output_details, "reasoning_tokens") or count(usage, "reasoning_tokens")
    if reasoning and count(usage, "total_tokens") == prompt + output + reasoning:
        output += reasoning  # xAI leaves them out of the completion
    cost = usage.get("cost")
    return ReplyEnd(
        stop_reason=stop,
        raw_stop_reason=finish,
        input=max(0, prompt - cached - written),
        output=output,
        cache_read=cached,
        cache_write=written,
        reasoning=reasoning,
        cost=float(cost) if isinstance(cost, int | float) and not isinstance(cost, bool) else None,
        response_id=response_id,
        response_model=model,
    )
