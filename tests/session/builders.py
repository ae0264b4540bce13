"""Small session files and values for the tests of this folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from branchwork.session.entries import (
    AssistantMessage,
    AssistantPart,
    MessageEntry,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from branchwork.session.tree import Session
from branchwork.testing.clock import FakeClock, SequentialIds

DATA = Path(__file__).parent / "data"
HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-02T03:04:05.000Z", "cwd": "/project"}


class SpreadIds(SequentialIds):
    """Ids that do not meet those of another `SpreadIds` with another start."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._entries = start


def said(text: str) -> MessageEntry:
    return MessageEntry(message=UserMessage(content=text, timestamp=1))


def replied(text: str, *, tokens: int = 10, calls: Sequence[str] = ()) -> MessageEntry:
    parts: tuple[AssistantPart, ...] = (
        Text(text=text),
        *(ToolCall(id=call, name="read", arguments={}) for call in calls),
    )
    usage = Usage(input=tokens, total_tokens=tokens)
    return MessageEntry(
        message=AssistantMessage(
            content=parts, api="a", provider="p", model="m", usage=usage, stop_reason="stop", timestamp=2
        )
    )


def resulted(call: str, text: str) -> MessageEntry:
    return MessageEntry(
        message=ToolResultMessage(
            tool_call_id=call, tool_name="read", content=(Text(text=text),), is_error=False, timestamp=3
        )
    )


def line(entry_id: str | None, parent: str | None, **fields: Any) -> bytes:
    """One user message (or other entry) as a line without its line feed; an `entry_id` of None leaves it out."""
    entry: dict[str, Any] = {"type": "message"}
    if entry_id is not None:
        entry |= {"id": entry_id, "parentId": parent}
    entry["timestamp"] = "2026-01-02T03:04:05.000Z"
    if fields.get("type", "message") == "message":
        entry["message"] = {"role": "user", "content": f"text of {entry_id}", "timestamp": 1}
    return json.dumps(entry | fields, separators=(",", ":"), ensure_ascii=False).encode()


def header(**fields: Any) -> bytes:
    return json.dumps(HEADER | fields, separators=(",", ":")).encode()


def write(path: Path, *lines: bytes, end: bytes = b"\n") -> Path:
    path.write_bytes(b"\n".join(lines) + end)
    return path


def opened(path: Path, *, read_only: bool = False, start: int = 1 << 24) -> Session:
    return Session.open(path, clock=FakeClock(), ids=SpreadIds(start), read_only=read_only)


def created(directory: Path | None) -> Session:
    return Session.create(cwd="/project", directory=directory, clock=FakeClock(), ids=SequentialIds())


def ids_of(session: Session) -> list[str]:
    return [node.id for node in session.nodes()]


def texts(session: Session, leaf_id: str | None = None) -> list[str]:
    """The user and assistant texts on a branch (the current one without `leaf_id`)."""
    branch = session.branch() if leaf_id is None else session.branch(leaf_id)
    messages = [entry.message for entry in branch.entries() if isinstance(entry, MessageEntry)]
    found = []
    for message in messages:
        if isinstance(message, UserMessage) and isinstance(message.content, str):
            found.append(message.content)
        elif isinstance(message, AssistantMessage):
            found.append(message.text)
    return found


def only_file(directory: Path) -> Path:
    (path,) = directory.glob("*.jsonl")
    return path
