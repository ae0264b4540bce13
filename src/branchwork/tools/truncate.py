"""Limits on what a tool shows, and cuts that say what was left out.

A line ends at `\\n` and nowhere else; a text that does not end in one has an unfinished last line, which
counts. Sizes are bytes of UTF-8, line ends included. Every function is linear in its input.
"""

from typing import Literal

from msgspec import Struct

MAX_LINES = 2000
MAX_BYTES = 50 * 1024
MAX_LINE = 500
"""Characters of one line of a search result."""


class Limits(Struct, frozen=True, kw_only=True):
    """What may be kept; whichever is reached first counts. Both are at least 1."""

    lines: int = MAX_LINES
    bytes: int = MAX_BYTES


LIMITS = Limits()


class Skipped(Struct, frozen=True, kw_only=True):
    """What came before a text and is no longer at hand. A text may begin in the middle of line `lines + 1`."""

    lines: int = 0
    bytes: int = 0


NOTHING_SKIPPED = Skipped()


class Truncation(Struct, frozen=True, kw_only=True):
    """What was kept of how much. Numbers are of the whole text, what was skipped included."""

    truncated: bool
    by: Literal["lines", "bytes"] | None
    """The limit that was reached first; None when nothing was cut."""
    total_lines: int
    total_bytes: int
    kept_lines: int
    kept_bytes: int
    first_line: int
    """The first kept line, counted from 1; 0 when nothing was kept. `last_line` likewise."""
    last_line: int
    partial: bool = False
    """The one kept line is only the end of a line longer than the limit."""


def head(text: str, limits: Limits = LIMITS) -> tuple[str, Truncation]:
    """The longest prefix of whole lines within the limits.

    It is empty when the first line alone is longer than `limits.bytes`; the caller says so.
    """
    data = _encode(text)
    end = lines = 0
    by: Literal["lines", "bytes"] | None = None
    while end < len(data):
        if lines == limits.lines:
            by = "lines"
            break
        newline = data.find(b"\n", end, limits.bytes)
        if newline < 0 and len(data) > limits.bytes:
            by = "bytes"
            break
        end = newline + 1 if newline >= 0 else len(data)
        lines += 1
    kept = text if by is None else _decode(data[:end])
    return kept, Truncation(
        truncated=by is not None,
        by=by,
        total_lines=_count(data),
        total_bytes=len(data),
        kept_lines=lines,
        kept_bytes=end,
        first_line=min(lines, 1),
        last_line=lines,
    )


def tail(text: str, limits: Limits = LIMITS, skipped: Skipped = NOTHING_SKIPPED) -> tuple[str, Truncation]:
    """The longest suffix of whole lines within the limits.

    A last line that alone is longer than `limits.bytes` is cut at its beginning, between two characters, and
    `partial` is set. When something was skipped, `text` must be larger than `limits.bytes`, so that the
    beginning of `text`, which may be the middle of a line, is never shown as a whole one.
    """
    data = _encode(text)
    start, lines, by = _tail_start(data, limits)
    partial = False
    if by == "bytes" and lines == 0:
        start = _next_character(data, len(data) - limits.bytes)
        partial = start < len(data)
        lines = int(partial)
    total_lines = skipped.lines + _count(data)
    kept = text if start == 0 else _decode(data[start:])
    return kept, Truncation(
        truncated=by is not None,
        by=by,
        total_lines=total_lines,
        total_bytes=skipped.bytes + len(data),
        kept_lines=lines,
        kept_bytes=len(data) - start,
        first_line=total_lines - lines + 1 if lines else 0,
        last_line=total_lines if lines else 0,
        partial=partial,
    )


def _tail_start(data: bytes, limits: Limits) -> tuple[int, int, Literal["lines", "bytes"] | None]:
    """Where the kept lines begin, how many they are, and which limit stopped the search."""
    floor = max(0, len(data) - limits.bytes)
    start, lines = len(data), 0
    while start > 0:
        if lines == limits.lines:
            return start, lines, "lines"
        # A line begins after the line end before it; the search stops where it would be too long to keep.
        newline = data.rfind(b"\n", max(0, floor - 1), start - 1)
        if newline < 0 and floor > 0:
            return start, lines, "bytes"
        start = newline + 1
        lines += 1
    return start, lines, None


def cut_line(text: str, limit: int = MAX_LINE) -> str:
    """`text` itself, or its first `limit` characters and a mark that tells how many more there are."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [{len(text) - limit} more characters]"


def format_size(size: int) -> str:
    """Bytes for people: `17 B`, `50 KiB`, `1.2 MiB`. One decimal, none when it would be zero."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if round(value, 1) < 1024:
            return f"{value:.1f}".removesuffix(".0") + f" {unit}"
    return f"{value / 1024:.1f}".removesuffix(".0") + " TiB"


def _encode(text: str) -> bytes:
    # Lone surrogates reach tools through JSON escapes; they count as the three bytes they would take.
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _count(data: bytes) -> int:
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def _next_character(data: bytes, position: int) -> int:
    """The first position from `position` on where a character begins (RFC 3629: continuation bytes are 10xxxxxx)."""
    while position < len(data) and data[position] & 0xC0 == 0x80:
        position += 1
    return position
