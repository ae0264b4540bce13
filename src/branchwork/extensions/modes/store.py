"""Where the texts of plans are kept: `BRANCHWORK_HOME/plans`, one file for each text, named by what is in it.

A text never changes once it is there. Whoever has the id finds the text, in whatever session; a fork or a clone needs
no copy.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from branchwork.errors import UserError
from branchwork.host.shared_files import locked, replace_file

MAX_BYTES = 262_144
KEPT_S = 30 * 24 * 3600.0
"""A text that nothing refers to is kept this long after it was last saved or read, in seconds."""
TOUCH_S = 24 * 3600.0
"""A text that is read is marked as used when the mark is older than this, in seconds."""
CHUNK = 1 << 20

_OWN = re.compile(r"[a-z0-9][a-z0-9-]{0,47}-([0-9a-f]{16})")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class PlanUnavailable(UserError):
    """A plan's text that cannot be used, and why."""


class Stored(Struct, frozen=True):
    id: str
    path: Path


class Collected(Struct, frozen=True):
    """What a collection did. With `stopped` nothing was deleted."""

    deleted: tuple[Path, ...] = ()
    stopped: str | None = None


class PlanStore:
    """`home` is BRANCHWORK_HOME; `foreign` are folders of other programs' plans, from which is only read."""

    def __init__(self, home: Path, foreign: Iterable[Path] = ()) -> None:
        self.folder = home / "plans"
        self.sessions = home / "sessions"
        self._foreign = tuple(foreign)

    def save(self, text: str, *, pinned: bool = False) -> Stored:
        """Keep `text`; the same text gives the same id. Raises `UserError` when it is blank, too long or not kept.

        `pinned` keeps it for good: for sessions in places that a collection does not look at.
        """
        body = _checked(text)
        digest = sha256(body).hexdigest()[:16]
        plan_id = f"{_slug(text)}-{digest}"
        with self._locked():
            path = self.folder / f"{plan_id}.md"
            if _read(path) == body:
                _touch(path)
            else:
                replace_file(path, body, mode=0o600)
            if pinned:
                replace_file(path.with_suffix(".pin"), b"", mode=0o600)
        return Stored(plan_id, path)

    def read(self, plan_id: str, recorded: str = "") -> str:
        """The text of a plan. `recorded` is the path that the session gives, for plans of other programs.

        Raises `PlanUnavailable`.
        """
        own = _OWN.fullmatch(plan_id)
        path = self.folder / f"{plan_id}.md" if own else self._foreign_path(recorded)
        if path is None:
            raise PlanUnavailable(f"plan {plan_id}: {recorded or 'its place'} is no place of plans; it is not read")
        body = _read(path)
        if body is None:
            raise PlanUnavailable(f"plan {plan_id}: its text {path} is gone, too large or no plain file")
        if own and sha256(body).hexdigest()[:16] != own.group(1):
            raise PlanUnavailable(f"plan {plan_id}: {path} was changed after it was saved; save it as a new plan")
        if own and time.time() - path.stat().st_mtime > TOUCH_S:
            _touch(path)
        text = body.decode("utf-8", "replace")
        if not text.strip():
            raise PlanUnavailable(f"plan {plan_id}: {path} is empty")
        return text

    def collect(self, *, keep: Iterable[str], now_s: float, stop: Callable[[], bool] = lambda: False) -> Collected:
        """Delete texts that no session refers to and that were not used for `KEPT_S`, and what crashes left.

        All files below `sessions` are searched for the ids, so other branches count. When one of them, or a folder,
        cannot be read nothing is deleted; nor when `stop` says so. `keep` are further ids that are in use.
        """
        wanted = {_digest(path): path for path in self.unused(now_s, keep)}
        if not wanted:
            return Collected()
        try:
            for file in _session_files(self.sessions):
                for found in _mentioned(file, wanted, stop):
                    del wanted[found]
                if stop():
                    return Collected(stopped="it was interrupted")
        except OSError as error:
            return Collected(stopped=f"{error.filename} cannot be read ({error.strerror})")
        try:
            return Collected(tuple(self._deleted(wanted.values(), now_s)))
        except UserError as error:
            return Collected(stopped=str(error))

    def _deleted(self, paths: Iterable[Path], now_s: float) -> Iterator[Path]:
        with self._locked():
            for path in paths:
                if _age(path, now_s) > KEPT_S:  # not saved anew in the meantime
                    path.unlink(missing_ok=True)
                    yield path

    def _locked(self) -> AbstractContextManager[Path]:
        if self.folder.is_symlink():
            raise UserError(f"{self.folder} is a link; plans are kept in a folder of its own only")
        return locked(self.folder / ".store")

    def unused(self, now_s: float, keep: Iterable[str]) -> list[Path]:
        """Own texts that are old and not pinned; leftovers of crashes are deleted when they are a day old."""
        kept = set(keep)
        if self.folder.is_symlink():
            return []
        try:
            names = sorted(self.folder.iterdir())
        except OSError:
            return []
        for path in names:
            if path.name.startswith(".") and path.suffix == ".tmp" and _age(path, now_s) > TOUCH_S:
                path.unlink(missing_ok=True)
        return [
            path
            for path in names
            if path.suffix == ".md" and _OWN.fullmatch(path.stem) and path.stem not in kept
            and _age(path, now_s) > KEPT_S and not path.with_suffix(".pin").exists()
        ]  # fmt: skip

    def _foreign_path(self, recorded: str) -> Path | None:
        """`FOLDER/SESSION/PLAN.md` of another program, when the recorded path is exactly of this form."""
        path = Path(recorded)
        if not recorded or path.parent.parent not in self._foreign or path.parent.is_symlink():
            return None
        return path if _SAFE.fullmatch(path.parent.name) and _SAFE.fullmatch(path.stem) else None


