"""Streams of Anthropic's Messages API (https://docs.claude.com/en/docs/build-with-claude/streaming)."""

from typing import Any

import msgspec
from msgspec import Struct

from branchwork.models.adapters.failures import ReportedError, reported_in
from branchwork.models.adapters.lenient import count, decode
from branchwork.models.base import (
    ReplyEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSignature,
    ToolCallDelta,
    ToolCallStart,
)
from branchwork.session.entries import StopReason

_STOPS: dict[str, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "toolUse",
    "refusal": "error",
}
"""Reasons not listed count as `stop`."""


class _Delta(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Block(Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Any = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class _Message(Struct):
    id: str | None = None
    model: str | None = None
    usage: Any = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | str | None = None
    usage: Any = None
    error: Any = None


class _Open:
    """A block between its start and its end."""

    __slots__ = ("call", "input", "redacted", "signature")

    def __init__(self, *, call: bool = False, start: Any = None, redacted: bool = False, signature: str = "") -> None:
        self.call = call
        self.input = start
        self.redacted = redacted
        self.signature = signature


_EVENTS = msgspec.json.Decoder(_Event)


class MessagesParser:
    """One reply. It is complete with a stop reason; blocks and events of unknown types are passed over."""

    def __init__(self) -> None:
        self.ended = False
        self._open: dict[int, _Open] = {}
        self._usage: dict[str, Any] = {}
        self._stop: str | None = None
        self._message = _Message()

    def feed(self, data: bytes) -> list[StreamEvent]:
        event = decode(_EVENTS, data)
        match event.type:
            case "content_block_delta":
                return self._delta(event.index, event.delta) if event.delta is not None else []
            case "content_block_start":
                return self._start(event.index, event.content_block) if event.content_block is not None else []
            case "content_block_stop":
                return self._close(event.index)
            case "message_start":
                if isinstance(event.message, _Message):
                    self._message = event.message
                    self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    self._stop = event.delta.stop_reason
                    self.ended = True
            case "message_stop":
                self.ended = True
        if event.error is not None:
            raise ReportedError(reported_in({"error": event.error}))
        return []

    def finish(self) -> list[StreamEvent]:
        usage = self._usage
        stop = _STOPS.get(self._stop or "end_turn", "stop")
        return [
            ReplyEnd(
                stop_reason=stop,
                raw_stop_reason=self._stop,
                input=count(usage, "input_tokens") if usage else None,
                output=count(usage, "output_tokens") if usage else None,
                cache_read=count(usage, "cache_read_input_tokens"),
                cache_write=count(usage, "cache_creation_input_tokens"),
                cache_write_1h=count(usage.get("cache_creation"), "ephemeral_1h_input_tokens"),
                response_id=self._message.id,
                response_model=self._message.model,
            )
        ]

    def _start(self, index: int, block: _Block) -> list[StreamEvent]:
        """Everything may already be in the start: some compatible servers send whole blocks."""
        match block.type:
            case "text":
                return [TextDelta(index, block.text)] if block.text else []
            case "thinking":
                self._open[index] = _Open(signature=block.signature or "")
                return [ThinkingDelta(index, block.thinking)] if block.thinking else []
            case "redacted_thinking":
                self._open[index] = _Open(redacted=True, signature=block.data or "")
            case "tool_use":
                self._open[index] = _Open(call=True, start=block.input)
                return [ToolCallStart(index, block.id or "", block.name or "")]
        return []

    def _delta(self, index: int, delta: _Delta) -> list[StreamEvent]:
        match delta.type:
            case "text_delta":
                return [TextDelta(index, delta.text)] if delta.text else []
            case "thinking_delta":
                return [ThinkingDelta(index, delta.thinking)] if delta.thinking else []
            case "signature_delta":
                self._open.setdefault(index, _Open()).signature += delta.signature or ""
            case "input_json_delta":
                block = self._open.get(index)
                if delta.partial_json and block is not None and block.call:
                    block.input = None
                    return [ToolCallDelta(index, delta.partial_json)]
        return []

    def _close(self, index: int) -> list[StreamEvent]:
        block = self._open.pop(index, None)
        if block is None:
            return []
        if block.call:
            given = block.input
            return [ToolCallDelta(index, msgspec.json.encode(given).decode())] if given else []
        return [ThinkingSignature(index, block.signature, block.redacted)] if block.signature else []

    def _count(self, usage: Any) -> None:
        """Figures are cumulative: later ones replace earlier ones, those left out or null stay."""
        if isinstance(usage, dict):
            self._usage |= {name: value for name, value in usage.items() if value is not None}
