"""What changed between two texts, for people and for `patch`.

Lines end at `\\n` and keep it; a last line may lack it. Texts that cannot be written as UTF-8 are shown with
replacement characters.
"""

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from branchwork.tools.truncate import MAX_BYTES, MAX_LINES, Limits, cut_line, head

GIT_LINES = 5_000
"""From here on git compares: difflib takes 50 to 130 ms at 10,000 lines and more where many are equal, git 20."""
CONTEXT = 3
MAX_PATCH = 256 * 1024
"""Characters; a longer patch is left out, because half a patch is none."""
MAX_SHOWN_LINE = 1_000
_GIT_SECONDS = 20.0

Sign: TypeAlias = Literal[" ", "-", "+"]


class Change(Struct, frozen=True, order=True):
    """Lines `old_start` to `old_end` became lines `new_start` to `new_end`; counted from 0, ends excluded."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Block(Struct, frozen=True, kw_only=True):
    """A stretch of both texts; everything outside of the blocks is equal. Line numbers count from 1."""

    old_first: int
    new_first: int
    old: Sequence[str]
    new: Sequence[str]


class Diff(Struct, frozen=True, kw_only=True):
    diff: str
    """For people: sign, line number, text; cut to the limits of a tool's output."""
    patch: str | None
    """Unified; None when it is longer than `MAX_PATCH`."""
    first_changed_line: int | None
    """Counted from 1, in the new text."""
    added: int
    removed: int

    def details(self) -> dict[str, str | int | None]:
        """The names are those of the session format (version 3) for results of `edit`."""
        return {
            "diff": self.diff,
            "patch": self.patch,
            "firstChangedLine": self.first_changed_line,
            "added": self.added,
            "removed": self.removed,
        }


class _Hunk(Struct, kw_only=True):
    old_first: int
    new_first: int
    rows: list[tuple[Sign, str]] = msgspec.field(default_factory=list)


def split(text: str) -> list[str]:
    """The lines of `text` with their ends; unlike `splitlines`, nothing but `\\n` ends one."""
    lines = text.split("\n")
    last = lines.pop()
    lines = [line + "\n" for line in lines]
    return [*lines, last] if last else lines


