"""The handle that tools and extensions get: reads everything, adds three kinds of entry, moves nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.session.entries import (
    LEAF_TYPE,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    KnownEntry,
    SessionInfoEntry,
    Text,
)
from branchwork.session.handle import Tree
from branchwork.session.store import SessionReadOnly, SessionWriteError
from branchwork.session.tree import NoSuchEntry, Session
from tests.session.builders import created, opened, replied, said


def handle(session: Session) -> Tree:
    return Tree(session, lambda entry: session.append(entry)[0])


def test_what_is_recorded_is_read_again_after_reopening(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(said("hello"))
        tree = handle(session)
        recorded = tree.record("notes", {"topic": "parsers", "count": 2})
        spoken = tree.say("notes", (Text(text="Mind the parser."),), display=False, details=[1])
        path = session.path
    assert path is not None
    with opened(path) as again:
        tree = handle(again)
        entry = tree.entry(recorded)
        assert isinstance(entry, CustomEntry)
        assert (entry.custom_type, entry.data) == ("notes", {"topic": "parsers", "count": 2})
        message = tree.entry(spoken)
        assert isinstance(message, CustomMessageEntry)
        assert (message.content, message.display, message.details) == ((Text(text="Mind the parser."),), False, [1])
        assert tree.leaf_id == spoken
        assert tree.branch(recorded).leaf_id == recorded


def test_everything_added_goes_through_the_callback_so_that_others_are_told() -> None:
    session = created(None)
    told: list[KnownEntry] = []

    def store(entry: KnownEntry) -> Entry:
        (stored,) = session.append(entry)
        told.append(stored)
        return stored

    tree = Tree(session, store)
    (first,) = session.append(said("hello"))
    ids = [tree.record("x"), tree.say("x", "text"), tree.label(first.id, "start")]
    assert [entry.id for entry in told] == ids


def test_it_shows_where_the_session_is() -> None:
    session = created(None)
    tree = handle(session)
    assert (tree.leaf_id, tree.anchor_id, tree.path, tree.read_only, tree.name) == (None, None, None, None, "")
    first, second = session.append(said("one"), replied("two"))
    session.append(SessionInfoEntry(name="draft"))
    session.navigate(first.id)
    assert (tree.session_id, tree.cwd, tree.name) == (session.header.id, "/project", "draft")
    assert tree.leaf_id == session.leaf_id
    assert tree.anchor_id == first.id
    assert [node.id for node in tree.branch(second.id).nodes] == [first.id, second.id]
    assert tree.branch(None).nodes == ()
    assert tree.node(second.id).parent_id == first.id
    assert tree.line(first.id) == session.raw(first.id)
    assert (first.id in tree, "nowhere" in tree) == (True, False)


def test_labels_are_set_replaced_and_removed() -> None:
    session = created(None)
    tree = handle(session)
    (first,) = session.append(said("one"))
    tree.label(first.id, " before\nthe change ")
    assert tree.labels == {first.id: "before the change"}
    tree.label(first.id, "later")
    assert tree.labels == {first.id: "later"}
    tree.label(first.id, " \n")
    assert tree.labels == {}
    tree.label(first.id, "again")
    tree.label(first.id, None)
    assert tree.labels == {}


def test_an_entry_that_is_not_there_is_no_target() -> None:
    tree = handle(created(None))
    with pytest.raises(NoSuchEntry):
        tree.label("nowhere", "text")
    with pytest.raises(NoSuchEntry):
        tree.branch("nowhere")


def test_nothing_can_be_added_to_a_read_only_session_and_it_says_why(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        (first,) = session.append(said("hello"))
        path = session.path
    assert path is not None
    with opened(path, read_only=True) as session:
        tree = handle(session)
        adding: tuple[Callable[[], str], ...] = (
            lambda: tree.record("x"),
            lambda: tree.say("x", "y"),
            lambda: tree.label(first.id, "z"),
        )
        for add in adding:
            with pytest.raises(UserError, match=r"read-only: .* Fork it") as caught:
                add()
            assert isinstance(caught.value, SessionReadOnly)
        assert (len(session), tree.read_only) == (1, session.read_only)


def test_a_failed_append_reaches_the_caller_and_changes_nothing() -> None:
    session = created(None)

    def full(entry: KnownEntry) -> Entry:
        raise SessionWriteError("no space")

    with pytest.raises(SessionWriteError):
        Tree(session, full).record("x", 1)
    assert len(session) == 0


@pytest.mark.parametrize("bad", ["", LEAF_TYPE])
def test_the_type_of_navigation_marks_is_out_of_reach(bad: str) -> None:
    session = created(None)
    with pytest.raises(ValueError, match="cannot be the type"):
        handle(session).record(bad)
    with pytest.raises(ValueError, match="cannot be the type"):
        handle(session).say(bad, "text")
    assert len(session) == 0


def test_data_that_is_not_json_is_refused_before_anything_is_written() -> None:
    session = created(None)
    with pytest.raises(TypeError):
        handle(session).record("x", object())
    assert len(session) == 0
