"""Chunks as servers really send them, shortened to the fields that matter and a few that must not."""

import itertools
from typing import Any

import msgspec
import pytest

from branchwork.models.adapters.failures import ReportedError, kind_of
from branchwork.models.adapters.openai_decode import ChatParser
from branchwork.models.base import ReplyEnd, StreamEvent
from branchwork.session.entries import AssistantMessage, Text, Thinking, ToolCall
from tests.models.talk import built, info


def parse(*chunks: dict[str, Any] | str | bytes) -> list[StreamEvent]:
    numbers = itertools.count()
    parser = ChatParser(lambda: f"made-{next(numbers)}")
    events: list[StreamEvent] = []
    for chunk in chunks:
        data = chunk if isinstance(chunk, bytes) else (chunk.encode() if isinstance(chunk, str) else _json(chunk))
        events += parser.feed(data)
    assert parser.ended
    return events + parser.finish()


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def message(*chunks: dict[str, Any] | str | bytes) -> AssistantMessage:
    return built(parse(*chunks), info())


def end(*chunks: dict[str, Any] | str | bytes) -> ReplyEnd:
    last = parse(*chunks)[-1]
    assert isinstance(last, ReplyEnd)
    return last


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "c-1", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(
    index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    given = (("index", index), ("id", call_id), ("function", function or None))
    return {key: value for key, value in given if value is not None}


def calls(*chunks: list[dict[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    done = message(*(chunk(tool_calls=pieces) for pieces in chunks), chunk("tool_calls"), "[DONE]")
    assert all(call.arguments_text is None for call in done.tool_calls)
    return [(call.id, call.name, call.arguments) for call in done.tool_calls]


# ---- text and thinking ---------------------------------------------------------------------------------


def test_text_comes_in_pieces_and_ends_with_reason_id_and_model() -> None:
    done = message(chunk(role="assistant", content=""), chunk(content="Hel"), chunk(content="lo"), chunk("stop"))
    assert done.content == (Text("Hello"),)
    assert (done.stop_reason, done.raw_stop_reason) == ("stop", "stop")
    assert (done.response_id, done.response_model) == ("c-1", "m-1")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text"])
def test_thinking_is_read_from_each_of_its_fields(name: str) -> None:
    done = message(chunk(**{name: "hm"}), chunk(**{name: "m"}), chunk("stop", content="so"))
    assert done.content == (Thinking("hmm"), Text("so"))


def test_thinking_that_a_server_sends_in_two_fields_counts_once() -> None:
    assert message(chunk("stop", reasoning="hm", reasoning_content="hm")).content == (Thinking("hm"),)


def test_thinking_and_text_may_alternate() -> None:
    chunks = chunk(reasoning="a"), chunk(content="b"), chunk(reasoning="c"), chunk("stop", content="d", reasoning=None)
    assert message(*chunks).content == (Thinking("a"), Text("b"), Thinking("c"), Text("d"))


def test_content_may_be_a_list_of_parts_with_thinking_in_it() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    done = message(chunk(content=[thinking]), chunk("stop", content=[{"type": "text", "text": "so"}, {"type": "x"}]))
    assert done.content == (Thinking("hm"), Text("so"))


def test_a_refusal_is_text() -> None:
    assert message(chunk(content=None, refusal="No."), chunk("stop")).content == (Text("No."),)


def test_half_an_emoji_costs_that_character_and_not_the_reply() -> None:
    done = message(
        b'{"choices":[{"delta":{"content":"a\\ud83d"}}]}',
        b'{"choices":[{"delta":{"content":"\\uDE00b"},"finish_reason":"stop"}]}',
    )
    assert done.content == (Text("ab"),)


# ---- tool calls ------------------------------------------------------------------------------------------


def test_parallel_calls_are_told_apart_by_index() -> None:
    assert calls(
        [piece(0, "a", "read", "")],
        [piece(1, "b", "ls", "")],
        [piece(0, None, None, '{"p":')],
        [piece(1, None, None, "{}"), piece(0, None, None, "1}")],
    ) == [("a", "read", {"p": 1}), ("b", "ls", {})]


def test_id_and_name_may_be_repeated_with_every_piece() -> None:
    assert calls([piece(0, "a", "read", '{"p"')], [piece(0, "a", "read", ":1}")], [piece(0, "a", "read", "")]) == [
        ("a", "read", {"p": 1})
    ]


def test_a_new_id_without_name_on_an_index_in_use_continues_the_call() -> None:
    # vLLM made up another id for each piece for a while.
    assert calls([piece(0, "a", "read", "")], [piece(0, "b", None, '{"p"')], [piece(0, "c", None, ":1}")]) == [
        ("a", "read", {"p": 1})
    ]


def test_calls_without_index_are_told_apart_by_id() -> None:
    # Gemini's compatible endpoint: whole calls, no index.
    assert calls([piece(None, "a", "read", '{"p":1}')], [piece(None, "b", "read", '{"p":2}')]) == [
        ("a", "read", {"p": 1}),
        ("b", "read", {"p": 2}),
    ]


def test_whole_calls_that_all_claim_index_zero_are_told_apart_by_id() -> None:
    # Ollama.
    assert calls([piece(0, "a", "read", '{"p":1}')], [piece(0, "b", "ls", "{}")]) == [
        ("a", "read", {"p": 1}),
        ("b", "ls", {}),
    ]


def test_a_new_id_with_a_name_begins_a_call_even_on_an_index_in_use() -> None:
    heads = [piece(0, "a", "ls", "")], [piece(0, "b", "ls", "")]
    assert calls(*heads, [piece(0, None, None, '{"p":1}')]) == [("a", "ls", {}), ("b", "ls", {"p": 1})]


@pytest.mark.parametrize("index", [None, 0])
def test_whole_calls_with_nothing_but_a_name_are_told_apart_and_get_ids(index: int | None) -> None:
    assert calls([piece(index, "", "read", '{"p":1}')], [piece(index, None, "read", '{"p":2}')]) == [
        ("made-0", "read", {"p": 1}),
        ("made-1", "read", {"p": 2}),
    ]


def test_named_calls_of_one_chunk_are_several_even_without_arguments() -> None:
    assert [name for _, name, _ in calls([piece(None, None, "ls"), piece(None, None, "ls"), piece(name="pwd")])] == [
        "ls",
        "ls",
        "pwd",
    ]


def test_pieces_that_name_nothing_continue_the_last_call() -> None:
    assert calls([piece(None, "a", "read", '{"p"')], [piece(None, None, None, ":1}")]) == [("a", "read", {"p": 1})]


def test_the_rest_of_a_call_may_come_under_another_index() -> None:
    # Seen behind proxies: the head of the second call claims index 0, its tail has index 1.
    assert calls([piece(0, "a", "read", '{"p":1}')], [piece(0, "b", "ls", "")], [piece(1, None, None, '{"q":2}')]) == [
        ("a", "read", {"p": 1}),
        ("b", "ls", {"q": 2}),
    ]


def test_an_id_used_twice_in_one_reply_is_replaced_the_second_time() -> None:
    assert calls(
        [piece(0, "call_0", "read", '{"p":1}')], [piece(1, "call_0", "read", '{"p":')], [piece(1, None, None, "2}")]
    ) == [("call_0", "read", {"p": 1}), ("made-0", "read", {"p": 2})]


def test_the_name_may_come_after_the_first_arguments() -> None:
    assert calls([piece(0, None, None, '{"p"')], [piece(0, "a", "read", ":1}")]) == [("a", "read", {"p": 1})]


def test_arguments_may_be_an_object_or_null() -> None:
    assert calls([piece(0, "a", "read", {"p": 1}), {"index": 1, "id": "b", "function": {"name": "ls"}}]) == [
        ("a", "read", {"p": 1}),
        ("b", "ls", {}),
    ]


def test_ids_may_be_numbers() -> None:
    assert calls([{"index": 0, "id": 7, "function": {"name": "ls", "arguments": "{}"}}]) == [("7", "ls", {})]


def test_a_call_that_never_gets_a_name_is_still_a_call() -> None:
    assert calls([piece(0, "a", None, "{}")]) == [("a", "", {})]


def test_a_signature_of_the_call_is_kept() -> None:
    signed = {**piece(0, "a", "ls", "{}"), "extra_content": {"google": {"thought_signature": "s"}}}
    done = message(chunk("stop", tool_calls=[signed]))
    assert done.content == (ToolCall(id="a", name="ls", arguments={}, thought_signature="s"),)


def test_text_around_calls_keeps_its_place() -> None:
    done = message(chunk(content="a"), chunk(tool_calls=[piece(0, "x", "ls", "{}")]), chunk("tool_calls", content="b"))
    assert [type(part) for part in done.content] == [Text, ToolCall, Text]


# ---- the end -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "toolUse"),
        ("function_call", "toolUse"),
        ("content_filter", "error"),
        ("eos", "stop"),
    ],
)
def test_finish_reasons_are_understood_and_unknown_ones_kept_as_they_are(reason: str, stop: str) -> None:
    assert (end(chunk(reason)).stop_reason, end(chunk(reason)).raw_stop_reason) == (stop, reason)


def test_done_without_a_reason_is_an_end_too() -> None:
    assert end(chunk(content="a"), "[DONE]").stop_reason == "stop"


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30, "audio_tokens": None},
    "completion_tokens_details": {"reasoning_tokens": 5},
    "cost": 0.0125,
}


