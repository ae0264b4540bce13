"""For any history of a session, the state at its leaf is the plain fold of the visible branch."""

import shutil
import tempfile
from pathlib import Path

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from branchwork.host.branch_state import BranchState, branch_state
from branchwork.session import operations
from branchwork.session.entries import CompactionEntry, CustomEntry, KnownEntry
from branchwork.session.handle import Tree
from branchwork.session.tree import Session
from branchwork.testing.clock import FakeClock
from tests.session.builders import SpreadIds, said


class Say(msgspec.Struct, frozen=True):
    word: int


State = tuple[int, ...]


def step(state: State, change: Say) -> State:
    if change.word == 13:
        raise ValueError("no thirteen")
    return (*state[-20:], change.word)


def made(diagnostics: list[str]) -> BranchState[State, Say]:
    return branch_state("words", initial=(), change=Say, step=step, diagnose=diagnostics.append)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock, self.ids = FakeClock(), SpreadIds(0)
        self.session = Session.create(cwd="/", directory=self.folder, clock=self.clock, ids=self.ids)
        self.session.append(said("start"))
        self.diagnostics: list[str] = []
        self.state = made(self.diagnostics)

    def teardown(self) -> None:
        self.session.close()
        shutil.rmtree(self.folder)

    @property
    def tree(self) -> Tree:
        session = self.session
        return Tree(session, lambda entry: session.append(entry)[0])

    @rule(word=st.integers(0, 12))
    def record(self, word: int) -> None:
        before = expected(self.session)
        assert self.state.record(self.tree, Say(word)) == step(before, Say(word))

    @rule(data=st.sampled_from([None, {"word": "x"}, {"word": 13}, {"word": 7}, {"other": 1}]))
    def append_by_hand(self, data: object) -> None:
        self.session.append(CustomEntry(custom_type="words", data=data))

    @rule(count=st.integers(1, 150))
    def talk(self, count: int) -> None:
        self.session.append(*(said("text") for _ in range(count)))

    @rule(count=st.integers(1, 150))
    def record_many(self, count: int) -> None:
        entries: list[KnownEntry] = [CustomEntry(custom_type="words", data={"word": n % 15}) for n in range(count)]
        self.session.append(*entries)

    @rule()
    def compact(self) -> None:
        self.session.append(CompactionEntry(summary="s", first_kept_entry_id="", tokens_before=1))

    @rule(where=st.floats(0, 1, exclude_max=True))
    def navigate(self, where: float) -> None:
        self.session.navigate(self.session.nodes()[int(where * len(self.session))].id)

    @rule(where=st.floats(0, 1, exclude_max=True))
    def look_elsewhere(self, where: float) -> None:
        node = self.session.nodes()[int(where * len(self.session))]
        assert self.state.read(self.tree, node.id) == expected(self.session, node.id)

    @rule()
    def fork(self) -> None:
        forked = operations.clone(self.session, directory=self.folder, clock=self.clock, ids=self.ids)
        self.session.close()
        self.session = forked

    @rule(torn=st.integers(0, 30), fresh=st.booleans())
    def reload(self, torn: int, fresh: bool) -> None:
        path = self.session.path
        assert path is not None
        self.session.close()
        lines = path.read_bytes().splitlines(keepends=True)
        if len(lines) > 2:
            path.write_bytes(b"".join(lines)[: path.stat().st_size - min(torn, len(lines[-1]) - 1)])
        self.session = Session.open(path, clock=self.clock, ids=self.ids)
        if fresh:
            self.state = made(self.diagnostics)

    @invariant()
    def the_state_is_the_fold_of_the_branch(self) -> None:
        assert self.state.read(self.tree) == expected(self.session)


def expected(session: Session, leaf_id: str | None = None) -> State:
    state: State = ()
    branch = session.branch() if leaf_id is None else session.branch(leaf_id)
    for entry in branch.entries():
        if isinstance(entry, CustomEntry) and entry.custom_type == "words":
            try:
                state = step(state, msgspec.convert(entry.data, Say))
            except ValueError:
                continue
    return state


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
