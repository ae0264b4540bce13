"""Messages: what is answered, and what is rejected as the original would."""

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
from tests.testing.client import ANTHROPIC, anthropic_body, post, stream, user

CACHE: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}


def text(value: str = "x", **fields: Any) -> JSONObject:
    return {"type": "text", "text": value, **fields}


def use(call_id: str = "t1", **fields: Any) -> JSONObject:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": {}, **fields}


def result(call_id: str = "t1", **fields: Any) -> JSONObject:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "x", **fields}


def says_user(*blocks: JSONObject) -> JSONObject:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: JSONObject) -> JSONObject:
    return {"role": "assistant", "content": list(blocks)}


def tool(name: str = "read", **fields: Any) -> JSONObject:
    return {"name": name, "input_schema": {"type": "object"}, **fields}


def events(reply: Reply) -> list[JSONObject]:
    with FakeModelServer(always(reply)) as server:
        found = stream(server, ANTHROPIC, anthropic_body())
    assert all(name == data["type"] for name, data in found)
    return [data for _, data in found]


def test_a_stream_opens_and_closes_each_block_within_the_message() -> None:
    kinds = [event["type"] for event in events(Reply(parts=(Text("ab"), Text("c")), delta_chars=1))]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", "ping", *block[:2], *block[1:], *block, "message_delta", "message_stop"]


def test_thinking_ends_with_its_signature() -> None:
    found = events(Reply(parts=(Thinking("abc", "sig"), Thinking("", "data", redacted=True), Text("x")), delta_chars=2))
    starts = [event["content_block"] for event in found if event["type"] == "content_block_start"]
    assert starts[:2] == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "redacted_thinking", "data": "data"},
    ]
    deltas = [event["delta"] for event in found if event["type"] == "content_block_delta" and event["index"] == 0]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "ab"},
        {"type": "thinking_delta", "thinking": "c"},
        {"type": "signature_delta", "signature": "sig"},
    ]


def test_arguments_come_as_pieces_of_json_broken_or_not() -> None:
    for arguments, sent in (({"a": 1}, '{"a":1}'), ('{"a": ', '{"a": ')):
        found = events(Reply(parts=(Call("read", arguments, id="t1"),)))
        (start,) = [event["content_block"] for event in found if event["type"] == "content_block_start"]
        assert start == use()
        pieces = [event["delta"]["partial_json"] for event in found if event["type"] == "content_block_delta"]
        assert "".join(pieces) == sent


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(parts=(Text("x"),)), "end_turn"),
        (Reply(parts=(Call("read"),)), "tool_use"),
        (Reply(parts=(Text("x"),), stop="length"), "max_tokens"),
        (Reply(parts=(Text("x"),), stop="refusal"), "refusal"),
    ],
)
def test_the_stop_reason_is_named_as_anthropic_does(reply: Reply, reason: str) -> None:
    assert events(reply)[-2]["delta"]["stop_reason"] == reason


def test_usage_comes_in_two_parts() -> None:
    found = events(Reply(parts=(Text("x"),), usage=Tokens(10, 5, cache_read=30, cache_write=8, cache_write_1h=3)))
    assert found[0]["message"]["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 8,
        "cache_read_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 3},
        "output_tokens": 1,
    }
    assert found[-2]["usage"] == {"output_tokens": 5}


def test_usage_may_be_missing() -> None:
    found = events(Reply(parts=(Text("x"),), usage=None))
    assert "usage" not in found[0]["message"]
    assert "usage" not in found[-2]


def test_without_streaming_the_answer_comes_at_once() -> None:
    parts = (Thinking("hm", "s"), Thinking("", "d", redacted=True), Text("x"), Call("read", {"a": 1}, id="t1"))
    with FakeModelServer(always(Reply(parts=parts))) as server:
        status, answer = post(server, ANTHROPIC, anthropic_body())
    assert (status, answer["stop_reason"], answer["usage"]["output_tokens"]) == (200, "tool_use", 5)
    assert answer["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        text(),
        use(input={"a": 1}),
    ]


@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("rate_limit", 429, "rate_limit_error"),
        ("quota", 402, "billing_error"),
        ("server", 500, "api_error"),
        ("overloaded", 529, "overloaded_error"),
        ("auth", 401, "authentication_error"),
        ("overflow", 400, "invalid_request_error"),
        ("rejected", 400, "invalid_request_error"),
    ],
)
def test_failures_have_the_status_and_type_of_anthropic(kind: RefusalKind, status: int, error: str) -> None:
    with FakeModelServer(always(Reply(fault=Refused(kind)))) as server:
        found, body = post(server, ANTHROPIC, anthropic_body())
    assert (found, body["type"], body["error"]["type"]) == (status, "error", error)
    assert body["error"]["message"].startswith("prompt is too long") == (kind == "overflow")