@pytest.mark.parametrize(
    "chunks",
    [
        (chunk("stop"), {"id": "x", "choices": [], "usage": USAGE}, "[DONE]"),
        ({**chunk("stop"), "usage": USAGE},),
        ({**chunk(content="a"), "usage": {**USAGE, "completion_tokens": 1}}, {**chunk("stop"), "usage": USAGE}),
        (chunk("stop"), {"choices": None, "usage": USAGE}),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}], "usage": None},),
    ],
)
def test_usage_is_found_wherever_it_comes(chunks: tuple[Any, ...]) -> None:
    last = end(*chunks)
    assert (last.input, last.cache_read, last.cache_write, last.output) == (10, 60, 30, 20)
    assert (last.reasoning, last.cost) == (5, 0.0125)


def test_usage_that_never_comes_is_unknown_and_not_zero() -> None:
    last = end(chunk("stop"))
    assert (last.input, last.output, last.cost) == (None, None, None)


@pytest.mark.parametrize("name", ["prompt_cache_hit_tokens", "cached_tokens"])
def test_cached_tokens_have_other_names_elsewhere(name: str) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, name: 4, "prompt_tokens_details": None}
    last = end({**chunk("stop"), "usage": usage})
    assert (last.input, last.cache_read) == (6, 4)


