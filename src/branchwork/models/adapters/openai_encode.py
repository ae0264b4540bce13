"""Requests of OpenAI's chat completions API.

Format: https://platform.openai.com/docs/api-reference/chat. Compatible servers differ in details; `ChatOptions`
names those differences.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from branchwork.errors import UserError
from branchwork.models.base import ModelInfo, ModelRequest, ToolSpec
from branchwork.models.conversation import NO_OUTPUT, AssistantTurn, Group, Result, UserTurn
from branchwork.models.wire import dumps
from branchwork.session.entries import Image, JSONObject, Text, Thinking, ThinkingLevel, ToolCall

OFFICIAL_HOST = "api.openai.com"
RESERVED = frozenset({"model", "messages", "tools", "stream"})


class ChatOptions(Struct, frozen=True, kw_only=True):
    """`options` of a model with api `openai-chat`, as models.toml gives them."""

    max_tokens_field: str | None = None
    """`max_tokens` (default) or `max_completion_tokens` (default for api.openai.com)."""
    thinking_field: str | None = None
    """Field of replayed replies that carries their thinking, for servers that want it back (`reasoning_content`)."""
    reasoning_effort: bool | dict[str, Any] | None = None
    """True sends the thinking level, a table the value it has for the level, False nothing. Default: True if the
    model has levels."""
    system_role: Literal["system", "developer"] = "system"
    strict_tools: bool = False
    """Ask for arguments that follow the schema exactly; the schemas must be closed then."""
    include_usage: bool = True
    """Ask for token counts in the stream (`stream_options`)."""
    parallel_tool_calls: bool | None = None
    cache_key: bool | None = None
    """Send the session as `prompt_cache_key`. Default: only to api.openai.com."""
    call_id_length: int | None = None
    """Length of call ids where it is fixed (Mistral: 9)."""
    extra_body: JSONObject = field(default_factory=dict)
    """Further top-level fields; they win over ours."""


def chat_options(info: ModelInfo) -> ChatOptions:
    """Raises `UserError` for values of the wrong type."""
    try:
        options = msgspec.convert(info.options, ChatOptions)
    except msgspec.ValidationError as error:
        raise UserError(f"models.toml: options of {info.ref}: {error}") from None
    refuse_reserved(info, options.extra_body, RESERVED)
    return options


def refuse_reserved(info: ModelInfo, extra_body: JSONObject, reserved: frozenset[str]) -> None:
    taken = sorted(reserved & extra_body.keys())
    if taken:
        raise UserError(f"models.toml: options of {info.ref}: extra_body cannot set {', '.join(taken)}")


class ChatEncoder:
    """Groups as chat messages."""

    def __init__(self, options: ChatOptions) -> None:
        self._thinking_field = options.thinking_field

    def encode(self, groups: Sequence[Group]) -> list[bytes]:
        messages: list[bytes] = []
        for group in groups:
            if isinstance(group, UserTurn):
                messages.append(dumps({"role": "user", "content": _content(group.content)}))
            else:
                messages.append(dumps(self._reply(group)))
                messages += [dumps(_tool_message(result)) for result in group.results]
                if images := _result_images(group.results):
                    messages.append(dumps({"role": "user", "content": images}))
        return messages

    def mark(self, message: bytes, own: bytes | None = None) -> bytes:
        return message  # servers of this API find cached prefixes by themselves

    def _reply(self, group: AssistantTurn) -> JSONObject:
        texts: list[str] = []
        calls: list[JSONObject] = []
        for part in group.content:
            if isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, ToolCall):
                calls.append(_call(part))
        message: JSONObject = {"role": "assistant", "content": "\n".join(texts) if texts else None}
        if self._thinking_field is not None:
            thinking = [part.thinking for part in group.content if isinstance(part, Thinking) and part.thinking]
            if thinking:
                message[self._thinking_field] = "\n".join(thinking)
        if calls:
            message["tool_calls"] = calls
        return message


def _call(call: ToolCall) -> JSONObject:
    function = {"name": call.name, "arguments": dumps(call.arguments).decode()}
    value: JSONObject = {"id": call.id, "type": "function", "function": function}
    if call.thought_signature:
        value["extra_content"] = {"google": {"thought_signature": call.thought_signature}}
    return value


def _content(parts: Sequence[Text | Image]) -> str | list[JSONObject]:
    """A string where there are only texts: many servers take nothing else."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):
        return "\n".join(texts)
    return [{"type": "text", "text": part.text} if isinstance(part, Text) else _image(part) for part in parts]


def _image(part: Image) -> JSONObject:
    return {"type": "image_url", "image_url": {"url": f"data:{part.mime_type};base64,{part.data}"}}


def _tool_message(result: Result) -> JSONObject:
    texts = [part.text for part in result.content if isinstance(part, Text)]
    if len(texts) < len(result.content):
        texts.append("[image: see the next message]")
    return {"role": "tool", "tool_call_id": result.call_id, "content": "\n".join(texts) or NO_OUTPUT}


def _result_images(results: Sequence[Result]) -> list[JSONObject]:
    """Tool messages hold text only; their images follow in a user message."""
    blocks: list[JSONObject] = []
    for result in results:
        if len(result.content) == 1 and isinstance(result.content[0], Text):
            continue
        images = [part for part in result.content if isinstance(part, Image)]
        if images:
            blocks.append({"type": "text", "text": f"From the result of {result.name} ({result.call_id}):"})
            blocks += map(_image, images)
    return blocks


def chat_head(info: ModelInfo, options: ChatOptions, request: ModelRequest) -> JSONObject:
    """The fields before the messages: what stays the same from request to request."""
    head: JSONObject = {"model": info.id, "stream": True}
    if request.tools:
        head["tools"] = [_tool(tool, options) for tool in request.tools]
    return head


def chat_tail(info: ModelInfo, options: ChatOptions, request: ModelRequest, *, official: bool) -> JSONObject:
    """The fields after the messages. `official` says that the server is OpenAI's own."""
    limit = options.max_tokens_field or ("max_completion_tokens" if official else "max_tokens")
    tail: JSONObject = {limit: request.max_tokens}
    if options.include_usage:
        tail["stream_options"] = {"include_usage": True}
    if request.tools and options.parallel_tool_calls is not None:
        tail["parallel_tool_calls"] = options.parallel_tool_calls
    effort = _effort(info, options, request.thinking)
    if effort is not None:
        tail["reasoning_effort"] = effort
    if request.session_id and (official if options.cache_key is None else options.cache_key):
        tail["prompt_cache_key"] = request.session_id
    return {**tail, **options.extra_body}


def _effort(info: ModelInfo, options: ChatOptions, level: ThinkingLevel) -> Any:
    wanted = options.reasoning_effort
    if isinstance(wanted, dict):
        return wanted.get(level)
    if level == "off" or not (bool(info.thinking) if wanted is None else wanted):
        return None
    return "xhigh" if level == "max" else level  # the API's highest


def _tool(tool: ToolSpec, options: ChatOptions) -> JSONObject:
    function: JSONObject = {
        "name": tool.name,
        "description": tool.description,
        "parameters": {"type": "object", **tool.parameters},
    }
    if options.strict_tools:
        function["strict"] = True
    return {"type": "function", "function": function}
