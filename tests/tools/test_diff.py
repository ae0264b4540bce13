"""A diff says exactly what changed, and `patch` can apply it."""

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from branchwork.tools.diff import CONTEXT, GIT_LINES, MAX_PATCH, Block, between, compare, render, split
from branchwork.tools.truncate import MAX_BYTES, MAX_LINES

LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d\r\n"]), max_size=25)
TEXTS = st.builds(lambda lines, last: "".join(lines) + last, LINES, st.sampled_from(["", "a", "x"]))


@given(st.text(alphabet="ab\n\r\x0b\u2028", max_size=30))
def test_only_a_line_feed_ends_a_line(text: str) -> None:
    lines = split(text)
    assert "".join(lines) == text
    assert all(line.count("\n") == 1 and line.endswith("\n") for line in lines[:-1])


@given(LINES, LINES)
def test_the_changes_turn_the_old_lines_into_the_new_ones(old: list[str], new: list[str]) -> None:
    rebuilt: list[str] = []
    end = 0
    changes = compare(old, new)
    for change in changes:
        assert (change.old_start, change.new_start) != (change.old_end, change.new_end)
        assert old[end : change.old_start] == new[len(rebuilt) : change.new_start]
        rebuilt += [*old[end : change.old_start], *new[change.new_start : change.new_end]]
        end = change.old_end
    assert [*rebuilt, *old[end:]] == new


def applied(folder: Path, old: str, patch: str) -> str:
    (folder / "f").write_bytes(old.encode())
    subprocess.run(
        ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-p1", "-"],
        cwd=folder,
        input=patch.encode(),
        check=True,
        env={"GIT_CEILING_DIRECTORIES": str(folder.parent), "PATH": os.environ["PATH"]},
    )
    return (folder / "f").read_bytes().decode()


@settings(max_examples=25, deadline=None)
@given(old=TEXTS.filter(bool), new=TEXTS.filter(bool))
def test_the_patch_can_be_applied(tmp_path_factory: pytest.TempPathFactory, old: str, new: str) -> None:
    patch = between("f", old, new).patch
    assert patch is not None
    if old == new:
        assert patch == ""
        return
    assert applied(tmp_path_factory.mktemp("patch"), old, patch) == new


def test_the_diff_for_people_has_signs_numbers_and_gaps() -> None:
    old = "".join(f"line {number}\n" for number in range(1, 31))
    new = old.replace("line 5\n", "LINE 5\nand more\n").replace("line 25\n", "")
    assert between("f", old, new).diff.split("\n") == [
        "    ...",
        *(f"  {number} line {number}" for number in (2, 3, 4)),
        "- 5 line 5",
        "+ 5 LINE 5",
        "+ 6 and more",
        *(f" {number:>2} line {number - 1}" for number in (7, 8, 9)),
        "    ...",
        *(f" {number} line {number - 1}" for number in (23, 24, 25)),
        "-25 line 25",
        *(f" {number} line {number}" for number in (26, 27, 28)),
    ]


def test_the_counts_and_the_first_line_are_those_of_the_new_text() -> None:
    diff = between("f", "a\nb\nc\n", "a\nB\nBB\nc\nd\n")
    assert (diff.added, diff.removed, diff.first_changed_line) == (3, 1, 2)
    same = between("f", "a\n", "a\n")
    assert (same.diff, same.patch, same.added, same.removed, same.first_changed_line) == ("", "", 0, 0, None)


@pytest.mark.parametrize("gap", [2 * CONTEXT, 2 * CONTEXT + 1])
def test_changes_share_a_hunk_as_long_as_their_context_touches(gap: int) -> None:
    middle = "".join(f"m{number}\n" for number in range(gap))
    patch = between("f", f"a\n{middle}b\n", f"A\n{middle}B\n").patch
    assert patch is not None
    assert patch.count("\n@@ ") == (1 if gap == 2 * CONTEXT else 2)


def test_a_block_can_begin_anywhere() -> None:
    diff = render("f", [Block(old_first=100, new_first=103, old=["x\n"], new=["y\n"])])
    assert diff.patch == "--- a/f\n+++ b/f\n@@ -100 +103 @@\n-x\n+y\n"
    assert diff.first_changed_line == 103


def test_undecodable_bytes_do_not_break_it() -> None:
    diff = between("f", "caf\udce9\n", "tea\n")
    assert diff.diff == "-1 caf\ufffd\n+1 tea"
    assert diff.patch is not None
    diff.patch.encode()


def test_a_huge_diff_is_cut_for_people_and_its_patch_left_out() -> None:
    diff = between("f", "", "x" * 99 + "\n" + "y" * 99 + "\n" * (MAX_PATCH // 100) + "z\n" * MAX_PATCH)
    assert diff.patch is None
    assert diff.diff.count("\n") <= MAX_LINES
    assert len(diff.diff.encode()) < MAX_BYTES + 100
    assert diff.diff.endswith("[cut; the rest of the diff is not shown]")
    wide = between("f", "", "w" * 10**6).diff
    assert wide.startswith("+1 wwww")
    assert len(wide) < 1100


def shuffled(count: int) -> tuple[list[str], list[str]]:
    old = [f"line {number}\n" for number in range(count)]
    new = list(old)
    dice = random.Random(3)
    for _ in range(count // 100):
        new[dice.randrange(len(new))] = f"new {dice.random()}\n"
        del new[dice.randrange(len(new))]
        new.insert(dice.randrange(len(new)), f"more {dice.random()}\n")
    return old, new


@pytest.mark.parametrize("git", [True, False])
def test_large_texts_are_compared_too_with_git_and_without(monkeypatch: pytest.MonkeyPatch, git: bool) -> None:
    if not git:
        monkeypatch.setenv("PATH", "/nowhere")
    elif shutil.which("git") is None:
        pytest.skip("no git here")
    old, new = shuffled(2 * GIT_LINES)
    changes = compare(old, new)
    rebuilt: list[str] = []
    end = 0
    for change in changes:
        rebuilt += [*old[end : change.old_start], *new[change.new_start : change.new_end]]
        end = change.old_end
    assert [*rebuilt, *old[end:]] == new
    assert (len(changes) > 100) == git


def test_lines_that_repeat_all_over_do_not_make_it_slow() -> None:
    dice = random.Random(5)
    old = [f"{dice.randrange(100)}\n" for _ in range(GIT_LINES - 1)]
    new = [f"{dice.randrange(100)}\n" for _ in range(GIT_LINES - 1)]
    start = time.process_time()
    compare(["first\n", *old], ["other\n", *new])
    assert time.process_time() - start < 5
