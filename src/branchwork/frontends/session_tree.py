"""The tree of a session as lines of text: indented only where it parts."""

from collections.abc import Iterator
from typing import assert_never

from branchwork.frontends.plain import clean, cut, pad
from branchwork.session.entries import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryEntry,
    BranchSummaryMessage,
    CompactionEntry,
    CompactionSummaryMessage,
    ContextEditEntry,
    CustomEntry,
    CustomMessage,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    Message,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    SystemMessage,
    ThinkingLevelChangeEntry,
    ToolResultMessage,
    UnknownEntry,
    UsageEntry,
    UserMessage,
    text_of,
)
from branchwork.session.index import Node
from branchwork.session.tree import Session

TEXT = 240
"""Characters of an entry's text that are looked at."""
TAG = 8
"""Columns of the word that says what an entry is."""


def brief(entry: Entry) -> tuple[str, str] | None:
    """What an entry is and says, or None for those that only keep the books (settings, labels, usage)."""
    match entry:
        case MessageEntry(message=message):
            return _brief_message(message)
        case CompactionEntry(summary=summary):
            return "compact", summary
        case BranchSummaryEntry(summary=summary):
            return "summary", summary
        case CustomMessageEntry(custom_type=custom_type, content=content):
            return "note", f"{custom_type}: {text_of(content)[:TEXT]}"
        case UnknownEntry(type=type_):
            return "unknown", type_
        case (
            CustomEntry()
            | ModelChangeEntry()
            | ThinkingLevelChangeEntry()
            | UsageEntry()
            | ContextEditEntry()
            | LabelEntry()
            | SessionInfoEntry()
        ):
            return None
        case _:
            assert_never(entry)


def _brief_message(message: Message) -> tuple[str, str] | None:
    match message:
        case UserMessage(content=content):
            return "you", text_of(content) or "(image)"
        case AssistantMessage():
            calls = ", ".join(call.name for call in message.tool_calls)
            if message.stop_reason == "error":
                return "error", message.error_message or message.text
            return ("reply", message.text) if message.text.strip() else ("calls", calls or f"({message.stop_reason})")
        case ToolResultMessage(tool_name=name, is_error=is_error):
            return "result", f"{'✗' if is_error else '✓'} {name}: {message.text[:TEXT]}"
        case BashExecutionMessage(command=command):
            return "shell", f"! {command}"
        case CustomMessage(custom_type=custom_type, content=content):
            return "note", f"{custom_type}: {text_of(content)[:TEXT]}"
        case BranchSummaryMessage(summary=summary) | CompactionSummaryMessage(summary=summary):
            return "summary", summary
        case SystemMessage():
            return None
        case _:
            assert_never(message)


def tree_lines(session: Session, columns: int | None) -> Iterator[str]:
    """One line an entry: its id, its place, what it is, label and leaf marks, its text."""
    shown, children = _visible(session)
    current = _nearest(session, shown)
    labels = session.labels
    tops = children[None]
    stack = [(node, *_lead("", index, len(tops))) for index, node in reversed(list(enumerate(tops)))]
    while stack:
        node, lead, prefix = stack.pop()
        marks = _marks(labels.get(node.id), node.id == current)
        yield _line(node, lead, shown[node.id], marks, columns)
        below = children[node.id]
        stack += [(child, *_lead(prefix, index, len(below))) for index, child in reversed(list(enumerate(below)))]


def _lead(prefix: str, index: int, count: int) -> tuple[str, str]:
    """What stands before a child, and before what follows it."""
    if count == 1:
        return prefix, prefix
    last = index == count - 1
    return prefix + ("└─ " if last else "├─ "), prefix + ("   " if last else "│  ")


def _visible(session: Session) -> tuple[dict[str, tuple[str, str]], dict[str | None, list[Node]]]:
    """Entries worth a line, and the children of each after the others were taken out."""
    shown: dict[str, tuple[str, str]] = {}
    for node in session.nodes():
        said = brief(session.entry(node.id))
        if said is not None:
            shown[node.id] = said
    children: dict[str | None, list[Node]] = {None: []} | {name: [] for name in shown}
    for node in session.nodes():
        if node.id in shown:
            above = node.parent
            while above is not None and above.id not in shown:
                above = above.parent
            children[above.id if above is not None else None].append(node)
    return shown, children


def _nearest(session: Session, shown: dict[str, tuple[str, str]]) -> str | None:
    node = session.node(session.leaf_id) if session.leaf_id is not None else None
    while node is not None and node.id not in shown:
        node = node.parent
    return node.id if node is not None else None


def _marks(label: str | None, current: bool) -> str:
    return ("◆ current  " if current else "") + (f"[{clean(label)}]  " if label is not None else "")


def _line(node: Node, lead: str, said: tuple[str, str], marks: str, columns: int | None) -> str:
    tag, text = said
    line = f"{clean(node.id)}  {lead}{pad(tag, TAG)} {marks}{clean(text[:TEXT])}".rstrip()
    return cut(line, columns) if columns is not None else line
