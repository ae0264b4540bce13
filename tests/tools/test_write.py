"""`write` replaces a file at once or not at all."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from branchwork.agent.toolset import ToolError
from branchwork.tools.files import off_loop, replace_file
from tests.tools.workplace import Workplace, needs_permissions, text_of


async def test_a_new_file_is_created_with_its_folders(place: Workplace) -> None:
    output = await place.run("write", path="a/b/c.txt", content="one\ntwo")
    assert (place.cwd / "a/b/c.txt").read_bytes() == b"one\ntwo"
    assert text_of(output) == "Created a/b/c.txt: 7 bytes, 2 lines."
    assert output.details == {"path": str(place.cwd / "a/b/c.txt"), "created": True}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "0 bytes, 0 lines"),
        ("x", "1 byte, 1 line"),
        ("\n", "1 byte, 1 line"),
        ("caf\u00e9\n", "6 bytes, 1 line"),
        ("a\r\nb\r\n", "6 bytes, 2 lines"),
    ],
)
async def test_the_content_is_written_as_it_is(place: Workplace, content: str, told: str) -> None:
    assert await place.text("write", path="f", content=content) == f"Created f: {told}."
    assert (place.cwd / "f").read_bytes() == content.encode()


async def test_an_existing_file_is_replaced_and_the_difference_kept_for_people(place: Workplace) -> None:
    path = place.file("f", "one\ntwo\n")
    path.chmod(0o750)
    output = await place.run("write", path="f", content="one\n2\n")
    assert text_of(output) == "Replaced f: 6 bytes, 2 lines."
    assert output.details["diff"] == " 1 one\n-2 two\n+2 2"
    assert path.stat().st_mode & 0o777 == 0o750
    assert [found.name for found in place.cwd.iterdir()] == ["f"]


async def test_lost_carriage_returns_are_told(place: Workplace) -> None:
    place.file("f", "one\r\ntwo\r\n")
    assert "ended with CRLF" in await place.text("write", path="f", content="one\n")


@pytest.mark.parametrize("old", [b"\xff\xfe\0", b"caf\xe9", b"x" * (2 << 20)])
async def test_content_that_cannot_be_compared_is_replaced_without_a_diff(place: Workplace, old: bytes) -> None:
    path = place.file("f", old)
    output = await place.run("write", path="f", content="x")
    assert path.read_bytes() == b"x"
    assert "diff" not in output.details


async def test_a_link_stays_and_its_target_changes(place: Workplace) -> None:
    target = place.file("real/f", "old")
    (place.cwd / "link").symlink_to("real/f")
    await place.run("write", path="link", content="new")
    assert (place.cwd / "link").is_symlink()
    assert target.read_text() == "new"


async def test_a_dangling_link_is_filled_where_it_points(place: Workplace) -> None:
    (place.cwd / "link").symlink_to("later/f")
    await place.run("write", path="link", content="new")
    assert (place.cwd / "later/f").read_text() == "new"
    assert (place.cwd / "link").is_symlink()


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("folder", "it is a directory"),
        ("new/", "names a directory"),
        ("file/below", "a part of the path is a file"),
        ("x" * 300, "the name is too long"),
        ("", "it is a directory"),
    ],
)
async def test_what_cannot_be_a_file_is_refused_in_one_line(place: Workplace, path: str, problem: str) -> None:
    (place.cwd / "folder").mkdir()
    place.file("file")
    message = await place.error("write", path=path, content="x")
    assert problem in message
    assert "\n" not in message


async def test_half_a_character_is_refused_before_anything_is_touched(place: Workplace) -> None:
    path = place.file("f", "old")
    assert "half of a character" in await place.error("write", path="f", content="\ud83d")
    assert path.read_text() == "old"


@needs_permissions
async def test_a_read_only_file_is_not_replaced_behind_its_mode(place: Workplace) -> None:
    path = place.file("f", "old")
    path.chmod(0o444)
    assert "the file is read-only" in await place.error("write", path="f", content="x")
    assert path.read_text() == "old"


@needs_permissions
async def test_a_writable_file_in_a_closed_folder_is_written_in_place(place: Workplace) -> None:
    path = place.file("d/f", "old")
    path.parent.chmod(0o555)
    try:
        await place.run("write", path="d/f", content="new")
        assert path.read_text() == "new"
        assert "permission denied" in await place.error("write", path="d/other", content="x")
    finally:
        path.parent.chmod(0o755)


async def test_a_name_of_undecodable_bytes_can_be_written(place: Workplace) -> None:
    path = place.cwd / os.fsdecode(b"caf\xe9")
    path.write_text("old")
    output = await place.run("write", path="caf\\xe9", content="new")
    assert path.read_text() == "new"
    assert text_of(output).startswith("Replaced caf\\xe9: ")


async def test_writers_of_one_file_wait_for_each_other(place: Workplace) -> None:
    path = place.file("f", "old")
    async with place.locks.hold(path):
        writing = asyncio.ensure_future(place.run("write", path="f", content="new"))
        await asyncio.wait({writing}, timeout=0.05)
        assert not writing.done()
        assert path.read_text() == "old"
    await writing
    assert path.read_text() == "new"


def test_a_failed_write_leaves_the_old_content_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")

    with pytest.raises(TypeError):
        replace_file(path, "no bytes", "write", "f")  # type: ignore[arg-type]  # fails after the file was made
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["f"]


async def test_cancelling_waits_for_work_in_a_thread_so_that_locks_hold() -> None:
    started, go = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        started.set()
        go.wait(30)
        done.append("work")

    task = asyncio.ensure_future(off_loop(True, work))
    await asyncio.to_thread(started.wait)
    task.cancel()
    await asyncio.wait({task}, timeout=0.05)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["work"]


def test_a_vanished_folder_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"^Cannot write gone/f: no such file or directory\.$"):
        replace_file(tmp_path / "gone/f", b"x", "write", "gone/f")
