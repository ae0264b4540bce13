from typing import Any

import msgspec
import pytest

from branchwork.models.adapters.anthropic_decode import MessagesParser
from branchwork.models.adapters.failures import ReportedError, kind_of
from branchwork.models.base import ReplyEnd, StreamEvent
from branchwork.session.entries import AssistantMessage, Text, Thinking, ToolCall
from tests.models.talk import built, info


def parse(*events: dict[str, Any]) -> list[StreamEvent]:
    parser = MessagesParser()
    given = [each for event in events for each in parser.feed(msgspec.json.encode(event))]
    assert parser.ended
    return given + parser.finish()


def message(*events: dict[str, Any]) -> AssistantMessage:
    return built(parse(*events), info("anthropic"))


def end(*events: dict[str, Any]) -> ReplyEnd:
    last = parse(*events)[-1]
    assert isinstance(last, ReplyEnd)
    return last


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def close(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def stop(reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage or None}


STOPPED = {"type": "message_stop"}


def begin(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "content": [], "usage": usage}}


def test_text_thinking_and_calls_keep_their_places() -> None:
    done = message(
        begin(input_tokens=3, output_tokens=1),
        {"type": "ping"},
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="h"),
        delta(0, "thinking_delta", thinking="m"),
        delta(0, "signature_delta", signature="si"),
        delta(0, "signature_delta", signature="g"),
        close(0),
        start(1, type="redacted_thinking", data="blob"),
        close(1),
        start(2, type="text", text=""),
        delta(2, "text_delta", text="so"),
        close(2),
        start(3, type="tool_use", id="toolu_1", name="read", input={}),
        delta(3, "input_json_delta", partial_json=""),
        delta(3, "input_json_delta", partial_json='{"p":'),
        delta(3, "input_json_delta", partial_json="1}"),
        close(3),
        stop("tool_use", output_tokens=9),
        STOPPED,
    )
    assert done.content == (
        Thinking("hm", "sig"),
        Thinking("", "blob", redacted=True),
        Text("so"),
        ToolCall(id="toolu_1", name="read", arguments={"p": 1}),
    )
    assert (done.stop_reason, done.response_id, done.response_model) == ("toolUse", "msg_1", "m-1")


def test_thinking_cut_before_its_signature_has_none() -> None:
    parser = MessagesParser()
    events = [
        each
        for event in (start(0, type="thinking", thinking=""), delta(0, "thinking_delta", thinking="hm"))
        for each in parser.feed(msgspec.json.encode(event))
    ]
    assert not parser.ended
    assert built(events, info("anthropic")).content == (Thinking("hm"),)


def test_blocks_that_come_whole_are_read() -> None:
    done = message(
        start(0, type="thinking", thinking="hm", signature="sig"),
        close(0),
        start(1, type="text", text="so"),
        close(1),
        start(2, type="tool_use", id="a", name="ls", input={"p": 1}),
        close(2),
        stop("tool_use"),
    )
    assert done.content == (Thinking("hm", "sig"), Text("so"), ToolCall(id="a", name="ls", arguments={"p": 1}))


def test_arguments_sent_in_pieces_replace_those_announced() -> None:
    done = message(
        start(0, type="tool_use", id="a", name="ls", input={"p": 0}),
        delta(0, "input_json_delta", partial_json='{"p":1}'),
        close(0),
        stop("tool_use"),
    )
    assert done.content == (ToolCall(id="a", name="ls", arguments={"p": 1}),)


def test_unknown_events_blocks_and_deltas_are_passed_over() -> None:
    done = message(
        {"type": "brand_new", "index": 4, "stuff": [1]},
        start(0, type="server_tool_use", id="s", name="web_search", input={"q": "x"}),
        delta(0, "input_json_delta", partial_json='{"q"'),
        close(0),
        start(1, type="text", text=""),
        delta(1, "citations_delta", citation={"a": 1}),
        delta(1, "text_delta", text="so"),
        close(1),
        stop(),
    )
    assert done.content == (Text("so"),)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "toolUse"),
        ("refusal", "error"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons_are_understood_and_kept(reason: str, expected: str) -> None:
    last = end(begin(), stop(reason), STOPPED)
    assert (last.stop_reason, last.raw_stop_reason) == (expected, reason)


def test_usage_comes_from_the_start_and_later_figures_replace_earlier_ones() -> None:
    first = {
        "input_tokens": 7,
        "cache_creation_input_tokens": 50,
        "cache_read_input_tokens": 900,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 40},
        "output_tokens": 1,
    }
    last = end(begin(**first), stop(output_tokens=33, input_tokens=None, cache_read_input_tokens=901), STOPPED)
    assert (last.input, last.output) == (7, 33)
    assert (last.cache_read, last.cache_write, last.cache_write_1h) == (901, 50, 40)


def test_usage_that_never_comes_is_unknown() -> None:
    assert end({"type": "message_start", "message": {"id": "x"}}, STOPPED).input is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("overloaded_error", "overloaded"),
        ("rate_limit_error", "rate_limit"),
        ("api_error", "server"),
        ("timeout_error", "timeout"),
        ("authentication_error", "auth"),
        ("permission_error", "auth"),
        ("billing_error", "quota"),
        ("request_too_large", "overflow"),
        ("not_found_error", "rejected"),
        ("invalid_request_error", "rejected"),
    ],
)
def test_an_error_event_is_raised_with_its_type(name: str, kind: str) -> None:
    event = {"type": "error", "error": {"type": name, "message": "sorry"}, "request_id": "req_1"}
    with pytest.raises(ReportedError, match="sorry") as caught:
        MessagesParser().feed(msgspec.json.encode(event))
    assert kind_of(caught.value.reported, None) == kind


def test_an_overflow_inside_the_stream_is_known_by_its_words() -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 2 tokens > 1 maximum"}
    with pytest.raises(ReportedError) as caught:
        MessagesParser().feed(msgspec.json.encode({"type": "error", "error": error}))
    assert kind_of(caught.value.reported, None) == "overflow"


@pytest.mark.parametrize("data", [b"", b"nonsense", b'{"index":"x"}'])
def test_what_is_no_event_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        MessagesParser().feed(data)
