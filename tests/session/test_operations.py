"""Fork, clone, import, export, and where sessions live."""

from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.session.entries import LabelEntry, MessageEntry, ModelChangeEntry, UserMessage
from branchwork.session.operations import clone, export_jsonl, fork, import_file, session_directory
from branchwork.session.store import SessionUnreadable
from branchwork.session.tree import Session
from branchwork.testing.clock import FakeClock
from tests.session.builders import DATA, SpreadIds, created, header, ids_of, line, opened, replied, said, texts, write


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.jsonl"
    path.write_bytes((DATA / "v3.jsonl").read_bytes())
    return path


def forked(session: Session, entry_id: str | None, directory: Path | None, *, before: bool = False) -> Session:
    return fork(
        session,
        entry_id,
        position="before" if before else "at",
        directory=directory,
        clock=FakeClock(),
        ids=SpreadIds(1 << 20),
    )


def test_a_fork_copies_the_lines_of_the_path_byte_for_byte(golden: Path, tmp_path: Path) -> None:
    lines = golden.read_bytes().splitlines()
    with opened(golden) as session, forked(session, "c5", tmp_path / "new") as copy:
        assert ids_of(copy) == ["b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9", "c1", "c2", "c3", "c4", "c5"]
        assert copy.path is not None
        assert copy.path.read_bytes().splitlines()[1:] == lines[1:15]
        assert copy.header.parent_session == str(golden)
        assert (copy.header.cwd, copy.header.version) == ("/project", 3)
        assert copy.header.id != session.header.id
        assert copy.read_only is None
        copy.append(said("elsewhere"))
    assert golden.read_bytes().splitlines() == lines


def test_a_fork_before_a_message_ends_at_its_parent(golden: Path, tmp_path: Path) -> None:
    with opened(golden) as session, forked(session, "c4", tmp_path / "new", before=True) as copy:
        assert copy.leaf_id == "c3"
        assert "c4" not in copy


def test_a_fork_before_the_first_message_waits_in_memory_like_a_new_session(tmp_path: Path) -> None:
    with created(tmp_path / "old") as session:
        _, one = session.append(ModelChangeEntry(provider="p", model_id="m"), said("one"))
        with forked(session, one.id, tmp_path / "new", before=True) as copy:
            assert len(copy) == 1
            assert not (tmp_path / "new").exists()
            copy.append(said("other"))
            assert texts(copy) == ["other"]
        with forked(session, None, tmp_path / "empty") as copy:
            assert len(copy) == 0
    with opened(next((tmp_path / "new").iterdir())) as copy:
        assert len(copy) == 2
        assert copy.header.parent_session == str(session.path)


def test_labels_on_the_path_are_set_again_and_others_are_not(tmp_path: Path) -> None:
    with created(tmp_path / "old") as session:
        one, two = session.append(said("one"), replied("two"))
        session.append(LabelEntry(target_id=one.id, label="early"), said("three"))
        three = session.leaf_id
        session.append(
            LabelEntry(target_id=one.id, label="late"),
            LabelEntry(target_id=two.id, label="two"),
            LabelEntry(target_id=three or "", label="three"),
        )
        with forked(session, two.id, tmp_path / "a") as copy:
            assert dict(copy.labels) == {one.id: "late", two.id: "two"}
        with forked(session, three, tmp_path / "b") as copy:
            assert dict(copy.labels) == dict(session.labels)
        session.append(LabelEntry(target_id=one.id))
        with forked(session, three, tmp_path / "c") as copy:
            path = copy.path
        assert path is not None
        with opened(path) as copy:
            assert dict(copy.labels) == {two.id: "two", three: "three"}


def test_a_clone_is_the_path_to_the_leaf(golden: Path, tmp_path: Path) -> None:
    with opened(golden) as session:
        with clone(session, directory=tmp_path / "new", clock=FakeClock(), ids=SpreadIds(9)) as copy:
            assert [node.id for node in copy.nodes()] == [node.id for node in session.branch().nodes]
            assert list(copy.branch().entries()) == list(session.branch().entries())
        with clone(session, directory=None, clock=FakeClock(), ids=SpreadIds(9)) as copy:
            assert copy.path is None
            assert texts(copy) == texts(session)


