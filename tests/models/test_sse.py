import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.models.adapters.sse import EventDecoder
from branchwork.testing.faults import Frame, Framing, encode_frame


def decode(*chunks: bytes) -> list[bytes]:
    decoder = EventDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.flush()


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_may_end_in_any_of_the_three_ways(end: bytes) -> None:
    assert decode(b"data: a" + end + end + b"data: b" + end + end) == [b"a", b"b"]


def test_several_data_lines_are_one_event_joined_by_line_feeds() -> None:
    assert decode(b"data: a\ndata:b\ndata\n\n") == [b"a\nb\n"]


def test_comments_names_ids_and_unknown_fields_are_passed_over() -> None:
    assert decode(b": hello\nevent: x\nid: 1\nretry: 5\ncolour: blue\ndata: a\n\n:\n\n\n") == [b"a"]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert decode(b"data:  a\n\ndata:b\n\n") == [b" a", b"b"]


def test_a_byte_order_mark_is_dropped_also_in_pieces() -> None:
    assert decode(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]
    assert decode(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == [b"a"]


def test_a_line_separator_of_unicode_ends_no_line() -> None:
    text = "data: a\u2028b\x0bc\x85d\n\n".encode()
    assert decode(text) == ["a\u2028b\x0bc\x85d".encode()]


def test_a_crlf_cut_in_two_is_one_line_end() -> None:
    assert decode(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"a\nb"]


def test_an_event_without_its_blank_line_is_given_at_the_end() -> None:
    assert decode(b"data: a\n") == [b"a"]
    assert decode(b"data: a") == [b"a"]
    assert decode(b"") == []


frames = st.lists(st.sampled_from([Frame({"text": "é😀", "n": [1]}), Frame("[DONE]"), Frame({"a": "\n"}, event="x")]))
framings = st.builds(Framing, crlf=st.booleans(), noise=st.booleans(), several_lines=st.booleans(), tight=st.booleans())


@given(frames, framings, st.lists(st.integers(1, 9), min_size=1))
def test_the_events_are_the_same_however_the_bytes_are_cut(
    given_frames: list[Frame], framing: Framing, sizes: list[int]
) -> None:
    data = b"".join(encode_frame(frame, framing) for frame in given_frames)
    chunks: list[bytes] = []
    start = 0
    while start < len(data):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(data[start : start + size])
        start += size
    assert decode(*chunks) == decode(data)
    assert len(decode(data)) == len(given_frames)


class CountingBytes(bytes):
    """Counts the bytes that line splitting looks at."""

    looked_at = 0

    def splitlines(self, keepends: bool = False) -> list[bytes]:
        CountingBytes.looked_at += len(self)
        return bytes(self).splitlines(keepends)


def test_a_long_line_in_small_pieces_is_looked_at_once() -> None:
    decoder = EventDecoder()
    decoder.feed(b"data: ")
    piece = CountingBytes(b"x" * 64)
    for _ in range(2000):
        assert decoder.feed(piece) == []
    assert decoder.feed(b"\n\n") == [b"x" * 64 * 2000]
    assert CountingBytes.looked_at == 64 * 2000
