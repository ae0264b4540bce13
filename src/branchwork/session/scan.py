"""One pass over the bytes of a session file: where each entry is, and its head, without its payload.

Lines end in LF only: other separators (U+2028, a lone CR) are legal inside JSON strings. Memory is one chunk
and one line, whatever the size of the file.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from branchwork.session.codec import decode_object
from branchwork.session.entries import Problem
from branchwork.session.salvage import salvage

LONG_LINE = 32 << 20
"""Bytes from which a line is reported; the npm host's own limit for one entry is lower."""
MAX_LINE = 256 << 20
"""Bytes from which a line is skipped, so that one line cannot take all memory."""


class MessageHead(Struct, gc=False):
    role: str = ""


class Head(Struct, gc=False, rename="camel"):
    """What the tree needs of an entry. A missing id or parent is the empty string; null is None."""

    type: str = ""
    id: str = ""
    parent_id: str | None = ""
    timestamp: str = ""
    message: MessageHead | None = None
    custom_type: Any = None
    target_id: Any = None
    label: Any = None
    name: Any = None


class Record(Struct, gc=False):
    head: Head
    line: int
    offset: int
    length: int


@cache
def _head_decoder() -> msgspec.json.Decoder[Head]:
    return msgspec.json.Decoder(Head)


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Scanner:
    """Scans chunks that start at `offset` (the beginning of line number `line`).

    After `records` is exhausted: `end` is the offset behind the last byte seen, `line` the number of the line
    that begins there, `torn_at` the offset of a torn tail (None without one) and `problems` what was wrong.
    """

    def __init__(self, *, offset: int = 0, line: int = 1) -> None:
        self.end = offset
        self.line = line
        self.torn_at: int | None = None
        self.problems: list[Problem] = []
        self._decode = _head_decoder().decode

    def records(self, chunks: Iterable[bytes]) -> Iterator[Record]:
        held: list[bytes] = []
        held_size = 0
        for chunk in chunks:
            cut = chunk.rfind(b"\n")
            if cut < 0:
                held_size += len(chunk)
                if held_size <= MAX_LINE:
                    held.append(chunk)
                else:
                    held.clear()
                continue
            if held_size > MAX_LINE:
                first = chunk.find(b"\n")
                self._skip_line(held_size + first)
                block = chunk[first + 1 : cut] if first < cut else None
            else:
                block = b"".join((*held, chunk[:cut]))
            if block is not None:
                yield from self._block(block)
            held, held_size = [chunk[cut + 1 :]], len(chunk) - cut - 1
        if held_size > MAX_LINE:
            self._skip_line(held_size)
            self.end -= 1
        elif held_size:
            yield from self._unterminated(b"".join(held))

    def _block(self, block: bytes) -> Iterator[Record]:
        """Records of complete lines; `block` lacks the last line feed."""
        lines = block.split(b"\n")
        try:
            heads = list(map(self._decode, lines))
            fast = block.isascii() or _is_utf8(block)
        except _UNREADABLE:
            heads, fast = [], False
        if not fast or len(block) > LONG_LINE:
            for raw in lines:
                yield from self._line(raw)
                self._advance(len(raw) + 1)
            return
        offset, line = self.end, self.line
        for head, raw in zip(heads, lines, strict=True):
            length = len(raw)
            yield Record(head, line, offset, length)
            offset += length + 1
            line += 1
        self.end, self.line = offset, line

    def _line(self, raw: bytes) -> list[Record]:
        if len(raw) > LONG_LINE:
            self.problems.append(Problem(self.line, "overlong-line", f"{len(raw)} bytes on one line"))
        head = self._head(raw)
        if head is not None and (raw.isascii() or _is_utf8(raw)):
            return [Record(head, self.line, self.end, len(raw))]
        found = salvage(raw, self.line)
        self.problems.extend(found.problems)
        return [self._piece(raw, piece.start, piece.length) for piece in found.pieces]

    def _unterminated(self, raw: bytes) -> list[Record]:
        """The last line, without its line feed: whole, or torn in the middle of a write."""
        if self._head(raw) is not None:
            found = self._line(raw)
            self.end += len(raw)
            return found
        salvaged = salvage(raw, self.line)
        kept = salvaged.pieces[-1].end if salvaged.pieces else 0
        known = ("nul-bytes", "not-json", "not-an-object")
        self.problems.extend(p for p in salvaged.problems if p.kind not in known or not salvaged.rest)
        if salvaged.rest:
            self.torn_at = self.end + kept
            tail = raw[kept:]
            if tail.strip(b"\0 \t\r"):
                self.problems.append(
                    Problem(self.line, "torn-tail", f"the last {len(tail)} bytes are an unfinished entry", lost=True)
                )
            else:
                self.problems.append(Problem(self.line, "nul-bytes", f"the last {len(tail)} bytes are NUL", lost=True))
        records = [self._piece(raw, piece.start, piece.length) for piece in salvaged.pieces]
        self.end += len(raw)
        return records

    def _head(self, raw: bytes) -> Head | None:
        try:
            return self._decode(raw)
        except _UNREADABLE:
            return None

    def _piece(self, raw: bytes, start: int, length: int) -> Record:
        piece = raw[start : start + length]
        head = self._head(piece) or lenient_head(piece)
        return Record(head, self.line, self.end + start, length)

    def _skip_line(self, length: int) -> None:
        self.problems.append(
            Problem(self.line, "overlong-line", f"{length} bytes on one line, too many to read", lost=True)
        )
        self._advance(length + 1)

    def _advance(self, size: int) -> None:
        self.end += size
        self.line += 1


def lenient_head(raw: bytes) -> Head:
    """The head of an object whose fields have unexpected types: numbers become text, the rest counts as missing."""
    data = decode_object(raw) or {}
    message = data.get("message")
    role = message.get("role") if isinstance(message, dict) else None
    parent = data.get("parentId", "")
    return Head(
        type=_text(data.get("type")),
        id=_text(data.get("id")),
        parent_id=None if parent is None else _text(parent),
        timestamp=_text(data.get("timestamp")),
        message=MessageHead(_text(role)) if role else None,
        custom_type=data.get("customType"),
        target_id=data.get("targetId"),
        label=data.get("label"),
        name=data.get("name"),
    )


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
