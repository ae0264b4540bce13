"""Listings and `--resume TEXT`: fast, complete, and not stopped by damage."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.errors import UserError
from branchwork.session.listing import (
    FIRST_MESSAGE,
    WHOLE,
    list_sessions,
    most_recent,
    resolve,
    session_folders,
    summarize,
)
from branchwork.session.operations import session_directory
from tests.web.samples import SessionFile, tour

CWD = Path("/home/ada/project")


def chat(session_id: str, text: str, *, cwd: str = str(CWD), turns: int = 1, at: int = 0) -> SessionFile:
    """A small chat; a larger `at` makes it later."""
    file = SessionFile(cwd, session_id)
    file._count = at
    for _ in range(turns):
        file.user(text)
        file.reply("Answer. " + "word " * 50)
    return file


def put(home: Path, file: SessionFile, name: str, *, cwd: Path = CWD) -> Path:
    return file.write(session_directory(home, cwd) / f"{name}.jsonl")


def test_a_summary_says_what_a_picker_needs(tmp_path: Path) -> None:
    path = tour().write(tmp_path / "s.jsonl")
    row = summarize(path)
    assert (row.id, row.cwd, row.started) == (
        "019a0000-0000-7000-8000-000000000001",
        "/home/ada/project",
        "2026-03-01T09:00:00.000Z",
    )
    assert row.name == "Fix the last line <b>bug</b>"
    assert row.first_message == "The loader loses the last line of a file. Find out why, with a test first."
    assert row.model == "acme/large-1"
    assert row.last_activity == "2026-03-01T09:00:25.000Z"
    assert row.size == path.stat().st_size
    assert row.problem is None


def test_a_long_first_message_is_cut(tmp_path: Path) -> None:
    row = summarize(chat("s-1", "why " * 500).write(tmp_path / "s.jsonl"))
    assert len(row.first_message) == FIRST_MESSAGE
    assert row.first_message.endswith("…")


def test_of_a_long_file_the_name_is_found_in_the_middle_and_the_rest_at_the_ends(tmp_path: Path) -> None:
    file = chat("s-1", "first words", turns=400)
    file.add("session_info", name="old name")
    file.add("session_info", name="the name")
    for _ in range(400):
        file.user('this mentions "session_info" and {"type":"session_info","name":"wrong"}')
        file.reply("word " * 60)
    path = file.write(tmp_path / "s.jsonl")
    assert path.stat().st_size > 2 * WHOLE
    row = summarize(path)
    assert (row.name, row.first_message, row.model) == ("the name", "first words", "acme/large-1")
    assert row.last_activity.endswith("Z")
    assert row.last_activity > "2026-03-01T09:20"
    assert row.problem is None


def test_a_first_message_behind_a_huge_system_prompt_is_found(tmp_path: Path) -> None:
    file = SessionFile()
    file.message("system", "x" * (2 * WHOLE))
    file.user("here I am")
    assert summarize(file.write(tmp_path / "s.jsonl")).first_message == "here I am"


def test_an_emptied_name_is_no_name(tmp_path: Path) -> None:
    file = chat("s-1", "hello")
    file.add("session_info", name="first")
    file.add("session_info", name="")
    assert summarize(file.write(tmp_path / "s.jsonl")).name == ""


def test_the_latest_activity_comes_first_whatever_the_files_are_called(tmp_path: Path) -> None:
    put(tmp_path, chat("s-old", "old"), "z")
    put(tmp_path, chat("s-new", "new", at=600), "a")
    assert [row.id for row in list_sessions(session_folders(tmp_path))] == ["s-new", "s-old"]


def test_a_folder_shared_by_two_projects_is_told_apart_by_the_header(tmp_path: Path) -> None:
    left, right = Path("/home/a/b"), Path("/home/a-b")
    assert session_directory(tmp_path, left) == session_directory(tmp_path, right)
    put(tmp_path, chat("s-left", "x", cwd=str(left)), "1", cwd=left)
    put(tmp_path, chat("s-right", "x", cwd=str(right)), "2", cwd=right)
    folders = session_folders(tmp_path)
    assert [row.id for row in list_sessions(folders, cwd=left)] == ["s-left"]
    assert len(list_sessions(folders)) == 2


def test_a_project_reached_through_a_link_has_the_same_sessions(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    put(tmp_path, chat("s-1", "x", cwd=str(real)), "1", cwd=real)
    assert [row.id for row in list_sessions(session_folders(tmp_path), cwd=link)] == ["s-1"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no readable header"),
        (b"\0" * 300, "no readable header"),
        (b"not json\n", "no readable header"),
        (b'{"type":"message","id":"1"}\n', "no readable header"),
        (b"\xff\xfe\n", "no readable header"),
        (chat("s-1", "hi").bytes()[:-30], "the last line is torn"),
        (chat("s-1", "hi").bytes() + b"\0\0\0\n", "a line cannot be read"),
    ],
)
def test_a_damaged_file_is_listed_with_a_mark(tmp_path: Path, content: bytes, problem: str) -> None:
    path = session_directory(tmp_path, CWD) / "bad.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    put(tmp_path, chat("s-good", "fine", at=60), "good")
    rows = {row.path.name: row for row in list_sessions(session_folders(tmp_path), cwd=CWD)}
    assert rows["bad.jsonl"].problem == problem
    assert rows["good.jsonl"].problem is None
    assert path.read_bytes() == content


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_listed_with_a_mark(tmp_path: Path) -> None:
    path = put(tmp_path, chat("s-1", "x"), "1")
    path.chmod(0)
    assert "cannot be read" in (summarize(path).problem or "")


@given(content=st.binary(max_size=400))
def test_no_content_of_a_file_stops_a_listing(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "x.jsonl"
    path.write_bytes(b'{"type":"session","id":"s"}\n' + content)
    assert summarize(path).path == path


def test_a_home_without_sessions_lists_nothing(tmp_path: Path) -> None:
    assert session_folders(tmp_path) == []
    assert most_recent(tmp_path, CWD) is None


@pytest.mark.slow
def test_five_hundred_sessions_are_listed_in_half_a_second(tmp_path: Path) -> None:
    for number in range(500):
        put(tmp_path, chat(f"s-{number:04}", f"question {number}", turns=300 if number % 10 == 0 else 20), f"{number}")
    folders = session_folders(tmp_path)
    best = 9.0
    for _ in range(3):
        start = time.perf_counter()
        assert len(list_sessions(folders)) == 500
        best = min(best, time.perf_counter() - start)
    assert best < 0.5


# ---- resolving ----


def test_a_path_an_id_and_a_unique_beginning_mean_the_session(tmp_path: Path) -> None:
    path = put(tmp_path, chat("abcd-1234", "x"), "1")
    put(tmp_path, chat("abzz-1234", "x"), "2")
    for text in (str(path), f"{path.parent.name}/../{path.parent.name}/{path.name}", "abcd-1234", "abcd"):
        assert resolve(text, tmp_path, tmp_path / "sessions").samefile(path), text


def test_a_full_id_beats_ids_that_begin_with_it(tmp_path: Path) -> None:
    path = put(tmp_path, chat("work", "x"), "1")
    put(tmp_path, chat("work-2", "x"), "2")
    assert resolve("work", tmp_path, CWD) == path


def test_sessions_of_this_folder_are_meant_before_others(tmp_path: Path) -> None:
    other = Path("/home/ada/other")
    here = put(tmp_path, chat("same-1", "x"), "1")
    there = put(tmp_path, chat("same-2", "x", cwd=str(other)), "1", cwd=other)
    assert resolve("same", tmp_path, CWD) == here
    assert resolve("same", tmp_path, other) == there
    assert resolve("same-2", tmp_path, CWD) == there


def test_an_ambiguous_beginning_names_the_candidates(tmp_path: Path) -> None:
    put(tmp_path, chat("same-1", "first question"), "1")
    put(tmp_path, chat("same-2", "second\x1b[31m question"), "2")
    with pytest.raises(UserError) as error:
        resolve("same", tmp_path, CWD)
    text = str(error.value)
    assert "same-1 (first question" in text
    assert "same-2 (second" in text
    assert "\x1b" not in text
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["none", "no", "missing.jsonl", "folder/none", "x" * 300, "nul\0", "~nobody"])
def test_what_means_nothing_is_a_usage_error_with_a_way_on(tmp_path: Path, text: str) -> None:
    put(tmp_path, chat("same-1", "x"), "1")
    with pytest.raises(UserError) as error:
        resolve(text, tmp_path, CWD)
    assert repr(text) in str(error.value)
    assert error.value.exit_code == 2


def test_continue_means_the_latest_readable_session_of_this_folder(tmp_path: Path) -> None:
    put(tmp_path, chat("s-old", "x"), "1")
    latest = put(tmp_path, chat("s-new", "x", at=60), "2")
    put(tmp_path, chat("s-elsewhere", "x", cwd="/elsewhere", at=900), "3")
    (session_directory(tmp_path, CWD) / "damaged.jsonl").write_bytes(b"\0\0\0")
    assert most_recent(tmp_path, CWD) == latest
