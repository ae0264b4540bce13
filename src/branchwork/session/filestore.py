"""A session in a file: created exclusively, appended to in single writes, locked while it is written."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from branchwork.session.files import beside, lock, open_file, open_locked, sync_directory, unlock, write_new, write_over
from branchwork.session.store import CHUNK, SessionReadOnly, SessionWriteError

READ_AHEAD = 256 << 10
"""Bytes fetched at once while entries are read in file order."""


class FileStore:
    """`FileStore.open` takes a file that exists, `FileStore.new` creates it with the first append.

    Writing takes an advisory lock (flock) on the file itself for as long as the store is open; a store that
    does not get it, or may not write, is read-only and says why. `sync` may run in another thread.
    """

    def __init__(self, path: Path, fd: int, read_only: str | None) -> None:
        """`fd` is open on `path` and becomes this object's own; -1 when the file does not exist yet."""
        self._path = path
        self._fd = fd
        self._read_only = read_only
        self._size = os.fstat(fd).st_size if fd >= 0 else 0
        self._held = None if self._size else bytearray()
        self._torn_at: int | None = None
        self._stray: tuple[int, int] | None = None
        self._ends_with_newline = not self._size or os.pread(fd, 1, self._size - 1) == b"\n"
        self._directory_synced = True
        self._closed = False
        self._ahead = b""
        self._ahead_at = 0
        self._next_read = -1

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> "FileStore":
        """Raises SessionUnreadable when the file cannot be read."""
        if read_only:
            return cls(path, open_file(path, os.O_RDONLY), "it was opened for reading only")
        fd, reason = open_locked(path)
        return cls(path, fd, reason)

    @classmethod
    def new(cls, path: Path) -> "FileStore":
        return cls(path, -1, None)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def read_only(self) -> str | None:
        return self._read_only

    @property
    def size(self) -> int:
        return len(self._held) if self._held is not None else self._size

    @property
    def waiting(self) -> bool:
        return self._held is not None

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        if self._held is not None:
            yield bytes(self._held[start:])
            return
        while chunk := os.pread(self._fd, CHUNK, start):
            start += len(chunk)
            yield chunk

    def read(self, offset: int, length: int) -> bytes:
        if self._held is not None:
            return bytes(self._held[offset : offset + length])
        at = offset - self._ahead_at
        if at >= 0 and at + length <= len(self._ahead):
            self._next_read = offset + length
            return self._ahead[at : at + length]
        # Reading a branch from its root goes forward in the file: only then is it worth reading ahead.
        sequential = 0 <= offset - self._next_read < READ_AHEAD
        self._next_read = offset + length
        if sequential and length < READ_AHEAD:
            self._ahead, self._ahead_at = os.pread(self._fd, READ_AHEAD, offset), offset
            return self._ahead[:length]
        return os.pread(self._fd, length, offset)

    def append(self, data: bytes, *, wait: bool = False) -> int:
        if self._read_only is not None:
            raise SessionReadOnly(
                f"{self._path} cannot be continued: {self._read_only}. Fork it to continue in a copy."
            )
        if self._closed:
            raise SessionWriteError(f"{self._path} is closed; open the session again.")
        if self._held is not None:
            return self._append_held(data, wait)
        if self.grown():
            raise SessionWriteError(f"{self._path} was just changed by another program; try again.")
        offset = self._size
        try:
            self._cut_torn()
            offset = self._size + (not self._ends_with_newline)
            self._write(data if self._ends_with_newline else b"\n" + data)
        except OSError as error:
            raise self._failed(error) from error
        self._ends_with_newline = data.endswith(b"\n")
        return offset

    def _append_held(self, data: bytes, wait: bool) -> int:
        assert self._held is not None
        offset = len(self._held)
        if wait:
            self._held += data
            return offset
        content = bytes(self._held) + data
        created = self._fd < 0
        try:
            if created:
                self._create()
            elif os.fstat(self._fd).st_size:
                raise SessionWriteError(f"{self._path} was empty and is not any more; open it again.")
            self._write(content)
        except OSError as error:
            if created and self._fd >= 0:
                self._path.unlink(missing_ok=True)
                os.close(self._fd)
                self._fd = -1
                self._size = 0
                self._stray = None
            raise self._failed(error) from error
        self._held = None
        self._directory_synced = not created
        return offset

    def _create(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        lock(self._fd)
        self._size = 0

    def _write(self, data: bytes) -> None:
        """All of `data` behind the known end, or none of it."""
        view, done = memoryview(data), 0
        try:
            while done < len(data):
                done += os.write(self._fd, view[done:])
        except OSError:
            self._stray = (self._size, self._size + done)
            self._cut_stray()
            raise
        self._size += done

    def _cut_stray(self) -> None:
        """Cut what a failed write left, unless another program wrote behind it."""
        if self._stray is None:
            return
        start, end = self._stray
        try:
            if os.fstat(self._fd).st_size == end:
                os.ftruncate(self._fd, start)
            self._stray = None
        except OSError:
            pass  # tried again before the next append; until then the tail is torn, which readers handle

    def _cut_torn(self) -> None:
        if self._torn_at is None:
            return
        with beside(self._path, ".torn").open("ab") as side:
            for chunk in self.chunks(self._torn_at):
                side.write(chunk)
            side.flush()
            os.fsync(side.fileno())
        os.ftruncate(self._fd, self._torn_at)
        self._size, self._torn_at, self._ahead = self._torn_at, None, b""
        self._ends_with_newline = not self._size or os.pread(self._fd, 1, self._size - 1) == b"\n"

    def mark_torn(self, offset: int) -> None:
        self._torn_at = offset

    def grown(self) -> bool:
        if self._held is not None or self._read_only is not None or self._closed:
            return False
        try:
            here, there = os.fstat(self._fd), self._path.stat()
        except OSError as error:
            raise self._failed(error) from error
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise SessionWriteError(f"{self._path} was replaced by another program; open the session again.")
        if self._stray is not None:
            self._cut_stray()
            here = os.fstat(self._fd)
        if here.st_size < self._size:
            raise SessionWriteError(f"{self._path} was cut short by another program; open the session again.")
        return here.st_size > self._size

    def accept(self, size: int) -> None:
        self._size = size
        self._torn_at = None
        self._ends_with_newline = os.pread(self._fd, 1, size - 1) == b"\n"

    def replace(self, pieces: Iterable[bytes], backup_suffix: str) -> None:
        if self._read_only is not None:
            raise SessionReadOnly(f"{self._path} cannot be changed: {self._read_only}.")
        backup = beside(self._path, backup_suffix)
        try:
            if not backup.exists():
                write_new(backup, self.chunks())
            fd = write_over(self._path, pieces)
        except OSError as error:
            raise self._failed(error) from error
        os.close(self._fd)
        self._fd, self._size = fd, os.fstat(fd).st_size
        self._torn_at, self._ahead, self._ends_with_newline = None, b"", True

    def sync(self) -> None:
        if self._fd < 0 or self._read_only is not None:
            return
        try:
            fd = os.dup(self._fd)  # `close` and `replace` may come while the device is still busy
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            if not self._directory_synced:
                sync_directory(self._path.parent)
                self._directory_synced = True
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        self._closed = True
        if self._fd >= 0:
            unlock(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _failed(self, error: OSError) -> SessionWriteError:
        if isinstance(error, FileExistsError):
            return SessionWriteError(f"{self._path} already exists and was left alone; start the session again.")
        return SessionWriteError(
            f"{self._path} could not be written: {error.strerror or error}. Nothing was added; free space or fix "
            "the folder and repeat the step."
        )
