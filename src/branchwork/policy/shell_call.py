"""What a handler of one program gets."""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from branchwork.policy.shell_judge import Judge
from branchwork.policy.shell_state import Flow, State, Unknown
from branchwork.policy.shell_tables import Spec


class Call(Struct):
    """A program's name without its path, the words after it, and the shell around it."""

    name: str
    args: list[str]
    state: State
    stdin: str | None
    """Text, `Unknown`, or None when nothing feeds it."""
    prefixed: State


class Commands(Protocol):
    """What handlers use of the runner, so that they need not import it."""

    judge: Judge

    def call(self, words: list[str], state: State, stdin: str | None = None) -> Flow: ...
    def script(self, text: str, state: State) -> None: ...
    def would_write(self, words: list[str], state: State) -> bool: ...
    def find(self, name: str) -> Spec | None: ...
    def environment(self, name: str, value: str, state: State) -> State: ...


def blurred(state: State) -> State:
    """The state after something that may have changed all of it."""
    unknown: dict[str, str] = {name: Unknown("$" + name) for name in state.variables}
    for name in ("HOME", "TMPDIR", "PWD"):
        unknown[name] = Unknown("$" + name)
    return State(state.cwds | {None}, unknown)


def child(state: State) -> State:
    """The state in which another shell starts: it may or may not have got the variables."""
    return State(state.cwds, {name: Unknown("$" + name) for name in state.variables})


def joined(words: Iterable[str]) -> str:
    """Words with blanks between; unknown when one of them is."""
    every = list(words)
    text = " ".join(every)
    return Unknown(text) if any(isinstance(word, Unknown) for word in every) else text