def test_an_error_inside_the_stream_is_an_event_of_its_own() -> None:
    with FakeModelServer(says("some text", fault=StreamError("overloaded", after=3))) as server:
        name, data = stream(server, ANTHROPIC, anthropic_body())[-1]
    assert (name, data["error"]["type"]) == ("error", "overloaded_error")


TURN = (user("x"), assistant(text(), use()), says_user(result()))
GOOD: dict[str, JSONObject] = {
    "all blocks": anthropic_body(
        says_user(text(), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}),
        assistant(
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            text(),
            use("a"),
            use("b"),
        ),
        says_user(result("b", content=[text()]), result("a", is_error=True), text("and more")),
        assistant(text()),
        user("y"),
    ),
    "four breakpoints": anthropic_body(
        says_user(text(**CACHE)), system=[text(**CACHE)], tools=[tool(**CACHE), tool("write", **CACHE)]
    ),
    "thinking": anthropic_body(max_tokens=3000, thinking={"type": "enabled", "budget_tokens": 1024}),
    "adaptive thinking": anthropic_body(thinking={"type": "adaptive"}, output_config={"effort": "low"}),
    "a result without content": anthropic_body(*TURN[:2], says_user({"type": "tool_result", "tool_use_id": "t1"})),
    "prefill": anthropic_body(user("x"), {"role": "assistant", "content": "And so"}),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_correct_request_is_accepted(name: str) -> None:
    with FakeModelServer(says("hi")) as server:
        status, answer = post(server, ANTHROPIC, GOOD[name])
        assert status == 200, answer


