"""The `find` tool: files and folders whose path matches a glob."""

import os
import re
import stat
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from branchwork import data
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.tools.paths import failed, resolve, shown
from branchwork.tools.ripgrep import Ripgrep, complaint
from branchwork.tools.truncate import MAX_BYTES, format_size

MAX_RESULTS = 1000
MAX_ALTERNATIVES = 1000
"""What braces may expand to; more is a mistake, or an attempt to keep us busy."""


class FindArgs(ToolArgs, frozen=True, kw_only=True):
    pattern: Annotated[
        str,
        Meta(
            min_length=1,
            description="Glob: *, ?, [a-z], {a,b}, ** for any number of folders. With a / it is matched against the "
            "whole path below `path`, without one against names at any depth",
        ),
    ]
    path: Annotated[str, Meta(description="Directory to search")] = "."
    limit: Annotated[int, Meta(ge=1, description="Results to show")] = MAX_RESULTS


def find_tool() -> Tool:
    return Tool(
        name="find",
        description=data.text("tools/find.md").strip(),
        args=FindArgs,
        run=find,
        effects=frozenset({Effect.READ}),
        snippet="Find files and folders by name",
        guidelines=("Use find to look for files by name, not bash with find.",),
        touches=lambda args: (args.path,),
    )


async def find(args: FindArgs, ctx: ToolContext) -> ToolOutput:
    folder = resolve(args.path, ctx, similar=True)
    try:
        mode = folder.stat().st_mode
    except OSError as error:
        raise failed("search", folder, args.path, error) from error
    if not stat.S_ISDIR(mode):
        raise ToolError(f"Cannot search {shown(args.path)}: it is not a directory.")
    pattern = args.pattern.removeprefix(str(folder)) if args.pattern.startswith(f"{folder}/") else args.pattern
    wanted = _Wanted(pattern)
    found: list[str] = []
    size, full = 0, False
    # No sorting by ripgrep: it would use one thread only.
    async with Ripgrep(["--files", "--null", "--", "./"], cwd=folder, env=ctx.env) as listing:
        async for record in listing.records(b"\0"):
            for name in wanted.matches(os.fsdecode(record.data).removeprefix("./")):
                full = len(found) == args.limit or size > MAX_BYTES
                if full:
                    break
                found.append(shown(name))
                size += len(found[-1].encode()) + 1
            if full:
                break
        if listing.code == 2 and not found and listing.errors:
            raise ToolError(f"find failed: {complaint(listing.errors)}")
        problems = len(listing.errors) if listing.code == 2 else 0
    return _output(args, sorted(found), full, problems)


def _output(args: FindArgs, found: list[str], full: bool, problems: int) -> ToolOutput:
    text = "\n".join(found) or f"Nothing matches {args.pattern!r}."
    notices: list[str] = []
    if full and len(found) == args.limit:
        notices.append(f"{args.limit} results, the limit; there are more. Narrow the search or raise limit.")
    elif full:
        notices.append(f"Stopped after {format_size(MAX_BYTES)} of output; there are more. Narrow the search.")
    if problems:
        notices.append(f"{problems} folders could not be read.")
    if notices:
        text += f"\n\n[{' '.join(notices)}]"
    return text_output(text, details={"results": len(found), "limit_reached": full})


class _Wanted:
    """Picks the paths that match, and their folders that do, each folder once."""

    def __init__(self, pattern: str) -> None:
        self._folders_only = pattern.endswith("/")
        pattern = pattern.rstrip("/").removeprefix("./")
        self._anchored = "/" in pattern
        flags = 0 if pattern != pattern.lower() else re.IGNORECASE
        alternatives = [_translate(one.removeprefix("/")) for one in _expand(pattern)]
        self._regex = re.compile("|".join(alternatives), flags)
        self._seen = {""}

    def matches(self, path: str) -> Iterator[str]:
        """`path` itself and the folders above it not seen before, as far as they match."""
        folder = path.rpartition("/")[0]
        new: list[str] = []
        while folder not in self._seen:
            self._seen.add(folder)
            new.append(folder)
            folder = folder.rpartition("/")[0]
        for folder in reversed(new):
            if self._match(folder):
                yield f"{folder}/"
        if not self._folders_only and self._match(path):
            yield path

    def _match(self, path: str) -> bool:
        return self._regex.fullmatch(path if self._anchored else path.rpartition("/")[2]) is not None


