"""From what a server reports to a typed failure: provider error codes first, then the status, then known phrases."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from branchwork.models.base import FailureKind

MAX_MESSAGE = 500
"""Characters of a server's message that are passed on."""

_CODES: dict[str, FailureKind] = {
    # https://platform.openai.com/docs/guides/error-codes; llama.cpp's server for exceed_context_size_error
    "context_length_exceeded": "overflow",
    "exceed_context_size_error": "overflow",
    "insufficient_quota": "quota",
    "billing_hard_limit_reached": "quota",
    "invalid_api_key": "auth",
    "rate_limit_exceeded": "rate_limit",
    "overloaded": "overloaded",
    "engine_overloaded": "overloaded",
    # https://docs.claude.com/en/api/errors
    "request_too_large": "overflow",
    "billing_error": "quota",
    "authentication_error": "auth",
    "permission_error": "auth",
    "rate_limit_error": "rate_limit",
    "overloaded_error": "overloaded",
}

_UNTYPED_STREAM: dict[str, FailureKind] = {
    "invalid_request_error": "rejected",
    "not_found_error": "rejected",
    "timeout_error": "timeout",
}
"""Codes too general to outweigh a status, for errors inside a stream, which have none."""

_STATUSES: dict[int, FailureKind] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "timeout",
    413: "overflow",
    429: "rate_limit",
    529: "overloaded",
}

_PHRASES: tuple[tuple[str, FailureKind], ...] = (
    # Servers that report these without a code; lower case.
    ("prompt is too long", "overflow"),  # Anthropic
    ("exceed context limit", "overflow"),  # Anthropic: input length and max_tokens
    ("maximum context length", "overflow"),  # vLLM, OpenRouter, DeepSeek
    ("exceeds the available context size", "overflow"),  # llama.cpp
    ("greater than the context length", "overflow"),  # LM Studio
    ("exceeded model token limit", "overflow"),  # Moonshot
    ("maximum prompt length", "overflow"),  # xAI
    ("input token count", "overflow"),  # Gemini: "… exceeds the maximum number of tokens allowed"
    ("input is too long for requested model", "overflow"),  # Bedrock
    ("reduce the length of the messages", "overflow"),  # Groq
    ("credit balance is too low", "quota"),  # Anthropic, before billing_error
)


class Reported(Struct, frozen=True):
    """An error as a server words it. `codes` are its machine-readable names, in lower case."""

    message: str
    codes: tuple[str, ...] = ()
    status: int | None = None
    """A status inside the body, as proxies put it into streams."""


class ReportedError(Exception):
    """A stream carried an error in place of the rest of the reply."""

    def __init__(self, reported: Reported) -> None:
        super().__init__(reported.message)
        self.reported = reported


def kind_of(reported: Reported, status: int | None) -> FailureKind:
    """`status` is that of the response, None for an error inside a stream."""
    status = reported.status if status is None else status
    if status == 413:
        return "overflow"  # also where the code speaks of a rate: waiting does not make the request smaller
    for code in reported.codes:
        if code in _CODES:
            return _CODES[code]
    if status is None or 400 <= status < 500:
        lower = reported.message.lower()
        for phrase, kind in _PHRASES:
            if phrase in lower and status not in (401, 403, 429):
                return kind
    if status is None:
        return next((_UNTYPED_STREAM[code] for code in reported.codes if code in _UNTYPED_STREAM), "server")
    if status in _STATUSES:
        return _STATUSES[status]
    return "server" if status >= 500 else "rejected"


def parse_error(body: bytes) -> Reported:
    """The error in a response body, of whatever shape; text that is no JSON is shortened to one line."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body.decode("utf-8", "replace")
        return Reported("" if text.lstrip().startswith("<") else one_line(text))
    return reported_in(value)


def reported_in(value: Any) -> Reported:
    """The same for decoded JSON: an error object, a string, or a list or object around one of them."""
    if isinstance(value, list) and value:
        return reported_in(value[0])
    if not isinstance(value, dict):
        return Reported(one_line(value) if isinstance(value, str) else "")
    inner = value.get("error")
    if isinstance(inner, dict | list):
        return reported_in(inner)
    message = next((value[key] for key in ("message", "error", "detail", "msg") if value.get(key)), "")
    if not isinstance(message, str):
        message = msgspec.json.encode(message).decode()
    metadata = value.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, str):  # OpenRouter: the words of the provider behind it
        message = f"{message}: {raw}"
    names = [value.get(key) for key in ("code", "type", "status")]
    numbers = [number for name in names if (number := _status(name)) is not None]
    return Reported(
        one_line(message),
        tuple(name.lower() for name in names if isinstance(name, str)),
        numbers[0] if numbers else None,
    )


def _status(value: Any) -> int | None:
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if 400 <= number < 600 else None


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 1]}…"


def retry_after(headers: Mapping[str, str], now_ms: int) -> float | None:
    """Seconds to wait as the server asked: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date."""
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    given = headers.get("retry-after")
    seconds = _number(given)
    if seconds is not None or given is None:
        return seconds
    from email.utils import parsedate_to_datetime

    try:
        date = parsedate_to_datetime(given)
    except ValueError:
        return None
    return max(0.0, date.timestamp() - now_ms / 1000)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
