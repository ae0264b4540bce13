"""State that follows the branch: a fold over what the path from the root to the leaf says.

A change is stored as one `custom` entry, or read from the `details` of tool results as extensions of the
npm host keep them. Nothing else is stored, so going back, forking, cloning, resuming and crashing need no
code. Compaction does not shorten the fold: it hides entries from the model, not from the path.
"""

from collections.abc import Callable
from functools import cache as remembered
from types import UnionType
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from branchwork.host.state_cache import StateCache
from branchwork.session.codec import encode_object
from branchwork.session.entries import CustomEntry, MessageEntry, ToolResultMessage
from branchwork.session.handle import Tree
from branchwork.session.index import Node

S = TypeVar("S")
C = TypeVar("C")

Diagnose: TypeAlias = Callable[[str], None]


class ChangeRefused(ValueError):
    """A change that could not be read back from the session as it is; nothing was recorded."""


class BranchState(Generic[S, C]):
    """Made by `branch_state`. One object serves any number of sessions and remembers each weakly.

    It is read at an entry and never assigned. Not safe for use by several threads.
    """

    def __init__(
        self,
        name: str,
        *,
        initial: S,
        shape: "_Shape[C]",
        step: Callable[[S, C], S],
        read_result: Callable[[ToolResultMessage], C | None] | None,
        diagnose: Diagnose,
    ) -> None:
        self._name = name
        self._initial = initial
        self._shape = shape
        self._step = step
        self._read_result = read_result
        self._diagnose = diagnose
        self._known: WeakKeyDictionary[object, StateCache[S]] = WeakKeyDictionary()
        self.visited = 0
        """Entries walked over so far; what caching is measured by."""
        self.decoded = 0
        """Of these, the entries whose content was read."""

    @property
    def name(self) -> str:
        return self._name

    def read(self, tree: Tree, leaf_id: str | UnsetType | None = UNSET) -> S:
        """The state at an entry (default: the current leaf; None: before the first entry, so `initial`).

        Costs the number of entries down to the nearest ancestor whose state is known; the state where it was
        read last is. Entries that do not fit the change type, and those at which `step` raises, are skipped
        with one diagnostic each. Raises NoSuchEntry.
        """
        node = tree.branch(leaf_id).leaf
        cache = self._known.get(tree.identity)
        if cache is None:
            cache = self._known[tree.identity] = StateCache()
        state, path = self._nearest(node, cache)
        if path:
            state = self._fold(state, path, tree, cache)
        if node is not None:
            cache.keep_recent(node.id, state)
        return state

    def record(self, tree: Tree, change: C) -> S:
        """Append `change` below the leaf and return the state there.

        The new state is that of what will be read back from the file. Raises ChangeRefused when `change` does
        not survive that, whatever `step` raises for it, and what `Tree.record` raises; in all cases nothing
        was appended and the state is what it was.
        """
        data, read_back = self._shape.settle(change)
        self._step(self.read(tree), read_back)
        return self.read(tree, tree.record(self._name, data))

    def _nearest(self, node: Node | None, cache: StateCache[S]) -> tuple[S, list[Node]]:
        """The state of the nearest known ancestor, and the nodes below it that matter, leaf first."""
        name, results = self._name, self._read_result is not None
        states, stride = cache.states, cache.stride
        path: list[Node] = []
        visited = 0
        state = self._initial
        while node is not None:
            if node.id in states:
                state = cache.take(node.id)
                break
            visited += 1
            if (
                (node.custom_type == name and node.type == "custom")
                or (results and node.role == "toolResult" and node.type == "message")
                or not node.depth % stride
            ):
                path.append(node)
            node = node.parent
        self.visited += visited
        return state, path

    def _fold(self, state: S, path: list[Node], tree: Tree, cache: StateCache[S]) -> S:
        for node in reversed(path):
            try:
                change = self._change(node, tree)
                if change is not None:
                    state = self._apply(state, change)
            except _Unfit as unfit:
                self._skip(node, tree, cache, str(unfit))
            if not node.depth % cache.stride:
                cache.keep_checkpoint(node.id, node.depth, state)
        return state

    def _apply(self, state: S, change: "_Change[C]") -> S:
        try:
            return self._step(state, change.value)
        except Exception as error:  # boundary: the extension's own function
            raise _Unfit(f"could not be applied: {_brief(error)}") from error

    def _change(self, node: Node, tree: Tree) -> "_Change[C] | None":
        if node.type == "custom" and node.custom_type == self._name:
            self.decoded += 1
            return self._from_entry(node, tree)
        if self._read_result is not None and node.type == "message" and node.role == "toolResult":
            self.decoded += 1
            return self._from_result(node, tree, self._read_result)
        return None

    def _from_entry(self, node: Node, tree: Tree) -> "_Change[C]":
        line = tree.line(node.id)
        try:
            return _Change(self._shape.from_line(line))
        except Exception:  # noqa: BLE001 - boundary: validators of the extension; the second reading reports
            entry = tree.entry(node.id)
        if not isinstance(entry, CustomEntry):
            raise _Unfit("cannot be read")
        try:
            return _Change(self._shape.from_data(entry.data))
        except Exception as error:  # boundary: a validator of the extension
            raise _Unfit(f"does not fit: {_brief(error)}") from error

    def _from_result(
        self, node: Node, tree: Tree, read: Callable[[ToolResultMessage], C | None]
    ) -> "_Change[C] | None":
        line = tree.line(node.id)
        try:
            message = _result_decoder().decode(line).message
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            entry = tree.entry(node.id)  # leniently, as lines of other programs and damaged ones are read
            if not isinstance(entry, MessageEntry) or not isinstance(entry.message, ToolResultMessage):
                return None  # whether it was ours nobody can tell
            message = entry.message
        try:
            found = read(message)
        except Exception as error:  # boundary: the extension's own function
            raise _Unfit(f"does not fit: {_brief(error)}") from error
        return _Change(found) if found is not None else None

    def _skip(self, node: Node, tree: Tree, cache: StateCache[S], why: str) -> None:
        if node.id in cache.reported:
            return
        cache.reported.add(node.id)
        place = f", line {node.line} of {tree.path}" if tree.path is not None else ""
        self._diagnose(f"{self._name}: entry {node.id}{place} {why}. It was skipped; the rest counts.")


