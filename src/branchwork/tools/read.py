"""The `read` tool: part of a text file, or a picture."""

import asyncio
import codecs
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from branchwork import data
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.tools.files import BINARY_PROBE, INLINE_BYTES, open_regular
from branchwork.tools.images import attach, kind_of
from branchwork.tools.paths import failed, resolve, shell_word, shown
from branchwork.tools.truncate import MAX_BYTES, MAX_LINES, format_size

COUNT_BYTES = 64 << 20
"""How far behind the shown lines the rest of the file is read to count its lines."""

_CHUNK = 256 * 1024
_FIRST_CHUNK = 32 * 1024
"""Most files are smaller, and a buffer of the full chunk costs more than reading them."""

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)

_SIGNATURES = (
    (0, b"%PDF-", "PDF document"),
    (0, b"\x7fELF", "ELF executable or library"),
    (0, b"\xca\xfe\xba\xbe", "Java class or macOS executable"),
    (0, b"\xcf\xfa\xed\xfe", "macOS executable"),
    (0, b"MZ", "Windows executable"),
    (0, b"PK\x03\x04", "ZIP archive (also wheel, jar, docx, xlsx, npz)"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"\xfd7zXZ\x00", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (257, b"ustar", "tar archive"),
    (0, b"SQLite format 3\x00", "SQLite database"),
    (0, b"\x89HDF", "HDF5 data"),
    (0, b"\x93NUMPY", "NumPy array"),
    (0, b"PAR1", "Parquet data"),
    (0, b"\x00asm", "WebAssembly module"),
    (4, b"ftyp", "MP4 or related video"),
    (0, b"OggS", "Ogg audio or video"),
    (0, b"ID3", "MP3 audio"),
    (0, b"wOF", "web font"),
)
"""Offset, bytes, and what they are a sign of."""


class ReadArgs(ToolArgs, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="File to read, absolute or relative to the working directory")]
    offset: Annotated[int, Meta(ge=0, description="First line to show, counted from 1")] = 1
    limit: Annotated[int, Meta(ge=1, description="Number of lines to show")] = MAX_LINES


class Page(Struct, frozen=True, kw_only=True):
    """Whole lines of a text, as UTF-8 (more or less)."""

    data: bytes
    first: int
    count: int
    total: int
    """Lines of the file, or, unless `counted`, how many of them were seen."""
    counted: bool
    by_bytes: bool
    """Whether the size limit ended the page."""

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def more(self) -> bool:
        return not self.counted or self.last < self.total


def read_tool() -> Tool:
    return Tool(
        name="read",
        description=data.text("tools/read.md").strip(),
        args=ReadArgs,
        run=read,
        effects=frozenset({Effect.READ}),
        snippet="Show part of a text file, or an image",
        guidelines=("Use read to look at files, not cat or sed.",),
        touches=lambda args: (args.path,),
    )


async def read(args: ReadArgs, ctx: ToolContext) -> ToolOutput:
    path = resolve(args.path, ctx, similar=True)
    try:
        found = await asyncio.to_thread(_read, path, args) if _is_large(path) else _read(path, args)
        if isinstance(found, ToolOutput):
            return found
        return await asyncio.to_thread(attach, path, args.path, found, accepted=ctx.images)
    except OSError as error:
        raise failed("read", path, args.path, error) from error


def _is_large(path: Path) -> bool:
    try:
        return path.stat().st_size > INLINE_BYTES
    except OSError:
        return False  # opening it reports the problem


def _read(path: Path, args: ReadArgs) -> ToolOutput | str:
    """The output, or the MIME type of what turns out to be a picture."""
    with open_regular(path, "read", args.path) as file:
        start = file.read(_FIRST_CHUNK) or b""
        mime = kind_of(start)
        if mime is not None:
            return mime
        bom, encoding = next(((mark, name) for mark, name in _BOMS if start.startswith(mark)), (b"", "utf-8"))
        if encoding == "utf-8":
            _refuse_binary(start, os.fstat(file.fileno()).st_size, args.path)
        chunks = _chunks(file, start[len(bom) :])
        if encoding != "utf-8":
            chunks = _transcoded(chunks, encoding)
        page = page_of(chunks, max(args.offset, 1), min(args.limit, MAX_LINES), args.path)
    if page.count == 0 and page.more:
        return text_output(_too_long(page, path, encoding), details=_details(page))
    return _output(page, encoding)


def _refuse_binary(start: bytes, size: int, text: str) -> None:
    probe = start[:BINARY_PROBE]
    if b"\0" not in probe and not probe.startswith(b"%PDF-"):
        return
    kind = next((name for at, sign, name in _SIGNATURES if probe.startswith(sign, at)), None)
    if kind is None and _looks_wide(probe):
        kind = "probably UTF-16 without a byte order mark; iconv converts it"
    raise ToolError(
        f"Cannot read {shown(text)}: it is binary ({format_size(size)}, {kind or 'type unknown'}). "
        "Use bash with a program that understands it (file, strings, xxd)."
    )


def _looks_wide(probe: bytes) -> bool:
    """Every second byte of Latin text in UTF-16 is NUL."""
    half = len(probe) // 2
    return half > 0 and max(probe[::2].count(0), probe[1::2].count(0)) > half * 0.9


