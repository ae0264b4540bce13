"""The session as tools and extensions see it: all of the tree to read, three kinds of entry to add."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import UNSET, UnsetType

from branchwork.session.branch import Branch
from branchwork.session.entries import (
    LEAF_TYPE,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    KnownEntry,
    LabelEntry,
    UserPart,
)
from branchwork.session.index import Node
from branchwork.session.store import SessionReadOnly
from branchwork.session.tree import Session

StoreEntry: TypeAlias = Callable[[KnownEntry], Entry]
"""Appends one entry below the leaf, tells whoever must know, and returns it as stored."""


class Tree:
    """One opened session, for reading and for adding what an extension may add.

    It cannot move the leaf, close the session or write messages in the name of the person or the model.
    Whatever `record`, `say` and `label` return is part of the session then (in its file, once that exists:
    see `Session`). They raise `SessionReadOnly` (a `UserError`) where nothing can be added, and
    `SessionWriteError` when the disk refuses; in both cases nothing has changed.
    """

    def __init__(self, session: Session, store: StoreEntry) -> None:
        self._session = session
        self._store = store

    # ---- what it is ----

    @property
    def session_id(self) -> str:
        return self._session.header.id

    @property
    def cwd(self) -> str:
        """The folder the session was begun in, as its file says; empty when the file does not."""
        return self._session.header.cwd

    @property
    def path(self) -> Path | None:
        """The session's file, even before it exists; None in memory."""
        return self._session.path

    @property
    def name(self) -> str:
        """On one line; empty when the session has none."""
        return self._session.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Bookmarks by the id of the entry they are on; a copy."""
        return self._session.labels

    @property
    def read_only(self) -> str | None:
        """Why nothing can be added, as a sentence for a person; None when it can."""
        return self._session.read_only

    @property
    def identity(self) -> object:
        """The same object for every handle of one opened session: a key for weak caches, nothing else."""
        return self._session

    # ---- reading ----

    @property
    def leaf_id(self) -> str | None:
        """Where the session goes on; None before the first entry. May be a mark of navigation."""
        return self._session.leaf_id

    @property
    def anchor_id(self) -> str | None:
        """The nearest entry at or above the leaf that is more than a mark of navigation."""
        return self._session.branch().anchor_id

    def branch(self, leaf_id: str | UnsetType | None = UNSET) -> Branch:
        """The path from the root to `leaf_id` (default: the current leaf; None: the empty path).

        Raises NoSuchEntry.
        """
        return self._session.branch(leaf_id)

    def node(self, entry_id: str) -> Node:
        """An entry's place in the tree, without reading it. Raises NoSuchEntry."""
        return self._session.node(entry_id)

    def entry(self, entry_id: str) -> Entry:
        """Raises NoSuchEntry."""
        return self._session.entry(entry_id)

    def line(self, entry_id: str) -> bytes:
        """The entry as one line of JSON of the current format, without its line feed. Raises NoSuchEntry."""
        return self._session.line(entry_id)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._session

    # ---- adding ----

    def record(self, custom_type: str, data: Any = None) -> str:
        """Append a `custom` entry, which the model never sees, and return its id.

        `data` is plain JSON data. Raises TypeError when it is not, and ValueError for a `custom_type` that is
        empty or the one that navigation uses.
        """
        _check_type(custom_type)
        return self._append(CustomEntry(custom_type=custom_type, data=data))

    def say(
        self,
        custom_type: str,
        content: str | tuple[UserPart, ...],
        display: bool = True,
        details: Any = None,
    ) -> str:
        """Append speech to the model and return its id; the model reads it with the next request.

        `display` False hides it from people only; `details` (plain JSON data) are for extensions and are not
        sent. Raises as `record` does.
        """
        _check_type(custom_type)
        return self._append(
            CustomMessageEntry(custom_type=custom_type, content=content, display=display, details=details)
        )

    def label(self, target_id: str, text: str | None) -> str:
        """Put a bookmark on an entry in place of an earlier one, or remove it with None or blank text.

        Line breaks in `text` become spaces. Returns the id of the entry that says so. Raises NoSuchEntry.
        """
        self._session.node(target_id)
        return self._append(LabelEntry(target_id=target_id, label=" ".join((text or "").split()) or None))

    def _append(self, entry: KnownEntry) -> str:
        reason = self._session.read_only
        if reason is not None:
            raise SessionReadOnly(reason)
        return self._store(entry).id


def _check_type(custom_type: str) -> None:
    if not custom_type or custom_type == LEAF_TYPE:
        raise ValueError(f"{custom_type!r} cannot be the type of an extension's entry; use the extension's name")
