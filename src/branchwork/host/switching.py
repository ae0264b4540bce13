"""Opens the session that a host goes to next. The one it comes from is not touched."""

from os.path import realpath
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec.structs import replace

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
        return open_session(choice, replace(world, cwd=cwd)), None
    if kind == "resume":
        path = resolve(target or "", world.home, cwd)
        if current.path is not None and realpath(path) == realpath(current.path):  # which may not exist yet
            raise UserError("that is this session already")
        return Session.open(path, clock=world.clock, ids=world.ids), None
    if kind == "clone" or target is None:
        return clone(current, directory=directory, clock=world.clock, ids=world.ids), None
    position = fork_position(current, target)
    text = None
    if position == "before":
        entry = current.entry(target)
        assert isinstance(entry, MessageEntry)
        assert isinstance(entry.message, UserMessage)
        text = text_of(entry.message.content)
    forked = fork(current, target, position=position, directory=directory, clock=world.clock, ids=world.ids)
    return forked, text


def fork_position(session: Session, target: str | None) -> Literal["before", "at"]:
    """A fork begins before a prompt, which goes to the editor, and with anything else. Raises NoSuchEntry."""
    return "before" if target is not None and session.node(target).role == "user" else "at"
