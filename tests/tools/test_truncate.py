"""Truncation keeps whole lines within the limits and counts what it left out."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from branchwork.tools.truncate import (
    LIMITS,
    MAX_BYTES,
    MAX_LINE,
    MAX_LINES,
    Limits,
    Skipped,
    cut_line,
    format_size,
    head,
    tail,
)

texts = st.text(alphabet=st.sampled_from("a\n\réß…\u2028\U0001f600\ud800"), max_size=60)
limits_ = st.builds(Limits, lines=st.integers(1, 8), bytes=st.integers(1, 40))


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def lines_of(text: str) -> list[str]:
    """The lines of a text with their ends."""
    return [line for line in text.replace("\n", "\n\0").split("\0") if line]


def test_the_shared_limits_are_2000_lines_and_50_kib() -> None:
    assert (MAX_LINES, MAX_BYTES, MAX_LINE) == (2000, 51200, 500)
    assert (LIMITS.lines, LIMITS.bytes) == (2000, 51200)


@given(texts, limits_)
@example("a\n" * 8, Limits(lines=8, bytes=16))
@example("a\n" * 8, Limits(lines=8, bytes=15))
def test_head_keeps_the_longest_prefix_of_whole_lines_within_the_limits(text: str, limits: Limits) -> None:
    kept, cut = head(text, limits)
    lines = lines_of(text)
    assert kept == "".join(lines[: cut.kept_lines])
    assert cut.kept_lines <= limits.lines
    assert cut.kept_bytes == size(kept) <= limits.bytes
    if cut.truncated:
        one_more = "".join(lines[: cut.kept_lines + 1])
        assert cut.kept_lines == limits.lines or size(one_more) > limits.bytes
        assert cut.by == ("lines" if cut.kept_lines == limits.lines else "bytes")
    else:
        assert kept == text
        assert cut.by is None
    assert (cut.total_lines, cut.total_bytes) == (len(lines), size(text))
    assert (cut.first_line, cut.last_line) == ((1, cut.kept_lines) if cut.kept_lines else (0, 0))
    assert not cut.partial


@given(texts, limits_)
@example("a\n" * 8, Limits(lines=8, bytes=16))
@example("a\n" * 8, Limits(lines=8, bytes=15))
@example("a\nb", Limits(lines=8, bytes=1))
def test_tail_keeps_the_longest_suffix_of_whole_lines_within_the_limits(text: str, limits: Limits) -> None:
    kept, cut = tail(text, limits)
    lines = lines_of(text)
    assert text.endswith(kept)
    assert cut.kept_lines <= limits.lines
    assert cut.kept_bytes == size(kept) <= limits.bytes
    assert (cut.total_lines, cut.total_bytes) == (len(lines), size(text))
    assert cut.truncated == (kept != text) == (cut.by is not None)
    if kept:
        assert (cut.first_line, cut.last_line) == (len(lines) - cut.kept_lines + 1, len(lines))
    else:
        assert (cut.kept_lines, cut.first_line, cut.last_line) == (0, 0, 0)
    if lines and size(lines[-1]) > limits.bytes:
        # A character is at most four bytes, so at most three of the allowance stay unused.
        assert cut.partial == bool(kept)
        assert size(kept) > limits.bytes - 4
    else:
        assert kept == "".join(lines[len(lines) - cut.kept_lines :])
        if cut.truncated:
            one_more = "".join(lines[len(lines) - cut.kept_lines - 1 :])
            assert cut.kept_lines == limits.lines or size(one_more) > limits.bytes


@given(texts, limits_)
def test_what_fits_is_returned_as_it_is(text: str, limits: Limits) -> None:
    fits = len(lines_of(text)) <= limits.lines and size(text) <= limits.bytes
    assert (head(text, limits)[0] == text) == fits
    assert (tail(text, limits)[0] == text) == fits


@given(texts, limits_, st.data())
def test_the_tail_of_a_text_whose_beginning_is_gone_has_the_numbers_of_the_whole(
    text: str, limits: Limits, data: st.DataObject
) -> None:
    gone = data.draw(st.integers(0, len(text)))
    rest = text[gone:]
    if size(rest) <= limits.bytes:
        return
    skipped = Skipped(lines=text[:gone].count("\n"), bytes=size(text[:gone]))
    assert tail(rest, limits, skipped) == tail(text, limits)


def test_a_first_line_over_the_limit_leaves_the_head_empty() -> None:
    kept, cut = head("é" * 6 + "\nb\n", Limits(bytes=11))
    assert kept == ""
    assert (cut.by, cut.kept_lines, cut.total_lines) == ("bytes", 0, 2)


def test_a_last_line_over_the_limit_is_cut_between_characters_and_said_so() -> None:
    kept, cut = tail("a\n" + "é" * 6, Limits(bytes=5))
    assert kept == "éé"
    assert (cut.partial, cut.by, cut.first_line, cut.last_line, cut.kept_bytes) == (True, "bytes", 2, 2, 4)


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("", 3, ""),
        ("abc", 3, "abc"),
        ("abcd", 3, "abc… [1 more characters]"),
        ("é😀ß" * 2, 3, "é😀ß… [3 more characters]"),
    ],
)
def test_a_long_line_is_cut_and_says_how_much_is_missing(text: str, limit: int, shown: str) -> None:
    assert cut_line(text, limit) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (51200, "50 KiB"),
        (1024 * 1024 - 1, "1 MiB"),
        (1_300_000, "1.2 MiB"),
        (3 * 1024**3, "3 GiB"),
        (5 * 1024**4, "5 TiB"),
    ],
)
def test_sizes_read_well(size: int, shown: str) -> None:
    assert format_size(size) == shown


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["\n", "a\n", "x" * 79 + "\n", "é"])
def test_ten_times_the_text_takes_about_ten_times_as_long(unit: str) -> None:
    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            head(text)
            tail(text)
            best = min(best, time.process_time() - start)
        return best

    # Quadratic work would take a hundred times as long, and seconds; the floor keeps caches and clocks out of it.
    assert seconds(20_000_000) < 30 * max(seconds(2_000_000), 5e-3)
