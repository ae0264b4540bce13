"""Anthropic's Messages, as a server sees them: a strict judge of requests and a writer of answers.

Formats and limits: https://docs.anthropic.com/en/api/messages and the errors its API answers with. One rule is
stricter than the original: roles must alternate, while the original joins neighbours of one role.
"""

import re
from collections.abc import Iterator
from typing import Any

from branchwork.session.entries import JSONObject
from branchwork.testing.faults import Frame, Refused
from branchwork.testing.script import (
    BadRequest,
    Call,
    Exchange,
    Headers,
    Part,
    Refusal,
    Text,
    Thinking,
    Tokens,
    Wire,
    demand,
)

# fmt: off
_FIELDS = frozenset({
    "model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "temperature", "top_p", "top_k",
    "stop_sequences", "metadata", "thinking", "service_tier", "container", "context_management", "mcp_servers",
    "output_config", "cache_control", "betas",
})
# fmt: on
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_BREAKPOINTS = 4
_MIN_THINKING_BUDGET = 1024
_STOP = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use", "refusal": "refusal"}
_REFUSALS = {
    "rate_limit": (429, "rate_limit_error", "This request would exceed your organization's rate limit"),
    "quota": (402, "billing_error", "Your credit balance is too low to access the API"),
    "server": (500, "api_error", "Internal server error"),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "auth": (401, "authentication_error", "invalid x-api-key"),
    "overflow": (400, "invalid_request_error", "prompt is too long: 1200 tokens > 1000 maximum"),
    "rejected": (400, "invalid_request_error", "unsupported value"),
}


# ---- the judge --------------------------------------------------------------------------------------


def _judge(body: JSONObject, headers: Headers) -> None:
    demand(headers.get("anthropic-version"), "anthropic-version: header is required")
    for name in sorted(body.keys() - _FIELDS):
        raise BadRequest(f"{name}: Extra inputs are not permitted")
    for name in ("model", "max_tokens", "messages"):
        demand(name in body, f"{name}: Field required")
    demand(isinstance(body["model"], str) and body["model"], "model: String should have at least 1 character")
    limit = body["max_tokens"]
    demand(isinstance(limit, int) and limit >= 1, "max_tokens: Input should be greater than or equal to 1")
    breakpoints = _judge_tools(body) + _judge_system(body.get("system"))
    _judge_thinking(body)
    messages = body["messages"]
    demand(isinstance(messages, list) and messages, "messages: at least one message is required")
    breakpoints += sum(_judge_message(message, index) for index, message in enumerate(messages))
    demand(
        breakpoints <= _MAX_BREAKPOINTS,
        f"A maximum of {_MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {breakpoints}.",
    )
    _judge_order(messages)


def _judge_tools(body: JSONObject) -> int:
    """The number of cache breakpoints."""
    tools = body.get("tools", [])
    demand(isinstance(tools, list), "tools: Input should be a valid array")
    demand(tools or "tool_choice" not in body, "tool_choice: may only be specified while providing tools")
    names = []
    for index, tool in enumerate(tools):
        demand(isinstance(tool, dict), f"tools.{index}: Input should be an object")
        name = tool.get("name")
        demand(_matches(_TOOL_NAME, name), f"tools.{index}.name: String should match pattern {_TOOL_NAME.pattern!r}")
        schema = tool.get("input_schema")
        demand(isinstance(schema, dict), f"tools.{index}.input_schema: Field required")
        demand(schema.get("type") == "object", f"tools.{index}.input_schema.type: Input should be 'object'")
        names.append(name)
    demand(len(set(names)) == len(names), "tools: Tool names must be unique.")
    return sum(_breakpoint(tool, f"tools.{index}") for index, tool in enumerate(tools))


def _judge_system(system: Any) -> int:
    """The number of cache breakpoints."""
    if system is None or isinstance(system, str):
        return 0
    demand(isinstance(system, list), "system: Input should be a valid string or array")
    for index, block in enumerate(system):
        demand(isinstance(block, dict) and block.get("type") == "text", f"system.{index}.type: Input should be 'text'")
        _judge_text(block, f"system.{index}")
    return sum(_breakpoint(block, f"system.{index}") for index, block in enumerate(system))


def _judge_thinking(body: JSONObject) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    demand(kind in {"enabled", "disabled", "adaptive"}, f"thinking.type: {kind!r} is not a known type")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        demand(
            isinstance(budget, int) and budget >= _MIN_THINKING_BUDGET,
            f"thinking.enabled.budget_tokens: Input should be greater than or equal to {_MIN_THINKING_BUDGET}",
        )
        demand(budget < body["max_tokens"], "`max_tokens` must be greater than `thinking.budget_tokens`")
    if kind != "disabled":
        demand(body.get("temperature", 1) == 1, "`temperature` may only be set to 1 when thinking is enabled")


