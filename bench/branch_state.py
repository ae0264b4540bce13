"""Measures reading branch state from sessions on disk: `python -m bench.branch_state [ENTRIES]`.

The budget is 0.2 s for 100,000 entries. Entries visited and decoded say what the time went into.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from branchwork.clock import RandomIds, SystemClock
from branchwork.host.branch_state import BranchState, branch_state
from branchwork.session.entries import (
    CustomEntry,
    KnownEntry,
    MessageEntry,
    Text,
    ToolResultMessage,
    UserMessage,
)
from branchwork.session.handle import Tree
from branchwork.session.tree import Session

NAME = "bench"
ROUNDS = 5


class Add(msgspec.Struct, frozen=True, tag="add"):
    item: str


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    item: str


AddOrFinish: TypeAlias = Add | Finish


def step(state: int, change: AddOrFinish) -> int:
    return state + 1 if isinstance(change, Add) else state - 1


def read_result(message: ToolResultMessage) -> Add | None:
    return Add(message.tool_name) if message.tool_name == NAME else None


def recorded(every: int) -> Callable[[int], KnownEntry]:
    """One change in `every` entries, prompts of 1 kB between."""

    def entry(number: int) -> KnownEntry:
        if (number + 1) % every == 0:
            return CustomEntry(custom_type=NAME, data={"type": "add", "item": f"item {number}"})
        return MessageEntry(message=UserMessage(content="x" * 1000, timestamp=number))

    return entry


def results(number: int) -> KnownEntry:
    """Three tool results of 1 kB in eight entries, as a real session has them, a third of them with a change."""
    if number % 8 in (2, 4, 6):
        tool = NAME if number % 8 == 2 else "read"
        text = (Text(text="x" * 1000),)
        return MessageEntry(
            message=ToolResultMessage(
                tool_call_id=f"c{number}", tool_name=tool, content=text, is_error=False, timestamp=number
            )
        )
    return MessageEntry(message=UserMessage(content="x" * 1000, timestamp=number))


CASES: tuple[tuple[str, Callable[[int], KnownEntry], bool], ...] = (
    ("no change among the entries", recorded(10**9), False),
    ("one change in ten entries", recorded(10), False),
    ("every entry a change", recorded(1), False),
    ("changes in tool results", results, True),
)


def state_of(from_results: bool) -> BranchState[int, AddOrFinish]:
    return branch_state(
        NAME,
        initial=0,
        change=AddOrFinish,
        step=step,
        read_result=read_result if from_results else None,
        diagnose=print,
    )


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def write(path: Path, entries: int, make: Callable[[int], KnownEntry]) -> Path:
    with Session.create(cwd="/", directory=path, clock=SystemClock(), ids=RandomIds()) as session:
        session.append(MessageEntry(message=UserMessage(content="start", timestamp=0)))
        for start in range(0, entries - 1, 1000):
            session.append(*(make(number) for number in range(start, min(start + 1000, entries - 1))))
        assert session.path is not None
        return session.path


def measure(path: Path, from_results: bool) -> Iterator[str]:
    with Session.open(path, clock=SystemClock(), ids=RandomIds(), read_only=True) as session:
        tree = Tree(session, lambda entry: session.append(entry)[0])
        folds = [timed(lambda: state_of(from_results).read(tree)) for _ in range(ROUNDS)]
        state = state_of(from_results)
        state.read(tree)
        yield f"fold {min(folds) * 1000:7.1f} ms  visited {state.visited:7d}  decoded {state.decoded:7d}"
        yield f"again {timed(lambda: state.read(tree)) * 1e6:5.0f} µs"
        before = state.visited
        middle = session.nodes()[len(session) // 2].id
        yield f"to the middle {timed(lambda: state.read(tree, middle)) * 1000:5.1f} ms"
        yield f"visited {state.visited - before}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("entries", nargs="?", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, make, from_results) in enumerate(CASES):
            path = write(Path(folder) / str(number), options.entries, make)
            print(f"{title:28}", "  ".join(measure(path, from_results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
