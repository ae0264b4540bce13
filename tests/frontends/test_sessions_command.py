"""`branchwork sessions`: what it prints, what it changes, and what it refuses."""

import argparse
import io
import json
import unicodedata
from pathlib import Path

import pytest

from branchwork.clock import RandomIds, SystemClock
from branchwork.errors import UserError
from branchwork.frontends.commands import sessions
from branchwork.frontends.console import Console
from branchwork.frontends.plain import clean, cut, pad, table, width
from branchwork.session.operations import session_directory
from branchwork.session.tree import Session
from tests.web.samples import HOSTILE, SESSION_ID, SessionFile, tour

CWD = Path("/home/ada/project")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Desk:
    """A home with sessions, and the command line in front of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env: dict[str, str] = {}
        self.out: io.StringIO = io.StringIO()
        self.err = io.StringIO()
        self.stdin: io.StringIO = io.StringIO()

    def put(self, file: SessionFile, name: str, cwd: Path = CWD) -> Path:
        return file.write(session_directory(self.home, cwd) / f"{name}.jsonl")

    def run(self, *argv: str) -> int:
        parser = argparse.ArgumentParser()
        sessions.configure(parser)
        console = Console(out=self.out, err=self.err, stdin=self.stdin, env=self.env, cwd=CWD, home=self.home)
        return sessions.run(parser.parse_args(argv), console)

    def output(self, *argv: str) -> str:
        self.out.seek(0)
        self.out.truncate()
        self.run(*argv)
        return self.out.getvalue()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def opened(path: Path) -> Session:
    return Session.open(path, clock=SystemClock(), ids=RandomIds(), read_only=True)


def chat(session_id: str, text: str, cwd: str = str(CWD)) -> SessionFile:
    file = SessionFile(cwd, session_id)
    file.user(text)
    file.reply("an answer")
    return file


# ---- list ----


def test_the_list_is_of_this_folder_unless_all_are_asked_for(desk: Desk) -> None:
    desk.put(tour(), "1")
    desk.put(chat("other-1", "elsewhere", "/other"), "1", Path("/other"))
    here = desk.output("list")
    assert "Fix the last line" in here
    assert "elsewhere" not in here
    everywhere = desk.output("list", "--all")
    assert "/other" in everywhere
    assert "elsewhere" in everywhere


def test_an_empty_list_says_where_else_to_look(desk: Desk) -> None:
    assert desk.output("list") == "No sessions here; `branchwork sessions list --all` looks in every folder.\n"


def test_the_list_as_json_is_one_array_with_every_field(desk: Desk) -> None:
    path = desk.put(tour(), "1")
    (row,) = json.loads(desk.output("list", "--json"))
    assert row["path"] == str(path)
    assert row["id"] == SESSION_ID
    assert row["lastActivity"] == "2026-03-01T09:00:25.000Z"
    assert row["problem"] is None


def test_columns_align_when_names_are_wide_and_lines_fit_the_terminal(desk: Desk) -> None:
    desk.out = Terminal()
    desk.env = {"COLUMNS": "60"}
    desk.put(chat("wide-0001", "日本語の質問です。" * 20, "/home/ada/漢字"), "1", Path("/x"))
    desk.put(chat("thin-0001", "plain text " * 20, "/home/ada/kanji"), "2", Path("/x"))
    lines = desk.output("list", "--all").splitlines()
    assert all(width(line) <= 60 for line in lines)
    start = width(lines[0][: lines[0].index("MODEL")])
    assert {width(line[: line.index("acme")]) for line in lines[1:]} == {start}


def test_nothing_in_a_session_reaches_the_terminal_as_a_control(desk: Desk) -> None:
    file = chat("evil-0001", HOSTILE + "\x1b]0;title\x07\x9b31m", str(CWD))
    file.add("label", targetId="00000001", label="\x1b[2J")
    file.add("session_info", name="a\x1b[31m\r\nb\u202ec")
    desk.put(file, "1")
    for output in (desk.output("list", "--all"), desk.output("show", "evil", "--tree")):
        assert not [char for char in output if char != "\n" and unicodedata.category(char) in ("Cc", "Cf")]


def test_a_damaged_file_is_in_the_list_with_its_path(desk: Desk) -> None:
    path = desk.put(tour(), "bad")
    path.write_bytes(b"\0" * 100)
    assert f"! no readable header: {path}" in desk.output("list")


def test_short_ids_are_long_enough_to_tell_apart() -> None:
    ids = ["019a0000-0000-7000-8000-000000000001", "019a0000-0000-7000-9000-000000000001", "work", "work-2"]
    short = sessions.short_ids(ids)
    assert short[ids[0]] == "019a0000-0000-7000-8"
    assert short["work"] == "work"
    assert len(set(short.values())) == 4


# ---- check ----


@pytest.mark.parametrize(
    ("tail", "code", "says"),
    [
        (b"", 0, "sound"),
        (b"{broken\n", 1, "line 27: not-json"),
        (b'{"type":"message","id":"zz', 1, "line 27: torn-tail"),
    ],
)
def test_check_reports_each_problem_with_its_line_and_changes_nothing(
    desk: Desk, tail: bytes, code: int, says: str
) -> None:
    path = desk.put(tour(), "1")
    content = path.read_bytes() + tail
    path.write_bytes(content)
    assert desk.run("check", str(path)) == code
    output = desk.out.getvalue()
    assert says in output
    assert "25 entries" in output
    assert "branches  3" in output
    assert "leaf      00000019" in output
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == ["1.jsonl"]


def test_check_of_something_else_exits_with_two(desk: Desk) -> None:
    path = desk.put(tour(), "1")
    path.write_bytes(b"PK\x03\x04 an archive\n")
    assert desk.run("check", str(path)) == 2
    assert "not a session" in desk.out.getvalue()


def test_check_as_json_has_the_same_facts(desk: Desk) -> None:
    path = desk.put(tour(), "1")
    path.write_bytes(path.read_bytes() + b"{broken\n")
    report = json.loads(desk.output("check", str(path), "--json"))
    assert (report["entries"], report["branches"], report["leaf"]) == (25, 3, "00000019")
    assert report["problems"] == [
        {"line": 27, "kind": "not-json", "detail": report["problems"][0]["detail"], "lost": True}
    ]


# ---- show ----


def test_show_gives_the_facts_with_the_source_of_the_cost(desk: Desk) -> None:
    desk.put(tour(), "1")
    output = desk.output("show", SESSION_ID[:8])
    assert "Name          Fix the last line <b>bug</b>" in output
    assert "25, 12 of them messages, 3 branches" in output
    assert "$0.5625 (models.toml, 1 of 7 requests without a price)" in output


def test_the_tree_is_indented_only_where_it_parts(desk: Desk) -> None:
    desk.put(tour(), "1")
    tree = desk.output("show", SESSION_ID, "--tree").partition("\n\n")[2].splitlines()
    assert [line[10:30].rstrip() for line in tree] == [
        "you      The loader",
        "reply    Let me look",
        "result   ✓ read: 1 l",
        "result   ✗ bash: FAI",
        "├─ reply    [diagnos",
        "│  ├─ you      Good.",
        "│  │  calls    edit",
        "│  │  result   ✓ edi",
        "│  │  reply    Done:",
        "│  └─ you      What",
        "│     reply    </scr",
        "│     you      </scr",
        "│     error    503 o",
        "│     compact  **Goa",
        "│     note     noteb",
        "│     unknown  from_",
        "│     shell    ! git",
        "└─ you      And a th",
        "   summary  Tried to",
        "   reply    ◆ curren",
    ]


def test_the_tree_of_a_very_long_chat_is_drawn_without_recursion(desk: Desk) -> None:
    file = SessionFile()
    for number in range(3000):
        file.user(str(number))
    desk.put(file, "1")
    assert len(desk.output("show", SESSION_ID, "--tree").partition("\n\n")[2].splitlines()) == 3000


# ---- changes ----


def test_a_name_and_a_label_are_appended(desk: Desk) -> None:
    path = desk.put(tour(), "1")
    before = path.read_bytes()
    assert desk.run("name", SESSION_ID, "A better\nname") == 0
    assert desk.run("label", SESSION_ID, "0000000b", "here") == 0
    assert path.read_bytes().startswith(before)
    with opened(path) as session:
        assert session.name == "A better name"
        assert session.labels == {"00000008": "diagnosis", "0000000b": "here"}
    assert desk.run("label", SESSION_ID, "0000000b") == 0
    with opened(path) as session:
        assert "0000000b" not in session.labels


def test_an_entry_may_be_named_by_a_unique_beginning_only(desk: Desk) -> None:
    file = tour()
    file.add("custom", entry_id="abcdef01", customType="x")
    desk.put(file, "1")
    assert desk.run("label", SESSION_ID, "abcd", "x") == 0
    for text, why in (("0000", "entries begin with"), ("nope", "no entry"), ("a", "no entry")):
        with pytest.raises(UserError, match=why):
            desk.run("label", SESSION_ID, text, "x")


def test_a_session_that_is_open_elsewhere_is_not_renamed_and_not_deleted(desk: Desk) -> None:
    path = desk.put(tour(), "1")
    with Session.open(path, clock=SystemClock(), ids=RandomIds()):
        with pytest.raises(UserError, match="another process"):
            desk.run("name", SESSION_ID, "x")
        with pytest.raises(UserError, match="another process"):
            desk.run("delete", SESSION_ID, "--yes")
    assert path.exists()


def made(desk: Desk) -> Path:
    return Path(desk.out.getvalue().splitlines()[0].split("  ", 1)[1])


def test_a_fork_leaves_a_message_of_yours_out_and_shows_it(desk: Desk) -> None:
    desk.put(tour(), "1")
    assert desk.run("fork", SESSION_ID, "--at", "0000000a") == 0
    assert "The message that was left out: Good. Fix it the simple way." in desk.out.getvalue()
    with opened(made(desk)) as session:
        assert "0000000a" not in session
        assert "00000008" in session
        assert session.header.parent_session is not None


def test_a_fork_at_a_reply_keeps_it_and_a_clone_keeps_the_branch(desk: Desk) -> None:
    desk.put(tour(), "1")
    desk.run("fork", SESSION_ID, "--at", "0000000d")
    with opened(made(desk)) as session:
        assert "0000000d" in session
        assert "00000019" not in session
    desk.output("clone", SESSION_ID)
    with opened(made(desk)) as session:
        assert "00000019" in session
        assert "0000000d" not in session


def test_a_fork_before_the_first_message_makes_nothing(desk: Desk) -> None:
    path = desk.put(tour(), "1")
    with pytest.raises(UserError, match="nothing to copy"):
        desk.run("fork", SESSION_ID, "--at", "00000004")
    assert [each.name for each in path.parent.iterdir()] == ["1.jsonl"]


def test_an_import_is_a_copy_in_this_folder(desk: Desk, tmp_path: Path) -> None:
    source = chat("far-0001", "from afar").write(tmp_path / "download.jsonl")
    assert desk.run("import", str(source)) == 0
    copy = session_directory(desk.home, CWD) / "download.jsonl"
    assert copy.read_bytes() == source.read_bytes()


def test_a_deleted_session_is_in_the_trash_with_what_lay_beside_it(desk: Desk) -> None:
    path = desk.put(tour(), "1")
    content = path.read_bytes()
    path.with_name("1.jsonl.torn").write_bytes(b"rest")
    assert desk.run("delete", SESSION_ID, "--yes") == 0
    assert list(path.parent.iterdir()) == []
    assert (desk.home / "trash" / "1.jsonl").read_bytes() == content
    assert (desk.home / "trash" / "1.jsonl.torn").read_bytes() == b"rest"
    desk.put(tour(), "1")
    desk.run("delete", SESSION_ID, "--yes")
    assert (desk.home / "trash" / "1-2.jsonl").exists()


def test_a_damaged_file_can_be_deleted_by_its_path(desk: Desk) -> None:
    path = desk.put(tour(), "1")
    path.write_bytes(b"junk\n")
    assert desk.run("delete", str(path), "--yes") == 0
    assert not path.exists()


@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("\n", False), ("no\n", False), ("", False)])
def test_deleting_asks_at_a_terminal(desk: Desk, answer: str, gone: bool) -> None:
    path = desk.put(tour(), "1")
    desk.out, desk.stdin = Terminal(), Terminal(answer)
    assert desk.run("delete", SESSION_ID) == (0 if gone else 1)
    assert path.exists() is not gone


def test_deleting_needs_yes_when_nobody_can_be_asked(desk: Desk) -> None:
    path = desk.put(tour(), "1")
    with pytest.raises(UserError, match="--yes") as error:
        desk.run("delete", SESSION_ID)
    assert error.value.exit_code == 2
    assert path.exists()


# ---- text ----


def test_text_is_measured_and_cut_in_columns() -> None:
    assert width("日本e\u0301") == 5
    assert cut("日本語", 5) == "日本…"
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert cut("abcd", 0) == ""
    assert pad("日本", 6) == "日本  "
    assert clean(" a\n\tb\x1b[0m\u202e ") == "a b␛[0m\\u202e"


def test_a_table_never_exceeds_its_width() -> None:
    rows = [["x" * 30, "y" * 40, "z" * 200]]
    for columns in (30, 60, 120):
        assert all(width(line) <= columns for line in table(["A", "B", "C"], rows, columns))
