"""Text for a plain terminal: safe to print, cut and padded by the columns it takes."""

import os
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from branchwork.frontends.console import Console

_REORDERING = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that can make a line read differently from what it says."""


def clean(text: str) -> str:
    """One line without anything a terminal would act on.

    White space runs become one space, control characters their pictures (U+2400), reordering marks and lone
    surrogates `\\uXXXX`.
    """
    return "".join(_shown(char) for char in " ".join(text.split()))


def _shown(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if char in _REORDERING or unicodedata.category(char) in ("Cc", "Cs"):
        return f"\\u{code:04x}"
    return char


def width(text: str) -> int:
    """Columns of `text` in a terminal: two for wide characters, none for combining and joining ones."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def cut(text: str, columns: int) -> str:
    """At most `columns` columns, `…` standing for what was left out."""
    if width(text) <= columns:
        return text
    used, end = 0, 0
    for end, char in enumerate(text):  # noqa: B007 - the position is needed after the loop
        used += _columns(char)
        if used > columns - 1:
            break
    return text[:end].rstrip() + "…" if columns > 0 else ""


def pad(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def terminal_columns(console: Console) -> int | None:
    """Width of the terminal that output goes to, or None when it goes elsewhere."""
    if not is_terminal(console.out):
        return None
    stated = console.env.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        return int(stated)
    try:
        return os.get_terminal_size(console.out.fileno()).columns
    except OSError:
        return 80


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False


def table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None) -> list[str]:
    """Aligned lines, the head first. The last column is cut when `columns` are too few, then the widest others."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(width(row[index]) for row in cells) for index in range(len(head))]
    if columns is not None:
        _shrink(widths, columns)
    lines = []
    for row in cells:
        parts = [pad(cut(text, size), size) for text, size in zip(row, widths, strict=True)]
        lines.append("  ".join(parts).rstrip())
    return lines


def _shrink(widths: list[int], columns: int) -> None:
    """Make the sum fit: first the last column down to 20, then whichever is widest down to 4."""
    over = sum(widths) + 2 * (len(widths) - 1) - columns
    taken = max(0, min(over, widths[-1] - 20))
    widths[-1] -= taken
    over -= taken
    while over > 0 and max(widths) > 4:
        widest = widths.index(max(widths))
        widths[widest] -= 1
        over -= 1
