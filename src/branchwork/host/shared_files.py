"""Small files that several processes change: one writer at a time, and no reader sees half a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from branchwork.errors import UserError


@contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Hold the exclusive lock of `path`, a file `NAME.lock` beside it; gives `path` with its links followed.

    Waits for other holders, threads included. Makes the folder, mode 0700, when it is missing. Raises `UserError`.
    """
    import fcntl

    target = Path(os.path.realpath(path))
    lock = target.with_name(f"{target.name}.lock")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UserError(f"{lock}: cannot be opened ({error.strerror}); check the folder's owner and mode") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise UserError(f"{lock}: cannot be locked ({error.strerror}); nothing was changed") from None
        yield target
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Put `data` there in one visible, durable step. `mode` None: that of the old file, else 0644 less the umask.

    Raises `UserError`; the old contents are then intact. `path` has no link to follow (see `locked`).
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644 if mode is None else mode
        )
        try:
            with os.fdopen(descriptor, "wb") as stream:
                kept = _mode(path) if mode is None else mode
                if kept is not None:
                    os.fchmod(stream.fileno(), kept)
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); the old contents are intact") from None


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        return None