def _chunks(file: FileIO, start: bytes) -> Iterator[bytes]:
    if start:
        yield start
    while chunk := file.read(_CHUNK):
        yield chunk


def _transcoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in chunks:
        if part := decoder.decode(chunk):
            yield part.encode()
    if part := decoder.decode(b"", True):
        yield part.encode()


def page_of(chunks: Iterator[bytes], first: int, limit: int, text: str) -> Page:
    """The lines from `first` on that fit the limits, of which there are at most `limit`, without keeping any other.

    `text` is the path as written; raises `ToolError` when there is no line `first`, except the first of nothing.
    """
    buffer = bytearray(_after_lines(chunks, first - 1, text))
    newlines, ended = buffer.count(b"\n"), False
    while newlines < limit and len(buffer) <= MAX_BYTES:
        chunk = next(chunks, b"")
        if not chunk:
            ended = True
            break
        buffer += chunk
        newlines += chunk.count(b"\n")
    if first > 1 and not buffer:
        raise _past_end(text, first, first - 1)
    end, count = 0, 0
    while count < limit and end < len(buffer):
        newline = buffer.find(b"\n", end, MAX_BYTES)
        if newline < 0 and not (ended and len(buffer) <= MAX_BYTES):
            break
        end = newline + 1 or len(buffer)
        count += 1
    rest, counted = _count(memoryview(buffer)[end:], chunks)
    return Page(
        data=bytes(memoryview(buffer)[:end]),
        first=first,
        count=count,
        total=first - 1 + count + rest,
        counted=counted,
        by_bytes=count < limit and end < len(buffer),
    )


def _after_lines(chunks: Iterator[bytes], skip: int, text: str) -> bytes:
    """What `chunks` has after `skip` lines, as far as it was taken."""
    if skip == 0:
        return b""
    seen, last = 0, b"\n"
    for chunk in chunks:
        found = chunk.count(b"\n")
        if seen + found >= skip:
            position = -1
            for _ in range(skip - seen):
                position = chunk.index(b"\n", position + 1)
            return chunk[position + 1 :]
        seen += found
        last = chunk[-1:]
    raise _past_end(text, skip + 1, seen + (last != b"\n"))


def _past_end(text: str, offset: int, lines: int) -> ToolError:
    have = "is empty" if lines == 0 else "has 1 line" if lines == 1 else f"has {lines} lines"
    return ToolError(f"Cannot read {shown(text)} from line {offset}: the file {have}.")


def _count(rest: memoryview, chunks: Iterator[bytes]) -> tuple[int, bool]:
    """The lines that follow, and whether those are all."""
    lines, taken, last = bytes(rest).count(b"\n"), len(rest), bytes(rest[-1:])
    while taken < COUNT_BYTES:
        chunk = next(chunks, b"")
        if not chunk:
            return lines + (last not in (b"", b"\n")), True
        lines += chunk.count(b"\n")
        taken += len(chunk)
        last = chunk[-1:]
    return lines, False


def _too_long(page: Page, path: Path, encoding: str) -> str:
    source = shell_word(path)
    if encoding != "utf-8":
        source = f"<(iconv -f {encoding.removesuffix('-le').removesuffix('-be')} -t utf-8 {source})"
    begin = f"head -c {MAX_BYTES} {source}"
    if page.first > 1:
        begin = f"tail -n +{page.first} {source} | head -c {MAX_BYTES}"
    return (
        f"[Line {page.first} alone is longer than {format_size(MAX_BYTES)}, the most that read shows. "
        f"To see how it begins, run in bash: {begin}]"
    )


def _output(page: Page, encoding: str) -> ToolOutput:
    if page.total == 0:
        return text_output("[The file is empty.]")
    notices: list[str] = []
    try:
        text = page.data.decode()
    except UnicodeDecodeError:
        text = page.data.decode(errors="replace")
        notices.append("Bytes that are not valid UTF-8 are shown as \ufffd.")
    if "\0" in text:
        text = text.replace("\0", "\u2400")
        notices.append("NUL bytes are shown as \u2400.")
    if encoding != "utf-8":
        notices.append(f"Decoded from {encoding.upper()}.")
    if page.more or page.first > 1:
        notices.append(_range(page))
    text = text.replace("\r\n", "\n")
    if notices:
        gap = "\n" if text.endswith("\n") else "\n\n"
        text = f"{text}{gap}[{' '.join(notices)}]"
    return text_output(text, details=_details(page) if page.more else None)


def _range(page: Page) -> str:
    total = str(page.total) if page.counted else f"more than {page.total}"
    where = f"Lines {page.first}-{page.last} of {total}"
    if not page.more:
        return f"{where}, the end."
    limit = f" ({format_size(MAX_BYTES)} limit)" if page.by_bytes else ""
    return f"{where}{limit}. Continue with offset={page.last + 1}."


def _details(page: Page) -> dict[str, Any]:
    return {
        "truncation": {
            "truncated": True,
            "by": "bytes" if page.by_bytes else "lines",
            "total_lines": page.total if page.counted else None,
            "kept_lines": page.count,
            "kept_bytes": len(page.data),
            "first_line": page.first if page.count else 0,
            "last_line": page.last if page.count else 0,
        }
    }
