"""Reading many entries at once: the same entries as one by one, in few reads, and only those asked for."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.session.bulk import RUN_BYTES, decode_run, runs
from branchwork.session.entries import UnknownEntry
from branchwork.session.index import Node
from branchwork.session.store import MemoryStore
from branchwork.session.tree import Session, new_header
from branchwork.testing.clock import FakeClock
from tests.session.builders import DATA, SpreadIds, header, line, opened, said, write


class CountingStore(MemoryStore):
    """Counts the reads since `reads` was last set to 0."""

    reads = 0

    def read(self, offset: int, length: int) -> bytes:
        self.reads += 1
        return super().read(offset, length)


def over(store: MemoryStore) -> Session:
    return Session.over(store, new_header("s", 0, "/project", None), clock=FakeClock(), ids=SpreadIds(1 << 24))


def chain(*ids: str) -> list[bytes]:
    return [line(each, parent) for each, parent in zip(ids, (None, *ids), strict=False)]


def session_of(*lines: bytes) -> Session:
    return over(MemoryStore(b"\n".join((header(), *lines)) + b"\n"))


DAMAGED = {
    "an orphan": [*chain("a", "b"), line("c", "gone"), line("d", "c")],
    "equal ids": [*chain("a", "b", "c"), line("b", "c"), line("d", "b")],
    "equal ids and links to them": [
        *chain("a", "b"),
        line("b", "b"),
        line("c", "a"),
        line("d", "c", type="label", targetId="b", label="here"),
        line("e", "d", type="context_edit", targetId="b", replacement=None),
    ],
    "no ids": [*chain("a", "b"), line(None, None), line("c", "b")],
    "an id that is a number": [*chain("a", "b"), line("c", "b", id=7), line("d", "c")],
    "a parent further down": [line("a", "c"), line("b", "a"), line("c", None), line("d", "b")],
    "an unknown type": [*chain("a", "b"), line("c", "b", type="oracle"), line("d", "c")],
    "a message of another shape": [*chain("a", "b"), line("c", "b", message={"role": "user"}), line("d", "c")],
    "two objects on a line": [*chain("a", "b"), line("c", "b") + b" " + line("d", "c"), line("e", "d")],
    "junk between": [*chain("a", "b"), b"{]", line("c", "b")],
    "carriage returns": [each + b"\r" for each in chain("a", "b", "c")],
    "invalid UTF-8": [*chain("a", "b"), line("c", "b").replace(b"text", b"t\xffxt"), line("d", "c")],
    "a lone surrogate": [*chain("a", "b"), line("c", "b").replace(b"text", rb"\ud800"), line("d", "c")],
}


@pytest.mark.parametrize("lines", DAMAGED.values(), ids=DAMAGED)
def test_entries_of_a_damaged_file_are_the_same_together_and_one_by_one(lines: list[bytes]) -> None:
    session = session_of(*lines)
    one_by_one = [session.entry(node.id) for node in session.nodes()]
    for start in range(len(one_by_one)):
        other = session_of(*lines)
        assert list(other.entries(other.nodes()[start:])) == one_by_one[start:]


@pytest.mark.parametrize("path", sorted(DATA.glob("*.jsonl")), ids=lambda path: path.stem)
def test_entries_of_every_version_are_the_same_together_and_one_by_one(path: Path) -> None:
    with opened(path, read_only=True) as session, opened(path, read_only=True) as other:
        assert list(session.entries(session.nodes())) == [other.entry(node.id) for node in session.nodes()]


@given(st.lists(st.integers(0, 9)))
def test_entries_come_in_the_order_asked_for_whatever_it_is(wanted: list[int]) -> None:
    session = session_of(*chain(*"abcdefghij"))
    nodes = [session.nodes()[number] for number in wanted]
    assert [entry.id for entry in session.entries(nodes)] == [node.id for node in nodes]


def test_a_stretch_costs_one_read_for_each_full_run() -> None:
    lines = chain(*(f"{number:08x}" for number in range(4 * RUN_BYTES // 200)))
    store = CountingStore(b"\n".join((header(), *lines)) + b"\n")
    session = over(store)
    store.reads = 0
    assert sum(1 for _ in session.entries(session.nodes())) == len(lines)
    assert store.reads <= store.size // RUN_BYTES + 1


def test_only_the_entries_asked_for_are_decoded() -> None:
    session = session_of(*chain(*"abcdefgh"))
    nodes = session.nodes()
    assert len(list(session.entries([*nodes[1:3], *nodes[5:7]]))) == 4
    assert session.decoded == 4


def test_a_line_that_needs_lenience_leaves_the_other_runs_alone() -> None:
    before = chain(*(f"{number:08x}" for number in range(2 * RUN_BYTES // 100)))
    session = session_of(*before, line("odd", "00000000", type="oracle"))
    found = list(runs(session.nodes()))
    assert len(found) >= 2
    assert decode_run(found[0], session._store.read) is not None
    assert decode_run(found[-1], session._store.read) is None
    assert isinstance(list(session.entries(session.nodes()))[-1], UnknownEntry)


def test_a_file_that_was_cut_meanwhile_gives_no_run() -> None:
    lines = chain(*"abc")
    assert decode_run(session_of(*lines).nodes(), lambda _offset, _length: b"\n".join(lines[:2])) is None


def test_the_last_entry_of_a_stretch_is_kept() -> None:
    session = session_of(*chain(*"abcd"))
    entries = list(session.entries(session.nodes()))
    assert session.entry("d") is entries[-1]
    assert session.decoded == 4


def test_entries_appended_since_the_opening_are_read_too(tmp_path: Path) -> None:
    with opened(write(tmp_path / "s.jsonl", header(), *chain(*"ab"))) as session:
        stored = session.append(said("c"), said("d"))
        assert list(session.entries(session.nodes()))[2:] == list(stored)


def placed(places: Sequence[tuple[int, int]]) -> Iterator[Node]:
    for order, (offset, length) in enumerate(places):
        yield Node(str(order), "message", None, order, order, offset, length, 0, "")


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=30))
def test_runs_hold_every_node_once_and_have_no_gaps(places: list[tuple[int, int]]) -> None:
    nodes = list(placed(places))
    found = list(runs(nodes))
    assert [node for run in found for node in run] == nodes
    for run in found:
        assert all(a.offset + a.length + 1 == b.offset for a, b in pairwise(run))


def test_a_run_ends_at_its_size() -> None:
    size = RUN_BYTES // 4
    found = list(runs(placed([(number * size, size - 1) for number in range(10)])))
    assert [len(run) for run in found] == [4, 4, 2]
