"""The `grep` tool: lines of files that match a regular expression."""

import re
from binascii import a2b_base64
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from branchwork import data
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.tools.files import require_regular
from branchwork.tools.paths import failed, relative, resolve, shown
from branchwork.tools.ripgrep import Record, Ripgrep, complaint
from branchwork.tools.truncate import MAX_BYTES, MAX_LINE, format_size

MAX_MATCHES = 100
MAX_CONTEXT = 50
_TYPE = "branchwork"
_LEAD = MAX_LINE // 4
"""How much of a long line is shown before its first match."""


class GrepArgs(ToolArgs, frozen=True, kw_only=True, rename="camel"):
    pattern: Annotated[str, Meta(min_length=1, description="Regular expression, ripgrep syntax; matched line by line")]
    path: Annotated[str, Meta(description="Directory or file to search")] = "."
    glob: Annotated[str, Meta(description="Only files that match, e.g. *.py or src/**/*.ts; relative to path")] = ""
    ignore_case: Annotated[bool, Meta(description="Upper and lower case are equal")] = False
    literal: Annotated[bool, Meta(description="The pattern is plain text, no regular expression")] = False
    context: Annotated[int, Meta(ge=0, description=f"Lines to show around each match, at most {MAX_CONTEXT}")] = 0
    limit: Annotated[int, Meta(ge=1, description="Matching lines to show")] = MAX_MATCHES


class _Bytes(Struct, frozen=True):
    """Text of ripgrep's JSON: `text`, or base64 in `bytes` when it is not UTF-8."""

    text: str | None = None
    base64: str | None = msgspec.field(default=None, name="bytes")

    @property
    def raw(self) -> bytes:
        return self.text.encode() if self.text is not None else a2b_base64(self.base64 or "")


class _Submatch(Struct, frozen=True):
    start: int


class _Data(Struct, frozen=True):
    path: _Bytes | None = None
    lines: _Bytes | None = None
    line_number: int | None = None
    submatches: tuple[_Submatch, ...] = ()


class _Message(Struct, frozen=True):
    type: str
    data: _Data


class _Results:
    """Formatted lines by file, within the limits."""

    def __init__(self, args: GrepArgs, prefix: str) -> None:
        self._args = args
        self._prefix = prefix
        self._files: dict[str, list[str]] = {}
        self._last_line = 0
        self._after = 0
        """Lines of context still to come after the last match."""
        self.matches = 0
        self.size = 0
        self.shortened = 0
        self.complete = False
        """Whether ripgrep said that it searched everything."""

    @property
    def too_large(self) -> bool:
        return self.size >= MAX_BYTES

    @property
    def enough(self) -> bool:
        return self.matches >= self._args.limit and self._after == 0

    def add(self, message: _Message) -> bool:
        """False when this message is beyond the limits and nothing more is wanted."""
        found = message.data
        match message.type:
            case "begin" | "end":
                self._last_line = 0
                if message.type == "end":
                    self._after = 0
            case "match" | "context":
                is_match = message.type == "match"
                if is_match and self.matches >= self._args.limit:
                    return False
                start = found.submatches[0].start if found.submatches else 0
                text = self._text(found.lines.raw if found.lines else b"", start)
                self.add_line(found.path.raw if found.path else b"", found.line_number, text, is_match=is_match)
            case "summary":
                self.complete = True
        return not (self.enough or self.too_large)

    def add_line(self, path: bytes, number: int | None, text: str, *, is_match: bool) -> None:
        name = self._name(path)
        lines = self._files.setdefault(name, [])
        if self._args.context and lines and number is not None and number != self._last_line + 1:
            lines.append("--")
        sign = ":" if is_match else "-"
        line = f"{name}{sign}{'?' if number is None else number}{sign} {text}"
        lines.append(line)
        self._last_line = number or 0
        self.size += len(line.encode()) + 1
        if is_match:
            self.matches += 1
            self._after = min(self._args.context, MAX_CONTEXT)
        else:
            self._after = max(0, self._after - 1)

    def _name(self, path: bytes) -> str:
        name = path.decode("utf-8", "surrogateescape").removeprefix("./")
        return shown(f"{self._prefix}{name}")

    def _text(self, raw: bytes, start: int) -> str:
        """The line, or about `MAX_LINE` characters of it around its match at byte `start`."""
        raw = raw.rstrip(b"\r\n")
        if len(raw) <= MAX_LINE:
            return _printable(raw)
        before, after = _printable(raw[:start]), _printable(raw[start:])
        if len(before) + len(after) <= MAX_LINE:
            return before + after
        self.shortened += 1
        skipped = max(0, min(len(before) - _LEAD, len(before) + len(after) - MAX_LINE))
        line = (before + after)[skipped : skipped + MAX_LINE]
        more = skipped + MAX_LINE < len(before) + len(after)
        return f"{'…' if skipped else ''}{line}{'…' if more else ''}"

    def lines(self) -> Iterator[str]:
        """In the order of paths, which does not depend on which thread of ripgrep was first."""
        for name in sorted(self._files):
            yield from self._files[name]


