"""Requests of Anthropic's Messages API.

Format: https://docs.claude.com/en/api/messages. Prompt caching: at most four breakpoints, each found again by a
later request that has the same bytes before it; one goes after the tools, one after the system prompt, two move
along with the conversation, so that each request finds the last one of the request before it.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct, field

from branchwork.errors import UserError
from branchwork.models.adapters.openai_encode import refuse_reserved
from branchwork.models.base import ModelInfo, ModelRequest, ToolSpec
from branchwork.models.conversation import AssistantTurn, Group, Result, UserTurn
from branchwork.models.thinking import budget
from branchwork.models.wire import dumps
from branchwork.session.entries import AssistantPart, Image, JSONObject, Text, Thinking, ThinkingLevel, ToolCall

RESERVED = frozenset({"model", "messages", "system", "tools", "stream"})

EFFORTS: dict[ThinkingLevel, str] = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""`output_config.effort` per level (https://platform.claude.com/docs/en/build-with-claude/effort)."""


class MessagesOptions(Struct, frozen=True, kw_only=True):
    """`options` of a model with api `anthropic`, as models.toml gives them."""

    thinking_style: Literal["budget", "adaptive"] = "budget"
    """`adaptive` lets the model decide within an effort; models from Opus 4.7 on take nothing else."""
    thinking_display: Literal["summarized", "omitted"] | None = None
    """Whether adaptive thinking comes with text; models differ in what they do when it is not said."""
    cache_ttl: Literal["5m", "1h"] = "5m"
    extra_body: JSONObject = field(default_factory=dict)
    """Further top-level fields; they win over ours."""


def messages_options(info: ModelInfo) -> MessagesOptions:
    """Raises `UserError` for values of the wrong type."""
    try:
        options = msgspec.convert(info.options, MessagesOptions)
    except msgspec.ValidationError as error:
        raise UserError(f"models.toml: options of {info.ref}: {error}") from None
    refuse_reserved(info, options.extra_body, RESERVED)
    return options


class MessagesEncoder:
    """Groups as messages of alternating roles: neighbours on the user's side become one, tool results first."""

    def __init__(self, options: MessagesOptions) -> None:
        self.cache_control: JSONObject = {"type": "ephemeral"}
        if options.cache_ttl != "5m":
            self.cache_control["ttl"] = options.cache_ttl
        self._mark = b',"cache_control":' + dumps(self.cache_control)

    def encode(self, groups: Sequence[Group]) -> list[bytes]:
        messages: list[bytes] = []
        blocks: list[JSONObject] = []
        for group in groups:
            if isinstance(group, UserTurn):
                blocks += [_user_block(part) for part in group.content]
                continue
            if blocks:
                messages.append(_user_message(blocks))
            messages.append(dumps({"role": "assistant", "content": _reply_blocks(group)}))
            blocks = [_result_block(result) for result in group.results]
        if blocks:
            messages.append(_user_message(blocks))
        return messages

    def mark(self, message: bytes, own: bytes | None = None) -> bytes:
        # A user message ends with its last block's brace, the list's bracket and its own brace.
        cut = len(own or message) - 3
        return message[:cut] + self._mark + message[cut:]


def _user_message(blocks: list[JSONObject]) -> bytes:
    return dumps({"role": "user", "content": blocks})


def _user_block(part: Text | Image) -> JSONObject:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": part.data}}


def _result_block(result: Result) -> JSONObject:
    block: JSONObject = {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": [_user_block(part) for part in result.content],
    }
    if result.is_error:
        block["is_error"] = True
    return block


def _reply_blocks(group: AssistantTurn) -> list[JSONObject]:
    parts = group.content
    while isinstance(parts[-1], Thinking):  # refused at the end of a message; groups always hold something else
        parts = parts[:-1]
    return [block for part in parts if (block := _reply_block(part)) is not None]


def _reply_block(part: AssistantPart) -> JSONObject | None:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case ToolCall():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
        case Thinking(thinking_signature=None):
            return None  # a block without signature is refused
        case Thinking(redacted=True, thinking_signature=data):
            return {"type": "redacted_thinking", "data": data}
        case Thinking(thinking=text, thinking_signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature}


def messages_head(info: ModelInfo, request: ModelRequest, cache_control: JSONObject | None) -> JSONObject:
    """The fields before the messages; `cache_control` goes to the last tool and to the system prompt."""
    head: JSONObject = {"model": info.id, "stream": True}
    marked = {"cache_control": cache_control} if cache_control is not None else {}
    if request.tools:
        tools = [_tool(tool) for tool in request.tools]
        tools[-1] |= marked
        head["tools"] = tools
    if request.system.strip():
        head["system"] = [{"type": "text", "text": request.system, **marked}]
    return head


def messages_tail(options: MessagesOptions, request: ModelRequest) -> JSONObject:
    """The fields after the messages."""
    tail: JSONObject = {"max_tokens": request.max_tokens}
    level = request.thinking
    if level != "off" and options.thinking_style == "adaptive":
        tail["thinking"] = {"type": "adaptive"}
        if options.thinking_display is not None:
            tail["thinking"]["display"] = options.thinking_display
        tail["output_config"] = {"effort": EFFORTS[level]}
    elif tokens := budget(level, request.max_tokens):
        tail["thinking"] = {"type": "enabled", "budget_tokens": tokens}
    return {**tail, **options.extra_body}


def _tool(tool: ToolSpec) -> JSONObject:
    value: JSONObject = {"name": tool.name, "input_schema": {"type": "object", **tool.parameters}}
    if tool.description.strip():
        value["description"] = tool.description
    return value
