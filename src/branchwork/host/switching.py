"""Opens the session that a host goes to next. The one it comes from is not touched."""

from pathlib import Path
from typing import Literal, TypeAlias

from branchwork.errors import UserError
from branchwork.host.assembly import SessionChoice, Surroundings, open_session
from branchwork.session.entries import MessageEntry, UserMessage, text_of
from branchwork.session.listing import resolve
from branchwork.session.operations import clone, fork
from branchwork.session.tree import Session

SwitchKind: TypeAlias = Literal["new", "resume", "fork", "clone"]


def next_session(
    kind: SwitchKind, target: str | None, current: Session, world: Surroundings, cwd: Path
) -> tuple[Session, str | None]:
    """The session, and text for the editor: what was said where a fork begins. Raises `UserError`."""
    directory = current.path.parent if current.path is not None else None
    if kind == "new":
        choice = SessionChoice(kind="new" if directory is not None else "none")
        return open_session(choice, world), None
    if kind == "resume":
        path = resolve(target or "", world.home, cwd)
        if current.path is not None and path.samefile(current.path):
            raise UserError("that is this session already")
        return Session.open(path, clock=world.clock, ids=world.ids), None
    if kind == "clone" or target is None:
        return clone(current, directory=directory, clock=world.clock, ids=world.ids), None
    entry = current.entry(target)
    text = None
    if isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage):
        text = text_of(entry.message.content)
    position: Literal["before", "at"] = "at" if text is None else "before"
    forked = fork(current, target, position=position, directory=directory, clock=world.clock, ids=world.ids)
    return forked, text
