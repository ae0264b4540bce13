"""File operations that a session needs: locking, and writing whole files in one visible step."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from branchwork.session.store import SessionUnreadable

LOCKED = "another process has it open"
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""What file systems without flock answer; there the check for foreign growth must do."""


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def open_file(path: Path, flags: int) -> int:
    """Raises SessionUnreadable with the path and the system's reason."""
    try:
        fd = os.open(path, flags)
    except OSError as error:
        raise SessionUnreadable(f"{path} cannot be opened: {error.strerror or error}. Check the path.") from error
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise SessionUnreadable(f"{path} is a folder, not a session file. Check the path.")
    return fd


def lock(fd: int) -> bool:
    """Take the lock for writing without waiting; False when another open file has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def unlock(fd: int) -> None:
    """Give up the lock at once, even if a process started a moment ago still has a copy of the descriptor."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)


def open_locked(path: Path) -> tuple[int, str | None]:
    """A descriptor for appending that holds the lock; or one for reading, and why it is only that."""
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND)
        except PermissionError:
            return open_file(path, os.O_RDONLY), "there is no permission to write it"
        except OSError as error:
            if error.errno == errno.EROFS:
                return open_file(path, os.O_RDONLY), "its file system is read-only"
            return open_file(path, os.O_RDONLY), f"it cannot be written ({error.strerror})"
        if not lock(fd):
            os.close(fd)
            return open_file(path, os.O_RDONLY), LOCKED
        if _same_file(fd, path):
            return fd, None
        os.close(fd)  # an upgrade put a new file there between opening and locking


def write_new(path: Path, pieces: Iterable[bytes]) -> None:
    """Create `path` with this content in one visible step. Raises FileExistsError and leaves it if it exists."""
    temporary = _write_temporary(path, pieces, 0o600)
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        # No hard links here: reserve the name, then let the finished file take it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def write_over(path: Path, pieces: Iterable[bytes]) -> int:
    """Replace the file in one visible step, keeping its mode; a locked descriptor for appending to the new one."""
    target = path.resolve()
    temporary = _write_temporary(target, pieces, target.stat().st_mode & 0o777)
    try:
        fd = os.open(temporary, os.O_RDWR | os.O_APPEND)
        try:
            lock(fd)
            temporary.replace(target)
        except OSError:
            os.close(fd)
            raise
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(target.parent)
    return fd


def sync_directory(directory: Path) -> None:
    """Make names created or changed in `directory` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a folder
            raise
    finally:
        os.close(fd)


def _write_temporary(path: Path, pieces: Iterable[bytes], mode: int) -> Path:
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}.tmp")
    fd = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with os.fdopen(fd, "wb") as out:
            os.fchmod(fd, mode)
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fsync(fd)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except OSError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
