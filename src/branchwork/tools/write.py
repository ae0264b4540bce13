"""The `write` tool: gives a file its whole content."""

import os
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from branchwork import data
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.tools.files import INLINE_BYTES, off_loop, open_regular, replace_file, require_regular
from branchwork.tools.paths import failed, resolve, shown

DIFF_LINES = 1_000
"""Texts of more lines are compared in a thread."""


class WriteArgs(ToolArgs, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="File to write, absolute or relative to the working directory")]
    content: Annotated[str, Meta(description="The complete new content")]


def write_tool() -> Tool:
    return Tool(
        name="write",
        description=data.text("tools/write.md").strip(),
        args=WriteArgs,
        run=write,
        effects=frozenset({Effect.WRITE}),
        snippet="Create a file or replace all of its content",
        guidelines=("Use write for new files and complete rewrites only; use edit to change part of a file.",),
        touches=lambda args: (args.path,),
    )


async def write(args: WriteArgs, ctx: ToolContext) -> ToolOutput:
    path = resolve(args.path, ctx)
    name = shown(args.path)
    try:
        content = args.content.encode()
    except UnicodeEncodeError:
        raise ToolError(f"Cannot write {name}: the content holds half of a character (a lone surrogate).") from None
    # Before the lock, which resolves the path and cannot tell what is wrong with it.
    _exists(path, args.path)
    async with ctx.locks.hold(path):
        created = not _exists(path, args.path)
        before = None if created else _comparable(path, args.path)
        if created:
            _make_parents(path, args.path)
        replace_file(path, content, "write", args.path)
        details: dict[str, Any] = {"path": shown(path), "created": created}
        note = ""
        if before is not None and len(content) <= INLINE_BYTES:
            lines = max(before.count("\n"), args.content.count("\n"))
            details["diff"] = await off_loop(lines > DIFF_LINES, _diff, name, before, args.content)
            note = _line_end_note(before, args.content)
    verb = "Created" if created else "Replaced"
    lines = args.content.count("\n") + (not args.content.endswith("\n") and bool(args.content))
    size = f"{len(content)} byte{'' if len(content) == 1 else 's'}, {lines} line{'' if lines == 1 else 's'}"
    return text_output(f"{verb} {name}: {size}.{note}", details=details)


def _exists(path: Path, text: str) -> bool:
    """Whether there is a file to replace. Raises `ToolError` for anything else that is in the way."""
    try:
        require_regular(path.stat().st_mode, "write", text)
    except FileNotFoundError:
        if text.endswith("/"):
            raise ToolError(f"Cannot write {shown(text)}: the path ends in / and so names a directory.") from None
        return False
    except OSError as error:
        raise failed("write", path, text, error) from error
    return True


def _make_parents(path: Path, text: str) -> None:
    try:
        # The target of a dangling link is created where the link points.
        Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ToolError(f"Cannot write {shown(text)}: a part of the path is a file, not a directory.") from None
    except OSError as error:
        raise failed("write", path, text, error) from error


def _comparable(path: Path, text: str) -> str | None:
    """The content that is about to be replaced, if it is readable text of moderate size."""
    try:
        with open_regular(path, "write", text) as file:
            if os.fstat(file.fileno()).st_size > INLINE_BYTES:
                return None
            old = file.readall().decode()
    except (OSError, ToolError, UnicodeDecodeError):
        return None  # it is written all the same, without a diff
    return None if "\0" in old else old


def _diff(name: str, old: str, new: str) -> str:
    from branchwork.tools.diff import between

    return between(name, old, new).diff


def _line_end_note(old: str, new: str) -> str:
    if "\r\n" in old and "\n" in new and "\r\n" not in new:
        return " The lines of the old content ended with CRLF, those of the new end with LF."
    return ""