def test_a_fork_of_a_damaged_session_is_sound(tmp_path: Path) -> None:
    edit = {"type": "context_edit", "targetId": "a", "replacement": None, "novel": 1}
    lines = (
        line("a", "gone"),
        line("b", "a"),
        line("a", "b"),
        line("e", "a", **edit),
        line(None, None),
        line("c", "e"),
    )
    path = write(tmp_path / "s.jsonl", *lines)
    with opened(path) as session:
        assert session.read_only is not None
        session.navigate("e")
        with forked(session, "e", tmp_path / "new") as copy:
            assert copy.problems == ()
            assert copy.read_only is None
            assert [node.id for node in copy.branch().nodes] == ["a", "b", "a~2", "e"]
            assert copy.entry("e").target_id == "a~2"  # type: ignore[union-attr]
            assert b'"novel":1' in copy.raw("e")
            copy.append(said("next"))


def test_a_fork_while_another_process_has_the_session_open_can_be_continued(golden: Path, tmp_path: Path) -> None:
    with opened(golden) as first, opened(golden) as second:
        assert first.read_only is None
        assert second.read_only is not None
        with forked(second, second.leaf_id, tmp_path / "new") as copy:
            copy.append(said("mine"))
            assert texts(copy)[-1] == "mine"


def test_importing_copies_under_a_free_name(golden: Path, tmp_path: Path) -> None:
    target = tmp_path / "sessions"
    names = [import_file(golden, target).name for _ in range(3)]
    assert names == ["golden.jsonl", "golden-2.jsonl", "golden-3.jsonl"]
    assert {path.read_bytes() for path in target.iterdir()} == {golden.read_bytes()}
    assert import_file(target / names[0], target) == target / names[0]
    assert len(list(target.iterdir())) == 3


def test_what_is_no_session_is_not_imported(tmp_path: Path) -> None:
    junk = tmp_path / "junk.jsonl"
    junk.write_bytes(b"junk\n")
    with pytest.raises(SessionUnreadable):
        import_file(junk, tmp_path / "sessions")
    with pytest.raises(SessionUnreadable):
        import_file(junk, tmp_path)
    assert not (tmp_path / "sessions").exists()


def test_exporting_everything_gives_the_bytes_of_the_file(golden: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with opened(golden) as session:
        export_jsonl(session, out)
        assert out.read_bytes() == golden.read_bytes()
        with pytest.raises(UserError, match="exists"):
            export_jsonl(session, out)
        with pytest.raises(UserError, match="exists"):
            export_jsonl(session, golden)
    assert golden.read_bytes() == (DATA / "v3.jsonl").read_bytes()


def test_exporting_one_branch_gives_its_lines(golden: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with opened(golden) as session:
        export_jsonl(session, out, "c7")
        lines = golden.read_bytes().splitlines()
        assert out.read_bytes().splitlines()[1:] == [*lines[1:14], lines[16]]
        assert session.node("c7").line == 17
    with opened(out) as session:
        assert session.problems == ()
        assert session.leaf_id == "c7"


def test_a_session_in_memory_can_be_exported(tmp_path: Path) -> None:
    session = created(None)
    session.append(said("one"))
    export_jsonl(session, tmp_path / "out.jsonl")
    with opened(tmp_path / "out.jsonl") as again:
        (entry,) = again.branch().entries()
        assert isinstance(entry, MessageEntry)
        assert isinstance(entry.message, UserMessage)


@pytest.mark.parametrize(
    ("cwd", "name"),
    [("/tmp/a/b", "--tmp-a-b--"), ("/", "----"), ("/a:b\\c", "--a-b-c--"), ("/tmp/x/../y", "--tmp-y--")],
)
def test_the_folder_of_a_project_is_named_as_the_npm_host_names_it(tmp_path: Path, cwd: str, name: str) -> None:
    assert session_directory(tmp_path, cwd) == tmp_path / "sessions" / name


def test_very_long_paths_get_folders_of_their_own(tmp_path: Path) -> None:
    long = "/" + "/".join(["é" * 40] * 10)
    first, second = session_directory(tmp_path, long + "/a"), session_directory(tmp_path, long + "/b")
    assert first != second
    first.mkdir(parents=True)
    with Session.create(cwd=long, directory=first, clock=FakeClock(), ids=SpreadIds(1)) as session:
        session.append(said("one"))
        assert session.path is not None
        assert session.path.exists()


def test_a_header_alone_is_a_session(tmp_path: Path) -> None:
    with opened(write(tmp_path / "s.jsonl", header())) as session:
        assert (len(session), session.leaf_id, session.read_only) == (0, None, None)
        session.append(said("one"))
