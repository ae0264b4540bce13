"""Chat completions: what is answered, and what is rejected as the original would."""

from typing import Any

import pytest

from branchwork.session.entries import JSONObject
from branchwork.testing.server import (
    Call,
    FakeModelServer,
    RefusalKind,
    Refused,
    Reply,
    StreamError,
    Text,
    Thinking,
    Tokens,
    always,
    says,
)
from tests.testing.client import OPENAI, openai_body, post, stream, user


def call(call_id: str = "c1", **function: Any) -> JSONObject:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}", **function}}


def assistant(*calls: JSONObject, **fields: Any) -> JSONObject:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def result(call_id: str = "c1", **fields: Any) -> JSONObject:
    return {"role": "tool", "tool_call_id": call_id, "content": "x", **fields}


def tool(name: str = "read", **function: Any) -> JSONObject:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, **function}}


def deltas(reply: Reply, **fields: Any) -> list[JSONObject]:
    with FakeModelServer(always(reply)) as server:
        chunks = stream(server, OPENAI, openai_body(**fields))
    assert chunks[-1] == ("message", "[DONE]")
    return [data for _, data in chunks[:-1]]


def test_text_is_split_into_deltas_that_end_with_a_reason() -> None:
    chunks = deltas(Reply(parts=(Text("abcdef"),), delta_chars=4))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["delta"].get("content") for choice in choices] == ["", "abcd", "ef", None]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


@pytest.mark.parametrize(
    ("stop", "reason"), [("length", "length"), ("refusal", "content_filter"), ("calls", "tool_calls")]
)
def test_the_stop_reason_is_named_as_openai_does(stop: Any, reason: str) -> None:
    assert deltas(Reply(parts=(Text("x"),), stop=stop))[-1]["choices"][0]["finish_reason"] == reason


def test_usage_comes_in_a_last_chunk_without_choices_when_asked_for() -> None:
    reply = Reply(parts=(Text("x"),), usage=Tokens(10, 5, cache_read=30, cache_write=2, reasoning=4, cost=0.25))
    assert all("usage" not in chunk for chunk in deltas(reply))
    last = deltas(reply, stream_options={"include_usage": True})[-1]
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 42,
        "completion_tokens": 5,
        "total_tokens": 47,
        "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 4},
        "cost": 0.25,
    }


def test_usage_may_be_missing() -> None:
    chunks = deltas(Reply(parts=(Text("x"),), usage=None), stream_options={"include_usage": True})
    assert all("usage" not in chunk for chunk in chunks)


def call_deltas(reply: Reply) -> list[JSONObject]:
    found = [chunk["choices"][0]["delta"].get("tool_calls", []) for chunk in deltas(reply)]
    return [delta for chunk in found for delta in chunk]


@pytest.mark.parametrize(("interleave", "order"), [(False, [0, 0, 0, 1, 1, 1]), (True, [0, 1, 0, 1, 0, 1])])
def test_parallel_calls_come_in_turns_or_one_after_the_other(interleave: bool, order: list[int]) -> None:
    parts = (Call("read", {"a": 1}), Call("write", {"b": 2}))
    found = call_deltas(Reply(parts=parts, delta_chars=4, interleave=interleave))
    assert [delta["index"] for delta in found] == order
    for index, (name, text) in enumerate([("read", '{"a":1}'), ("write", '{"b":2}')]):
        own = [delta for delta in found if delta["index"] == index]
        assert [delta["function"].get("name") for delta in own] == [name, None, None]
        assert "".join(delta["function"]["arguments"] for delta in own) == text
    assert len({delta["id"] for delta in found if "id" in delta}) == 2


def test_arguments_may_be_broken() -> None:
    found = call_deltas(Reply(parts=(Call("read", '{"a": '),)))
    assert "".join(delta["function"]["arguments"] for delta in found) == '{"a": '


def test_thinking_comes_in_the_field_of_choice() -> None:
    found = deltas(Reply(parts=(Thinking("hm"), Text("x")), reasoning_field="reasoning"))
    assert [chunk["choices"][0]["delta"].get("reasoning") for chunk in found] == [None, "hm", None, None]


def test_without_streaming_the_answer_comes_at_once() -> None:
    reply = Reply(parts=(Thinking("hm"), Text("x"), Call("read", {"a": 1}, id="c9")))
    with FakeModelServer(always(reply)) as server:
        status, answer = post(server, OPENAI, openai_body())
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "tool_calls")
    assert answer["choices"][0]["message"] == {
        "role": "assistant",
        "content": "x",
        "reasoning_content": "hm",
        "tool_calls": [call("c9", arguments='{"a":1}')],
    }
    assert answer["usage"]["total_tokens"] == 15


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("rate_limit", 429, "rate_limit_exceeded"),
        ("quota", 429, "insufficient_quota"),
        ("server", 500, None),
        ("overloaded", 503, "overloaded"),
        ("auth", 401, "invalid_api_key"),
        ("overflow", 400, "context_length_exceeded"),
        ("rejected", 400, "unsupported_value"),
    ],
)
def test_failures_have_the_status_and_code_of_openai(kind: RefusalKind, status: int, code: str | None) -> None:
    with FakeModelServer(always(Reply(fault=Refused(kind)))) as server:
        found, body = post(server, OPENAI, openai_body())
    assert (found, body["error"]["code"]) == (status, code)
    assert body["error"].keys() == {"message", "type", "param", "code"}


def test_an_error_inside_the_stream_has_the_same_shape() -> None:
    with FakeModelServer(says("some text", fault=StreamError("rate_limit"))) as server:
        assert stream(server, OPENAI, openai_body())[-1][1]["error"]["code"] == "rate_limit_exceeded"


