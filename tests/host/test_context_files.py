"""Instruction files: which are read, in which order, and what odd ones do."""

import subprocess
from pathlib import Path

import pytest

from branchwork.host.context_files import MAX_BYTES, find_context_files
from branchwork.host.prompt_sections import PromptOptions, prompt_sections
from branchwork.host.skills import Skill


def texts(home: Path, cwd: Path) -> list[str]:
    return [file.text for file in find_context_files(home, cwd)[0]]


def test_files_come_from_the_outermost_folder_inwards_after_the_persons_own(tmp_path: Path) -> None:
    home, inner = tmp_path / "home", tmp_path / "project" / "package"
    home.mkdir()
    inner.mkdir(parents=True)
    (home / "AGENTS.md").write_text("mine")
    (tmp_path / "project" / "CLAUDE.md").write_text("outer")
    (inner / "AGENTS.md").write_text("inner")
    files, problems = find_context_files(home, inner)
    assert [file.text for file in files] == ["mine", "outer", "inner"]
    assert problems == ()


def test_the_first_name_wins_in_each_folder(tmp_path: Path) -> None:
    for name in ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md"):
        (tmp_path / name).write_text(name)
    assert texts(tmp_path / "nohome", tmp_path) == ["AGENTS.override.md"]


def test_a_link_to_a_file_that_was_read_is_not_read_again(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "AGENTS.md").write_text("once")
    (inner / "AGENTS.md").symlink_to(tmp_path / "AGENTS.md")
    assert texts(tmp_path / "nohome", inner) == ["once"]


def test_odd_files_are_told_and_stop_nothing(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "AGENTS.md").write_bytes(b"\xef\xbb\xbfwith mark \xff")
    (inner / "AGENTS.md").write_text("x" * (MAX_BYTES + 5))
    files, (problem,) = find_context_files(tmp_path / "nohome", inner)
    assert files[0].text == "with mark \ufffd"
    assert len(files[1].text) == MAX_BYTES
    assert str(problem) == f"{inner}/AGENTS.md: longer than 256 KiB; only the beginning is used"


def test_a_folder_and_a_looping_link_of_that_name_are_passed_over(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "AGENTS.md").mkdir()
    (inner / "AGENTS.md").symlink_to(inner / "AGENTS.md")
    assert find_context_files(tmp_path / "nohome", inner) == ((), ())


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """A repository with instructions at its root and in a package, and one that is not committed."""
    main = tmp_path / "main"
    (main / "package").mkdir(parents=True)
    (main / "AGENTS.md").write_text("root")
    (main / "package" / "AGENTS.md").write_text("package")
    git(main, "init", "-q")
    git(main, "add", ".")
    git(main, "commit", "-qm", "first")
    return main


@pytest.mark.needs("git")
def test_a_worktree_inside_its_repository_has_its_own_copy_only(tmp_path: Path, main: Path) -> None:
    tree = main / "trees" / "one"
    git(main, "worktree", "add", "-q", str(tree))
    (tree / "AGENTS.md").write_text("root of the worktree")
    (main / "trees" / "AGENTS.md").write_text("for all worktrees")
    home = tmp_path / "nohome"
    assert texts(home, tree / "package") == ["for all worktrees", "root of the worktree", "package"]
    assert texts(home, main / "package") == ["root", "package"]
    (tree / "AGENTS.md").unlink()  # the worktree has none, so that of the repository is no copy
    assert texts(home, tree) == ["root", "for all worktrees"]


@pytest.mark.needs("git")
def test_a_worktree_elsewhere_and_a_repository_inside_another_are_ordinary(tmp_path: Path, main: Path) -> None:
    git(main, "worktree", "add", "-q", str(tmp_path / "aside"))
    assert texts(tmp_path / "nohome", tmp_path / "aside" / "package") == ["root", "package"]
    inner = main / "vendor"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "AGENTS.md").write_text("vendor")
    assert texts(tmp_path / "nohome", inner) == ["root", "vendor"]


@pytest.mark.parametrize("link", ["", "gitdir: ../gone", "gitdir: \0", "\xff"])
def test_a_git_file_that_leads_nowhere_changes_nothing(tmp_path: Path, link: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / ".git").write_text(link, encoding="latin-1")
    (tmp_path / "AGENTS.md").write_text("outer")
    (inner / "AGENTS.md").write_text("inner")
    assert texts(tmp_path / "nohome", inner) == ["outer", "inner"]


def test_the_prompt_holds_its_sections_in_order_and_no_date(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    files, _ = find_context_files(tmp_path / "nohome", tmp_path)
    skills = [Skill(name="pdf", description="Reads forms", path=tmp_path / "pdf/SKILL.md", source="user")]
    sections = prompt_sections(PromptOptions(append=("Also this.",)), files, tmp_path, skills=skills)
    assert list(sections) == ["preamble", "addendum", "project_context", "skills", "cwd"]
    assert "Branchwork" in sections["preamble"]
    assert "Be brief." in sections["project_context"]
    assert "Reads forms" in sections["skills"]
    assert str(tmp_path) in sections["cwd"]
    assert sections == prompt_sections(PromptOptions(append=("Also this.",)), files, tmp_path, skills=skills)
    plain = prompt_sections(PromptOptions(replace="Mine."), (), tmp_path)
    assert (list(plain), plain["preamble"]) == (["preamble", "cwd"], "Mine.")