def _judge_message(message: Any, index: int) -> int:
    """The number of cache breakpoints."""
    where = f"messages.{index}"
    demand(isinstance(message, dict), f"{where}: Input should be an object")
    role, content = message.get("role"), message.get("content")
    demand(role in {"user", "assistant"}, f'{where}: Unexpected role "{role}"')
    extra = sorted(message.keys() - {"role", "content"})
    demand(not extra, f"{where}.{(extra or [''])[0]}: Extra inputs are not permitted")
    if isinstance(content, str):
        demand(content, f"{where}: all messages must have non-empty content")
        return 0
    demand(isinstance(content, list), f"{where}.content: Input should be a valid string or array")
    demand(content, f"{where}: all messages must have non-empty content")
    count = 0
    for at, block in enumerate(content):
        demand(isinstance(block, dict), f"{where}.content.{at}: Input should be an object")
        _judge_block(block, role, f"{where}.content.{at}")
        count += _breakpoint(block, f"{where}.content.{at}")
    return count


def _judge_block(block: JSONObject, role: str, where: str) -> None:
    kind = block.get("type")
    allowed = {
        "user": {"text", "image", "document", "tool_result"},
        "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
    }[role]
    demand(kind in allowed, f"{where}.type: {kind!r} is not allowed in a message of role {role!r}")
    if kind == "text":
        _judge_text(block, where)
    elif kind == "image":
        _judge_image(block, where)
    elif kind == "tool_use":
        demand(_matches(_ID, block.get("id")), f"{where}.tool_use.id: String should match pattern {_ID.pattern!r}")
        demand(_matches(_TOOL_NAME, block.get("name")), f"{where}.tool_use.name: String should match the pattern")
        demand(isinstance(block.get("input"), dict), f"{where}.tool_use.input: Input should be a valid dictionary")
    elif kind == "tool_result":
        _judge_result(block, where)
    elif kind == "thinking":
        demand(isinstance(block.get("thinking"), str), f"{where}.thinking.thinking: Field required")
        demand(isinstance(block.get("signature"), str), f"{where}.thinking.signature: Field required")
        demand(block["signature"], f"{where}: Invalid `signature` in `thinking` block")
    elif kind == "redacted_thinking":
        demand(isinstance(block.get("data"), str) and block["data"], f"{where}.redacted_thinking.data: Field required")


def _judge_text(block: JSONObject, where: str) -> None:
    text: Any = block.get("text")
    demand(isinstance(text, str), f"{where}.text.text: Field required")
    demand(text, f"{where}: text content blocks must be non-empty")
    demand(text.strip(), f"{where}: text content blocks must contain non-whitespace text")


def _judge_image(block: JSONObject, where: str) -> None:
    source: Any = block.get("source")
    demand(isinstance(source, dict), f"{where}.image.source: Field required")
    if source.get("type") == "base64":
        demand(isinstance(source.get("data"), str) and source["data"], f"{where}.image.source.data: Field required")
        known = {"image/jpeg", "image/png", "image/gif", "image/webp"}
        demand(source.get("media_type") in known, f"{where}.image.source.media_type: not a known image type")
    else:
        demand(source.get("type") in {"url", "file"}, f"{where}.image.source.type: unknown")


def _judge_result(block: JSONObject, where: str) -> None:
    demand(_matches(_ID, block.get("tool_use_id")), f"{where}.tool_result.tool_use_id: Field required")
    content = block.get("content")
    if isinstance(content, list):
        for index, part in enumerate(content):
            at = f"{where}.tool_result.content.{index}"
            demand(isinstance(part, dict) and part.get("type") in {"text", "image"}, f"{at}.type: unknown")
            if part["type"] == "text":
                _judge_text(part, at)
            else:
                _judge_image(part, at)
    else:
        demand(content is None or isinstance(content, str), f"{where}.tool_result.content: wrong type")
    demand(content or not block.get("is_error"), f"{where}: content cannot be empty if `is_error` is true")


def _breakpoint(block: JSONObject, where: str) -> int:
    control = block.get("cache_control")
    if control is None:
        return 0
    demand(isinstance(control, dict) and control.get("type") == "ephemeral", f"{where}.cache_control.type: unknown")
    demand(control.get("ttl", "5m") in {"5m", "1h"}, f"{where}.cache_control.ttl: Input should be '5m' or '1h'")
    kind = block.get("type")
    demand(
        kind not in {"thinking", "redacted_thinking"}, f"{where}.{kind}.cache_control: Extra inputs are not permitted"
    )
    return 1


