"""Instruction files: which are read, in which order, and what odd ones do."""

from pathlib import Path

from branchwork.host.context_files import MAX_BYTES, context_files
from branchwork.host.prompt_sections import PromptOptions, prompt_sections


def test_files_come_from_the_outermost_folder_inwards_after_the_persons_own(tmp_path: Path) -> None:
    home, inner = tmp_path / "home", tmp_path / "project" / "package"
    home.mkdir()
    inner.mkdir(parents=True)
    (home / "AGENTS.md").write_text("mine")
    (tmp_path / "project" / "CLAUDE.md").write_text("outer")
    (inner / "AGENTS.md").write_text("inner")
    files, warnings = context_files(home, inner)
    assert [file.text for file in files] == ["mine", "outer", "inner"]
    assert warnings == ()


def test_the_first_name_wins_in_each_folder(tmp_path: Path) -> None:
    for name in ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md"):
        (tmp_path / name).write_text(name)
    files, _ = context_files(tmp_path / "nohome", tmp_path)
    assert [file.text for file in files] == ["AGENTS.override.md"]


def test_a_link_to_a_file_that_was_read_is_not_read_again(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "AGENTS.md").write_text("once")
    (inner / "AGENTS.md").symlink_to(tmp_path / "AGENTS.md")
    files, _ = context_files(tmp_path / "nohome", inner)
    assert [file.text for file in files] == ["once"]


def test_odd_files_warn_and_stop_nothing(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "AGENTS.md").write_bytes(b"\xef\xbb\xbfwith mark \xff")
    (inner / "AGENTS.md").write_text("x" * (MAX_BYTES + 5))
    files, (warning,) = context_files(tmp_path / "nohome", inner)
    assert files[0].text == "with mark \ufffd"
    assert len(files[1].text) == MAX_BYTES
    assert "only the beginning" in warning


def test_a_folder_and_a_looping_link_of_that_name_are_passed_over(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "AGENTS.md").mkdir()
    (inner / "AGENTS.md").symlink_to(inner / "AGENTS.md")
    assert context_files(tmp_path / "nohome", inner) == ((), ())


def test_the_prompt_holds_its_sections_in_order_and_no_date(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    files, _ = context_files(tmp_path / "nohome", tmp_path)
    sections = prompt_sections(PromptOptions(append=("Also this.",)), files, tmp_path)
    assert list(sections) == ["preamble", "addendum", "project_context", "cwd"]
    assert "Branchwork" in sections["preamble"]
    assert "Be brief." in sections["project_context"]
    assert str(tmp_path) in sections["cwd"]
    assert sections == prompt_sections(PromptOptions(append=("Also this.",)), files, tmp_path)
    assert prompt_sections(PromptOptions(replace="Mine."), (), tmp_path)["preamble"] == "Mine."
