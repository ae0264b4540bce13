"""What the model sees of a branch, kept up to date entry by entry.

A step that adds an entry at the end costs that entry; a compaction, or an entry on another branch, costs one
walk over the path. Entries before the newest compaction's kept range are not decoded.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from branchwork.session.branch import Branch
from branchwork.session.codec import decode_message
from branchwork.session.entries import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryEntry,
    BranchSummaryMessage,
    CompactionEntry,
    CompactionSummaryMessage,
    ContextEditEntry,
    CustomMessage,
    CustomMessageEntry,
    Entry,
    JSONObject,
    Message,
    MessageEntry,
    ModelChangeEntry,
    SystemMessage,
    ThinkingLevel,
    ThinkingLevelChangeEntry,
    ToolResultMessage,
    UserMessage,
)
from branchwork.session.index import Node
from branchwork.session.prompt import PromptState
from branchwork.session.repair import epoch_ms
from branchwork.session.tree import Session

_SPEAKING = frozenset({"message", "custom_message", "branch_summary"})


class Projected(Struct, frozen=True, gc=False):
    """One message and the entry it comes from."""

    entry_id: str
    message: Message


def message_of(entry: Entry) -> Message | None:
    """What an entry says to the model, before edits; None for entries that say nothing."""
    match entry:
        case MessageEntry(message=message):
            hidden = isinstance(message, BashExecutionMessage) and message.exclude_from_context
            return None if hidden else message
        case CustomMessageEntry():
            return CustomMessage(
                custom_type=entry.custom_type,
                content=entry.content,
                display=entry.display,
                details=entry.details,
                timestamp=epoch_ms(entry.timestamp),
            )
        case BranchSummaryEntry() if entry.summary:
            return BranchSummaryMessage(
                summary=entry.summary, from_id=entry.from_id, timestamp=epoch_ms(entry.timestamp)
            )
        case CompactionEntry():
            return CompactionSummaryMessage(
                summary=entry.summary, tokens_before=entry.tokens_before, timestamp=epoch_ms(entry.timestamp)
            )
        case _:
            return None


def edited(message: Message, replacement: JSONObject) -> Message:
    """`message` with other content. Only user, assistant, tool result and custom messages can be edited.

    A string for an assistant message or tool result becomes one text block. Content that fits no message
    leaves it as it was.
    """
    if not isinstance(message, UserMessage | AssistantMessage | ToolResultMessage | CustomMessage):
        return message
    data = msgspec.to_builtins(message)
    data["content"] = replacement.get("content")
    return decode_message(data) or message


class Projection:
    """The messages, prompt, model and thinking level of one branch (the session's current one by default)."""

    def __init__(self, session: Session, leaf_id: str | UnsetType | None = UNSET) -> None:
        self._session = session
        self.items: list[Projected] = []
        """Without system messages, whose effect is `prompt`. To be read only."""
        self.prompt = PromptState()
        self.model: tuple[str, str] | None = None
        """Provider and id: the latest on the whole path, summarized parts included."""
        self.thinking: ThinkingLevel | None = None
        """The latest level set on the whole path; None when none was."""
        self.usage_mark: int | None = None
        """Index of the last item whose reported usage measures what is before it; none after an edit or summary."""
        self.visited = 0
        """Entries looked at so far; what the cost of this object is measured by."""
        self._leaf_id: str | None = None
        self._build(session.branch(leaf_id))

    @property
    def leaf_id(self) -> str | None:
        return self._leaf_id

    def append(self, entry: Entry) -> bool:
        """Follow the branch to `entry`, which is in the session already.

        True when `items` only grew at its end; False when earlier items changed.
        """
        if entry.parent_id != self._leaf_id or isinstance(entry, CompactionEntry):
            self._build(self._session.branch(entry.id))
            return False
        self.visited += 1
        self._leaf_id = entry.id
        if isinstance(entry, ContextEditEntry):
            if not self._edit(entry):
                self._build(self._session.branch(entry.id))
            return False
        self.model = _model_in(entry) or self.model
        self.thinking = _level_in(entry) or self.thinking
        if isinstance(entry, MessageEntry) and isinstance(entry.message, SystemMessage):
            self.prompt = self.prompt.apply(entry.message)
        else:
            before = len(self.items)
            self._add(entry, {})
            measure = self._newest_measure(before)
            self.usage_mark = self.usage_mark if measure is None else measure
        return True

    def _build(self, branch: Branch) -> None:
        nodes = branch.nodes
        self.visited += len(nodes)
        self._leaf_id = branch.leaf_id
        self.items, self.usage_mark = [], None
        at, compaction = self._newest_compaction(nodes)
        start = 0 if compaction is None else _kept_from(nodes[:at], compaction)
        edits = self._edits(nodes[start:])
        if compaction is not None:
            self._add(compaction, edits)
            self._add_all(nodes[start:at], edits)
        # What was measured before an edit or a summary does not count.
        fresh = max((node.depth for node in nodes[at + 1 :] if node.type == "context_edit"), default=at) + 1
        self._add_all(nodes[at + 1 : fresh], edits)
        measurable = len(self.items)
        self._add_all(nodes[fresh:], edits)
        self.usage_mark = self._newest_measure(measurable)
        self._replay_prompt(nodes, at, compaction)
        self._find_settings(nodes)

    def _newest_compaction(self, nodes: tuple[Node, ...]) -> tuple[int, CompactionEntry | None]:
        for at in range(len(nodes) - 1, -1, -1):
            if nodes[at].type == "compaction":
                entry = self._session.entry(nodes[at].id)
                if isinstance(entry, CompactionEntry):
                    return at, entry
        return -1, None

    def _edits(self, nodes: tuple[Node, ...]) -> dict[str, JSONObject | None]:
        edits: dict[str, JSONObject | None] = {}
        for node in nodes:
            if node.type == "context_edit":
                entry = self._session.entry(node.id)
                if isinstance(entry, ContextEditEntry):
                    edits[entry.target_id] = entry.replacement
        return edits

    def _add_all(self, nodes: Sequence[Node], edits: dict[str, JSONObject | None]) -> None:
        speaking = [node for node in nodes if node.type in _SPEAKING and node.role != "system"]
        for entry in self._session.entries(speaking):
            self._add(entry, edits)

    def _newest_measure(self, start: int) -> int | None:
        for at in range(len(self.items) - 1, start - 1, -1):
            if _measured(self.items[at].message):
                return at
        return None

    def _add(self, entry: Entry, edits: dict[str, JSONObject | None]) -> None:
        message = message_of(entry)
        if message is None:
            return
        if entry.id in edits:
            replacement = edits[entry.id]
            if replacement is None:
                return
            message = edited(message, replacement)
        self.items.append(Projected(entry.id, message))

    def _edit(self, edit: ContextEditEntry) -> bool:
        """Apply an edit to the items at hand; False when its target is not among them."""
        self.usage_mark = None
        for at in range(len(self.items) - 1, -1, -1):
            item = self.items[at]
            self.visited += 1
            if item.entry_id == edit.target_id:
                if edit.replacement is None:
                    del self.items[at]
                else:
                    self.items[at] = structs.replace(item, message=edited(item.message, edit.replacement))
                return True
        return False

    def _replay_prompt(self, nodes: tuple[Node, ...], at: int, compaction: CompactionEntry | None) -> None:
        prompt = PromptState()
        checkpoint = decode_message(compaction.system_message) if compaction and compaction.system_message else None
        if isinstance(checkpoint, SystemMessage):
            prompt, nodes = prompt.apply(checkpoint), nodes[at + 1 :]
        for node in nodes:
            if node.role == "system":
                entry = self._session.entry(node.id)
                if isinstance(entry, MessageEntry) and isinstance(entry.message, SystemMessage):
                    prompt = prompt.apply(entry.message)
        self.prompt = prompt

    def _find_settings(self, nodes: tuple[Node, ...]) -> None:
        choosing = (node for node in reversed(nodes) if node.type == "model_change" or node.role == "assistant")
        models = (_model_in(self._session.entry(node.id)) for node in choosing)
        self.model = next((model for model in models if model is not None), None)
        setting = (node for node in reversed(nodes) if node.type == "thinking_level_change")
        levels = (_level_in(self._session.entry(node.id)) for node in setting)
        self.thinking = next((level for level in levels if level is not None), None)


def _model_in(entry: Entry) -> tuple[str, str] | None:
    match entry:
        case ModelChangeEntry(provider=provider, model_id=model_id):
            return provider, model_id
        case MessageEntry(message=AssistantMessage(provider=provider, model=model)) if provider and model:
            return provider, model
        case _:
            return None


def _level_in(entry: Entry) -> ThinkingLevel | None:
    return entry.thinking_level if isinstance(entry, ThinkingLevelChangeEntry) else None


def _kept_from(before: tuple[Node, ...], compaction: CompactionEntry) -> int:
    for at in range(len(before) - 1, -1, -1):
        if before[at].id == compaction.first_kept_entry_id:
            return at
    return len(before)


def _measured(message: Message) -> bool:
    if not isinstance(message, AssistantMessage):
        return False
    return message.stop_reason not in ("error", "aborted") and message.usage.total_tokens > 0