def _judge_order(messages: list[JSONObject]) -> None:
    demand(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
    seen: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        demand(
            index == 0 or message["role"] != messages[index - 1]["role"],
            f'{where}: roles must alternate between "user" and "assistant"',
        )
        blocks = message["content"] if isinstance(message["content"], list) else []
        if message["role"] == "user":
            _judge_answers(blocks, waiting, where)
            waiting = []
            continue
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for call_id in waiting:
            demand(call_id not in seen, f"{where}: `tool_use` ids must be unique ({call_id})")
            seen.add(call_id)
    _demand_none(waiting, f"messages.{len(messages) - 1}")
    last = messages[-1]
    if last["role"] == "assistant":
        text = last["content"] if isinstance(last["content"], str) else last["content"][-1].get("text", "")
        demand(text == text.rstrip(), "messages: final assistant content cannot end with trailing whitespace")


def _judge_answers(blocks: list[JSONObject], waiting: list[str], where: str) -> None:
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    for call_id in results:
        demand(
            call_id in waiting,
            f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` block"
            " must have a corresponding `tool_use` block in the previous message.",
        )
    demand(
        len(set(results)) == len(results),
        f"{where}: each tool_use must have a single result. Found multiple `tool_result` blocks with one id",
    )
    _demand_none([call_id for call_id in waiting if call_id not in results], where)
    first = [block["type"] for block in blocks[: len(results)]]
    demand(set(first) <= {"tool_result"}, f"{where}: `tool_result` blocks must come before other content")


def _demand_none(unanswered: list[str], where: str) -> None:
    demand(
        not unanswered,
        f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(unanswered)}."
        " Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    )


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


# ---- answers ----------------------------------------------------------------------------------------


def _frames(exchange: Exchange) -> Iterator[Frame]:
    reply = exchange.reply
    yield _event({"type": "message_start", "message": _message(exchange, [], None, output=1)})
    yield _event({"type": "ping"})
    for index, part in enumerate(reply.parts):
        start, deltas = _block(exchange, index, part)
        yield _event({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    end: JSONObject = {"stop_reason": _STOP[reply.stop_reason], "stop_sequence": None}
    last: JSONObject = {"type": "message_delta", "delta": end}
    if reply.usage is not None:
        last["usage"] = {"output_tokens": reply.usage.output}
    yield _event(last)
    yield _event({"type": "message_stop"})


def _event(data: JSONObject) -> Frame:
    return Frame(data, event=data["type"])


def _block(exchange: Exchange, index: int, part: Part) -> tuple[JSONObject, Iterator[JSONObject]]:
    """The block as it is announced, and its deltas."""
    deltas = exchange.reply.deltas
    match part:
        case Text(text=text):
            return {"type": "text", "text": ""}, ({"type": "text_delta", "text": piece} for piece in deltas(text))
        case Thinking(redacted=True, signature=signature):
            return {"type": "redacted_thinking", "data": signature}, iter(())
        case Thinking(text=text, signature=signature):
            start: JSONObject = {"type": "thinking", "thinking": "", "signature": ""}
            return start, _thinking_deltas(exchange, text, signature)
        case Call():
            block = {"type": "tool_use", "id": _id(exchange, index, part), "name": part.tool, "input": {}}
            return block, (
                {"type": "input_json_delta", "partial_json": piece} for piece in ("", *deltas(part.arguments_text))
            )


def _thinking_deltas(exchange: Exchange, text: str, signature: str) -> Iterator[JSONObject]:
    for piece in exchange.reply.deltas(text):
        yield {"type": "thinking_delta", "thinking": piece}
    yield {"type": "signature_delta", "signature": signature}


def _id(exchange: Exchange, index: int, call: Call) -> str:
    return call.id or exchange.call_id("toolu_", index)


def _message(exchange: Exchange, content: list[JSONObject], stop: str | None, *, output: int) -> JSONObject:
    message: JSONObject = {
        "id": f"msg_{exchange.number}",
        "type": "message",
        "role": "assistant",
        "model": exchange.body["model"],
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
    }
    if exchange.reply.usage is not None:
        message["usage"] = _usage(exchange.reply.usage, output)
    return message


def _usage(tokens: Tokens, output: int) -> JSONObject:
    return {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": tokens.cache_write - tokens.cache_write_1h,
            "ephemeral_1h_input_tokens": tokens.cache_write_1h,
        },
        "output_tokens": output,
    }


def _whole(exchange: Exchange) -> JSONObject:
    reply = exchange.reply
    content: list[JSONObject] = []
    for index, part in enumerate(reply.parts):
        match part:
            case Text(text=text):
                content.append({"type": "text", "text": text})
            case Thinking(redacted=True, signature=signature):
                content.append({"type": "redacted_thinking", "data": signature})
            case Thinking(text=text, signature=signature):
                content.append({"type": "thinking", "thinking": text, "signature": signature})
            case Call(tool=tool, arguments=arguments):
                given = arguments if isinstance(arguments, dict) else {}
                content.append({"type": "tool_use", "id": _id(exchange, index, part), "name": tool, "input": given})
    output = reply.usage.output if reply.usage is not None else 0
    return _message(exchange, content, _STOP[reply.stop_reason], output=output)


def _error(kind: str, message: str) -> JSONObject:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}


def _refusal(fault: Refused) -> Refusal:
    status, kind, message = _REFUSALS[fault.kind]
    return Refusal(fault.status or status, _error(kind, message))


def _rejection(verdict: BadRequest) -> Refusal:
    return Refusal(400, _error("invalid_request_error", verdict.message))


def _error_frame(fault: Refused) -> Frame:
    return Frame(_refusal(fault).body, event="error")


def _key_of(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (token if scheme.lower() == "bearer" else None)


ANTHROPIC = Wire(
    judge=_judge,
    frames=_frames,
    whole=_whole,
    refusal=_refusal,
    rejection=_rejection,
    error_frame=_error_frame,
    key_of=_key_of,
)
