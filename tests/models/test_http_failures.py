from typing import Any

import msgspec
import pytest

from branchwork.models.adapters.failures import MAX_MESSAGE, Reported, kind_of, one_line, parse_error, retry_after


def kind(status: int, body: Any) -> str:
    return kind_of(parse_error(msgspec.json.encode(body)), status)


def openai(message: str, code: Any = None, kind: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(kind: str, message: str = "sorry") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "rejected"),
        (401, "auth"),
        (402, "quota"),
        (403, "auth"),
        (404, "rejected"),
        (408, "timeout"),
        (413, "overflow"),
        (422, "rejected"),
        (429, "rate_limit"),
        (500, "server"),
        (502, "server"),
        (503, "server"),
        (504, "server"),
        (520, "server"),
        (524, "server"),
        (529, "overloaded"),
    ],
)
def test_a_status_alone_has_its_kind(status: int, expected: str) -> None:
    assert kind_of(parse_error(b"<html><h1>Bad Gateway</h1></html>"), status) == expected


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, openai("too long", "context_length_exceeded"), "overflow"),
        (400, {"error": {"code": 400, "message": "x", "type": "exceed_context_size_error", "n_ctx": 1}}, "overflow"),
        (429, openai("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), "quota"),
        (429, openai("slow down", "rate_limit_exceeded", "requests"), "rate_limit"),
        (413, openai("Request too large on tokens per minute", "rate_limit_exceeded", "tokens"), "overflow"),
        (401, openai("Incorrect API key", "invalid_api_key", "invalid_request_error"), "auth"),
        (503, openai("overloaded", "overloaded", "server_error"), "overloaded"),
        (402, anthropic("billing_error"), "quota"),
        (413, anthropic("request_too_large"), "overflow"),
        (429, anthropic("rate_limit_error"), "rate_limit"),
        (529, anthropic("overloaded_error"), "overloaded"),
        (500, anthropic("api_error"), "server"),
        (404, anthropic("not_found_error"), "rejected"),
        # A general type does not outweigh the status.
        (404, {"error": {"message": "model not found", "type": "api_error"}}, "rejected"),
        (504, anthropic("timeout_error"), "server"),
    ],
)
def test_a_typed_error_outweighs_the_status(status: int, body: Any, expected: str) -> None:
    assert kind(status, body) == expected


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 207791 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
        "This model's maximum context length is 4097 tokens. However, your messages resulted in 7575 tokens.",
        "request (124315 tokens) exceeds the available context size (123904 tokens), try increasing it",
        "The number of tokens to keep from the initial prompt is greater than the context length",
        "Your request exceeded model token limit: 131072",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "Please reduce the length of the messages or completion.",
    ],
)
def test_an_overflow_without_a_code_is_known_by_its_words(message: str) -> None:
    assert kind(400, {"error": {"message": message, "type": "invalid_request_error"}}) == "overflow"
    assert kind(500, {"error": {"message": message}}) == "server"


def test_words_do_not_turn_a_rate_limit_or_a_bad_key_into_an_overflow() -> None:
    words = "Please reduce the length of the messages"
    assert kind(429, openai(words)) == "rate_limit"
    assert kind(403, openai(words)) == "auth"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (openai("a\n  b"), "a b"),
        ({"error": "plain"}, "plain"),
        ({"message": "top"}, "top"),
        ({"detail": "fast"}, "fast"),
        ({"detail": [{"loc": ["body"], "msg": "m"}]}, '[{"loc":["body"],"msg":"m"}]'),
        ([{"error": {"message": "listed", "status": "INVALID_ARGUMENT"}}], "listed"),
        ({"error": {"message": "Provider returned error", "metadata": {"raw": "why"}}}, "Provider returned error: why"),
        ({"error": {}}, ""),
        (None, ""),
        ([], ""),
    ],
)
def test_the_message_is_found_in_bodies_of_all_shapes(body: Any, message: str) -> None:
    assert parse_error(msgspec.json.encode(body)).message == message


def test_text_is_passed_on_and_pages_are_not() -> None:
    assert parse_error(b"upstream connect\n error \xff").message == "upstream connect error �"
    assert parse_error(b"\n<!doctype html><p>x") == Reported("")
    assert len(one_line("x" * 10_000)) == MAX_MESSAGE


NOW = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "9", "retry-after-ms": "250"}, 0.25),
    ],
)
def test_the_wished_wait_is_read_from_seconds_dates_and_milliseconds(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after(headers, NOW) == seconds