def branch_state(
    name: str,
    *,
    initial: S,
    change: type[C] | UnionType,
    step: Callable[[S, C], S],
    read_result: Callable[[ToolResultMessage], C | None] | None = None,
    diagnose: Diagnose,
) -> BranchState[S, C]:
    """State of an extension that is right wherever the session goes.

    `name` is the custom type of the entries (the extension's name, by custom). `change` is a file format: a
    `msgspec.Struct`, a union of tagged ones (given a name, so that type checkers follow), a dataclass, or a
    pydantic model. `step` returns the next state
    and must be pure: values are cached and shared, so it never changes its arguments. `read_result` returns
    the change that a tool result stands for, or None; it sees every tool result on the branch, in order with
    the entries. `diagnose` gets one line for each entry that had to be skipped.
    """
    if not name:
        raise ValueError("a branch state needs a name; use the extension's")
    shape: _Shape[C] = _shape(change)
    return BranchState(name, initial=initial, shape=shape, step=step, read_result=read_result, diagnose=diagnose)


class _Unfit(Exception):
    """Why an entry is skipped, as the rest of a sentence."""


class _ResultLine(Struct):
    message: ToolResultMessage


@remembered
def _result_decoder() -> msgspec.json.Decoder[_ResultLine]:
    return msgspec.json.Decoder(_ResultLine)


class _Change(Struct, Generic[C], frozen=True):
    """Sets a change apart from its absence: a change may be None or false."""

    value: C


class _Line(Struct, Generic[C]):
    """What matters of the line of a `custom` entry."""

    data: C


class _Shape(Generic[C]):
    """How changes of one type are read and written. Nothing but JSON is in between, at any time."""

    def __init__(self, line: msgspec.json.Decoder[Any], plain: Callable[[C], Any], read: Callable[[bytes], C]) -> None:
        self._line, self._plain, self._read = line, plain, read

    def from_line(self, line: bytes) -> C:
        data = self._line.decode(line).data
        return self._read(bytes(data)) if isinstance(data, Raw) else data

    def from_data(self, data: Any) -> C:
        return self._read(encode_object(data))

    def settle(self, change: C) -> tuple[Any, C]:
        """The plain data to store, and the change as it will be read back."""
        try:
            encoded = encode_object(self._plain(change))
            return msgspec.json.decode(encoded), self._read(encoded)
        except Exception as error:  # boundary: a type of the extension, with its own validators
            raise ChangeRefused(f"{change!r} cannot be stored and read back: {_brief(error)}") from error


def _shape(change: Any) -> _Shape[Any]:
    validate = getattr(change, "model_validate_json", None)
    if validate is not None:  # a pydantic model, told by its methods so that pydantic need not be there
        return _Shape(msgspec.json.Decoder(_Line[Raw]), lambda value: value.model_dump(mode="json"), validate)
    decoder = msgspec.json.Decoder(change)
    return _Shape(msgspec.json.Decoder(_Line[change]), _to_builtins, decoder.decode)


def _to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def _brief(error: Exception) -> str:
    """An error on one line of bounded length."""
    text = " ".join(str(error).split())
    return (text if len(text) <= 300 else f"{text[:300]}…") or type(error).__name__