BAD: dict[str, tuple[JSONObject, str]] = {
    "no model": ({"max_tokens": 1, "messages": [user("x")]}, "model: Field required"),
    "no limit": ({"model": "m", "messages": [user("x")]}, "max_tokens: Field required"),
    "no messages": ({"model": "m", "max_tokens": 1}, "messages: Field required"),
    "empty model": (anthropic_body() | {"model": ""}, "model"),
    "no message at all": (anthropic_body() | {"messages": []}, "at least one message"),
    "a message that is text": (anthropic_body() | {"messages": ["x"]}, "messages.0: Input should be an object"),
    "content that is a number": (anthropic_body({"role": "user", "content": 1}), "messages.0.content"),
    "a block that is text": (anthropic_body({"role": "user", "content": ["x"]}), "messages.0.content.0"),
    "text block without text": (anthropic_body(says_user({"type": "text"})), "text: Field required"),
    "system that is a number": (anthropic_body(system=1), "system: Input"),
    "system with an image": (anthropic_body(system=[{"type": "image"}]), "system.0.type"),
    "tools that are an object": (anthropic_body(tools={"read": {}}), "valid array"),
    "a tool that is text": (anthropic_body(tools=["read"]), "tools.0: Input"),
    "tool with an odd schema": (anthropic_body(tools=[tool(input_schema={"type": "array"})]), "input_schema.type"),
    "unknown thinking": (anthropic_body(thinking={"type": "on"}), "thinking.type"),
    "odd cache control": (anthropic_body(system=[text(cache_control={"type": "persistent"})]), "cache_control.type"),
    "image without source": (anthropic_body(says_user({"type": "image"})), "source: Field required"),
    "image without data": (
        anthropic_body(says_user({"type": "image", "source": {"type": "base64", "media_type": "image/png"}})),
        "source.data",
    ),
    "image from nowhere": (anthropic_body(says_user({"type": "image", "source": {"type": "path"}})), "source.type"),
    "odd tool name": (anthropic_body(user("x"), assistant(use(name="a.b")), says_user(result())), "tool_use.name"),
    "thinking without text": (
        anthropic_body(user("x"), assistant({"type": "thinking", "signature": "s"}, text()), user("y")),
        "thinking: Field required",
    ),
    "thinking with an empty signature": (
        anthropic_body(user("x"), assistant({"type": "thinking", "thinking": "h", "signature": ""}), user("y")),
        "Invalid `signature`",
    ),
    "hidden thinking without data": (
        anthropic_body(user("x"), assistant({"type": "redacted_thinking"}, text()), user("y")),
        "data: Field required",
    ),
    "result without id": (anthropic_body(*TURN[:2], says_user({"type": "tool_result"})), "tool_use_id: Field"),
    "result that is a number": (anthropic_body(*TURN[:2], says_user(result(content=1))), "wrong type"),
    "result with a call": (anthropic_body(*TURN[:2], says_user(result(content=[use()]))), "content.0.type"),
    "limit of zero": (anthropic_body(max_tokens=0), "max_tokens"),
    "unknown field": (anthropic_body(max_completion_tokens=1), "max_completion_tokens: Extra inputs"),
    "unknown field of a message": (anthropic_body({**user("x"), "name": "n"}), "messages.0.name: Extra inputs"),
    "system message in the list": (anthropic_body({"role": "system", "content": "x"}), "Unexpected role"),
    "assistant first": (anthropic_body(assistant(text())), "first message"),
    "two users": (anthropic_body(user("x"), user("y")), "roles must alternate"),
    "two assistants": (anthropic_body(user("x"), assistant(text()), assistant(text()), user("y")), "alternate"),
    "empty content": (anthropic_body(user("")), "non-empty content"),
    "no blocks": (anthropic_body(says_user()), "non-empty content"),
    "empty text": (anthropic_body(says_user(text(""))), "must be non-empty"),
    "blank text": (anthropic_body(says_user(text(" \n"))), "non-whitespace"),
    "blank at the very end": (anthropic_body(user("x"), {"role": "assistant", "content": "a "}), "whitespace"),
    "a call of the user": (anthropic_body(says_user(use())), "not allowed"),
    "a result of the assistant": (anthropic_body(user("x"), assistant(result())), "not allowed"),
    "unanswered call at the end": (anthropic_body(*TURN[:2]), "were found without `tool_result`"),
    "unanswered call before text": (anthropic_body(*TURN[:2], user("y")), "were found without `tool_result`"),
    "one of two unanswered": (
        anthropic_body(user("x"), assistant(use("a"), use("b")), says_user(result("a"))),
        "immediately after: b.",
    ),
    "result without call": (anthropic_body(says_user(result())), "unexpected `tool_use_id`"),
    "result two messages later": (
        anthropic_body(*TURN, assistant(text()), says_user(result())),
        "unexpected `tool_use_id`",
    ),
    "two results for a call": (anthropic_body(*TURN[:2], says_user(result(), result())), "single result"),
    "text before the result": (anthropic_body(*TURN[:2], says_user(text(), result())), "must come before"),
    "an id used again": (anthropic_body(*TURN, assistant(use()), says_user(result())), "must be unique"),
    "odd call id": (anthropic_body(user("x"), assistant(use("a|b")), says_user(result("a|b"))), "match pattern"),
    "arguments as text": (anthropic_body(user("x"), assistant(use(input="{}")), says_user(result())), "dictionary"),
    "failed without words": (anthropic_body(*TURN[:2], says_user(result(content="", is_error=True))), "is_error"),
    "empty text in a result": (anthropic_body(*TURN[:2], says_user(result(content=[text("")]))), "non-empty"),
    "thinking without signature": (
        anthropic_body(user("x"), assistant({"type": "thinking", "thinking": "hm"}, text()), user("y")),
        "signature: Field required",
    ),
    "image of an odd type": (
        anthropic_body(
            says_user({"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "AA"}})
        ),
        "media_type",
    ),
    "five breakpoints": (
        anthropic_body(says_user(*[text(**CACHE) for _ in range(4)]), system=[text(**CACHE)]),
        "maximum of 4 blocks",
    ),
    "breakpoint on thinking": (
        anthropic_body(
            user("x"), assistant({"type": "thinking", "thinking": "h", "signature": "s", **CACHE}), user("y")
        ),
        "cache_control",
    ),
    "odd cache time": (anthropic_body(system=[text(cache_control={"type": "ephemeral", "ttl": "2h"})]), "ttl"),
    "small budget": (anthropic_body(thinking={"type": "enabled", "budget_tokens": 10}), "budget_tokens"),
    "budget above the limit": (anthropic_body(thinking={"type": "enabled", "budget_tokens": 2000}), "max_tokens"),
    "temperature with thinking": (anthropic_body(thinking={"type": "adaptive"}, temperature=0), "temperature"),
    "tool without schema": (anthropic_body(tools=[{"name": "read"}]), "input_schema"),
    "tool in the form of openai": (anthropic_body(tools=[{"type": "function", "function": {}}]), "name"),
    "two tools of one name": (anthropic_body(tools=[tool(), tool()]), "unique"),
    "choice without tools": (anthropic_body(tool_choice={"type": "auto"}), "tool_choice"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_request_is_rejected_with_the_reason(name: str) -> None:
    body, reason = BAD[name]
    with FakeModelServer(says("hi")) as server:
        status, answer = post(server, ANTHROPIC, body)
        assert (status, answer["type"], answer["error"]["type"]) == (400, "error", "invalid_request_error")
        assert reason in answer["error"]["message"]
        assert server.requests[0].error == answer["error"]["message"]


def test_a_request_names_the_version_of_the_interface() -> None:
    with FakeModelServer(says("hi")) as server:
        status, answer = post(server, ANTHROPIC, anthropic_body(), {})
    assert (status, "anthropic-version" in answer["error"]["message"]) == (400, True)