def test_reasoning_left_out_of_the_completion_is_added() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 20}
    last = end({**chunk("stop"), "usage": {**usage, "completion_tokens_details": {"reasoning_tokens": 8}}})
    assert (last.output, last.reasoning) == (10, 8)


def test_figures_that_make_no_sense_do_no_harm() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": -1, "cached_tokens": 9, "cost": {"total": 1}}
    last = end({**chunk("stop"), "usage": usage})
    assert (last.input, last.output, last.cost) == (0, 0, None)


def test_an_answer_that_is_not_streamed_is_read_all_the_same() -> None:
    whole = {
        "id": "c-1",
        "model": "m-1",
        "choices": [{"message": {"content": "hi", "tool_calls": [piece(None, "a", "ls", "{}")]}, "finish_reason": "x"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    done = message(whole)
    assert (done.text, done.stop_reason, done.usage.input) == ("hi", "toolUse", 3)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"message": "Overloaded", "code": 529}}, "overloaded"),
        ({"error": {"message": "x", "code": "rate_limit_exceeded"}}, "rate_limit"),
        ({"error": {"message": "Upstream failed", "code": 502}, **chunk("error")}, "server"),
        ({"error": "something"}, "server"),
        (chunk("network_error"), "server"),
    ],
)
def test_an_error_in_the_stream_is_raised_with_its_type(error: dict[str, Any], kind: str) -> None:
    parser = ChatParser()
    with pytest.raises(ReportedError) as caught:
        parser.feed(_json(error))
    assert kind_of(caught.value.reported, None) == kind


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"choices":3}', b'{"id":"\\ud8'])
def test_what_is_no_chunk_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        ChatParser().feed(data)
