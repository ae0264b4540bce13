"""Which projects may bring settings, extensions, skills and the like. A person's decision, remembered by folder.

Trust is about what is loaded. It gives tools no rights and takes none away.
"""

import os
import shlex
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from branchwork.errors import UserError
from branchwork.host.places import World, project_resources, project_root
from branchwork.host.problems import Problem
from branchwork.host.shared_files import locked, replace_file

FILE_NAME = "trust.json"


class Remembered(Struct, frozen=True):
    folder: Path
    trusted: bool


class Decision(Struct, frozen=True, kw_only=True):
    trusted: bool
    source: Literal["flag", "remembered", "default"]
    """`default`: nobody has decided, so nothing of the project is loaded."""
    project: Path
    folder: Path | None = None
    """The folder whose remembered decision counts: the project or one around it."""
    skipped: tuple[str, ...] = ()
    """What is there and is not loaded, relative to the project."""
    problem: Problem | None = None
    """With the file of decisions."""

    @property
    def notice(self) -> str | None:
        """One line for a person who has not decided yet and would miss something; else None."""
        if self.source != "default" or not self.skipped:
            return None
        what, folder = ", ".join(self.skipped), shlex.quote(str(self.project))
        return (
            f"{self.project} is not trusted, so these were not loaded: {what}; "
            f"run `branchwork trust {folder}` to load them, or `branchwork trust --no {folder}` to hear no more of it"
        )


class TrustFile:
    """`trust.json`: canonical folder → true or false, mode 0600. A decision also holds in the folders inside."""

    def __init__(self, home: Path) -> None:
        self.path = home / FILE_NAME

    def decisions(self) -> tuple[Remembered, ...]:
        """All, by folder. Raises `UserError` when the file cannot be understood."""
        return tuple(Remembered(Path(name), trusted) for name, trusted in sorted(self._read().items()))

    def nearest(self, folder: Path) -> Remembered | None:
        """The decision for `folder`, or else for the nearest one around it. Raises `UserError` like `decisions`."""
        known = self._read()
        real = canonical(folder)
        for each in (real, *real.parents) if known else ():
            if str(each) in known:
                return Remembered(each, known[str(each)])
        return None

    def remember(self, folder: Path, trusted: bool) -> Path:
        """Gives the canonical folder. Raises `UserError`."""
        real = canonical(folder)
        with locked(self.path) as target:
            known = self._read()
            known[str(real)] = trusted
            self._write(target, known)
        return real

    def forget(self, folder: Path) -> bool:
        """Whether there was a decision for this very folder. Raises `UserError`."""
        if not self.path.exists():
            return False
        with locked(self.path) as target:
            known = self._read()
            if known.pop(str(canonical(folder)), None) is None:
                return False
            self._write(target, known)
        return True

    def _read(self) -> dict[str, bool]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}); check its owner and mode") from None
        if not data.strip():
            return {}
        try:
            return msgspec.json.decode(data, type=dict[str, bool])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise UserError(
                f'{self.path}: not a table {{"/folder": true or false}}, so no decision in it counts; '
                "repair it, or move it away and decide again. The file was left as it is"
            ) from None

    @staticmethod
    def _write(target: Path, known: dict[str, bool]) -> None:
        data = msgspec.json.format(msgspec.json.encode(dict(sorted(known.items()))), indent=2)
        replace_file(target, data + b"\n", mode=0o600)


def canonical(folder: Path) -> Path:
    """Absolute, links followed; need not exist."""
    return Path(os.path.realpath(folder))


def needs_trust(world: World) -> tuple[str, ...]:
    """What the project brings that is loaded only with trust, relative to its root."""
    root = project_root(world.cwd, world.user_home)
    return tuple(str(path.relative_to(root)) for path in project_resources(world))


def decide(world: World, *, flag: bool | None = None) -> Decision:
    """Whether to load what the project of `world.cwd` brings. `flag` is the command line's word. Asks nobody.

    A file of decisions that cannot be understood counts as none, and is reported.
    """
    project = project_root(world.cwd, world.user_home)
    if flag is not None:
        return Decision(trusted=flag, source="flag", project=project, skipped=() if flag else needs_trust(world))
    file = TrustFile(world.home)
    try:
        found = file.nearest(project)
    except UserError as error:
        problem = Problem(file.path, str(error).removeprefix(f"{file.path}: "))
        return Decision(trusted=False, source="default", project=project, skipped=needs_trust(world), problem=problem)
    if found is None:
        return Decision(trusted=False, source="default", project=project, skipped=needs_trust(world))
    return Decision(
        trusted=found.trusted,
        source="remembered",
        project=project,
        folder=found.folder,
        skipped=() if found.trusted else needs_trust(world),
    )
