"""Ignore files in the syntax of `.gitignore` (gitignore(5)), for folders of skills."""

import re
import warnings
from pathlib import Path

from msgspec import Struct

NAMES = (".gitignore", ".ignore")
MAX_BYTES = 64 * 1024
"""A longer ignore file is read as far as this."""


class _Rule(Struct, frozen=True):
    pattern: re.Pattern[str]
    """Of the path below the ignore file's folder, `/` between names."""
    negated: bool
    folders_only: bool


class Ignore(Struct, frozen=True):
    """The rules that hold in a folder: those of the folders around it, then its own."""

    levels: tuple[tuple[str, tuple[_Rule, ...]], ...] = ()
    """Folder below the root (`""` or `a/b/`) and its rules, the outermost first."""

    def entering(self, folder: Path, names: set[str], below: str) -> "Ignore":
        """For the files in `folder`, which is `below` the root (`""` or `a/b/`) and holds `names`."""
        rules = tuple(rule for name in NAMES if name in names for rule in _rules(folder / name))
        return Ignore((*self.levels, (below, rules))) if rules else self

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether `path`, relative to the root, is left out: the last rule that fits decides, inner files first."""
        for below, rules in reversed(self.levels):
            inner = path[len(below) :]
            for rule in reversed(rules):
                if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(inner):
                    return not rule.negated
        return False


def _rules(path: Path) -> list[_Rule]:
    try:
        if not path.is_file():
            return []
        with path.open("rb") as handle:
            text = handle.read(MAX_BYTES).decode("utf-8-sig", errors="replace")
    except OSError:
        return []
    return [rule for line in text.split("\n") if (rule := _rule(line.removesuffix("\r"))) is not None]


def _rule(line: str) -> _Rule | None:
    line = re.sub(r"(?<!\\) +$", "", line)
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    body = line[1:] if negated else line
    folders_only = body.endswith("/")
    body = body.removesuffix("/")
    anchored = "/" in body
    expression = _expression(body.removeprefix("/"))
    if not body or expression is None:
        return None
    try:
        with warnings.catch_warnings():  # set operators that Python may get some day are plain characters to git
            warnings.simplefilter("ignore", FutureWarning)
            pattern = re.compile(expression if anchored else f"(?:.*/)?{expression}", re.DOTALL)
    except re.error:
        return None
    return _Rule(pattern, negated, folders_only)


def _expression(glob: str) -> str | None:
    """The regular expression of a pattern without its slashes at either end; None for one that fits nothing."""
    out = ""
    at = 0
    while at < len(glob):
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out += "(?:.*/)?"
            at = _past_stars(glob, at)
            continue
        if glob[at:] == "**" and at and glob[at - 1] == "/":
            return out + ".+"
        char = glob[at]
        if char == "[":
            found = _class(glob, at)
            if found is None:
                return None
            part, at = found
            out += part
            continue
        at += 1
        if char == "\\":
            if at == len(glob):
                return None
            out += re.escape(glob[at])
            at += 1
        elif char == "*":
            while at < len(glob) and glob[at] == "*":
                at += 1
            out += "[^/]*"
        else:
            out += "[^/]" if char == "?" else re.escape(char)
    return out


def _past_stars(glob: str, at: int) -> int:
    """Behind one or more `**/` in a row, which mean the same as one."""
    while glob.startswith("**/", at):
        at += 3
    return at


def _class(glob: str, at: int) -> tuple[str, int] | None:
    """The bracket expression at `at` and where it ends; None without a closing bracket."""
    end = at + 1
    negated = end < len(glob) and glob[end] in "!^"
    end += negated
    start = end
    inner = ""
    while end < len(glob) and (glob[end] != "]" or end == start):
        if glob[end] == "\\" and end + 1 < len(glob):
            end += 1
            inner += re.escape(glob[end])
        elif glob[end] == "-" and start < end and end + 1 < len(glob) and glob[end + 1] != "]":
            inner += "-"
        else:
            inner += re.escape(glob[end])
        end += 1
    if end >= len(glob):
        return None
    return f"(?!/)[{'^' if negated else ''}{inner}]", end + 1
