"""Between this program's messages and pydantic-ai's, at the edge; nothing of pydantic-ai is stored.

What a provider wants back with a part (signatures, item ids, encrypted reasoning) travels in the part's opaque
signature, as a small JSON object that only this module writes and reads.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct, field
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as PydanticRequest
from pydantic_ai.tools import ToolDefinition

from branchwork.models.base import (
    ReplyEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ThinkingSignature,
    ToolCallDelta,
    ToolCallStart,
    ToolSpec,
)
from branchwork.models.conversation import AssistantTurn, Group, Result, UserTurn
from branchwork.session.entries import AssistantPart, Image, StopReason, Text, Thinking, ToolCall

REDACTED = "redacted_thinking"
"""pydantic-ai's id of a thinking part without text (Anthropic)."""

STOP_REASONS: Mapping[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_call": "toolUse",
    "content_filter": "error",
    "error": "error",
}

ReplyPart: TypeAlias = TextPart | ThinkingPart | ToolCallPart


class _Opaque(Struct, frozen=True, omit_defaults=True):
    """What goes back to the provider with a part."""

    signature: str | None = None
    id: str | None = None
    provider: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


# ---- requests -------------------------------------------------------------------------------------


def tool_definitions(tools: Sequence[ToolSpec]) -> list[ToolDefinition]:
    """Not strict: schemas with optional arguments stay as they are."""
    return [
        ToolDefinition(
            name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters), strict=False
        )
        for tool in tools
    ]


def to_messages(system: str, groups: Sequence[Group], model: str) -> list[ModelMessage]:
    """The conversation for pydantic-ai: requests and replies in turn, each request with one prompt at most."""
    messages: list[ModelMessage] = []
    waiting: list[ModelRequestPart] = [SystemPromptPart(system)] if system else []
    prompt: list[UserContent] = []
    for group in groups:
        match group:
            case UserTurn(content=content):
                prompt += [_user_part(part) for part in content]
            case AssistantTurn(content=content, results=results):
                messages.append(_request(waiting, prompt))
                parts = [_reply_part(part) for part in content if not _unsigned(part)]
                messages.append(ModelResponse(parts=parts, model_name=model))
                waiting, prompt = [_result_part(result) for result in results], []
    if waiting or prompt:
        messages.append(_request(waiting, prompt))
    return messages


def _unsigned(part: AssistantPart) -> bool:
    """Thinking that its provider cannot recognise; pydantic-ai would replay it as if the user had said it."""
    return isinstance(part, Thinking) and _unpack(part.thinking_signature) == _Opaque()


def _request(parts: list[ModelRequestPart], prompt: list[UserContent]) -> PydanticRequest:
    return PydanticRequest(parts=[*parts, UserPromptPart(prompt)] if prompt else parts)


def _user_part(part: Text | Image) -> str | BinaryContent:
    if isinstance(part, Text):
        return part.text
    return BinaryContent(base64.b64decode(part.data), media_type=part.mime_type)


def _result_part(result: Result) -> ToolReturnPart:
    content: Any = [_user_part(part) for part in result.content]
    if len(content) == 1 and isinstance(content[0], str):
        content = content[0]
    outcome = "failed" if result.is_error else "success"
    return ToolReturnPart(
        tool_name=result.name,
        content=content,
        tool_call_id=result.call_id,
        outcome=outcome,  # type: ignore[arg-type]  # a literal of two of its values
    )


def _reply_part(part: AssistantPart) -> ModelResponsePart:
    match part:
        case Text(text=text, text_signature=signature):
            known = _unpack(signature)
            return TextPart(text, id=known.id, provider_name=known.provider, provider_details=known.details or None)
        case Thinking(thinking=text, thinking_signature=signature, redacted=redacted):
            known = _unpack(signature)
            return ThinkingPart(
                text,
                id=REDACTED if redacted else known.id,
                signature=known.signature,
                provider_name=known.provider,
                provider_details=known.details or None,
            )
        case ToolCall(id=call_id, name=name, arguments=arguments, thought_signature=signature):
            known = _unpack(signature)
            return ToolCallPart(
                name,
                arguments,
                call_id,
                id=known.id,
                provider_name=known.provider,
                provider_details=known.details or None,
            )


