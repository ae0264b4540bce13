"""What every `branchwork.session.store.Store` promises, as tests.

Subclass `StoreContract` in a test module as a class whose name begins with `Test` and implement `make`.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from branchwork.session.store import Store


class StoreContract:
    """Each test gets a fresh store; `tmp_path` is for stores that need a folder."""

    def make(self, tmp_path: Path, content: bytes) -> Store:
        """A store that holds `content`; with none, a new one that nothing was written to."""
        raise NotImplementedError

    @pytest.fixture
    def holding(self, tmp_path: Path) -> Iterable[Callable[[bytes], Store]]:
        made: list[Store] = []

        def holding(content: bytes) -> Store:
            made.append(self.make(tmp_path, content))
            return made[-1]

        yield holding
        for store in made:
            store.close()

    def test_appended_bytes_are_read_back_at_the_offset_given(self, holding: Callable[[bytes], Store]) -> None:
        store = holding(b"")
        first = store.append(b"one\n")
        second = store.append(b"two\nthree\n")
        assert (first, second) == (0, 4)
        assert store.read(second, 3) == b"two"
        assert content(store) == b"one\ntwo\nthree\n"
        assert store.size == 14

    def test_waiting_bytes_come_first_once_something_is_stored(self, holding: Callable[[bytes], Store]) -> None:
        store = holding(b"")
        store.append(b"header\n", wait=True)
        offset = store.append(b"setup\n", wait=True)
        assert store.read(offset, 5) == b"setup"
        store.append(b"first\n")
        assert not store.waiting
        assert content(store) == b"header\nsetup\nfirst\n"

    def test_waiting_is_over_for_good_after_the_first_stored_bytes(self, holding: Callable[[bytes], Store]) -> None:
        store = holding(b"old\n")
        assert not store.waiting
        store.append(b"new\n", wait=True)
        assert content(store) == b"old\nnew\n"

    def test_a_missing_line_feed_is_added_before_the_next_line(self, holding: Callable[[bytes], Store]) -> None:
        store = holding(b"old")
        offset = store.append(b"new\n")
        assert store.read(offset, 3) == b"new"
        assert content(store) == b"old\nnew\n"

    def test_a_torn_tail_stays_until_something_is_appended(self, holding: Callable[[bytes], Store]) -> None:
        store = holding(b"whole\nto")
        store.mark_torn(6)
        assert content(store) == b"whole\nto"
        offset = store.append(b"next\n")
        assert content(store) == b"whole\nnext\n"
        assert store.read(offset, 4) == b"next"

    def test_chunks_begin_where_they_are_asked_to(self, holding: Callable[[bytes], Store]) -> None:
        store = holding(b"one\ntwo\n")
        assert b"".join(store.chunks(4)) == b"two\n"
        assert b"".join(store.chunks(8)) == b""

    def test_reads_in_any_order_give_the_same_bytes(self, holding: Callable[[bytes], Store]) -> None:
        lines = [b"%05d" % number + b"x" * 100 for number in range(3000)]
        store = holding(b"".join(line + b"\n" for line in lines))
        order = [*range(3000), *range(2999, -1, -7), *range(0, 3000, 11)]
        assert all(store.read(number * 106, 105) == lines[number] for number in order)

    def test_replacing_swaps_the_whole_content(self, holding: Callable[[bytes], Store]) -> None:
        store = holding(b"old one\nold two\n")
        store.read(0, 3)
        store.replace(iter((b"new\n", b"lines\n")), ".old")
        assert content(store) == b"new\nlines\n"
        assert store.append(b"more\n") == 10
        assert store.read(0, 3) == b"new"

    def test_a_replacement_that_fails_changes_nothing(self, holding: Callable[[bytes], Store]) -> None:
        def broken() -> Iterable[bytes]:
            yield b"half\n"
            raise ZeroDivisionError

        store = holding(b"old\n")
        with pytest.raises(ZeroDivisionError):
            store.replace(broken(), ".old")
        store.append(b"new\n")
        assert content(store) == b"old\nnew\n"

    def test_nothing_grows_by_itself(self, holding: Callable[[bytes], Store]) -> None:
        store = holding(b"old\n")
        store.append(b"new\n")
        assert not store.grown()

    def test_closing_twice_is_allowed(self, holding: Callable[[bytes], Store]) -> None:
        store = holding(b"old\n")
        store.sync()
        store.close()
        store.close()


def content(store: Store) -> bytes:
    """All bytes of a store."""
    return b"".join(store.chunks())