def grep_tool() -> Tool:
    return Tool(
        name="grep",
        description=data.text("tools/grep.md").strip(),
        args=GrepArgs,
        run=grep,
        effects=frozenset({Effect.READ}),
        snippet="Search file contents with a regular expression",
        guidelines=("Use grep to search in files, not bash with grep or rg.",),
        touches=lambda args: (args.path,),
    )


async def grep(args: GrepArgs, ctx: ToolContext) -> ToolOutput:
    path = resolve(args.path, ctx, similar=True)
    folder, target, prefix = _place(path, args.path, ctx)
    results = _Results(args, prefix)
    decoder = msgspec.json.Decoder(_Message)
    async with Ripgrep([*_arguments(args), "--", target], cwd=folder, env=ctx.env) as search:
        async for record in search.records(b"\n"):
            if not record.whole:
                _add_giant(record, results)
                if results.enough or results.too_large:
                    break
            elif not results.add(decoder.decode(record.data)):
                break
        if search.code == 2 and not results.complete:
            raise ToolError(f"grep failed: {complaint(search.errors)}")
        return _output(args, results, search)


def _place(path: Path, text: str, ctx: ToolContext) -> tuple[Path, str, str]:
    """Where to run, what to search there, and what to put before the names that come out.

    Running in the searched folder makes the glob relative to it.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise failed("search", path, text, error) from error
    if path.is_dir():
        prefix = relative(path, ctx.cwd)
        return path, "./", "" if prefix == "." else prefix.rstrip("/") + "/"
    require_regular(mode, "search", text)
    prefix = relative(path.parent, ctx.cwd)
    return path.parent, f"./{path.name}", "" if prefix == "." else prefix.rstrip("/") + "/"


def _arguments(args: GrepArgs) -> list[str]:
    options = ["--json", "--crlf"]
    if args.ignore_case:
        options.append("--ignore-case")
    if args.literal:
        options.append("--fixed-strings")
    elif _PCRE.search(args.pattern):
        options.append("--pcre2")
    if args.context:
        options.append(f"--context={min(args.context, MAX_CONTEXT)}")
    if args.glob:
        options += _glob(args.glob)
    return [*options, f"--regexp={args.pattern}"]


def _glob(glob: str) -> list[str]:
    """A glob option would bring back files that ignore files exclude, a file type does not.

    Types know names only, so that globs with a folder in them remain options.
    """
    bare = glob.removeprefix("**/")
    if "/" in bare or glob.startswith("!"):
        return [f"--glob={glob.removeprefix('./')}"]
    return [f"--type-add={_TYPE}:{bare}", f"--type={_TYPE}"]


_PCRE = re.compile(r"\(\?<?[=!]|\\[1-9]")
"""Look-around and back references, which only ripgrep's second engine has. That engine is not always used,
because it takes patterns with line ends without a word and never finds them."""

_GIANT_PATH = re.compile(rb'^\{"type":"(match|context)","data":\{"path":(\{"(?:text|bytes)":"(?:[^"\\]|\\.)*"\})')
_GIANT_NUMBER = re.compile(rb'"line_number":(\d+),"absolute_offset"')


def _add_giant(record: Record, results: _Results) -> None:
    """A line too large to keep is named all the same; of its message the beginning and the end are left."""
    head = _GIANT_PATH.search(record.data)
    if head is None or (head[1] == b"context" and results.enough):
        return
    number = _GIANT_NUMBER.search(record.data)
    path = msgspec.json.decode(head[2], type=_Bytes).raw
    text = f"[a line too long to show, about {format_size(record.size)}]"
    results.add_line(path, int(number[1]) if number else None, text, is_match=head[1] == b"match")


def _output(args: GrepArgs, results: _Results, search: Ripgrep) -> ToolOutput:
    notices: list[str] = []
    if results.matches >= args.limit:
        notices.append(f"{args.limit} matches, the limit; there may be more. Narrow the search or raise limit.")
    elif results.too_large:
        notices.append(f"Stopped after {format_size(MAX_BYTES)} of output; there may be more. Narrow the search.")
    if results.shortened:
        notices.append(f"Lines longer than {MAX_LINE} characters are shown around their first match.")
    if search.gave_up or search.out_of_memory:
        notices.append("The search was given up at a line too large to handle; files may be missing here.")
    elif results.complete and search.code == 2 and search.errors:
        notices.append(f"{len(search.errors)} problems, so files may be missing here: {complaint(search.errors[:1])}")
    elif search.code is not None and search.code < 0 and not results.complete:
        notices.append(f"ripgrep was ended by signal {-search.code}; files may be missing here.")
    text = "\n".join(results.lines()) or f"No matches for {args.pattern!r}."
    if notices:
        text += f"\n\n[{' '.join(notices)}]"
    return text_output(text, details=_details(args, results))


def _details(args: GrepArgs, results: _Results) -> dict[str, Any]:
    return {
        "matches": results.matches,
        "limit_reached": results.matches >= args.limit,
        "truncated": results.too_large,
    }


def _printable(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\0", "\u2400").replace("\r", "\u240d")
