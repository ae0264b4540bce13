"""What may be touched now: the sum of restrictions, each with a name and a reason. They only narrow."""

import os
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

Shell: TypeAlias = Literal["free", "read-only", "off"]
Delegation: TypeAlias = Literal["all", "readers", "none"]
"""Which children may be started: any, such as can only read, or none."""

_SHELL: tuple[Shell, ...] = ("free", "read-only", "off")
_DELEGATION: tuple[Delegation, ...] = ("all", "readers", "none")


class Restriction(Struct, frozen=True, kw_only=True):
    """What one contributor takes away; the defaults take nothing."""

    contributor: str
    """Who says so, as a person knows it: `plan mode`, `--readonly`, `settings`."""
    reason: str
    """One sentence for the model and the person: why, and what to do instead."""
    write: tuple[str, ...] | None = None
    """Files and folders (absolute) that may still be written; empty: none; None: no say in it."""
    shell: Shell = "free"
    network: bool = True
    delegate: Delegation = "all"


class Posture(Struct, frozen=True):
    """All restrictions in force. What one of them forbids is forbidden."""

    restrictions: tuple[Restriction, ...] = ()

    def narrowed(self, *more: Restriction) -> "Posture":
        return Posture((*self.restrictions, *more))

    def against_writing(self, path: Path | None) -> Restriction | None:
        """The restriction that forbids writing `path` (None: a place that is not known), if one does.

        Links are followed as far as the path exists, so that a link to elsewhere is judged as elsewhere.
        """
        real = None if path is None else os.path.realpath(path)
        for each in self.restrictions:
            if each.write is None:
                continue
            if real is None or not any(within(real, allowed) for allowed in each.write):
                return each
        return None

    def against_shell(self) -> Restriction | None:
        """The restriction that decides the shell, the strictest one; None when the shell is free."""
        return max(
            (each for each in self.restrictions if each.shell != "free"),
            key=lambda each: _SHELL.index(each.shell),
            default=None,
        )

    def against_network(self) -> Restriction | None:
        return next((each for each in self.restrictions if not each.network), None)

    def against_delegation(self) -> Restriction | None:
        """The strictest restriction of children; None when all may be started."""
        return max(
            (each for each in self.restrictions if each.delegate != "all"),
            key=lambda each: _DELEGATION.index(each.delegate),
            default=None,
        )

    @property
    def shell(self) -> Shell:
        decisive = self.against_shell()
        return decisive.shell if decisive else "free"

    @property
    def network(self) -> bool:
        return self.against_network() is None

    @property
    def writable(self) -> tuple[str, ...] | None:
        """Places that every restriction leaves open, for a sandbox; None when writing is not restricted."""
        limited = [each.write for each in self.restrictions if each.write is not None]
        if not limited:
            return None
        open_to_all = list(limited[0])
        for allowed in limited[1:]:
            inner = [path for path in open_to_all if any(within(path, other) for other in allowed)]
            inner += [other for other in allowed if any(within(other, path) for path in open_to_all)]
            open_to_all = list(dict.fromkeys(inner))
        return tuple(open_to_all)

    @property
    def read_only(self) -> bool:
        """Whether nothing of the project can be written."""
        return self.writable == ()


def within(path: str, folder: str | Path) -> bool:
    """Whether `path`, its links followed already, is `folder` or inside of it, whose links are followed here."""
    real = os.path.realpath(folder)
    return path == real or path.startswith(real.rstrip("/") + "/")
