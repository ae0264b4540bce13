"""OpenAI's chat completions, as a server sees them: a strict judge of requests and a writer of answers.

Formats and limits: https://platform.openai.com/docs/api-reference/chat and the errors its API answers with.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from branchwork.session.entries import JSONObject
from branchwork.testing.faults import Frame, Refused
from branchwork.testing.script import (
    BadRequest,
    Call,
    Exchange,
    Headers,
    Refusal,
    Reply,
    Text,
    Thinking,
    Tokens,
    Wire,
    demand,
)

# fmt: off
_FIELDS = frozenset({
    "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "max_tokens",
    "max_completion_tokens", "temperature", "top_p", "n", "stop", "seed", "user", "store", "metadata",
    "reasoning_effort", "response_format", "verbosity", "service_tier", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier", "frequency_penalty", "presence_penalty", "logit_bias", "thinking", "enable_thinking",
    "reasoning", "chat_template_kwargs", "provider", "usage",
})
# fmt: on
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh"})
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID_CHARS = 40
"""The longest tool call id that chat completions accept."""
_FINISH = {"stop": "stop", "length": "length", "calls": "tool_calls", "refusal": "content_filter"}
_REFUSALS: dict[str, tuple[int, str, str | None, str]] = {
    "rate_limit": (429, "requests", "rate_limit_exceeded", "Rate limit reached for requests"),
    "quota": (429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota"),
    "server": (500, "server_error", None, "The server had an error while processing your request"),
    "overloaded": (503, "server_error", "overloaded", "The engine is currently overloaded"),
    "auth": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided"),
    "overflow": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is 1000 tokens. However, your messages resulted in 1200 tokens.",
    ),
    "rejected": (400, "invalid_request_error", "unsupported_value", "Unsupported value"),
}


# ---- the judge --------------------------------------------------------------------------------------


def _judge(body: JSONObject, headers: Headers) -> None:
    for name in sorted(body.keys() - _FIELDS):
        raise BadRequest(f"Unrecognized request argument supplied: {name}", param=name)
    demand(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter", param="model")
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise BadRequest("Missing required parameter: 'messages'.", param="messages")
    demand(messages, "[] is too short - 'messages'", param="messages")
    _judge_options(body)
    _judge_tools(body)
    _judge_conversation(messages)


def _judge_options(body: JSONObject) -> None:
    limits = [name for name in ("max_tokens", "max_completion_tokens") if body.get(name) is not None]
    demand(len(limits) < 2, "max_tokens and max_completion_tokens cannot both be set", param="max_tokens")
    for name in limits:
        demand(_is_count(body[name]), f"Invalid '{name}': expected an integer >= 1.", param=name)
    demand(
        body.get("stream") or body.get("stream_options") is None,
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        param="stream_options",
    )
    effort = body.get("reasoning_effort")
    demand(effort is None or effort in _EFFORTS, f"Invalid value: {effort!r}.", param="reasoning_effort")


def _judge_tools(body: JSONObject) -> None:
    tools = body.get("tools")
    if tools is None:
        demand("tool_choice" not in body, "'tool_choice' is only allowed when 'tools' are specified.")
        demand("parallel_tool_calls" not in body, "'parallel_tool_calls' is only allowed when 'tools' are specified.")
        return
    demand(isinstance(tools, list) and tools, "[] is too short - 'tools'", param="tools")
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        demand(isinstance(tool, dict) and tool.get("type") == "function", f"Invalid '{where}.type'.", param=where)
        function = tool.get("function")
        demand(isinstance(function, dict), f"Missing required parameter: '{where}.function'.", param=where)
        demand(_is_name(function.get("name")), f"Invalid '{where}.function.name': pattern {_NAME.pattern}", param=where)
        schema = function.get("parameters", {"type": "object"})
        demand(
            isinstance(schema, dict) and schema.get("type") == "object",
            f"Invalid schema for function {function['name']!r}: schema must be a JSON Schema of 'type: \"object\"'.",
            param=f"{where}.function.parameters",
        )
    names = [tool["function"]["name"] for tool in tools]
    demand(len(set(names)) == len(names), "Tool names must be unique.", param="tools")


def _judge_conversation(messages: list[Any]) -> None:
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        demand(isinstance(message, dict), f"Invalid type for '{where}': expected an object.", param=where)
        role = message.get("role")
        demand(role in _ROLES, f"Invalid value: {role!r} for '{where}.role'.", param=f"{where}.role")
        if role == "tool":
            call_id = message.get("tool_call_id")
            demand(isinstance(call_id, str), f"Missing required parameter: '{where}.tool_call_id'.", param=where)
            demand(
                call_id in open_calls,
                f"Invalid parameter: messages with role 'tool' must be a response to a preceding message with"
                f" 'tool_calls' ({call_id!r} in {where}).",
                param=where,
            )
            open_calls.discard(call_id)
            _judge_content(message.get("content"), where, images=False)
            continue
        _demand_answered(open_calls, where)
        if role == "assistant":
            open_calls = _judge_assistant(message, where)
        else:
            _judge_content(message.get("content"), where, images=role == "user")
    _demand_answered(open_calls, "the end")


def _demand_answered(open_calls: set[str], where: str) -> None:
    demand(
        not open_calls,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
        f" 'tool_call_id'. The following tool_call_ids did not have response messages before {where}:"
        f" {', '.join(sorted(open_calls))}",
    )


def _judge_assistant(message: JSONObject, where: str) -> set[str]:
    """The ids of the calls that must be answered next."""
    calls = message.get("tool_calls")
    if calls is None:
        _judge_content(message.get("content"), where, images=False)
        return set()
    demand(isinstance(calls, list) and calls, f"[] is too short - '{where}.tool_calls'", param=where)
    if message.get("content") is not None:
        _judge_content(message["content"], where, images=False)
    ids: set[str] = set()
    for index, call in enumerate(calls):
        at = f"{where}.tool_calls[{index}]"
        demand(isinstance(call, dict) and call.get("type") == "function", f"Invalid '{at}.type'.", param=at)
        call_id, function = call.get("id"), call.get("function")
        demand(isinstance(call_id, str) and call_id, f"Missing required parameter: '{at}.id'.", param=at)
        demand(len(call_id) <= _ID_CHARS, f"Invalid '{at}.id': string too long, maximum length {_ID_CHARS}.", param=at)
        demand(call_id not in ids, f"Duplicate tool call id {call_id!r} in {where}.", param=at)
        demand(isinstance(function, dict), f"Missing required parameter: '{at}.function'.", param=at)
        demand(_is_name(function.get("name")), f"Invalid '{at}.function.name': pattern {_NAME.pattern}", param=at)
        demand(isinstance(function.get("arguments"), str), f"Invalid type for '{at}.function.arguments'.", param=at)
        ids.add(call_id)
    return ids


def _judge_content(content: Any, where: str, *, images: bool) -> None:
    if isinstance(content, str):
        return
    demand(isinstance(content, list) and content, f"Invalid value for '{where}.content'.", param=f"{where}.content")
    for index, part in enumerate(content):
        at = f"{where}.content[{index}]"
        demand(isinstance(part, dict), f"Invalid type for '{at}'.", param=at)
        if part.get("type") == "text":
            demand(isinstance(part.get("text"), str), f"Missing required parameter: '{at}.text'.", param=at)
        elif part.get("type") == "image_url" and images:
            image = part.get("image_url")
            demand(
                isinstance(image, dict) and isinstance(image.get("url"), str), f"Invalid '{at}.image_url'.", param=at
            )
        else:
            raise BadRequest(f"Invalid value: {part.get('type')!r} for '{at}.type'.", param=at)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


# ---- answers ----------------------------------------------------------------------------------------


def _frames(exchange: Exchange) -> Iterator[Frame]:
    reply = exchange.reply
    yield _chunk(exchange, {"role": "assistant", "content": ""})
    for part in reply.parts:
        match part:
            case Text(text=text):
                for piece in reply.deltas(text):
                    yield _chunk(exchange, {"content": piece})
            case Thinking(text=text):
                for piece in reply.deltas(text):
                    yield _chunk(exchange, {reply.reasoning_field: piece})
            case Call():
                pass
    for delta in _call_deltas(exchange):
        yield _chunk(exchange, {"tool_calls": [delta]})
    yield _chunk(exchange, {}, finish=_FINISH[reply.stop_reason])
    wants_usage = (exchange.body.get("stream_options") or {}).get("include_usage")
    if wants_usage and reply.usage is not None:
        yield Frame({**_head(exchange, "chat.completion.chunk"), "choices": [], "usage": _usage(reply.usage)})
    yield Frame("[DONE]")


def _call_deltas(exchange: Exchange) -> Iterator[JSONObject]:
    reply = exchange.reply
    columns = []
    for index, call in enumerate(_calls(reply)):
        start = {
            "index": index,
            "id": call.id or exchange.call_id("call_", index),
            "type": "function",
            "function": {"name": call.tool, "arguments": ""},
        }
        rest = [{"index": index, "function": {"arguments": piece}} for piece in reply.deltas(call.arguments_text)]
        columns.append([start, *rest])
    if not reply.interleave:
        for column in columns:
            yield from column
        return
    for row in zip_longest(*columns):
        yield from (delta for delta in row if delta is not None)


def _calls(reply: Reply) -> list[Call]:
    return [part for part in reply.parts if isinstance(part, Call)]


def _chunk(exchange: Exchange, delta: JSONObject, finish: str | None = None) -> Frame:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Frame({**_head(exchange, "chat.completion.chunk"), "choices": [choice]})


def _head(exchange: Exchange, kind: str) -> JSONObject:
    return {
        "id": f"chatcmpl-{exchange.number}",
        "object": kind,
        "created": 1_700_000_000,
        "model": exchange.body["model"],
    }


def _usage(tokens: Tokens) -> JSONObject:
    prompt = tokens.input + tokens.cache_read + tokens.cache_write
    usage: JSONObject = {
        "prompt_tokens": prompt,
        "completion_tokens": tokens.output,
        "total_tokens": prompt + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
    if tokens.cache_write:
        usage["prompt_tokens_details"]["cache_write_tokens"] = tokens.cache_write
    if tokens.cost is not None:
        usage["cost"] = tokens.cost
    return usage


def _whole(exchange: Exchange) -> JSONObject:
    reply = exchange.reply
    text = "".join(part.text for part in reply.parts if isinstance(part, Text))
    thinking = "".join(part.text for part in reply.parts if isinstance(part, Thinking))
    message: JSONObject = {"role": "assistant", "content": text or None}
    if thinking:
        message[reply.reasoning_field] = thinking
    if calls := _calls(reply):
        message["tool_calls"] = [
            {
                "id": call.id or exchange.call_id("call_", index),
                "type": "function",
                "function": {"name": call.tool, "arguments": call.arguments_text},
            }
            for index, call in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": _FINISH[reply.stop_reason]}
    answer: JSONObject = {**_head(exchange, "chat.completion"), "choices": [choice]}
    if reply.usage is not None:
        answer["usage"] = _usage(reply.usage)
    return answer


def _error(message: str, kind: str, code: str | None, param: str | None) -> JSONObject:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _refusal(fault: Refused) -> Refusal:
    status, kind, code, message = _REFUSALS[fault.kind]
    return Refusal(fault.status or status, _error(message, kind, code, None))


def _rejection(verdict: BadRequest) -> Refusal:
    return Refusal(400, _error(verdict.message, "invalid_request_error", None, verdict.param))


def _error_frame(fault: Refused) -> Frame:
    return Frame(_refusal(fault).body)


def _key_of(headers: Headers) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else None


OPENAI = Wire(
    judge=_judge,
    frames=_frames,
    whole=_whole,
    refusal=_refusal,
    rejection=_rejection,
    error_frame=_error_frame,
    key_of=_key_of,
)
