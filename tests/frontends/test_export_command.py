"""`branchwork export`: which file appears, in which form, and when none does."""

import argparse
import io
import json
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.frontends.commands import export
from branchwork.frontends.console import Console
from branchwork.session.operations import session_directory
from tests.web.samples import SESSION_ID, tour


class Desk:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.cwd = folder / "project"
        self.cwd.mkdir()
        self.out, self.err = io.StringIO(), io.StringIO()
        self.session = tour().write(session_directory(self.home, self.cwd) / "1.jsonl")

    def run(self, *argv: str) -> int:
        parser = argparse.ArgumentParser()
        export.configure(parser)
        console = Console(out=self.out, err=self.err, stdin=io.StringIO(), env={}, cwd=self.cwd, home=self.home)
        return export.run(parser.parse_args(argv), console)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.cwd.iterdir())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_without_a_name_the_page_lands_in_this_folder(desk: Desk) -> None:
    assert desk.run(SESSION_ID) == 0
    assert desk.files() == [f"session-{SESSION_ID}.html"]
    assert str(desk.cwd / f"session-{SESSION_ID}.html") in desk.out.getvalue()


def test_the_ending_or_the_option_chooses_the_format(desk: Desk) -> None:
    desk.run(SESSION_ID, "a.jsonl")
    desk.run(SESSION_ID, "b", "--format", "jsonl")
    desk.run(SESSION_ID, "c.htm")
    assert (desk.cwd / "a.jsonl").read_bytes() == desk.session.read_bytes()
    assert (desk.cwd / "b").read_bytes() == desk.session.read_bytes()
    assert (desk.cwd / "c.htm").read_text("utf-8").startswith("<!doctype html>")


def test_a_folder_gets_a_file_of_the_default_name(desk: Desk) -> None:
    (desk.cwd / "out").mkdir()
    desk.run(SESSION_ID, "out", "--format", "jsonl")
    assert [path.name for path in (desk.cwd / "out").iterdir()] == [f"session-{SESSION_ID}.jsonl"]


def test_a_branch_is_the_path_to_one_entry(desk: Desk) -> None:
    desk.run(SESSION_ID, "a.jsonl", "--branch", "0000000d")
    lines = [json.loads(line) for line in (desk.cwd / "a.jsonl").read_text().splitlines()]
    assert lines[0]["type"] == "session"
    assert [line["id"] for line in lines[1:]][-1] == "0000000d"
    assert not [line for line in lines if line.get("id") == "00000019"]
    with pytest.raises(UserError, match="no entry"):
        desk.run(SESSION_ID, "b.html", "--branch", "nope")
    assert desk.files() == ["a.jsonl"]


@pytest.mark.parametrize("name", ["page.html", "copy.jsonl"])
def test_an_existing_file_is_kept_without_force(desk: Desk, name: str) -> None:
    (desk.cwd / name).write_text("mine")
    with pytest.raises(UserError, match="exists"):
        desk.run(SESSION_ID, name)
    assert (desk.cwd / name).read_text() == "mine"
    assert desk.run(SESSION_ID, name, "--force") == 0
    assert (desk.cwd / name).stat().st_size > 1000
    assert desk.files() == [name]


def test_a_session_is_never_exported_over_itself(desk: Desk) -> None:
    content = desk.session.read_bytes()
    with pytest.raises(UserError, match="the session itself"):
        desk.run(SESSION_ID, str(desk.session), "--force")
    assert desk.session.read_bytes() == content


def test_a_folder_that_is_not_there_is_a_usage_error(desk: Desk) -> None:
    with pytest.raises(UserError, match="no folder") as error:
        desk.run(SESSION_ID, "none/page.html")
    assert error.value.exit_code == 2


def test_exporting_changes_nothing_and_mentions_damage(desk: Desk) -> None:
    content = desk.session.read_bytes() + b'{"torn":'
    desk.session.write_bytes(content)
    assert desk.run(SESSION_ID) == 0
    assert "damaged" in desk.err.getvalue()
    assert desk.session.read_bytes() == content