def _unpack(text: str | None) -> _Opaque:
    if text is None:
        return _Opaque()
    try:
        return msgspec.json.decode(text, type=_Opaque)
    except msgspec.DecodeError:
        return _Opaque()


def _pack(part: ReplyPart) -> str | None:
    opaque = _Opaque(
        signature=part.signature if isinstance(part, ThinkingPart) else None,
        id=part.id,
        provider=part.provider_name,
        details=part.provider_details or {},
    )
    if opaque.signature is None and opaque.id is None and not opaque.details:
        return None
    return msgspec.json.encode(opaque, enc_hook=str).decode()


# ---- replies --------------------------------------------------------------------------------------


class EventMapper:
    """pydantic-ai's stream events of one reply, one after the other, as ours."""

    def __init__(self) -> None:
        self._whole: set[int] = set()
        """Calls whose arguments come as an object: they are written when the part is complete."""

    def feed(self, event: ModelResponseStreamEvent) -> Iterator[StreamEvent]:
        match event:
            case PartStartEvent(index=index, part=part):
                yield from self._start(index, part)
            case PartDeltaEvent(index=index, delta=delta):
                yield from self._delta(index, delta)
            case PartEndEvent(index=index, part=part):
                yield from self._end(index, part)
            case _:
                pass  # FinalResultEvent concerns pydantic-ai's own loop

    def _start(self, index: int, part: ModelResponsePart) -> Iterator[StreamEvent]:
        match part:
            case TextPart(content=content):
                if content:
                    yield TextDelta(index, content)
            case ThinkingPart(content=content):
                if content:
                    yield ThinkingDelta(index, content)
            case ToolCallPart(tool_name=name, args=args, tool_call_id=call_id):
                yield ToolCallStart(index, call_id, name)
                if isinstance(args, dict):
                    self._whole.add(index)
                elif args:
                    yield ToolCallDelta(index, args)
            case _:
                pass  # files, speech and calls that the provider itself runs: none is asked for

    def _delta(self, index: int, delta: object) -> Iterator[StreamEvent]:
        match delta:
            case TextPartDelta(content_delta=text):
                if text:
                    yield TextDelta(index, text)
            case ThinkingPartDelta(content_delta=text):
                if text:
                    yield ThinkingDelta(index, text)
            case ToolCallPartDelta(args_delta=str(text)):
                if text and index not in self._whole:
                    yield ToolCallDelta(index, text)
            case ToolCallPartDelta(args_delta=dict()):
                self._whole.add(index)
            case _:
                pass

    def _end(self, index: int, part: ModelResponsePart) -> Iterator[StreamEvent]:
        if not isinstance(part, TextPart | ThinkingPart | ToolCallPart):
            return
        if isinstance(part, ToolCallPart) and index in self._whole:
            yield ToolCallDelta(index, part.args_as_json_str())
        opaque = _pack(part)
        if opaque is not None:
            yield ThinkingSignature(index, opaque, redacted=isinstance(part, ThinkingPart) and part.id == REDACTED)


def reply_end(response: ModelResponse) -> ReplyEnd | None:
    """The end of a complete reply; None when the stream stopped before the server was done.

    A reply with a server's id has that server's own word for why it ended: pydantic-ai says `stop` in its place when
    a stream of Chat Completions just stops. Models inside pydantic-ai give neither.
    """
    raw = (response.provider_details or {}).get("finish_reason")
    if raw is None and response.finish_reason in (None, "stop") and response.provider_response_id is not None:
        return None
    usage = response.usage
    reported = usage.input_tokens > 0 or usage.output_tokens > 0
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    return ReplyEnd(
        stop_reason=STOP_REASONS.get(response.finish_reason or "stop", "stop"),
        raw_stop_reason=response.finish_reason if raw is None else str(raw),
        input=max(0, usage.input_tokens - cached) if reported else None,
        output=usage.output_tokens if reported else None,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        reasoning=usage.output_reasoning_tokens,
        response_id=response.provider_response_id,
        response_model=response.model_name,
    )