def compare(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """The changed stretches in order; equal lines lie between any two of them."""
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old_end, new_end = len(old) - end, len(new) - end
    if start == old_end and start == new_end:
        return []
    whole = Change(start, old_end, start, new_end)
    if old_end - start <= 1 or new_end - start <= 1:
        return [whole]
    middle_old, middle_new = old[start:old_end], new[start:new_end]
    if max(len(middle_old), len(middle_new)) < GIT_LINES:
        found: list[Change] | None = _compare_here(middle_old, middle_new)
    else:
        found = _compare_with_git(middle_old, middle_new)
    if found is None:
        return [whole]
    return [
        Change(change.old_start + start, change.old_end + start, change.new_start + start, change.new_end + start)
        for change in found
    ]


def _compare_here(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    from difflib import SequenceMatcher

    codes = SequenceMatcher(None, old, new).get_opcodes()
    return [Change(a, b, c, d) for tag, a, b, c, d in codes if tag != "equal"]


def _compare_with_git(old: Sequence[str], new: Sequence[str]) -> list[Change] | None:
    """None without a usable git."""
    import shutil
    import tempfile

    git = shutil.which("git")
    if git is None:
        return None
    # The person's configuration could name other diff programs and formats.
    env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
    options = ("diff", "--no-index", "--no-ext-diff", "--no-textconv", "--no-color", "--text", "-U0")
    with tempfile.TemporaryDirectory(prefix="branchwork-diff-") as folder:
        for name, lines in (("old", old), ("new", new)):
            Path(folder, name).write_bytes("".join(lines).encode("utf-8", "surrogatepass"))
        try:
            done = subprocess.run(
                [git, *options, "old", "new"],
                cwd=folder,
                env=env,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=_GIT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    if done.returncode != 1:  # 1: they differ
        return None
    return [_from_header(found) for found in _HEADER.finditer(done.stdout)]


_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def _from_header(found: re.Match[bytes]) -> Change:
    old_start, old_count, new_start, new_count = (1 if group is None else int(group) for group in found.groups())
    # An empty side names the line before it (POSIX, diff -u).
    old_start -= old_count > 0
    new_start -= new_count > 0
    return Change(old_start, old_start + old_count, new_start, new_start + new_count)


def render(name: str, blocks: Sequence[Block]) -> Diff:
    """The difference that `blocks` hold, in order, as text. `name` is the path shown in the patch."""
    hunks = [hunk for block in blocks for hunk in _hunks(block)]
    added = sum(sign == "+" for hunk in hunks for sign, _ in hunk.rows)
    removed = sum(sign == "-" for hunk in hunks for sign, _ in hunk.rows)
    return Diff(
        diff=_numbered(hunks),
        patch=_patch(name, hunks),
        first_changed_line=_first_changed(hunks),
        added=added,
        removed=removed,
    )


def between(name: str, old: str, new: str) -> Diff:
    """The difference of two whole texts."""
    return render(name, [Block(old_first=1, new_first=1, old=split(old), new=split(new))])


def _hunks(block: Block) -> list[_Hunk]:
    """Changes with the lines around them; changes that share such lines are one hunk."""
    hunks: list[_Hunk] = []
    end = 0  # of what is in a hunk, in old lines
    for change in compare(block.old, block.new):
        if not hunks or change.old_start - end > 2 * CONTEXT:
            if hunks:
                _add_equal(hunks[-1], block, end, end + CONTEXT)
                end += CONTEXT
            start = max(change.old_start - CONTEXT, end)
            shift = change.new_start - change.old_start
            hunks.append(_Hunk(old_first=block.old_first + start, new_first=block.new_first + start + shift))
            end = start
        _add_equal(hunks[-1], block, end, change.old_start)
        hunks[-1].rows += [("-", line) for line in block.old[change.old_start : change.old_end]]
        hunks[-1].rows += [("+", line) for line in block.new[change.new_start : change.new_end]]
        end = change.old_end
    if hunks:
        _add_equal(hunks[-1], block, end, end + CONTEXT)
    return hunks


def _add_equal(hunk: _Hunk, block: Block, start: int, end: int) -> None:
    hunk.rows += [(" ", line) for line in block.old[start:end]]


def _first_changed(hunks: Sequence[_Hunk]) -> int | None:
    if not hunks:
        return None
    same = 0
    for sign, _ in hunks[0].rows:
        if sign != " ":
            break
        same += 1
    return hunks[0].new_first + same


def _numbered(hunks: Sequence[_Hunk]) -> str:
    width = len(str(max((max(hunk.old_first, hunk.new_first) + len(hunk.rows) for hunk in hunks), default=0)))
    lines: list[str] = []
    for position, hunk in enumerate(hunks):
        if position > 0 or hunk.new_first > 1:
            lines.append(f" {'':>{width}} ...")
        old, new = hunk.old_first, hunk.new_first
        for sign, line in hunk.rows:
            number = old if sign == "-" else new
            lines.append(f"{sign}{number:>{width}} {cut_line(sendable(line.removesuffix(chr(10))), MAX_SHOWN_LINE)}")
            old += sign != "+"
            new += sign != "-"
        if len(lines) > MAX_LINES:
            break
    kept, cut = head("\n".join(lines), Limits(lines=MAX_LINES, bytes=MAX_BYTES))
    return f"{kept}[cut; the rest of the diff is not shown]" if cut.truncated else kept


def _patch(name: str, hunks: Sequence[_Hunk]) -> str | None:
    parts = [f"--- a/{name}\n+++ b/{name}\n"] if hunks else []
    size = 0
    for hunk in hunks:
        old = sum(sign != "+" for sign, _ in hunk.rows)
        new = sum(sign != "-" for sign, _ in hunk.rows)
        parts.append(f"@@ -{_extent(hunk.old_first, old)} +{_extent(hunk.new_first, new)} @@\n")
        for sign, line in hunk.rows:
            parts.append(f"{sign}{sendable(line)}" if line.endswith("\n") else f"{sign}{sendable(line)}\n{_NO_END}\n")
            size += len(line)
        if size > MAX_PATCH:
            return None
    return "".join(parts)


_NO_END = "\\ No newline at end of file"


def _extent(first: int, count: int) -> str:
    """Of one side of a hunk (POSIX, diff -u)."""
    if count == 0:
        return f"{first - 1},0"
    return str(first) if count == 1 else f"{first},{count}"


def sendable(text: str) -> str:
    """With replacement characters for undecodable bytes and halves of characters, which JSON cannot carry."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)
