"""The `ls` tool: what is in a directory."""

import asyncio
import os
import stat
from heapq import nsmallest
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from branchwork import data
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.tools.files import special_kind
from branchwork.tools.paths import failed, resolve, shown
from branchwork.tools.truncate import MAX_BYTES, MAX_LINES, Limits, format_size, head

MAX_ENTRIES = 500
_LARGE = 256 * 1024
"""Size of a directory file from which on it has thousands of entries."""


class LsArgs(ToolArgs, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="Directory to list")] = "."
    limit: Annotated[int, Meta(ge=1, description="Entries to show")] = MAX_ENTRIES


def ls_tool() -> Tool:
    return Tool(
        name="ls",
        description=data.text("tools/ls.md").strip(),
        args=LsArgs,
        run=ls,
        effects=frozenset({Effect.READ}),
        snippet="List a directory",
        guidelines=("Use ls to list a directory, not bash with ls.",),
        touches=lambda args: (args.path,),
    )


async def ls(args: LsArgs, ctx: ToolContext) -> ToolOutput:
    path = resolve(args.path, ctx, similar=True)
    try:
        info = path.stat()
        if not stat.S_ISDIR(info.st_mode):
            raise ToolError(f"Cannot list {shown(args.path)}: it is not a directory. read shows files.")
        large = info.st_size > _LARGE
        names, total = await asyncio.to_thread(_list, path, args.limit) if large else _list(path, args.limit)
    except OSError as error:
        raise failed("list", path, args.path, error) from error
    text, cut = head("\n".join(names), Limits(lines=max(MAX_LINES, args.limit), bytes=MAX_BYTES))
    count = cut.kept_lines
    if not total:
        return text_output("[The directory is empty.]", details={"entries": 0, "total": 0})
    if count < total:
        reason = f"{format_size(MAX_BYTES)} limit" if cut.truncated else "raise limit for more"
        text = f"{text.rstrip(chr(10))}\n\n[{count} of {total} entries shown; {reason}.]"
    return text_output(text, details={"entries": count, "total": total})


def _list(path: Path, limit: int) -> tuple[list[str], int]:
    """The first entries in order, ready to show, and how many there are."""
    with os.scandir(path) as entries:
        everything = list(entries)
    first = nsmallest(limit, everything, key=lambda entry: (entry.name.casefold(), entry.name))
    return [_line(entry) for entry in first], len(everything)


def _line(entry: "os.DirEntry[str]") -> str:
    name = shown(entry.name)
    try:
        if entry.is_symlink():
            broken = "" if Path(entry.path).exists() else " (broken)"
            return f"{name}@ -> {shown(Path(entry.path).readlink())}{broken}"
        if entry.is_dir():
            name += "/"
        elif not entry.is_file():
            kind = special_kind(entry.stat(follow_symlinks=False).st_mode) or "special"
            return f"{name} ({kind.removeprefix('a ')})"
        return name if os.access(entry.path, os.R_OK) else f"{name} (not readable)"
    except OSError:
        return f"{name} (not readable)"
