"""The state of one judgement: settings, what was found, and how much work is left."""

from collections.abc import Mapping

from msgspec import Struct

from branchwork.policy.shell_paths import Place, place
from branchwork.policy.shell_state import State
from branchwork.policy.shell_tables import Tables
from branchwork.policy.verdicts import RANK, SimpleCommand, Verdict

MAX_DEPTH = 24
"""Levels of groups, substitutions and scripts within scripts. People do not write deeper ones."""

MAX_COMMANDS = 800
"""Simple commands looked at, loop turns counted. Keeps the longest judgement below half a second."""


class Beyond(Exception):
    """The script is larger or deeper than is looked at."""


class Settings(Struct, frozen=True, kw_only=True):
    tmp: str | None
    home: str | None
    env: Mapping[str, str] | None


class Find:
    """The rating of one simple command while it is looked at."""

    __slots__ = ("rule", "verdict", "words")

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.verdict: Verdict = "A"
        self.rule = "reads"


class Judge:
    """Collects what is found. Nothing here touches the file system."""

    def __init__(self, settings: Settings, tables: Tables) -> None:
        self.settings = settings
        self.tmp = settings.tmp
        self.tables = tables
        self.finds: list[Find] = []
        self.current: Find | None = None
        self.verdict: Verdict = "A"
        self.rule = "reads"
        self.reason = "Only reads."
        self.depth = 0
        self.left = MAX_COMMANDS
        self.fresh = 0
        self.functions: set[str] = set()
        self.split_plainly = True
        self.outputs_safe = True

    def flag(self, verdict: Verdict, rule: str, reason: str) -> None:
        """Rate the judgement, and the command being looked at, no better than this."""
        current = self.current
        if current is not None and RANK[verdict] > RANK[current.verdict]:
            current.verdict, current.rule = verdict, rule
        if RANK[verdict] > RANK[self.verdict]:
            self.verdict, self.rule, self.reason = verdict, rule, reason

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Beyond

    def leave(self) -> None:
        self.depth -= 1

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Beyond

    def place(self, path: str, state: State) -> Place:
        return place(path, state.cwds, self.tmp, outputs=self.outputs_safe)

    def write(self, path: str, state: State, rule: str, what: str, *, destroys: bool = False) -> None:
        """A write to `path`: fine below the scratch directory. `destroys`: the directory itself is not to be harmed."""
        where = self.place(path, state)
        if where in ("none", "scratch") or (where == "scratch-root" and not destroys):
            return
        shown = path if len(path) <= 80 else path[:77] + "..."
        if where == "unknown":
            self.flag("B", rule, f"{what} writes to {shown!r}, a place that is not known before it runs.")
        else:
            self.flag("B", rule, f"{what} writes to {shown!r}, outside the scratch directory.")

    def commands(self) -> tuple[SimpleCommand, ...]:
        return tuple(
            SimpleCommand(words=tuple(map(str, find.words)), verdict=find.verdict, rule=find.rule)
            for find in self.finds
        )
