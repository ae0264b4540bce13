"""What the next request carries, kept up to date entry by entry instead of rebuilt."""

from collections.abc import Sequence
from typing import assert_never

import msgspec
from msgspec import Struct

from branchwork.models.base import Transcript
from branchwork.session.entries import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Image,
    KnownEntry,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from branchwork.session.projection import Projection
from branchwork.session.tree import Session

CHARS_PER_TOKEN = 4
IMAGE_CHARS = 4_800
"""An image counts as this many characters; the providers' own figures lie around 1,200 tokens."""


class ContextSize(Struct, frozen=True):
    """Tokens the next request will carry. `exact` tokens were reported by the server, the rest is estimated."""

    tokens: int
    exact: int


class Context:
    """The session's branch as a `Transcript`, and its size.

    `append` costs what was appended; only compaction, context edits and navigation rebuild.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.transcript = Transcript()
        self.projection = Projection(session)
        self._take_all()

    def append(self, entries: Sequence[KnownEntry]) -> None:
        """Take in entries that the session has just stored at its leaf."""
        before = len(self.projection.items)
        grown = [self.projection.append(entry) for entry in entries]
        if not all(grown):
            self._take_all(rebuilt=True)
            return
        added = [item.message for item in self.projection.items[before:]]
        self.transcript.append(*added)
        self._count(added)

    def rebuild(self) -> None:
        """Start over from the session's branch, after its leaf moved."""
        self.projection = Projection(self.session)
        self._take_all(rebuilt=True)

    def size(self) -> ContextSize:
        tokens = self._exact + -(-self._chars // CHARS_PER_TOKEN)
        return ContextSize(tokens=tokens, exact=self._exact)

    def _take_all(self, *, rebuilt: bool = False) -> None:
        messages = [item.message for item in self.projection.items]
        if rebuilt:
            self.transcript.replace(messages)
        else:
            self.transcript.append(*messages)
        self._exact = 0
        self._chars = 0
        mark = self.projection.usage_mark
        if mark is not None:
            self._count(messages[mark:])
        else:  # what replies reported before a compaction or an edit says nothing about what is left
            self._chars = sum(map(message_chars, messages))
            prompt = self.projection.prompt
            self._chars += sum(len(text) for text in prompt.sections.values())
            self._chars += len(msgspec.json.encode(list(prompt.tools.values())))

    def _count(self, messages: Sequence[Message]) -> None:
        for message in messages:
            reported = _reported(message)
            if reported:
                self._exact, self._chars = reported, 0
            else:
                self._chars += message_chars(message)


def _reported(message: Message) -> int:
    """The context size that a reply reported, if it can be trusted."""
    if not isinstance(message, AssistantMessage) or message.stop_reason in ("error", "aborted"):
        return 0
    return message.usage.total_tokens


def message_chars(message: Message) -> int:
    """Characters a message costs in a request, images included at a flat rate."""
    match message:
        case SystemMessage():
            return 0
        case BashExecutionMessage(exclude_from_context=True):
            return 0
        case BashExecutionMessage(command=command, output=output):
            return len(command) + len(output)
        case BranchSummaryMessage(summary=summary) | CompactionSummaryMessage(summary=summary):
            return len(summary)
        case AssistantMessage(content=parts):
            return sum(map(_part_chars, parts))
        case UserMessage(content=content) | CustomMessage(content=content) | ToolResultMessage(content=content):
            return len(content) if isinstance(content, str) else sum(map(_part_chars, content))
        case _:
            assert_never(message)


def _part_chars(part: Text | Image | Thinking | ToolCall) -> int:
    match part:
        case Text(text=text):
            return len(text)
        case Thinking(thinking=text):
            return len(text)
        case Image():
            return IMAGE_CHARS
        case ToolCall(name=name, arguments=arguments):
            return len(name) + len(msgspec.json.encode(arguments))
        case _:
            assert_never(part)
