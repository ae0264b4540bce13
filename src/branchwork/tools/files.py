"""Opening and replacing files of the person: regular files only, never half written."""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import ParamSpec, TypeVar

from branchwork.agent.toolset import ToolError
from branchwork.tools.paths import failed, shown

INLINE_BYTES = 1 << 20
"""Work on less than this is quicker done than handed to a thread."""

BINARY_PROBE = 8 * 1024
"""A NUL among the first bytes makes a file binary; git and grep look at as many."""

_SPECIAL: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)

_NO_SECOND_FILE = (errno.EACCES, errno.EPERM, errno.EBUSY)

_P = ParamSpec("_P")
_T = TypeVar("_T")


def require_regular(mode: int, doing: str, text: str) -> None:
    """Raise `ToolError` unless `mode` is that of a regular file."""
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise ToolError(f"Cannot {doing} {shown(text)}: it is a directory. ls lists what is in it.")
    kind = special_kind(mode) or "something special"
    raise ToolError(f"Cannot {doing} {shown(text)}: it is {kind}, not a regular file.")


def special_kind(mode: int) -> str | None:
    """The name of what is neither file, directory nor link, with its article."""
    return next((name for test, name in _SPECIAL if test(mode)), None)


def open_regular(path: Path, doing: str, text: str) -> FileIO:
    """`path` open for reading, unbuffered. Raises `ToolError`; devices and pipes are not opened."""
    try:
        require_regular(path.stat().st_mode, doing, text)
        # Without O_NONBLOCK a pipe that took the file's place after the check would block forever.
        file = FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise failed(doing, path, text, error) from error
    try:
        require_regular(os.fstat(file.fileno()).st_mode, doing, text)
    except BaseException:
        file.close()
        raise
    return file


def replace_file(path: Path, data: bytes, doing: str, text: str) -> None:
    """Make `data` the content of `path` at once, or raise `ToolError` and leave the old content.

    A symbolic link stays one and its target is replaced; mode and owner are kept. Where the folder cannot take
    a second file (it is not writable, or the file is a mount of its own) an existing file is written in place.
    Not fsynced.
    """
    target = Path(os.path.realpath(path))
    try:
        try:
            old: os.stat_result | None = target.stat()
        except FileNotFoundError:
            old = None
        if old is not None and not os.access(target, os.W_OK):
            raise ToolError(f"Cannot {doing} {shown(text)}: the file is read-only.")
        try:
            _swap(target, data, old)
        except OSError as error:
            if old is None or error.errno not in _NO_SECOND_FILE:
                raise
            with FileIO(os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), "wb") as file:
                _write_all(file, data)
    except OSError as error:
        raise failed(doing, path, text, error) from error


def _swap(target: Path, data: bytes, old: os.stat_result | None) -> None:
    temporary = target.with_name(f".branchwork-{os.urandom(6).hex()}.tmp")
    file = FileIO(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb")
    try:
        with file:
            _write_all(file, data)
            if old is not None:
                _keep_owner_and_mode(file.fileno(), old)
        temporary.replace(target)
    except BaseException:
        temporary.unlink()
        raise


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _keep_owner_and_mode(fd: int, old: os.stat_result) -> None:
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))


async def off_loop(large: bool, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """`work(…)`, in a thread when `large`. A cancelled caller leaves only when the thread is done, so that a
    lock it holds is never given up under running work."""
    if not large:
        return work(*args, **kwargs)
    task = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