def _expand(pattern: str) -> list[str]:
    """The pattern without braces: one for each choice. Braces that do not pair stand for themselves."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        one = todo.pop()
        choice = _first_choice(one)
        if choice is None:
            done.append(one)
        else:
            before, options, after = choice
            todo += [before + option + after for option in reversed(options)]
        if len(done) + len(todo) > MAX_ALTERNATIVES:
            raise ToolError(f"The pattern has more than {MAX_ALTERNATIVES} alternatives.")
    return done


def _first_choice(pattern: str) -> tuple[str, list[str], str] | None:
    """What is before, in and after the first braces that hold a comma."""
    opened: list[list[int]] = []
    escaped = False
    for position, character in enumerate(pattern):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "{":
            opened.append([position])
        elif character == "," and opened:
            opened[-1].append(position)
        elif character == "}" and opened:
            marks = opened.pop()
            if len(marks) > 1:
                ends = [*marks[1:], position]
                options = [pattern[start + 1 : end] for start, end in zip(marks, ends, strict=True)]
                return pattern[: marks[0]], options, pattern[position + 1 :]
    return None


def _translate(pattern: str) -> str:
    """A regular expression for a glob without braces.

    Between two `**`, and between two `*` of a name, the earliest match is as good as any, so those parts are
    atomic groups: matching stays linear for patterns such as `*a*a*a*a*b`.
    """
    blocks: list[list[str]] = [[]]
    for segment in pattern.split("/"):
        if segment == "**":
            blocks.append([])
        elif segment:
            blocks[-1].append(_name(segment))
    *leading, last = ["/".join(block) for block in blocks]
    if not leading:
        return last
    parts = [f"{leading[0]}/" if leading[0] else ""]
    parts += [f"(?>(?:[^/]+/)*?{block}/)" for block in leading[1:] if block]
    parts.append(f"(?:[^/]+/)*{last}" if last else ".+")
    return "".join(parts)


def _name(glob: str) -> str:
    """A regular expression for one name of a path."""
    pieces: list[str] = [""]
    position = 0
    while position < len(glob):
        character = glob[position]
        position += 1
        if character == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
        elif character == "?":
            pieces[-1] += "[^/]"
        elif character == "[" and (end := _class_end(glob, position)) is not None:
            pieces[-1] += _class(glob[position:end])
            position = end + 1
        elif character == "\\" and position < len(glob):
            pieces[-1] += re.escape(glob[position])
            position += 1
        else:
            pieces[-1] += re.escape(character)
    first, *rest = pieces
    if not rest:
        return first
    middle = "".join(f"(?>[^/]*?{piece})" for piece in rest[:-1])
    return f"{first}{middle}[^/]*{rest[-1]}"


def _class_end(glob: str, start: int) -> int | None:
    """Where the bracket that closes a class is; a `]` in the first place belongs to the class."""
    first = start + (glob[start : start + 1] in ("!", "^"))
    end = glob.find("]", first + 1)
    return end if end >= 0 else None


def _class(inner: str) -> str:
    negated = inner[0] in "!^"
    body = inner[1:] if negated else inner
    escaped = re.sub(r"([\\\[\]^&~|]|(?<=-)-)", r"\\\1", body)
    expression = f"[^/{escaped}]" if negated else f"(?!/)[{escaped}]"
    try:
        re.compile(expression)
    except re.error as error:  # a range that runs backwards
        raise ToolError(f"Invalid character class [{inner}] in the pattern: {error}.") from None
    return expression
