"""Lines to entries and back: typed where possible, lenient where not, never an exception for an object."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.session.codec import (
    Place,
    decode_entry,
    decode_header,
    decode_message,
    encode_entry,
    encode_header,
    settle,
)
from branchwork.session.entries import (
    AssistantMessage,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    Header,
    MessageEntry,
    SystemMessage,
    Text,
    ToolCall,
    ToolResultMessage,
    UnknownEntry,
    UserMessage,
)
from tests.session.builders import DATA, replied, said

STANDING = {"id": "a", "parentId": None, "timestamp": "2026-01-02T03:04:05.000Z"}


def read(**fields: Any) -> Entry:
    return decode_entry(json.dumps({"type": "message", **STANDING, **fields}).encode())


def message(**fields: Any) -> Any:
    entry = read(message=fields)
    assert isinstance(entry, MessageEntry), entry
    return entry.message


@pytest.mark.parametrize("name", ["npm", "v3"])
def test_every_entry_of_the_golden_files_is_known_and_keeps_its_meaning_when_written_again(name: str) -> None:
    _, *lines = (DATA / f"{name}.jsonl").read_bytes().splitlines()
    for raw in lines:
        entry = decode_entry(raw)
        if b"hologram" not in raw:
            assert not isinstance(entry, UnknownEntry), entry.reason
        assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize(
    "raw",
    [line for line in (DATA / "npm.jsonl").read_bytes().splitlines()[1:] if b'"system"' not in line],
)
def test_an_entry_of_the_npm_host_loses_no_field_when_this_program_writes_it(raw: bytes) -> None:
    def within(part: Any, whole: Any) -> bool:
        if isinstance(part, dict):
            return isinstance(whole, dict) and all(within(v, whole.get(k, False)) for k, v in part.items())
        if isinstance(part, list):
            return len(part) == len(whole) and all(map(within, part, whole))
        return bool(part == whole)

    written = encode_entry(decode_entry(raw))
    assert within(json.loads(raw), json.loads(written))
    assert list(json.loads(written))[:4] == ["type", "id", "parentId", "timestamp"]


def test_a_root_states_null_as_its_parent() -> None:
    entry = CustomEntry(id="a", parent_id=None, timestamp="t", custom_type="notes", data={"x": "ü"})
    assert encode_entry(entry) == (
        '{"type":"custom","id":"a","parentId":null,"timestamp":"t","customType":"notes","data":{"x":"ü"}}'.encode()
    )


def test_removed_tools_are_written_as_the_npm_host_reads_them() -> None:
    entry = MessageEntry(
        id="a", parent_id=None, timestamp="t", message=SystemMessage(content="", tools_removed=("bash",), timestamp=1)
    )
    raw = encode_entry(entry)
    assert json.loads(raw)["message"]["toolsRemoved"] == [{"name": "bash"}]
    assert decode_entry(raw) == entry


def test_the_place_in_the_tree_overrides_what_the_line_says() -> None:
    raw = json.dumps({"type": "custom", **STANDING, "customType": "n"}).encode()
    entry = decode_entry(raw, place=Place("a~2", "b", "t"))
    assert (entry.id, entry.parent_id, entry.timestamp) == ("a~2", "b", STANDING["timestamp"])
    bare = decode_entry(b'{"type":"custom","customType":"n"}', place=Place("x", None, "t"))
    assert (bare.id, bare.parent_id, bare.timestamp) == ("x", None, "t")


@pytest.mark.parametrize(
    ("role", "empty"), [("user", ""), ("system", ""), ("assistant", ()), ("toolResult", ()), ("custom", "")]
)
@pytest.mark.parametrize("given_content", [{}, {"content": None}])
def test_null_or_missing_content_is_read_as_empty(role: str, empty: object, given_content: dict[str, Any]) -> None:
    assert message(role=role, customType="x", **given_content).content == empty


def test_blocks_of_other_programs_become_short_text() -> None:
    blocks = [{"type": "hologram", "data": "x" * 1000}, 7, {"type": "image", "data": "only"}, {"type": "text"}]
    found = message(role="user", content=blocks, timestamp=1).content
    assert all(isinstance(part, Text) and len(part.text) < 100 for part in found)
    assert "hologram" in found[0].text


def test_text_content_of_a_reply_or_result_becomes_one_block() -> None:
    assert message(role="assistant", content="hi").content == (Text(text="hi"),)
    assert message(role="toolResult", content="hi", toolCallId="c").content == (Text(text="hi"),)


def test_numbers_written_as_text_are_numbers() -> None:
    reply = message(role="assistant", content=[], timestamp="12", usage={"input": "7", "totalTokens": 7.0})
    assert isinstance(reply, AssistantMessage)
    assert (reply.timestamp, reply.usage.input, reply.usage.total_tokens) == (12, 7, 7)
    entry = read(type="compaction", summary="s", firstKeptEntryId=5, tokensBefore="90")
    assert isinstance(entry, CompactionEntry)
    assert (entry.first_kept_entry_id, entry.tokens_before) == ("5", 90)


def test_optional_fields_may_be_null() -> None:
    result = message(role="toolResult", toolCallId="c", toolName="t", content=[], isError=None, durationMs=None)
    assert result == ToolResultMessage(
        tool_call_id="c", tool_name="t", content=(), is_error=False, timestamp=1767323045000
    )


def test_arguments_that_are_no_object_are_kept_as_text() -> None:
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": '{"path": '}
    (part,) = message(role="assistant", content=[call]).content
    assert part == ToolCall(id="c", name="read", arguments={}, arguments_text='{"path": ')


@pytest.mark.parametrize(("stated", "read_as"), [("pending", "aborted"), ("novel", "stop"), (None, "stop")])
def test_unknown_stop_reasons_are_kept_beside_one_of_ours(stated: str | None, read_as: str) -> None:
    reply = message(role="assistant", content=[], stopReason=stated)
    assert (reply.stop_reason, reply.raw_stop_reason) == (read_as, stated)


def test_lone_surrogates_and_bad_utf8_are_replaced() -> None:
    raw = b'{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"x\\ud83dy"}}'
    assert decode_entry(raw).message.content == "x\ufffdy"  # type: ignore[union-attr]
    assert decode_entry(raw.replace(b"\\ud83d", b"\xff")).message.content == "x\ufffdy"  # type: ignore[union-attr]


def test_what_is_written_with_lone_surrogates_is_what_will_be_read() -> None:
    entry, raw = settle(said("bad \ud83d, good \U0001f600"))
    assert isinstance(entry, MessageEntry)
    assert entry.message.content == "bad \ufffd, good \U0001f600"  # type: ignore[union-attr]
    assert decode_entry(raw) == entry


def test_a_custom_message_without_display_is_shown() -> None:
    entry = read(type="custom_message", customType="n", content=None)
    assert isinstance(entry, CustomMessageEntry)
    assert (entry.content, entry.display) == ("", True)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "hologram", "shape": 1},
        {"message": {"role": "oracle", "content": "x"}},
        {"message": "text"},
        {"type": "label"},
        {"type": None},
        {"type": "usage", "usage": {"input": {}}},
    ],
)
def test_what_cannot_be_understood_is_unknown_with_the_reason_and_all_its_fields(fields: dict[str, Any]) -> None:
    entry = read(**fields)
    assert isinstance(entry, UnknownEntry)
    assert entry.reason
    assert (entry.id, entry.parent_id) == ("a", None)
    expected = {"type": "message", **STANDING, **fields}
    assert json.loads(encode_entry(entry)) == expected


def test_deep_nesting_is_unknown_not_a_crash() -> None:
    raw = b'{"type":"custom","id":"a","data":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    entry = decode_entry(raw, place=Place("a", None))
    assert isinstance(entry, UnknownEntry)
    assert (entry.id, entry.reason) == ("a", "the JSON nests too deeply")


@pytest.mark.parametrize("raw", [b"", b"[1]", b"null", b"text"])
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        decode_entry(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["content", "role", "usage", "timestamp", "message", "summary", "targetId", "replacement", "details", "name"]
TYPES = ["message", "compaction", "context_edit", "custom", "custom_message", "branch_summary", "label", "usage"]
ROLES = ["user", "assistant", "toolResult", "system", "custom", "bashExecution", "oracle"]


@given(
    kind=st.sampled_from(TYPES) | JSON,
    body=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
    inner=st.dictionaries(st.sampled_from([*FIELDS, "toolsRemoved", "sections"]), JSON, max_size=4),
    role=st.sampled_from(ROLES),
)
def test_no_object_makes_the_reader_raise(kind: Any, body: dict[str, Any], inner: dict[str, Any], role: str) -> None:
    raw = json.dumps({"type": kind, "message": {**inner, "role": role}, **body}).encode()
    entry = decode_entry(raw, place=Place("a", None))
    assert entry.id == "a"
    encode_entry(entry)


def test_unknown_roles_give_no_message() -> None:
    assert decode_message({"role": "oracle", "content": "x"}) is None
    assert decode_message({"role": "user", "content": "x", "timestamp": 1}) == UserMessage(content="x", timestamp=1)


def test_headers_round_trip_and_tolerate_what_is_missing() -> None:
    header = Header(version=3, id="x", timestamp="t", cwd="/project", parent_session="/other.jsonl")
    assert decode_header(encode_header(header)) == header
    assert list(json.loads(encode_header(header))) == ["type", "version", "id", "timestamp", "cwd", "parentSession"]
    assert decode_header(b'{"type":"session"}') == Header(version=1, id="", timestamp="", cwd="")
    assert decode_header(b'{"type":"session","version":"2","id":7}') == Header(version=2, id="7", timestamp="", cwd="")
    assert decode_header(b'{"type":"message"}') is None
    assert decode_header(b"junk") is None


def test_costs_are_always_written_in_full() -> None:
    usage = json.loads(encode_entry(replied("x")))["message"]["usage"]
    assert usage["cost"] == {"input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0, "total": 0.0}
