"""Older versions of the format: read as they are, upgraded only when they are continued."""

import json
from pathlib import Path

import pytest

from branchwork.session.entries import CompactionEntry, CustomMessage, MessageEntry
from branchwork.session.operations import check, fork
from branchwork.session.projection import Projection
from branchwork.session.store import SessionWriteError
from branchwork.testing.clock import FakeClock
from tests.session.builders import DATA, SpreadIds, header, ids_of, line, opened, said, texts, write
from tests.session.test_store import file_size_limit


@pytest.fixture(params=["v1", "v2"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"{request.param}.jsonl"
    path.write_bytes((DATA / path.name).read_bytes())
    return path


def test_opening_and_reading_an_old_session_leaves_the_file_alone(old: Path) -> None:
    before = old.read_bytes()
    with opened(old) as session:
        assert session.problems == ()
        assert session.read_only is None
        first = list(session.branch().entries())
        Projection(session)
        assert session.raw(session.leaf_id or "") == before.splitlines()[-1]
    with opened(old) as session:
        assert list(session.branch().entries()) == first
    assert [path.name for path in old.parent.iterdir()] == [old.name]
    assert old.read_bytes() == before
    assert check(old).exit_code == 0


def test_version_1_is_a_chain_and_its_summary_keeps_the_entry_at_the_index(tmp_path: Path) -> None:
    path = tmp_path / "v1.jsonl"
    path.write_bytes((DATA / "v1.jsonl").read_bytes())
    with opened(path) as session:
        assert [node.parent_id for node in session.nodes()] == [None, *ids_of(session)[:-1]]
        summary = session.entry(ids_of(session)[4])
        assert isinstance(summary, CompactionEntry)
        kept = session.entry(summary.first_kept_entry_id)
        assert isinstance(kept, MessageEntry)
        assert kept.message.content == "second"  # type: ignore[union-attr]
        assert [item.entry_id for item in Projection(session).items] == [
            summary.id,
            *(ids_of(session)[n] for n in (2, 3, 5)),
        ]


def test_messages_of_hooks_are_custom_messages_now(old: Path) -> None:
    with opened(old) as session:
        messages = [entry.message for entry in session.branch().entries() if isinstance(entry, MessageEntry)]
        (custom,) = (message for message in messages if isinstance(message, CustomMessage))
        assert (custom.custom_type, custom.content) == ("note", "from a hook")


def test_continuing_an_old_session_upgrades_it_with_a_backup(old: Path) -> None:
    before, version = old.read_bytes(), old.stem
    old.chmod(0o640)
    with opened(old) as session:
        entries, branch = list(session.branch().entries()), session.branch()
        (added,) = session.append(said("next"))
        assert session.header.version == 3
        assert list(branch.entries()) == entries
        assert [session.raw(node.id) for node in session.nodes()] == old.read_bytes().splitlines()[1:]
        assert [node.line for node in session.nodes()] == list(range(2, len(session) + 2))
    assert old.with_name(f"{version}.jsonl.{version}.bak").read_bytes() == before
    assert old.stat().st_mode & 0o777 == 0o640
    lines = [json.loads(raw) for raw in old.read_bytes().splitlines()]
    assert lines[0]["version"] == 3
    assert all(list(each)[:3] == ["type", "id", "parentId"] for each in lines[1:])
    assert [each["mark"] for each in lines if "mark" in each] == ["kept"]
    assert {"provider", "modelId"} <= lines[0].keys() or version != "v1"
    assert b"firstKeptEntryIndex" not in old.read_bytes()
    with opened(old) as session:
        assert session.problems == ()
        assert list(session.branch().entries()) == [*entries, added]
        session.append(said("more"))
    assert len(list(old.parent.iterdir())) == 2


def test_damage_in_an_old_session_survives_its_upgrade(tmp_path: Path) -> None:
    lines = (header(version=2), line("a", None), b"not json", line("b", "a") + line("c", "b"), line("d", "c")[:30])
    path = write(tmp_path / "s.jsonl", *lines, end=b"")
    with opened(path) as session:
        before = [(problem.line, problem.kind) for problem in session.problems]
        assert before == [(3, "not-json"), (4, "several-objects"), (5, "torn-tail")]
        (added,) = session.append(said("next"))
        assert session.node(added.id).line == 6
    assert b"\nnot json\n" in path.read_bytes()
    with opened(path) as session:
        assert [(problem.line, problem.kind) for problem in session.problems] == [(3, "not-json")]
        assert ids_of(session) == ["a", "b", "c", added.id]
        assert session.node(added.id).line == 6


def test_an_upgrade_that_does_not_fit_leaves_the_old_session(old: Path) -> None:
    before = old.read_bytes()
    with opened(old) as session:
        leaf, version = session.leaf_id, session.header.version
        with file_size_limit(len(before) - 1), pytest.raises(SessionWriteError):
            session.append(said("next"))
        assert (session.leaf_id, session.header.version) == (leaf, version)
        assert old.read_bytes() == before
        assert [path.name for path in old.parent.iterdir()] == [old.name]
        session.append(said("next"))
        assert texts(session)[-1] == "next"


def test_a_fork_of_an_old_session_is_of_the_current_version(old: Path, tmp_path: Path) -> None:
    before = old.read_bytes()
    with opened(old, read_only=True) as session:
        entries = list(session.branch().entries())
        forked = fork(
            session,
            session.leaf_id,
            position="at",
            directory=tmp_path / "forks",
            clock=FakeClock(),
            ids=SpreadIds(1 << 20),
        )
    assert forked.header.version == 3
    assert list(forked.branch().entries()) == entries
    forked.close()
    assert old.read_bytes() == before
