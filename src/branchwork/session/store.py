"""Where the bytes of a session live: a file, or memory for sessions that are not kept.

A store only ever grows at its end. The two edits it permits are cutting a torn tail (saved beside the file
first) and replacing an old-format file by its upgrade (backed up first), both right before an append.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from branchwork.errors import UserError

CHUNK = 1 << 16
"""Bytes of one piece that `chunks` yields."""


class SessionWriteError(UserError):
    """Nothing was appended: the file and the session are as they were before."""


class SessionReadOnly(UserError):
    """The session was opened for reading; a fork of it can be continued."""


class SessionUnreadable(UserError):
    """There is no session in the file; it was not changed."""


class Store(Protocol):
    """An append-only sequence of bytes. `branchwork.testing.store_contract` checks implementations."""

    @property
    def path(self) -> Path | None:
        """The file, even before it exists; None for memory."""
        ...

    @property
    def read_only(self) -> str | None:
        """Why nothing can be appended, or None when it can."""
        ...

    @property
    def size(self) -> int:
        """Bytes known to this store, waiting ones included."""
        ...

    @property
    def waiting(self) -> bool:
        """True while everything appended so far is held in memory only."""
        ...

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        """The bytes from `start` to the present end, in pieces."""
        ...

    def read(self, offset: int, length: int) -> bytes: ...

    def append(self, data: bytes, *, wait: bool = False) -> int:
        """Add whole lines in one write and return the offset of `data`.

        With `wait` the bytes stay in memory if nothing was stored yet; the first append without it stores
        everything together. A missing line feed at the end of the old bytes is added before.
        Raises SessionReadOnly, or SessionWriteError after which nothing has changed.
        """
        ...

    def mark_torn(self, offset: int) -> None:
        """The bytes from `offset` are no entry: the next append moves them to `PATH.torn` and cuts them off."""
        ...

    def grown(self) -> bool:
        """Whether another program appended. Raises SessionWriteError when the bytes known here are gone."""
        ...

    def accept(self, size: int) -> None:
        """Take what another program appended, up to `size`, as known."""
        ...

    def replace(self, pieces: Iterable[bytes], backup_suffix: str) -> None:
        """Swap the whole content for `pieces` in one step, keeping the old bytes at `PATH` + suffix."""
        ...

    def sync(self) -> None:
        """Return when everything appended is on the device (as far as the system tells)."""
        ...

    def close(self) -> None:
        """Give up the lock. May be called twice."""
        ...


class MemoryStore:
    """A store that ends with the process."""

    path: Path | None = None
    read_only: str | None = None
    waiting = False

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray(data)
        self._torn_at: int | None = None
        self.torn = b""
        """What was cut off as torn."""

    @property
    def size(self) -> int:
        return len(self._data)

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        for offset in range(start, len(self._data), CHUNK):
            yield bytes(self._data[offset : offset + CHUNK])

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._data[offset : offset + length])

    def append(self, data: bytes, *, wait: bool = False) -> int:
        if self._torn_at is not None:
            self.torn += bytes(self._data[self._torn_at :])
            del self._data[self._torn_at :]
            self._torn_at = None
        if self._data and not self._data.endswith(b"\n"):
            self._data += b"\n"
        offset = len(self._data)
        self._data += data
        return offset

    def mark_torn(self, offset: int) -> None:
        self._torn_at = offset

    def grown(self) -> bool:
        return False

    def accept(self, size: int) -> None:
        pass

    def replace(self, pieces: Iterable[bytes], backup_suffix: str) -> None:
        self._data = bytearray(b"".join(pieces))
        self._torn_at = None

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass
