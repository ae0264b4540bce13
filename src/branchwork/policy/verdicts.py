"""What a judgement says: the rating, the rule behind it, and what was looked at."""

from typing import Literal

from msgspec import Struct

Verdict = Literal["A", "B", "S"]
"""A only reads (or writes only below the scratch directory), B plainly writes or escapes, S cannot be seen through."""

RANK: dict[str, int] = {"A": 0, "S": 1, "B": 2}


class SimpleCommand(Struct, frozen=True, kw_only=True):
    """One command with its words as the shell would pass them; what is only known at run time stays as written."""

    words: tuple[str, ...]
    verdict: Verdict
    rule: str


class Judgement(Struct, frozen=True, kw_only=True):
    """`rule` is a stable id such as `redirect-writes`; `reason` is one line for the model; both of the worst find."""

    verdict: Verdict
    rule: str
    reason: str
    commands: tuple[SimpleCommand, ...]
    """In the order in which they were met; a nested script's commands follow the word that holds them."""
