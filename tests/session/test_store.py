"""What stores promise, and what only files can get wrong."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from branchwork.session.filestore import FileStore
from branchwork.session.store import SessionReadOnly, SessionUnreadable, SessionWriteError, Store
from branchwork.testing.memory_store import MemoryStore
from branchwork.testing.store_contract import StoreContract


class TestFileStore(StoreContract):
    def make(self, tmp_path: Path, content: bytes) -> Store:
        path = tmp_path / "session.jsonl"
        if not content:
            return FileStore.new(path)
        path.write_bytes(content)
        return FileStore.open(path)


class TestMemoryStore(StoreContract):
    def make(self, tmp_path: Path, content: bytes) -> Store:
        return MemoryStore(content)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Writes behind `size` fail with EFBIG, after a short write up to it: a full disk in miniature."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_new_file_is_private_and_appears_with_the_first_stored_bytes(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "s.jsonl"
    store = FileStore.new(path)
    store.append(b"header\n", wait=True)
    assert not path.parent.exists()
    store.append(b"first\n")
    assert path.read_bytes() == b"header\nfirst\n"
    assert path.stat().st_mode & 0o777 == 0o600
    store.close()


def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    store = FileStore.new(path)
    store.append(b"header\n", wait=True)
    path.write_bytes(b"someone else's\n")
    with pytest.raises(SessionWriteError, match="already exists"):
        store.append(b"first\n")
    assert path.read_bytes() == b"someone else's\n"
    assert store.waiting


def test_an_append_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"x" * 99 + b"\n")
    store = FileStore.open(path)
    with file_size_limit(110), pytest.raises(SessionWriteError, match=r"s\.jsonl could not be written"):
        store.append(b"y" * 50 + b"\n")
    assert path.stat().st_size == 100
    assert store.append(b"z\n") == 100
    assert path.read_bytes().endswith(b"x\nz\n")
    store.close()


def test_a_creation_that_does_not_fit_leaves_no_file_and_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    store = FileStore.new(path)
    store.append(b"header\n", wait=True)
    with file_size_limit(10), pytest.raises(SessionWriteError):
        store.append(b"y" * 50 + b"\n")
    assert not path.exists()
    store.append(b"z\n")
    assert path.read_bytes() == b"header\nz\n"
    store.close()


def test_the_second_opener_may_only_read_until_the_first_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\n")
    first, second = FileStore.open(path), FileStore.open(path)
    assert first.read_only is None
    assert second.read_only is not None
    assert "another process" in second.read_only
    with pytest.raises(SessionReadOnly, match="Fork"):
        second.append(b"two\n")
    first.close()
    third = FileStore.open(path)
    assert third.read_only is None
    second.close()
    third.close()


def test_a_new_file_is_locked_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    first = FileStore.new(path)
    first.append(b"one\n")
    second = FileStore.open(path)
    assert second.read_only is not None
    first.close()
    second.close()


def test_a_replaced_file_is_still_locked(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\n")
    first = FileStore.open(path)
    first.replace([b"two\n"], ".bak")
    second = FileStore.open(path)
    assert second.read_only is not None
    assert (tmp_path / "s.jsonl.bak").read_bytes() == b"one\n"
    first.close()
    second.close()


def test_bytes_of_another_program_are_noticed_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\n")
    store = FileStore.open(path)
    with path.open("ab") as other:
        other.write(b"foreign\n")
    assert store.grown()
    with pytest.raises(SessionWriteError, match="another program"):
        store.append(b"two\n")
    store.accept(path.stat().st_size)
    store.append(b"two\n")
    assert path.read_bytes() == b"one\nforeign\ntwo\n"
    store.close()


@pytest.mark.parametrize("change", ["cut", "replaced", "removed"])
def test_a_file_that_lost_known_bytes_is_not_written_to(tmp_path: Path, change: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\ntwo\n")
    store = FileStore.open(path)
    match change:
        case "cut":
            os.truncate(path, 4)
        case "replaced":
            (tmp_path / "new").write_bytes(b"one\ntwo\n")
            (tmp_path / "new").replace(path)
        case _:
            path.unlink()
    with pytest.raises(SessionWriteError):
        store.append(b"three\n")
    assert not path.exists() or b"three" not in path.read_bytes()
    store.close()


def test_torn_bytes_are_collected_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for torn in (b"to", b"rn"):
        path.write_bytes(b"one\n" + torn)
        store = FileStore.open(path)
        store.mark_torn(4)
        store.append(b"two\n")
        store.close()
        assert path.read_bytes() == b"one\ntwo\n"
    assert (tmp_path / "s.jsonl.torn").read_bytes() == b"torn"


def test_a_store_opened_for_reading_never_writes(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\n")
    store = FileStore.open(path, read_only=True)
    assert store.read_only is not None
    assert store.read(0, 3) == b"one"
    with pytest.raises(SessionReadOnly):
        store.append(b"two\n")
    assert path.read_bytes() == b"one\n"
    store.close()


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_what_is_no_file_is_named_in_the_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(SessionUnreadable, match=r"cannot be opened|is a folder"):
        FileStore.open(tmp_path / name)


def test_a_closed_store_refuses_to_write(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"one\n")
    store = FileStore.open(path)
    store.close()
    with pytest.raises(SessionWriteError, match="closed"):
        store.append(b"two\n")


def test_syncing_a_new_file_reaches_its_folder(tmp_path: Path) -> None:
    store = FileStore.new(tmp_path / "s.jsonl")
    store.sync()
    store.append(b"one\n")
    store.sync()
    assert (tmp_path / "s.jsonl").read_bytes() == b"one\n"
    store.close()
