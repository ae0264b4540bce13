"""Entries that lie one behind the other in the file, read and decoded together."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from branchwork.session.codec import decode_lines
from branchwork.session.entries import KnownEntry
from branchwork.session.index import Node

RUN_BYTES = 1 << 20
"""Bytes from which a run ends; it is read into memory as a whole."""


def runs(nodes: Iterable[Node]) -> Iterator[list[Node]]:
    """`nodes` in their order, cut where one does not follow the one before it in the file, and by size."""
    run: list[Node] = []
    start = end = -1
    for node in nodes:
        offset = node.offset
        if offset != end + 1 or offset - start >= RUN_BYTES:
            if run:
                yield run
            run, start = [], offset
        run.append(node)
        end = offset + node.length
    if run:
        yield run


def decode_run(run: Sequence[Node], read: Callable[[int, int], bytes]) -> list[KnownEntry] | None:
    """The entries of one run; None unless each line is sound and states the identity that its node has.

    `read` takes an offset and a length.
    """
    start, last = run[0].offset, run[-1]
    entries = decode_lines(read(start, last.offset + last.length - start))
    if entries is None or len(entries) != len(run):
        return None
    for entry, node in zip(entries, run, strict=True):
        parent = node.parent
        if entry.id != node.id or entry.parent_id != (None if parent is None else parent.id):
            return None
    return entries