def _checked(text: str) -> bytes:
    if not text.strip():
        raise UserError("the plan is empty")
    try:
        body = text.encode()
    except UnicodeEncodeError:
        raise UserError("the plan holds characters that are no text (lone surrogates)") from None
    if len(body) > MAX_BYTES:
        raise UserError(f"the plan has {len(body):,} bytes; {MAX_BYTES:,} are possible")
    return body


def _slug(text: str) -> str:
    """Of the plan's first heading, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    title = next((line for line in lines if line.startswith("#")), lines[0])
    words = re.findall(r"[a-z0-9]+", title.lower())
    return "-".join(words)[:40].strip("-") or "plan"


def _digest(path: Path) -> bytes:
    return path.stem.rpartition("-")[2].encode()


def _read(path: Path) -> bytes | None:
    """The contents of a plain file of at most `MAX_BYTES`; no link is followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
        body = stream.read(MAX_BYTES + 1)
    return body if len(body) <= MAX_BYTES else None


def _touch(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        return  # a store that cannot be written is not collected either


def _age(path: Path, now_s: float) -> float:
    try:
        return now_s - path.lstat().st_mtime
    except OSError:
        return 0.0


def _session_files(folder: Path) -> Iterator[Path]:
    """All files below; raises OSError for a folder that cannot be listed. A missing folder holds none."""

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) or Path(error.filename) != folder:
            raise error

    seen: set[str] = set()
    for root, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        seen.add(os.path.realpath(root))
        folders[:] = [name for name in folders if os.path.realpath(Path(root, name)) not in seen]
        yield from (Path(root, name) for name in sorted(names) if not name.endswith(".lock"))


def _mentioned(file: Path, wanted: dict[bytes, Path], stop: Callable[[], bool]) -> set[bytes]:
    """Which of the digests occur anywhere in `file`. Raises OSError."""
    if not wanted:
        return set()
    pattern = re.compile(b"|".join(map(re.escape, wanted)))
    found: set[bytes] = set()
    tail = b""
    with file.open("rb") as stream:
        while (chunk := stream.read(CHUNK)) and not stop():
            text = tail + chunk
            found.update(match.group() for match in pattern.finditer(text))
            tail = text[-15:]
    return found
