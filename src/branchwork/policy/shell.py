"""`judge`: whether a shell command only reads (A), plainly writes or escapes (B), or cannot be seen through (S).

The text alone is judged. No path is looked up, so a link below the scratch directory that leads out of it goes unseen:
the boundary is the sandbox; this says early, and with a reason, what it would refuse.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from branchwork.policy.shell_judge import Beyond, Judge, Settings
from branchwork.policy.shell_state import State
from branchwork.policy.shell_words import MARKS
from branchwork.policy.verdicts import Judgement

if TYPE_CHECKING:
    from tree_sitter import Parser

MAX_BYTES = 48 * 1024
"""Longer texts rate S unread, which bounds the time."""

MAX_DOCUMENTS = 16
"""Here-documents in one text. The parser is slow with many that do not end."""

MAX_NESTING = 100
"""Brackets of any kind open at once, quoted ones included. The parser itself is not asked about deeper texts."""

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f\x85\u00a0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)
_BRACKET = re.compile(r"[(){}\[\]]")
_ENDLESS_REDIRECT = re.compile(r"(\d?>>?\|?)\s*\Z")
_SPACED_DESCRIPTOR = re.compile(r">\s+&(\d)")
_DUPLICATES = re.compile(r"[\d}]\s*<|<&|>&\s*([3-9]|\d\d|\$|\{)")


def judge(
    command: str, *, cwd: str, tmp: str | None, home: str | None, env: Mapping[str, str] | None = None
) -> Judgement:
    """Rate `command` as the shell of a program started in `cwd` would run it.

    `tmp` is the scratch directory, the only place to which writes are fine; `home` is HOME. `env` holds variables that
    are known to be set. Paths are absolute and are judged by their text. Raises nothing for any text: what is too
    long, too deep or not a shell script rates S or B.
    """
    from branchwork.policy.shell_tables import tables

    state = State(frozenset((normal(cwd),)), {})
    found = Judge(Settings(tmp=tmp and normal(tmp), home=home, env=env), tables())
    try:
        judge_script(found, command, state)
    except Beyond:
        found.current = None
        found.flag("S", "too-large", "The command is longer or deeper than is looked at.")
    return Judgement(verdict=found.verdict, rule=found.rule, reason=found.reason, commands=found.commands())


def normal(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def judge_script(found: Judge, command: str, state: State) -> None:
    """Add what a text does as a shell script to `found`. Raises `Beyond`."""
    if "\\\n" in command:
        as_written = Judge(found.settings, found.tables)
        as_written.depth, as_written.left = found.depth, found.left
        _judge_text(as_written, command, state)
        found.left = as_written.left
        found.flag(as_written.verdict, as_written.rule, as_written.reason)
        command = command.replace("\\\n", "")
    _judge_text(found, command, state)


def _judge_text(found: Judge, command: str, state: State) -> None:
    """Line continuations are joined by the caller, because the parser takes them for blanks; where they are none, as in
    single quotes and comments, the text as written has been judged, too."""
    from branchwork.policy.shell_nets import suspicious
    from branchwork.policy.shell_walk import Walker

    if len(command) > MAX_BYTES or (len(command) > MAX_NESTING and _nesting(command) > MAX_NESTING):
        raise Beyond
    if command.count("<<") > MAX_DOCUMENTS:
        raise Beyond
    source = command.encode("utf-8", "surrogatepass")
    if _ODD.search(command) or MARKS.search(command):
        found.flag("S", "odd-characters", "The command holds characters that shells and people read differently.")
    if found.outputs_safe and _DUPLICATES.search(command):
        found.outputs_safe = False
    root = parser().parse(source).root_node
    if root.has_error:
        mended = _mended(command)
        again = parser().parse(mended.encode("utf-8", "surrogatepass")).root_node if mended != command else root
        if again.has_error:
            found.flag("S", "syntax-error", "The command is not one that can be followed.")
        else:
            source, root = mended.encode("utf-8", "surrogatepass"), again
    problem = suspicious(root, source)
    if problem is not None:
        found.flag("S", problem, "The command is written in a way that hides what it runs.")
    try:
        Walker(found, source).run(root, state)
    except UnicodeDecodeError:
        found.flag("S", "odd-characters", "The command is not valid text.")


def _nesting(command: str) -> int:
    depth = deepest = 0
    for bracket in _BRACKET.findall(command):
        depth += 1 if bracket in "([{" else -1
        deepest = max(deepest, depth)
        depth = max(depth, 0)
    return deepest


def _mended(command: str) -> str:
    """A redirect without a target is an error after which a shell runs nothing; give it one that writes nothing."""
    text = _SPACED_DESCRIPTOR.sub(r">&\1", command)
    return _ENDLESS_REDIRECT.sub(r"\1 /dev/null", text)


@cache
def parser() -> "Parser":
    """A parser keeps no state between texts. Raises ImportError when tree-sitter is missing."""
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))
