"""Rewrites an old-format session as the current version, in one step and with a backup."""

from collections.abc import Callable, Iterator

from msgspec import structs

from branchwork.session.index import Node
from branchwork.session.migrate import migrate_header
from branchwork.session.scan import Record
from branchwork.session.store import Store


class Upgrade:
    """Feeds `Store.replace` with the new content; bytes that are no entry are kept on lines of their own."""

    def __init__(self, store: Store, header: Record, nodes: list[Node], line_of: Callable[[Node], bytes]) -> None:
        self._store = store
        self._header = header
        self._nodes = nodes
        self._line_of = line_of
        self._places: list[tuple[int, int, int]] = []
        self._size = 0
        self.lines = 0

    def run(self, *, version: int, end: int) -> None:
        """`end` is where the last whole line ends. Raises SessionWriteError, leaving all as it was."""
        self._store.replace(self._pieces(end), f".v{version}.bak")
        for node, (offset, length, line) in zip(self._nodes, self._places, strict=True):
            structs.force_setattr(node, "offset", offset)
            structs.force_setattr(node, "length", length)
            structs.force_setattr(node, "line", line)

    def _pieces(self, end: int) -> Iterator[bytes]:
        header = self._header
        yield from self._rest(0, header.offset)
        yield self._count(migrate_header(self._store.read(header.offset, header.length)))
        done = header.offset + header.length
        for node in self._nodes:
            yield from self._rest(done, node.offset)
            done = node.offset + node.length
            line = self._line_of(node)
            self._places.append((self._size, len(line), self.lines + 1))
            yield self._count(line)
        yield from self._rest(done, end)

    def _rest(self, start: int, end: int) -> Iterator[bytes]:
        for line in self._store.read(start, max(end - start, 0)).split(b"\n"):
            if line.strip():
                yield self._count(line)

    def _count(self, line: bytes) -> bytes:
        self._size += len(line) + 1
        self.lines += 1
        return line + b"\n"
