"""What can still be read on a line that is not one JSON object.

Damage comes in few shapes: NUL runs of a power cut, two programs (or a torn write and its successor) sharing
one line, separators that some tools take for line ends. Each object found keeps its exact bytes.
"""

import json
import re
from itertools import pairwise
from typing import Any

from msgspec import Struct

from branchwork.session.entries import Problem

MAX_GUESSES = 64
"""Places tried behind an unreadable part of one line; bounds the work on hostile input."""

_FILLER = " \t\r\n\0\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\ufeff"
_SEPARATORS = frozenset("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
_ENTRY_START = r'\{\s*"type"\s*:\s*"[^"\\]{1,64}"\s*,\s*"(?:id|version)"\s*:'
_DECODER = json.JSONDecoder(strict=False)


class Piece(Struct, frozen=True):
    """The bytes of one object, counted from the start of its line."""

    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


class Salvage(Struct, frozen=True):
    pieces: tuple[Piece, ...]
    problems: tuple[Problem, ...]
    rest: bool
    """Something other than white space is left behind the last piece (a torn write or NUL bytes)."""


def salvage(raw: bytes, line: int) -> Salvage:
    """Every object in `raw`, and what was wrong with the line; no problems when it is one object or blank.

    Behind an unreadable part only objects that look like entries or headers count, since the part may itself
    hold nested objects.
    """
    text = raw.decode("utf-8", "surrogateescape")
    spans, skipped = _spans(text)
    problems: list[Problem] = []
    if "\0" in text:
        problems.append(Problem(line, "nul-bytes", f"{text.count(chr(0))} NUL bytes", lost=not spans))
    if any("\udc80" <= char <= "\udcff" for start, end in spans for char in text[start:end]):
        problems.append(Problem(line, "invalid-utf8", "bytes that are not UTF-8 are read as U+FFFD"))
    if len(spans) > 1:
        between = "".join(text[left[1] : right[0]] for left, right in pairwise(spans))
        detail = f"{len(spans)} objects on one line, all of them read"
        separated = bool(_SEPARATORS.intersection(between))
        problems.append(Problem(line, "line-separator" if separated else "several-objects", detail))
    if spans and skipped:
        problems.append(Problem(line, "not-json", "part of the line is not JSON; the rest was read", lost=True))
    elif not spans and text.strip(_FILLER):
        problems.append(_unreadable(text, line))
    rest = text[spans[-1][1] if spans else 0 :].strip(" \t\r\n")
    return Salvage(tuple(_pieces(text, spans)), tuple(problems), bool(rest))


def _spans(text: str) -> tuple[list[tuple[int, int]], bool]:
    spans: list[tuple[int, int]] = []
    skipped, guesses = False, 0
    entry_start = re.compile(_ENTRY_START)
    at = _skip_filler(text, 0)
    while at < len(text):
        value, end = _object(text, at)
        if value is not None and (not skipped or _like_entry(value)):
            spans.append((at, end))
            at = _skip_filler(text, end)
            continue
        skipped, guesses = True, guesses + 1
        start = entry_start.search(text, at + 1) if guesses <= MAX_GUESSES else None
        if start is None:
            break
        at = start.start()
    return spans, skipped


def _skip_filler(text: str, at: int) -> int:
    while at < len(text) and text[at] in _FILLER:
        at += 1
    return at


def _object(text: str, at: int) -> tuple[dict[str, Any] | None, int]:
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None, at
    return (value, end) if isinstance(value, dict) else (None, at)


def _like_entry(value: dict[str, Any]) -> bool:
    return isinstance(value.get("id"), str) and ("parentId" in value or value.get("type") == "session")


def _pieces(text: str, spans: list[tuple[int, int]]) -> list[Piece]:
    pieces: list[Piece] = []
    offset, done = 0, 0
    for start, end in spans:
        offset += len(text[done:start].encode("utf-8", "surrogateescape"))
        length = len(text[start:end].encode("utf-8", "surrogateescape"))
        pieces.append(Piece(offset, length))
        offset, done = offset + length, end
    return pieces


def _unreadable(text: str, line: int) -> Problem:
    try:
        value = json.loads(text.strip(_FILLER), strict=False)
    except (ValueError, RecursionError):
        return Problem(line, "not-json", f"not JSON: {text.strip(_FILLER)[:60]!r}", lost=True)
    return Problem(line, "not-an-object", f"a JSON {type(value).__name__}, not an object", lost=True)
