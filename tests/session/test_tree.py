"""The tree: appending, navigating, reopening."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from branchwork.errors import UserError
from branchwork.session.cache import EntryCache
from branchwork.session.entries import (
    LEAF_TYPE,
    CompactionEntry,
    CustomEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    UnknownEntry,
)
from branchwork.session.index import Node
from branchwork.session.store import SessionWriteError
from branchwork.session.tree import NoSuchEntry, Session, new_header
from branchwork.testing.clock import FakeClock, SequentialIds
from branchwork.testing.memory_store import MemoryStore
from tests.session.builders import DATA, created, ids_of, line, only_file, opened, replied, resulted, said, texts, write
from tests.session.builders import header as header_line


def test_opening_and_closing_leaves_nothing_behind(tmp_path: Path) -> None:
    with created(tmp_path / "sessions") as session:
        session.append(ModelChangeEntry(provider="p", model_id="m"), SessionInfoEntry(name="draft"))
        assert session.waiting
        assert session.name == "draft"
    assert list(tmp_path.iterdir()) == []


def test_what_waited_is_written_before_the_first_message(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(ModelChangeEntry(provider="p", model_id="m"))
        session.append(said("hello"))
        assert session.path == only_file(tmp_path)
        ids = ids_of(session)
    with opened(only_file(tmp_path)) as again:
        assert ids_of(again) == ids
        assert (again.header, again.problems) == (session.header, ())
        assert texts(again) == ["hello"]


def test_the_file_is_named_by_time_and_id(tmp_path: Path) -> None:
    with Session.create(
        cwd="/project", directory=tmp_path, clock=FakeClock(), ids=SequentialIds(), session_id="my-id.1"
    ) as session:
        session.append(said("hello"))
    assert only_file(tmp_path).name == "2025-06-15T15-06-40-000Z_my-id.1.jsonl"


@pytest.mark.parametrize("bad", ["", "-x", "x-", "a/b", "a b", "ü", "..", "x" * 300])
def test_an_id_that_is_no_file_name_is_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(UserError) as caught:
        Session.create(cwd="/", directory=tmp_path, clock=FakeClock(), ids=SequentialIds(), session_id=bad)
    assert caught.value.exit_code == 2


def test_entries_get_id_parent_and_time_and_form_a_chain() -> None:
    session = created(None)
    first, second = session.append(said("one"), replied("two"))
    assert (first.id, first.parent_id, first.timestamp) == ("00000001", None, "2025-06-15T15:06:40.000Z")
    assert (second.id, second.parent_id) == ("00000002", "00000001")
    assert session.leaf_id == second.id
    (third,) = session.append(said("three"))
    assert third.parent_id == second.id
    assert [session.entry(entry.id) for entry in (first, second, third)] == [first, second, third]


def test_a_batch_is_one_write() -> None:
    class Counting(MemoryStore):
        writes = 0

        def append(self, data: bytes, *, wait: bool = False) -> int:
            self.writes += 1
            return super().append(data, wait=wait)

    store = Counting()
    session = Session.over(store, new_header("s", 0, "/", None), clock=FakeClock(), ids=SequentialIds())
    before = store.writes
    session.append(said("one"), replied("two"), said("three"))
    assert store.writes == before + 1


class FullStore(MemoryStore):
    """A device that is full while `full` is set."""

    full = False

    def append(self, data: bytes, *, wait: bool = False) -> int:
        if self.full:
            raise SessionWriteError("no space")
        return super().append(data, wait=wait)


def test_a_failed_append_changes_nothing_and_the_next_one_has_a_parent_that_exists() -> None:
    store = FullStore()
    session = Session.over(store, new_header("s", 0, "/", None), clock=FakeClock(), ids=SequentialIds())
    (first,) = session.append(said("one"))
    store.full = True
    with pytest.raises(SessionWriteError):
        session.append(said("lost"), LabelEntry(target_id=first.id, label="lost"))
    assert (session.leaf_id, len(session), dict(session.labels)) == (first.id, 1, {})
    assert session.children(first.id) == ()
    store.full = False
    (second,) = session.append(said("two"))
    assert second.parent_id == first.id
    again = reloaded(session)
    assert (texts(again), again.problems) == (["one", "two"], ())


def reloaded(session: Session) -> Session:
    store = MemoryStore(b"".join(session.chunks()))
    return Session.over(store, new_header("s", 0, "/", None), clock=FakeClock(), ids=SequentialIds())


def test_an_id_that_is_taken_is_refused_and_new_ids_avoid_all_others() -> None:
    class Stubborn(SequentialIds):
        def entry(self) -> str:
            return "00000001"

    session = Session.over(MemoryStore(), new_header("s", 0, "/", None), clock=FakeClock(), ids=Stubborn())
    first, second = session.append(said("one"), said("two"))
    assert first.id == "00000001"
    assert len(second.id) == 36
    with pytest.raises(ValueError, match="already in the session"):
        session.append(CustomEntry(id=first.id, custom_type="x"))
    assert len(session) == 2


def test_a_compaction_without_a_first_kept_entry_names_itself() -> None:
    session = created(None)
    (entry,) = session.append(CompactionEntry(summary="s", first_kept_entry_id="", tokens_before=1))
    assert isinstance(entry, CompactionEntry)
    assert entry.first_kept_entry_id == entry.id


def test_unknown_ids_are_named_in_the_error() -> None:
    session = created(None)
    for call in (session.node, session.entry, session.raw, session.branch, session.navigate):
        with pytest.raises(NoSuchEntry, match="deadbeef"):
            call("deadbeef")
    with pytest.raises(NoSuchEntry):
        session.append(CustomEntry(custom_type="x", parent_id="deadbeef"))
    assert len(session) == 0


def test_going_back_makes_a_second_branch_and_hides_nothing() -> None:
    session = created(None)
    one, two = session.append(said("one"), replied("two"))
    session.navigate(one.id)
    assert session.branch().anchor_id == one.id
    session.append(replied("other"))
    assert texts(session) == ["one", "other"]
    assert texts(session, two.id) == ["one", "two"]
    assert session.branch().common_ancestor(session.branch(two.id)) == one.id
    session.navigate(None)
    assert (session.branch().anchor_id, texts(session)) == (None, [])
    (root,) = session.append(said("again"))
    assert texts(session) == ["again"]
    assert session.branch().common_ancestor(session.branch(two.id)) is None
    assert session.branch(root.id).nodes[0].depth == 0


def test_navigation_survives_a_restart(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        one, two = session.append(said("one"), replied("two"))
        session.navigate(one.id)
        size = only_file(tmp_path).stat().st_size
        session.navigate(one.id)
        assert only_file(tmp_path).stat().st_size == size
    with opened(only_file(tmp_path)) as session:
        assert session.branch().anchor_id == one.id
        session.navigate(one.id)
        assert only_file(tmp_path).stat().st_size == size
        session.navigate(two.id)
    with opened(only_file(tmp_path)) as session:
        assert session.branch().anchor_id == two.id
        mark = session.entry(session.leaf_id or "")
        assert isinstance(mark, CustomEntry)
        assert mark.custom_type == LEAF_TYPE


def test_navigation_before_the_file_exists_leaves_no_mark(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        (model,) = session.append(ModelChangeEntry(provider="p", model_id="m"))
        session.navigate(None)
        session.append(said("one"))
        assert [node.parent_id for node in session.nodes()] == [None, None]
    with opened(only_file(tmp_path)) as session:
        assert [node.is_leaf_mark for node in session.nodes()] == [False, False]
        assert session.branch(model.id).leaf_id == model.id


def test_navigation_in_a_read_only_session_is_for_this_view_only(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", header_line(), line("a", None), line("b", "a"))
    before = path.read_bytes()
    with opened(path, read_only=True) as session:
        session.navigate("a")
        assert session.leaf_id == "a"
    assert path.read_bytes() == before


def test_labels_and_name_are_those_set_last(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        one, two = session.append(said("one"), replied("two"))
        session.append(LabelEntry(target_id=one.id, label="start"), LabelEntry(target_id=two.id, label="end"))
        session.append(LabelEntry(target_id=two.id), LabelEntry(target_id=one.id, label="begin"))
        session.append(SessionInfoEntry(name="first"), SessionInfoEntry(name="second\nline"))
        assert (dict(session.labels), session.name) == ({one.id: "begin"}, "second line")
    with opened(only_file(tmp_path)) as session:
        assert (dict(session.labels), session.name) == ({one.id: "begin"}, "second line")
        assert session.label_time(one.id) == "2025-06-15T15:06:40.000Z"
        assert session.label_time(two.id) is None
        session.append(SessionInfoEntry(name=""))
        assert session.name == ""


def test_children_come_in_file_order_and_follow_appends() -> None:
    session = created(None)
    (one,) = session.append(said("one"))
    assert session.children(one.id) == ()
    (two,) = session.append(said("two"))
    (three,) = session.append(CustomEntry(custom_type="x", parent_id=one.id))
    assert [node.id for node in session.children(one.id)] == [two.id, three.id]
    assert [node.id for node in session.children(None)] == [one.id]
    assert [node.id for node in session.leaves()] == [two.id, three.id]


def test_a_branch_is_a_value_that_later_appends_do_not_change() -> None:
    session = created(None)
    session.append(said("one"))
    branch = session.branch()
    session.append(said("two"))
    assert [node.id for node in branch.nodes] == ["00000001"]
    assert [entry.id for entry in branch.entries()] == ["00000001"]


def test_unknown_types_and_fields_keep_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "v3.jsonl"
    path.write_bytes((DATA / "v3.jsonl").read_bytes())
    before = path.read_bytes()
    with opened(path) as session:
        assert isinstance(session.entry("c3"), UnknownEntry)
        assert session.raw("c3") in before
        session.append(said("next"))
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize("name", ["npm", "v3"])
def test_golden_sessions_open_without_problems(tmp_path: Path, name: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes((DATA / f"{name}.jsonl").read_bytes())
    with opened(path) as session:
        assert session.problems == ()
        assert session.read_only is None
        assert len(session) == path.read_bytes().count(b"\n") - 1
        lines = path.read_bytes().splitlines()
        assert all(session.raw(node.id) == lines[node.line - 1] for node in session.nodes())


def test_entries_another_program_appended_become_a_branch_beside_ours(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", header_line(), line("a", None))
    with opened(path) as session:
        with path.open("ab") as other:
            other.write(line("x", "a") + b"\n" + line("y", "gone") + b"\n")
        (added,) = session.append(said("ours"))
        assert added.parent_id == "a"
        assert ids_of(session) == ["a", "x", "y", added.id]
        assert [(p.line, p.kind) for p in session.problems] == [(4, "orphan")]
        assert session.raw("x") == line("x", "a")
        assert session.node(added.id).line == 5
    with opened(path) as session:
        assert ids_of(session) == ["a", "x", "y", added.id]
        assert [node.id for node in session.branch().nodes] == ["a", added.id]


def test_a_line_another_program_is_still_writing_is_waited_for(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", header_line(), line("a", None))
    with opened(path) as session:
        with path.open("ab") as other:
            other.write(line("x", "a")[:20])
        with pytest.raises(SessionWriteError, match="Another program is writing"):
            session.append(said("ours"))
        assert ids_of(session) == ["a"]
        with path.open("ab") as other:
            other.write(line("x", "a")[20:] + b"\n")
        session.append(said("ours"))
        assert len(session) == 3


def test_a_deep_session_needs_no_recursion() -> None:
    session = created(None)
    session.append(*(CustomEntry(custom_type="x") for _ in range(20_000)))
    assert len(session.branch().nodes) == len(session.branch()) == 20_000
    session.navigate("00000001")
    session.append(said("other"))
    assert session.branch().common_ancestor(session.branch("00004e20")) == "00000001"
    assert "parent='00004e1f'" in repr(session.node("00004e20"))


class TreeModel(RuleBasedStateMachine):
    """Against a dict of parents: what is visible is always the path of the leaf, before and after a reload."""

    known = Bundle("known")

    @initialize()
    def start(self) -> None:
        self.session = created(None)
        self.parents: dict[str, str | None] = {}
        self.leaf: str | None = None

    @rule(target=known, count=st.integers(1, 3), text=st.text(max_size=5))
    def append(self, count: int, text: str) -> str:
        for entry in self.session.append(*(said(text) for _ in range(count))):
            self.parents[entry.id] = self.leaf
            self.leaf = entry.id
        assert self.leaf is not None
        return self.leaf

    @rule(place=known | st.none())
    def navigate(self, place: str | None) -> None:
        self.session.navigate(place)
        self.leaf = place

    @rule()
    def reload(self) -> None:
        self.session = reloaded(self.session)

    @invariant()
    def the_branch_is_the_path_of_the_leaf(self) -> None:
        path, at = [], self.leaf
        while at is not None:
            path.append(at)
            at = self.parents[at]
        branch = self.session.branch()
        assert [node.id for node in branch.nodes if not node.is_leaf_mark] == path[::-1]
        assert branch.anchor_id == self.leaf
        assert self.session.problems == ()
        assert [entry.id for entry in branch.entries()] == [node.id for node in branch.nodes]
        assert [node.depth for node in branch.nodes] == list(range(len(branch)))


TreeModel.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestTreeModel: Any = TreeModel.TestCase


@pytest.fixture
def big(tmp_path: Path) -> Callable[[int], Path]:
    def make(count: int) -> Path:
        lines = [header_line()]
        lines += [line(f"{n:08x}", f"{n - 1:08x}" if n else None) for n in range(count)]
        return write(tmp_path / f"{count}.jsonl", *lines)

    return make


def test_decoded_entries_are_kept_only_up_to_a_limit() -> None:
    cache = EntryCache(limit=100)
    entries = [CustomEntry(id=str(n), custom_type="x") for n in range(5)]
    for entry in entries:
        cache.put(entry, 30)
    assert [cache.get(entry.id) for entry in entries] == [None, None, *entries[2:]]
    cache.put(CustomEntry(id="large", custom_type="x"), 101)
    assert cache.get("large") is None
    assert cache.get("4") is entries[4]


def test_opening_decodes_no_entry(big: Callable[[int], Path]) -> None:
    with opened(big(20_000)) as session:
        assert len(session) == 20_000
        assert session.decoded == 0
        session.append(said("next"))
        assert session.decoded == 0
        assert sum(1 for _ in session.branch().upwards()) == 20_001
        assert session.decoded == 0
        session.entry("00000005")
        session.entry("00000005")
        assert session.decoded == 1


def test_what_a_session_keeps_gives_the_garbage_collector_nothing_to_look_at() -> None:
    session = created(None)
    stored = session.append(said("one"), replied("two", calls=["c"]), resulted("c", "three"))
    messages = [entry.message for entry in stored if isinstance(entry, MessageEntry)]
    assert not any(gc.is_tracked(each) for each in (*stored, *messages))


def test_a_session_of_any_length_can_be_let_go() -> None:
    node = None
    for number in range(200_000):  # deeper than the C stack, if each node's end were that of its parent
        node = Node("n", "message", node, number, 1, 0, 1, number, "")
    assert node is not None
    del node
