"""State that follows the branch: what is read, what is skipped, what it costs."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import pydantic
import pytest

from branchwork.host.branch_state import BranchState, ChangeRefused, branch_state
from branchwork.session import operations
from branchwork.session.entries import (
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    KnownEntry,
    MessageEntry,
    Text,
    ToolResultMessage,
)
from branchwork.session.handle import Tree
from branchwork.session.store import SessionReadOnly, SessionWriteError
from branchwork.session.tree import NoSuchEntry, Session
from branchwork.testing.clock import FakeClock, SequentialIds
from tests.session.builders import created, header, line, opened, said, write


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    do: Literal["add", "finish"]
    item: str


Items = tuple[str, ...]


def step(state: Items, change: Change) -> Items:
    if change.item == "explode":
        raise ZeroDivisionError("cannot be done")
    if change.do == "add":
        return (*state, change.item)
    return tuple(item for item in state if item != change.item)


class Todo:
    """A session with a todo list."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.tree = Tree(session, lambda entry: session.append(entry)[0])
        self.diagnostics: list[str] = []
        self.state: BranchState[Items, Change] = branch_state(
            "todo", initial=(), change=Change, step=step, diagnose=self.diagnostics.append
        )

    def add(self, item: str) -> Items:
        return self.state.record(self.tree, Change("add", item))

    def read(self) -> Items:
        return self.state.read(self.tree)

    def cost(self, leaf_id: str | None) -> int:
        """Entries visited by reading there."""
        before = self.state.visited
        self.state.read(self.tree, leaf_id)
        return self.state.visited - before


def entry(item: str, do: str = "add") -> CustomEntry:
    return CustomEntry(custom_type="todo", data={"do": do, "item": item})


# ---- what is read -----------------------------------------------------------------------------------


def test_a_change_is_one_entry_of_plain_data_and_the_state_is_returned() -> None:
    todo = Todo(created(None))
    assert todo.add("a") == ("a",)
    assert todo.add("b") == ("a", "b")
    assert todo.state.record(todo.tree, Change("finish", "a")) == ("b",)
    assert todo.read() == ("b",)
    stored = [todo.session.entry(node.id) for node in todo.session.nodes()]
    assert [(each.custom_type, each.data) for each in stored if isinstance(each, CustomEntry)] == [
        ("todo", {"do": "add", "item": "a"}),
        ("todo", {"do": "add", "item": "b"}),
        ("todo", {"do": "finish", "item": "a"}),
    ]


def test_going_back_and_branching_needs_no_code() -> None:
    todo = Todo(created(None))
    todo.add("a")
    fork_at = todo.session.leaf_id
    todo.add("b")
    old_leaf = todo.session.leaf_id
    todo.session.navigate(fork_at)
    assert todo.read() == ("a",)
    todo.add("c")
    assert todo.read() == ("a", "c")
    assert todo.state.read(todo.tree, old_leaf) == ("a", "b")
    todo.session.navigate(None)
    assert todo.read() == ()
    assert todo.state.read(todo.tree, None) == ()


def test_an_entry_that_is_not_there_has_no_state() -> None:
    todo = Todo(created(None))
    with pytest.raises(NoSuchEntry):
        todo.state.read(todo.tree, "nowhere")


def test_entries_of_others_and_speech_of_the_same_name_do_not_count() -> None:
    todo = Todo(created(None))
    todo.session.append(
        CustomEntry(custom_type="other", data={"do": "add", "item": "x"}),
        CustomMessageEntry(custom_type="todo", content="hello", display=True, details={"do": "add", "item": "x"}),
    )
    assert todo.read() == ()
    assert todo.diagnostics == []


def test_compaction_does_not_shorten_the_fold() -> None:
    todo = Todo(created(None))
    todo.add("a")
    todo.session.append(CompactionEntry(summary="all", first_kept_entry_id="", tokens_before=10))
    todo.add("b")
    assert Todo(todo.session).read() == ("a", "b")


