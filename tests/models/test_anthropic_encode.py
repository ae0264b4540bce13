from typing import Any

import pytest

from branchwork.errors import UserError
from branchwork.models.adapters.anthropic import AnthropicModel, messages_url
from branchwork.models.base import ModelInfo
from branchwork.session.entries import JSONObject, Message, Text, Thinking
from tests.models.talk import PNG, call, info, parsed, result, user
from tests.models.talk import reply as any_reply
from tests.models.talk import request as any_request

MARK = {"type": "ephemeral"}


def model(**fields: Any) -> ModelInfo:
    return info("anthropic", **fields)


def reply(*parts: Any) -> Message:
    return any_reply(*parts, api="anthropic")


def sent(messages: list[Message], given: ModelInfo | None = None, **fields: Any) -> JSONObject:
    return parsed(AnthropicModel(given or model(), "k").body(any_request(messages, **fields)))


def marks(value: Any, path: str = "") -> list[str]:
    """Where breakpoints are."""
    if isinstance(value, dict):
        here = [path] if value.get("cache_control") == MARK else []
        return here + [found for key, item in value.items() for found in marks(item, f"{path}/{key}")]
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in marks(item, f"{path}/{index}")]
    return []


def test_system_and_tools_have_their_own_fields() -> None:
    body = sent([user("hi")], cache=False)
    assert body["system"] == [{"type": "text", "text": "Be brief."}]
    assert body["tools"] == [
        {"name": "read", "input_schema": {"type": "object"}, "description": "Read a file."},
        {"name": "ls", "input_schema": {"type": "object"}},
    ]
    assert (body["max_tokens"], body["stream"]) == (4096, True)
    assert not {"system", "tools"} & sent([user("hi")], system="", tools=()).keys()


def test_what_the_user_side_says_in_a_row_is_one_message_with_results_first() -> None:
    messages = [user("a"), user("b"), reply(call("c1"), call("c2")), user("while"), result("c2", "2"), user("then")]
    body = sent(messages, cache=False)
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][0]["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert [(block["type"], block.get("tool_use_id")) for block in body["messages"][2]["content"]] == [
        ("tool_result", "c1"),
        ("tool_result", "c2"),
        ("text", None),
        ("text", None),
    ]


def test_results_hold_images_and_say_when_they_are_errors() -> None:
    messages = [user("a"), reply(call("c1"), call("c2")), result("c1", "x", PNG), result("c2", "no", error=True)]
    first, second = sent(messages, model(images=True), cache=False)["messages"][2]["content"]
    assert first["content"] == [
        {"type": "text", "text": "x"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}},
    ]
    assert "is_error" not in first
    assert second["is_error"] is True


def test_signed_and_redacted_thinking_go_back_unsigned_thinking_does_not() -> None:
    parts = (Thinking("why", "sig"), Thinking("", "blob", redacted=True), Thinking("unsigned"), "so", call("c"))
    assert sent([user("a"), reply(*parts)])["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "why", "signature": "sig"},
        {"type": "redacted_thinking", "data": "blob"},
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "c", "name": "read", "input": {}},
    ]


def test_no_reply_ends_in_thinking() -> None:
    messages = [user("a"), reply("so", Thinking("more", "sig"), Thinking("", "x", redacted=True)), user("b")]
    assert sent(messages)["messages"][1]["content"] == [{"type": "text", "text": "so"}]


def test_breakpoints_are_on_the_last_tool_the_system_and_the_last_two_user_messages() -> None:
    turns = [part for n in range(4) for part in (reply(call(f"c{n}")), result(f"c{n}", "x", "y"))]
    body = sent([user("go"), *turns, user("and")])
    assert marks(body) == ["/tools/1", "/system/0", "/messages/6/content/0", "/messages/8/content/1"]


def test_breakpoints_move_to_what_there_is_in_a_short_conversation() -> None:
    assert marks(sent([user((Text("a"), PNG))], model(images=True), tools=())) == [
        "/system/0",
        "/messages/0/content/1",
    ]


def test_a_message_for_one_request_only_comes_after_the_last_breakpoint() -> None:
    once = (user("once"),)
    assert marks(sent([user("a"), reply(call("c")), result("c", "x")], tools=(), system="", extra=once)) == [
        "/messages/0/content/0",
        "/messages/2/content/0",
    ]
    assert marks(sent([user("a"), reply("b")], tools=(), system="", extra=once)) == ["/messages/0/content/0"]


def test_a_request_that_is_not_to_be_cached_has_no_breakpoints() -> None:
    assert marks(sent([user("a"), reply("b"), user("c")], cache=False)) == []


def test_a_longer_cache_is_an_option() -> None:
    body = sent([user("a")], model(options={"cache_ttl": "1h"}))
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(
    ("level", "limit", "budget"),
    [
        ("minimal", 20_000, 1024),
        ("low", 20_000, 2048),
        ("medium", 20_000, 8192),
        ("high", 20_000, 16_384),
        ("max", 20_000, 18_976),  # leaves 1024 for the answer
        ("high", 4_096, 3_072),
    ],
)
def test_a_thinking_budget_leaves_room_for_the_answer(level: str, limit: int, budget: int) -> None:
    body = sent([user("a")], thinking=level, max_tokens=limit)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert body["max_tokens"] == limit


@pytest.mark.parametrize(("level", "limit"), [("off", 20_000), ("high", 2_000)])
def test_without_wish_or_room_there_is_no_thinking(level: str, limit: int) -> None:
    assert "thinking" not in sent([user("a")], thinking=level, max_tokens=limit)


@pytest.mark.parametrize(("level", "effort"), [("minimal", "low"), ("medium", "medium"), ("max", "max")])
def test_adaptive_thinking_takes_an_effort(level: str, effort: str) -> None:
    body = sent([user("a")], model(options={"thinking_style": "adaptive"}), thinking=level)
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": effort}


def test_adaptive_thinking_can_be_asked_to_show_itself() -> None:
    options = {"thinking_style": "adaptive", "thinking_display": "summarized"}
    body = sent([user("a")], model(options=options), thinking="low")
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}


def test_further_fields_are_added_and_ours_are_protected() -> None:
    assert sent([user("a")], model(options={"extra_body": {"top_k": 5}}))["top_k"] == 5
    for options in ({"extra_body": {"system": "x"}}, {"thinking_style": "deep"}):
        with pytest.raises(UserError, match=r"models\.toml: options of p/m"):
            AnthropicModel(model(options=options), None)


@pytest.mark.parametrize("base", ["https://h", "https://h/", "https://h/v1", "https://h/v1/"])
def test_the_address_may_have_its_version_or_not(base: str) -> None:
    assert messages_url(base) == "https://h/v1/messages"
