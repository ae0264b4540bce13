"""Rehearsal: what commands would have written to a project, found in the upper layer of an overlay.

`Layers.upper` is what the kernel's overlayfs leaves (Documentation/filesystems/overlayfs.rst): changed files whole, a
character device 0/0 or an empty file with the attribute `overlay.whiteout` for what was deleted, the attribute
`overlay.opaque` on a directory of which nothing below shows through.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from branchwork.policy.sandbox.plan import Layers, inside

Kind = Literal["added", "modified", "deleted", "type", "mode"]
What = Literal["file", "directory", "link", "other"]

MAX_DIFF_BYTES = 1024 * 1024
"""Of either side; of a larger file only the sizes are told."""
_TEXT_START = 8000
"""Bytes in which a NUL makes a file binary, as git has it."""
_ATTRIBUTES = ("user.overlay.", "trusted.overlay.")


class Change(Struct, frozen=True, order=True):
    """One difference between the project and what the commands left. `path` is relative to the project."""

    path: str
    kind: Kind
    what: What
    """What is there afterwards; for `deleted`, what was."""


class State(Struct, frozen=True, array_like=True):
    """What is recorded of a file, to notice that it changed since. Of directories only the mode."""

    mode: int
    size: int = 0
    mtime_ns: int = 0
    inode: int = 0


class Refused(Exception):
    """A rehearsal, or applying one, is not possible; the text says why and names the files."""


def begin(project: Path, area: Path) -> Layers:
    """Starts a rehearsal over `project`, or goes on with the one that is in `area`.

    Raises Refused when `area` and the project lie in one another, when the project is no directory, and when a file
    in it belongs to another user or group: those could be read over the overlay, but not changed (EOVERFLOW).
    """
    project, area = project.resolve(), area.resolve()
    layers = Layers(project=project, upper=area / "rehearsal" / "upper", work=area / "rehearsal" / "work")
    if not project.is_dir():
        raise Refused(f"{project} is no directory")
    if inside(area, project) or inside(project, area):
        raise Refused(f"the layers would be in {area}, which {project} must not contain, nor lie in")
    if _record_file(layers).exists():
        return layers
    try:
        record = dict(_states(project))
    except OSError as error:
        raise Refused(f"{error.filename} cannot be read: {error.strerror}") from error
    for folder in (layers.upper, layers.work):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.copymode(project, layers.upper)
    _write_record(layers, record)
    return layers


def drop(layers: Layers) -> None:
    """Forgets what was written. The next rehearsal starts from the project as it then is."""
    folder = layers.upper.parent
    for current, names, _ in os.walk(folder):
        for name in names:  # a command may leave directories that their owner cannot list
            path = Path(current, name)
            if not path.is_symlink():
                path.chmod(0o700)
    if folder.exists():
        shutil.rmtree(folder)


def changes(layers: Layers) -> list[Change]:
    """What would change, in the order of the paths.

    Raises Refused when the layer cannot be understood, OSError when the project cannot be read.
    """
    found: list[Change] = []
    _compare(layers, "", lower=True, found=found)
    return sorted(found)


def diff(change: Change, layers: Layers) -> str:
    """The change as a unified diff, or a line that says what it is. Ends without a newline."""
    if change.kind == "deleted":
        return _difference(change, layers.project / change.path, None)
    with _reachable(layers, change) as new:
        if change.kind == "mode":
            return f"{change.path}: mode {_mode(layers.project / change.path)} becomes {_mode(new)}"
        with _unlocked(new, 0o400):
            return _difference(change, None if change.kind == "added" else layers.project / change.path, new)


def apply(chosen: list[Change], layers: Layers) -> None:
    """Makes the changes in the project: each file whole or not at all, with the mode that it got.

    Nothing is changed, and Refused names the files, when one of them is not any more what it was when the rehearsal
    began. An OSError on the way leaves the changes made so far; `changes` then lists the rest.
    """
    record = _read_record(layers)
    moved = [each.path for each in chosen if _state_now(layers.project, each.path) != record.get(each.path)]
    if moved:
        raise Refused(f"changed since the rehearsal began: {', '.join(moved[:10])}{' …' if len(moved) > 10 else ''}")
    other = [each.path for each in chosen if each.what == "other" and each.kind != "deleted"]
    if other:
        raise Refused(f"neither file, directory nor link: {', '.join(other[:10])}")
    for each in sorted(chosen, reverse=True):  # what is in a directory before it
        if each.kind in ("deleted", "type"):
            _remove(layers.project / each.path)
    for each in sorted(chosen):
        if each.kind != "deleted":
            with _reachable(layers, each) as source:
                _put(source, layers.project / each.path, each)
    _note(record, layers.project, [each for each in chosen if each.what != "directory" or each.kind == "deleted"])
    for each in sorted(chosen, reverse=True):  # last, because a mode may forbid to write what is in there
        if each.what == "directory" and each.kind != "deleted":
            with _reachable(layers, each) as source:
                (layers.project / each.path).chmod(stat.S_IMODE(source.lstat().st_mode))
            _note(record, layers.project, [each])
    _write_record(layers, record)


# Finding the differences


def _compare(layers: Layers, folder: str, *, lower: bool, found: list[Change]) -> None:
    """`lower` is whether the project has a directory `folder` that shows through where nothing covers it."""
    with _unlocked(layers.upper / folder, 0o500):
        _compare_entries(layers, folder, lower=lower, found=found)
        seen = {entry.name for entry in _entries(layers.upper / folder)}
        attributes = _overlay_attributes(layers.upper / folder)
    if "redirect" in attributes:
        raise Refused(
            f"the directory {folder} was renamed by a kernel that keeps only a note of it; drop the rehearsal"
        )
    if lower and attributes.get("opaque") == b"y":
        for entry in _entries(layers.project / folder):
            if entry.name not in seen:
                path = f"{folder}/{entry.name}" if folder else entry.name
                found.extend(_deleted(layers, path, entry.stat(follow_symlinks=False)))


def _compare_entries(layers: Layers, folder: str, *, lower: bool, found: list[Change]) -> None:
    for entry in _entries(layers.upper / folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        info = entry.stat(follow_symlinks=False)
        below = _lstat(layers.project / path) if lower else None
        if _is_whiteout(entry, info):
            if below is not None:
                found.extend(_deleted(layers, path, below))
            continue
        kind = _kind(layers, path, info, below)
        if below is not None and kind == "type":
            found.extend(each for each in _deleted(layers, path, below) if each.path != path)
        if kind is not None:
            found.append(Change(path, kind, _what(info.st_mode)))
        if stat.S_ISDIR(info.st_mode):
            _compare(layers, path, lower=below is not None and stat.S_ISDIR(below.st_mode), found=found)


def _kind(layers: Layers, path: str, info: os.stat_result, below: os.stat_result | None) -> Kind | None:
    """None for a file that was written and is as before, and for a directory that only holds changes."""
    if below is None:
        return "added"
    if stat.S_IFMT(info.st_mode) != stat.S_IFMT(below.st_mode):
        return "type"
    if not stat.S_ISDIR(info.st_mode) and not _same_content(layers.upper / path, layers.project / path, info, below):
        return "modified"
    return None if info.st_mode == below.st_mode else "mode"


def _same_content(new: Path, old: Path, info: os.stat_result, below: os.stat_result) -> bool:
    if stat.S_ISLNK(info.st_mode):
        return new.readlink() == old.readlink()
    if not stat.S_ISREG(info.st_mode):
        return False
    if info.st_size != below.st_size:
        return False
    with _unlocked(new, 0o400), new.open("rb") as left, old.open("rb") as right:
        while block := left.read(1 << 20):
            if block != right.read(1 << 20):
                return False
    return True


def _deleted(layers: Layers, path: str, below: os.stat_result) -> Iterator[Change]:
    if stat.S_ISDIR(below.st_mode):
        for entry in _entries(layers.project / path):
            yield from _deleted(layers, f"{path}/{entry.name}", entry.stat(follow_symlinks=False))
    yield Change(path, "deleted", _what(below.st_mode))


def _is_whiteout(entry: os.DirEntry[str], info: os.stat_result) -> bool:
    if stat.S_ISCHR(info.st_mode):
        return info.st_rdev == 0
    return stat.S_ISREG(info.st_mode) and info.st_size == 0 and "whiteout" in _overlay_attributes(Path(entry.path))


def _overlay_attributes(path: Path) -> dict[str, bytes]:
    found = {}
    for name in os.listxattr(path, follow_symlinks=False):
        for prefix in _ATTRIBUTES:
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = os.getxattr(path, name, follow_symlinks=False)
    return found


def _what(mode: int) -> What:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return list(found)


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


@contextmanager
def _unlocked(path: Path, needed: int) -> Iterator[None]:
    """In the layer, lets its owner have what a command may have taken away: the mode is a change, not a lock."""
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode) or info.st_mode & needed == needed:
        yield
        return
    path.chmod(stat.S_IMODE(info.st_mode) | needed)
    try:
        yield
    finally:
        path.chmod(stat.S_IMODE(info.st_mode))


@contextmanager
def _reachable(layers: Layers, change: Change) -> Iterator[Path]:
    """The file in the layer, readable and with every directory above it unlocked."""
    with ExitStack() as stack:
        path = layers.upper
        for part in Path(change.path).parts:
            stack.enter_context(_unlocked(path, 0o500))
            path = path / part
        yield path


# Showing them


def _difference(change: Change, old: Path | None, new: Path | None) -> str:
    from branchwork.tools.diff import between

    before, after = (_content(path) for path in (old, new))
    plain = f"{change.path}: {change.what} {change.kind}"
    if before is None or after is None or b"\0" in before[:_TEXT_START] or b"\0" in after[:_TEXT_START]:
        sizes = [f"{path.lstat().st_size:,}" for path in (old, new) if path is not None]
        return f"{plain} ({' becomes '.join(sizes)} bytes)" if change.what == "file" else plain
    found = between(change.path, before.decode("utf-8", "replace"), after.decode("utf-8", "replace"))
    return (found.patch or found.diff).removesuffix("\n") or plain


def _content(path: Path | None) -> bytes | None:
    """Nothing for no file, None for what has no text, or too much."""
    if path is None:
        return b""
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return os.fsencode(path.readlink())
    if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_DIFF_BYTES:
        return None
    return path.read_bytes()


def _mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.lstat().st_mode):04o}"


# Applying them


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


def _put(source: Path, target: Path, change: Change) -> None:
    mode = stat.S_IMODE(source.lstat().st_mode)
    if change.what == "directory":
        if change.kind != "mode":
            target.mkdir()
        return
    if change.kind == "mode":
        target.chmod(mode)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:200]}.{os.urandom(6).hex()}")
    try:
        if change.what == "link":
            temporary.symlink_to(source.readlink())
        else:
            with _unlocked(source, 0o400):
                _copy(source, temporary, mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _copy(source: Path, target: Path, mode: int) -> None:
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW), "rb") as left, target.open("xb") as right:
        shutil.copyfileobj(left, right)
        os.fchmod(right.fileno(), mode)
        right.flush()
        os.fsync(right.fileno())


# What the project was


def _states(project: Path) -> Iterator[tuple[str, State]]:
    user, group = os.geteuid(), os.getegid()
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        for entry in _entries(project / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            info = entry.stat(follow_symlinks=False)
            if info.st_uid != user or info.st_gid != group:
                raise Refused(
                    f"{path} belongs to user {info.st_uid} and group {info.st_gid}, not to {user} and {group} like "
                    "those that run here; an overlay could not change it"
                )
            yield path, _state(info)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)


def _state(info: os.stat_result) -> State:
    if stat.S_ISDIR(info.st_mode):
        return State(info.st_mode)
    return State(info.st_mode, info.st_size, info.st_mtime_ns, info.st_ino)


def _state_now(project: Path, path: str) -> State | None:
    """None when it is not there, or would be reached through a symbolic link."""
    current = project
    for part in Path(path).parts[:-1]:
        current = current / part
        info = _lstat(current)
        if info is None or not stat.S_ISDIR(info.st_mode):
            return None
    info = _lstat(project / path)
    return None if info is None else _state(info)


def _note(record: dict[str, State], project: Path, made: list[Change]) -> None:
    """What was just made is what the project is from now on."""
    for each in made:
        now = _state_now(project, each.path)
        if now is None:
            record.pop(each.path, None)
        else:
            record[each.path] = now


def _record_file(layers: Layers) -> Path:
    return layers.upper.parent / "record"


def _write_record(layers: Layers, record: dict[str, State]) -> None:
    pairs = [(os.fsencode(path), state) for path, state in record.items()]
    temporary = _record_file(layers).with_suffix(".new")
    temporary.write_bytes(msgspec.msgpack.encode(pairs))
    temporary.replace(_record_file(layers))


def _read_record(layers: Layers) -> dict[str, State]:
    try:
        pairs = msgspec.msgpack.decode(_record_file(layers).read_bytes(), type=list[tuple[bytes, State]])
    except (OSError, msgspec.DecodeError) as error:
        raise Refused(f"what the project was when the rehearsal began cannot be read: {error}") from error
    return {os.fsdecode(path): state for path, state in pairs}