def test_forks_clones_and_reopened_sessions_have_the_state_of_their_path(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        todo = Todo(session)
        session.append(said("hello"))
        todo.add("a")
        at = session.leaf_id
        todo.add("b")
        path = session.path
        place = {"directory": tmp_path / "forks", "clock": FakeClock(), "ids": SequentialIds()}
        with operations.fork(session, at, position="at", **place) as forked:  # type: ignore[arg-type]
            assert todo.state.read(Todo(forked).tree) == ("a",)
        with operations.clone(session, **place) as cloned:  # type: ignore[arg-type]
            assert todo.state.read(Todo(cloned).tree) == ("a", "b")
    assert path is not None
    with opened(path) as again:
        assert Todo(again).read() == ("a", "b")


def test_a_torn_file_loses_only_the_torn_change(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(said("hello"))
        todo = Todo(session)
        todo.add("a")
        todo.add("torn")
        path = session.path
    assert path is not None
    path.write_bytes(path.read_bytes()[:-9])
    with opened(path) as again:
        todo = Todo(again)
        assert todo.read() == ("a",)
        assert todo.add("b") == ("a", "b")
        assert Todo(again).read() == ("a", "b")


def test_a_session_of_an_old_version_keeps_its_state_when_the_first_append_upgrades_it(tmp_path: Path) -> None:
    changes = ({"do": "add", "item": item} for item in ("a", "b"))
    old = [header(version=1), *(line(None, None, type="custom", customType="todo", data=data) for data in changes)]
    with opened(write(tmp_path / "old.jsonl", *old)) as session:
        todo = Todo(session)
        assert todo.read() == ("a", "b")
        assert todo.add("c") == ("a", "b", "c")
        assert Todo(session).read() == ("a", "b", "c")


def test_what_another_program_appends_is_a_branch_of_its_own(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(said("hello"))
        todo = Todo(session)
        todo.add("a")
        assert session.path is not None
        foreign = line("ff", session.leaf_id, type="custom", customType="todo", data={"do": "add", "item": "theirs"})
        with session.path.open("ab") as file:
            file.write(foreign + b"\n")
        assert todo.add("b") == ("a", "b")
        assert todo.state.read(todo.tree, "ff") == ("a", "theirs")


def test_one_state_serves_several_sessions_and_keeps_none_alive() -> None:
    first, second = Todo(created(None)), created(None)
    first.add("a")
    assert first.state.read(Todo(second).tree) == ()
    gone = weakref.ref(second)
    del second
    gc.collect()
    assert gone() is None
    assert first.read() == ("a",)


def test_every_handle_of_a_session_shares_what_is_known() -> None:
    todo = Todo(created(None))
    todo.add("a")
    before = todo.state.visited
    assert todo.state.read(Todo(todo.session).tree) == ("a",)
    assert todo.state.visited == before


# ---- what is recorded -------------------------------------------------------------------------------


def test_a_failed_append_leaves_the_state_as_it_was() -> None:
    todo = Todo(created(None))
    todo.add("a")

    def full(entry: KnownEntry) -> Entry:
        raise SessionWriteError("no space")

    broken = Tree(todo.session, full)
    with pytest.raises(SessionWriteError):
        todo.state.record(broken, Change("add", "lost"))
    assert (todo.read(), todo.state.read(broken), len(todo.session)) == (("a",), ("a",), 1)


def test_a_read_only_session_refuses_changes(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(said("hello"))
        Todo(session).add("a")
        path = session.path
    assert path is not None
    with opened(path, read_only=True) as session:
        todo = Todo(session)
        with pytest.raises(SessionReadOnly):
            todo.add("b")
        assert todo.read() == ("a",)


def test_a_change_that_step_refuses_is_not_recorded() -> None:
    todo = Todo(created(None))
    with pytest.raises(ZeroDivisionError):
        todo.add("explode")
    assert (todo.read(), len(todo.session), todo.diagnostics) == ((), 0, [])


def test_a_change_that_cannot_be_read_back_is_not_recorded() -> None:
    class Amount(msgspec.Struct, frozen=True):
        value: float

    session = created(None)
    state = branch_state("sum", initial=0.0, change=Amount, step=lambda s, c: s + c.value, diagnose=pytest.fail)
    tree = Todo(session).tree
    with pytest.raises(ChangeRefused, match="Amount"):
        state.record(tree, Amount(float("nan")))
    with pytest.raises(ChangeRefused):
        state.record(tree, Amount("much"))  # type: ignore[arg-type]  # what an untyped extension may do
    assert len(session) == 0


def test_the_state_is_that_of_what_the_file_says() -> None:
    todo = Todo(created(None))
    assert todo.add("lone \ud800 surrogate") == ("lone � surrogate",)
    assert Todo(todo.session).read() == todo.read()


# ---- types of changes -------------------------------------------------------------------------------


class Add(msgspec.Struct, frozen=True, tag="add"):
    amount: int


class Reset(msgspec.Struct, frozen=True, tag="reset"):
    pass


@dataclass(frozen=True)
class Plain:
    amount: int


class Model(pydantic.BaseModel, extra="forbid"):
    amount: int = pydantic.Field(ge=0)
    names: tuple[str, ...] = ()


AddOrReset: TypeAlias = Add | Reset


def total(state: int, change: AddOrReset) -> int:
    return state + change.amount if isinstance(change, Add) else 0


def names(state: Items, change: Model) -> Items:
    return (*state, *change.names)


def test_tagged_unions_dataclasses_and_pydantic_models_are_change_types() -> None:
    tree = Todo(created(None)).tree
    union = branch_state("union", initial=0, change=AddOrReset, step=total, diagnose=pytest.fail)
    plain = branch_state("plain", initial=0, change=Plain, step=lambda s, c: s + c.amount, diagnose=pytest.fail)
    nothing: Items = ()
    model = branch_state("model", initial=nothing, change=Model, step=names, diagnose=pytest.fail)
    assert [union.record(tree, change) for change in (Add(2), Add(3), Reset(), Add(1))] == [2, 5, 0, 1]
    assert plain.record(tree, Plain(4)) == 4
    assert model.record(tree, Model(amount=1, names=("a",))) == ("a",)
    again = branch_state("model", initial=nothing, change=Model, step=names, diagnose=pytest.fail)
    assert again.read(tree) == ("a",)


def test_a_pydantic_validator_decides_what_counts() -> None:
    todo = Todo(created(None))
    todo.session.append(CustomEntry(custom_type="model", data={"amount": -1}))
    said: list[str] = []
    state = branch_state("model", initial=0, change=Model, step=lambda s, c: s + c.amount, diagnose=said.append)
    assert state.record(todo.tree, Model(amount=2)) == 2
    assert len(said) == 1
    assert "amount" in said[0]
    assert "\n" not in said[0]


# ---- what is skipped --------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, "text", {"do": "add"}, {"do": "drop", "item": "x"}, {"do": "add", "item": 1}])
def test_an_entry_that_does_not_fit_is_skipped_with_one_diagnostic(data: object) -> None:
    todo = Todo(created(None))
    todo.session.append(entry("a"), CustomEntry(custom_type="todo", data=data), entry("b"))
    bad = todo.session.nodes()[1]
    for leaf in (bad.id, None, todo.session.leaf_id):
        todo.state.read(todo.tree, leaf)
    assert todo.read() == ("a", "b")
    assert len(todo.diagnostics) == 1
    assert todo.diagnostics[0].startswith(f"todo: entry {bad.id} does not fit: ")


def test_an_entry_at_which_step_raises_is_skipped_with_one_diagnostic_that_names_the_extension(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(said("hello"), entry("a"), entry("explode"), entry("b"))
        todo = Todo(session)
        assert todo.read() == ("a", "b")
        todo.session.navigate(session.nodes()[2].id)
        assert todo.read() == ("a",)
        (diagnostic,) = todo.diagnostics
        assert diagnostic.startswith(f"todo: entry 00000003, line 4 of {session.path} could not be applied: cannot be")


def test_a_line_that_is_not_valid_utf_8_counts_as_the_session_reads_it(tmp_path: Path) -> None:
    raw = line("a", None, type="custom", customType="todo", data={"do": "add", "item": "bad X byte"})
    with opened(write(tmp_path / "s.jsonl", header(), raw.replace(b"X", b"\xff"))) as session:
        assert Todo(session).read() == ("bad � byte",)


# ---- from tool results ------------------------------------------------------------------------------


def result(details: object, tool: str = "todo") -> MessageEntry:
    message = ToolResultMessage(
        tool_call_id="c", tool_name=tool, content=(Text(text="ok"),), is_error=False, timestamp=1, details=details
    )
    return MessageEntry(message=message)


def from_result(message: ToolResultMessage) -> Change | None:
    return msgspec.convert(message.details, Change) if message.tool_name == "todo" else None


def test_changes_are_read_from_tool_results_in_order_with_entries() -> None:
    todo = Todo(created(None))
    todo.session.append(
        entry("a"),
        result({"do": "add", "item": "b"}),
        result({"do": "add", "item": "ignored"}, tool="other"),
        result({"do": "finish", "item": "a"}),
        result({"nothing": "ours"}),
    )
    nothing: Items = ()
    state = branch_state(
        "todo", initial=nothing, change=Change, step=step, read_result=from_result, diagnose=todo.diagnostics.append
    )
    assert state.read(todo.tree) == ("b",)
    assert [text.partition(":")[0] for text in todo.diagnostics] == ["todo"]
    assert todo.read() == ("a",)  # without a reader, results say nothing


# ---- what it costs ----------------------------------------------------------------------------------


def long(entries: int, make: Callable[[int], KnownEntry]) -> Todo:
    session = created(None)
    session.append(*(make(number) for number in range(entries)))
    return Todo(session)


def test_a_second_reading_and_each_new_entry_cost_one_entry_at_most() -> None:
    todo = long(5000, lambda number: entry(str(number)) if number % 100 == 0 else said("text"))
    assert todo.cost(todo.session.leaf_id) == 5000
    assert todo.cost(todo.session.leaf_id) == 0
    for number in range(200):
        todo.session.append(said("more"))
        assert todo.cost(todo.session.leaf_id) == 1
        before = todo.state.visited
        todo.add(f"new {number}")
        assert todo.state.visited - before <= 1


def test_only_what_may_matter_is_decoded() -> None:
    todo = long(5000, lambda number: entry(str(number)) if number % 100 == 0 else said("text"))
    decoded = todo.session.decoded
    assert len(todo.read()) == 50
    assert (todo.state.decoded, todo.session.decoded - decoded) == (50, 0)


def test_going_anywhere_on_a_long_path_costs_a_part_of_it() -> None:
    todo = long(20_000, lambda number: entry(str(number)) if number % 100 == 0 else said("text"))
    nodes = todo.session.nodes()
    assert todo.cost(nodes[-1].id) == 20_000
    costs = [todo.cost(nodes[at].id) for at in range(19_999, 0, -313)]
    assert max(costs) <= 20_000 // 8
    assert todo.state.read(todo.tree, nodes[10_000].id) == tuple(map(str, range(0, 10_001, 100)))


def test_going_to_another_branch_costs_the_distance_to_what_is_known() -> None:
    todo = long(1000, lambda _: said("text"))
    at = todo.session.leaf_id
    todo.read()
    todo.session.append(*(said("left") for _ in range(10)))
    left = todo.session.leaf_id
    assert todo.cost(left) == 10
    todo.session.navigate(at)
    todo.session.append(*(said("right") for _ in range(7)))
    assert todo.cost(todo.session.leaf_id) == 8  # and the mark of navigation
    assert todo.cost(left) == 0


def test_few_states_are_kept_however_long_the_session_and_however_many_its_branches() -> None:
    class Big:
        """A state that can be counted."""

    session = created(None)
    tree = Tree(session, lambda entry: session.append(entry)[0])
    alive: weakref.WeakSet[Big] = weakref.WeakSet()

    def next_state(state: Big | None, change: Change) -> Big:
        made = Big()
        alive.add(made)
        return made

    initial: Big | None = None
    state = branch_state("todo", initial=initial, change=Change, step=next_state, diagnose=pytest.fail)
    session.append(*(entry(str(number)) for number in range(5000)))
    state.read(tree)
    nodes = tuple(session.nodes())
    for at in range(64, 5000, 64):
        session.navigate(nodes[at].id)
        session.append(*(entry("branch") for _ in range(70)))
        state.read(tree)
    for _ in range(300):
        state.record(tree, Change("add", "x"))
    gc.collect()
    assert len(alive) <= 64