GOOD: dict[str, JSONObject] = {
    "all roles": openai_body(
        {"role": "system", "content": "s"},
        {"role": "developer", "content": [{"type": "text", "text": "d"}]},
        {"role": "user", "content": [{"type": "text", "text": "u"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        user("neighbours are fine here"),
        assistant(call("a"), call("b"), content="both"),
        result("b"),
        result("a", content=[{"type": "text", "text": "x"}]),
        {"role": "assistant", "content": "done"},
    ),
    "an id used again later": openai_body(user("x"), assistant(call()), result(), assistant(call()), result()),
    "tools": openai_body(tools=[tool(), tool("write")], tool_choice="auto", parallel_tool_calls=True),
    "options": openai_body(max_completion_tokens=5, reasoning_effort="high", temperature=0, store=False),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_correct_request_is_accepted(name: str) -> None:
    with FakeModelServer(says("hi")) as server:
        assert post(server, OPENAI, GOOD[name])[0] == 200


BAD: dict[str, tuple[JSONObject, str]] = {
    "no model": ({"messages": [user("x")]}, "model"),
    "no messages": ({"model": "m"}, "messages"),
    "no message at all": ({"model": "m", "messages": []}, "too short"),
    "messages that are text": ({"model": "m", "messages": "x"}, "Missing required parameter: 'messages'"),
    "a message that is text": ({"model": "m", "messages": ["x"]}, "expected an object"),
    "a part that is text": (openai_body({"role": "user", "content": ["x"]}), "Invalid type"),
    "a part without text": (openai_body({"role": "user", "content": [{"type": "text"}]}), "text"),
    "an image as plain text": (
        openai_body({"role": "user", "content": [{"type": "image_url", "image_url": "data:x"}]}),
        "image_url",
    ),
    "call without id": (openai_body(user("x"), assistant(call("")), result("")), "tool_calls[0].id"),
    "call without function": (
        openai_body(user("x"), assistant({"id": "c1", "type": "function"}), result()),
        "tool_calls[0].function",
    ),
    "tool of another type": (openai_body(tools=[{**tool(), "type": "custom"}]), "type"),
    "parallel calls without tools": (openai_body(parallel_tool_calls=True), "parallel_tool_calls"),
    "unknown field": (openai_body(system="s"), "system"),
    "unknown role": (openai_body({"role": "human", "content": "x"}), "role"),
    "message without content": (openai_body({"role": "user"}), "content"),
    "empty list of parts": (openai_body({"role": "user", "content": []}), "content"),
    "unknown part": (openai_body({"role": "user", "content": [{"type": "input_text", "text": "x"}]}), "input_text"),
    "image of the assistant": (
        openai_body({"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
        "image_url",
    ),
    "empty assistant": (openai_body({"role": "assistant", "content": None}), "content"),
    "empty list of calls": (openai_body(user("x"), assistant(), user("y")), "tool_calls"),
    "unanswered call at the end": (openai_body(user("x"), assistant(call())), "must be followed by tool messages"),
    "unanswered call before text": (openai_body(user("x"), assistant(call()), user("y")), "did not have response"),
    "one of two unanswered": (openai_body(user("x"), assistant(call("a"), call("b")), result("a")), "b"),
    "result without call": (openai_body(user("x"), result()), "must be a response to a preceding message"),
    "result for another call": (openai_body(user("x"), assistant(call("a")), result("b")), "'b'"),
    "two results for a call": (openai_body(user("x"), assistant(call()), result(), result()), "'c1'"),
    "result after other text": (openai_body(user("x"), assistant(call()), user("y"), result()), "did not have"),
    "result without id": (openai_body(user("x"), assistant(call()), {"role": "tool", "content": "x"}), "tool_call_id"),
    "result without content": (openai_body(user("x"), assistant(call()), result(content=None)), "content"),
    "one id for two calls": (openai_body(user("x"), assistant(call(), call()), result()), "Duplicate"),
    "long id": (openai_body(user("x"), assistant(call("c" * 41)), result("c" * 41)), "maximum length 40"),
    "odd tool name": (openai_body(user("x"), assistant(call(name="a.b")), result()), "function.name"),
    "arguments as an object": (openai_body(user("x"), assistant(call(arguments={})), result()), "arguments"),
    "call without type": (openai_body(user("x"), assistant({"id": "a", "function": {}}), result()), "type"),
    "no tools": (openai_body(tools=[]), "tools"),
    "tool without function": (openai_body(tools=[{"type": "function", "name": "read"}]), "function"),
    "tool with an odd name": (openai_body(tools=[tool("read file")]), "name"),
    "tool with an odd schema": (openai_body(tools=[tool(parameters={"type": "array"})]), "object"),
    "two tools of one name": (openai_body(tools=[tool(), tool()]), "unique"),
    "choice without tools": (openai_body(tool_choice="auto"), "tool_choice"),
    "both limits": (openai_body(max_tokens=1, max_completion_tokens=1), "cannot both"),
    "limit of zero": (openai_body(max_tokens=0), "max_tokens"),
    "stream options alone": (openai_body(stream_options={"include_usage": True}), "stream_options"),
    "unknown effort": (openai_body(reasoning_effort="max"), "max"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_request_is_rejected_with_the_reason(name: str) -> None:
    body, reason = BAD[name]
    with FakeModelServer(says("hi")) as server:
        status, answer = post(server, OPENAI, body)
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert reason in answer["error"]["message"]
        assert server.requests[0].error == answer["error"]["message"]
