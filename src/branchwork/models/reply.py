"""Builds the assistant message from a stream; the one place where replies are put together."""

from branchwork.models.base import (
    ModelInfo,
    ReplyEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSignature,
    ToolCallDelta,
    ToolCallStart,
)
from branchwork.models.usage import usage_of
from branchwork.session.codec import decode_object
from branchwork.session.entries import (
    AssistantMessage,
    AssistantPart,
    JSONObject,
    StopReason,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    Usage,
)


class _Part:
    """Pieces are kept in a list and joined once: a part of n pieces costs n, not n²."""

    __slots__ = ("call_id", "kind", "name", "pieces", "redacted", "signature")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.signature: str | None = None
        self.redacted = False
        self.call_id = ""
        self.name = ""

    def finish(self) -> AssistantPart | None:
        text = "".join(self.pieces)
        if self.kind == "text":
            return Text(text=text, text_signature=self.signature) if text else None
        if self.kind == "thinking":
            if not text and self.signature is None:
                return None
            return Thinking(thinking=text, thinking_signature=self.signature, redacted=self.redacted)
        arguments = parse_arguments(text)
        return ToolCall(
            id=self.call_id,
            name=self.name,
            arguments=arguments or {},
            thought_signature=self.signature,
            arguments_text=text if arguments is None else None,
        )


def parse_arguments(text: str) -> JSONObject | None:
    """The JSON object in `text` (nothing at all counts as `{}`), or None when it is not one."""
    if not text.strip():
        return {}
    return decode_object(text.encode("utf-8", "replace"))


class ReplyBuilder:
    """Feed it every event of one stream, then `finish`; at any moment it can also be cut short."""

    def __init__(self, info: ModelInfo, thinking: ThinkingLevel, started_ms: int) -> None:
        self._info = info
        self._thinking = thinking
        self._started_ms = started_ms
        self._parts: dict[int, _Part] = {}
        self.end: ReplyEnd | None = None

    @property
    def started(self) -> bool:
        """Whether any part arrived; from then on a retry would repeat what was shown."""
        return bool(self._parts)

    def feed(self, event: StreamEvent) -> None:
        match event:
            case TextDelta(index=index, text=text):
                self._part(index, "text").pieces.append(text)
            case ThinkingDelta(index=index, text=text):
                self._part(index, "thinking").pieces.append(text)
            case ThinkingSignature(index=index, signature=signature, redacted=redacted):
                part = self._part(index, "thinking")
                part.signature, part.redacted = signature, redacted
            case ToolCallStart(index=index, id=call_id, name=name, signature=signature):
                part = self._part(index, "call")
                part.call_id, part.name, part.signature = call_id, name, signature
            case ToolCallDelta(index=index, text=text):
                self._part(index, "call").pieces.append(text)
            case ReplyEnd():
                self.end = event

    def tool_call(self, index: int) -> ToolCall | None:
        """The call at `index` as far as it has come, if there is one."""
        part = self._parts.get(index)
        built = part.finish() if part is not None else None
        return built if isinstance(built, ToolCall) else None

    def finish(
        self, now_ms: int, *, stop_reason: StopReason | None = None, error: str | None = None
    ) -> AssistantMessage:
        """The message so far. `stop_reason` overrides the server's (for `aborted` and `error`)."""
        end = self.end
        content = tuple(built for _, part in sorted(self._parts.items()) if (built := part.finish()) is not None)
        reason: StopReason = stop_reason or (end.stop_reason if end else "error")
        if reason == "stop" and any(isinstance(part, ToolCall) for part in content):
            reason = "toolUse"  # several compatible servers say "stop" beside their calls
        return AssistantMessage(
            content=content,
            api=self._info.api,
            provider=self._info.provider,
            model=self._info.id,
            usage=usage_of(end, self._info.price) if end else Usage(),
            stop_reason=reason,
            response_model=end.response_model if end else None,
            response_id=end.response_id if end else None,
            thinking_level=self._thinking,
            error_message=error,
            raw_stop_reason=end.raw_stop_reason if end else None,
            duration_ms=now_ms - self._started_ms,
            timestamp=self._started_ms,
        )

    def _part(self, index: int, kind: str) -> _Part:
        part = self._parts.get(index)
        if part is None:
            part = self._parts[index] = _Part(kind)
        return part
