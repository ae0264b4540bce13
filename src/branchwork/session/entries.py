"""What a session file holds: messages, their parts, and the entries that carry them.

The shapes are those of version 3 of the JSONL session format that this program shares with the npm
package ``@earendil-works/pi-coding-agent`` (camelCase on disk, ``type`` and ``role`` as tags). Everything
here is a frozen value; reading and repairing bytes is `branchwork.session.codec`'s job.
"""

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

JSONObject: TypeAlias = dict[str, Any]

ThinkingLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
StopReason: TypeAlias = Literal["stop", "length", "toolUse", "error", "aborted", "deferred"]

SESSION_VERSION = 3


# ---- parts of a message ---------------------------------------------------------------------------


class Text(Struct, frozen=True, gc=False, tag="text", tag_field="type", rename="camel", omit_defaults=True):
    text: str
    text_signature: str | None = None
    """Opaque provider data, replayed to the provider that gave it."""


class Image(Struct, frozen=True, gc=False, tag="image", tag_field="type", rename="camel"):
    data: str
    """Base64, no line breaks."""
    mime_type: str


class Thinking(Struct, frozen=True, gc=False, tag="thinking", tag_field="type", rename="camel", omit_defaults=True):
    thinking: str
    thinking_signature: str | None = None
    """Opaque; without it a provider refuses the block on replay."""
    redacted: bool = False


class ToolCall(Struct, frozen=True, gc=False, tag="toolCall", tag_field="type", rename="camel", omit_defaults=True):
    id: str
    name: str
    arguments: JSONObject
    thought_signature: str | None = None
    namespace: str | None = None
    arguments_text: str | None = None
    """What the model sent when it was not one JSON object; `arguments` is then empty and the call fails."""


UserPart: TypeAlias = Text | Image
AssistantPart: TypeAlias = Text | Thinking | ToolCall
ResultPart: TypeAlias = Text | Image


# ---- usage ----------------------------------------------------------------------------------------


class Cost(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """US dollars for one request, fixed when it was made."""

    input: float = field(default_factory=float)
    output: float = field(default_factory=float)
    cache_read: float = field(default_factory=float)
    cache_write: float = field(default_factory=float)
    total: float = field(default_factory=float)
    total_from_provider: bool = False
    source: str | None = None
    """Where the prices came from: `provider`, `models.toml`, `genai-prices VERSION`; None means unknown."""


class Usage(Struct, frozen=True, gc=False, rename="camel"):
    """Tokens of one request. `input` excludes cache reads and writes; `reasoning` is part of `output`."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = field(default=0, name="cacheWrite1h")
    reasoning: int = 0
    total_tokens: int = 0
    cost: Cost = field(default_factory=Cost)


# ---- messages -------------------------------------------------------------------------------------


class _Message(Struct, frozen=True, gc=False, kw_only=True, tag_field="role", rename="camel", omit_defaults=True):
    timestamp: int | float
    """Unix milliseconds."""


class SystemMessage(_Message, frozen=True, kw_only=True, tag="system"):
    """A patch to the prompt state: sections by name (None removes) and the tools that came and went."""

    content: str | tuple[Text, ...]
    sections: dict[str, str | None] | None = None
    tools_added: tuple[JSONObject, ...] | None = None
    tools_removed: tuple[str, ...] | None = None


class UserMessage(_Message, frozen=True, kw_only=True, tag="user"):
    content: str | tuple[UserPart, ...]


class AssistantMessage(_Message, frozen=True, kw_only=True, tag="assistant"):
    content: tuple[AssistantPart, ...]
    api: str
    provider: str
    model: str
    usage: Usage
    stop_reason: StopReason
    response_model: str | None = None
    response_id: str | None = None
    thinking_level: ThinkingLevel | None = None
    provider_thinking_level: str | None = None
    error_message: str | None = None
    raw_stop_reason: str | None = None
    duration_ms: int | float | None = None

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.content if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, Text))


class ToolResultMessage(_Message, frozen=True, kw_only=True, tag="toolResult"):
    tool_call_id: str
    tool_name: str
    content: tuple[ResultPart, ...]
    is_error: bool
    details: Any = None
    usage: Usage | None = None
    nested_calls: JSONObject | None = None
    duration_ms: int | float | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, Text))


class BashExecutionMessage(_Message, frozen=True, kw_only=True, tag="bashExecution"):
    """A `!command` of the person; the model sees it as user text unless excluded."""

    command: str
    output: str
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = None
    exclude_from_context: bool = False


class CustomMessage(_Message, frozen=True, kw_only=True, tag="custom"):
    """Speech of an extension to the model; `details` never leaves the session."""

    custom_type: str
    content: str | tuple[UserPart, ...]
    display: bool = True
    details: Any = None


class BranchSummaryMessage(_Message, frozen=True, kw_only=True, tag="branchSummary"):
    summary: str
    from_id: str


class CompactionSummaryMessage(_Message, frozen=True, kw_only=True, tag="compactionSummary"):
    summary: str
    tokens_before: int | float = 0


Message: TypeAlias = (
    SystemMessage
    | UserMessage
    | AssistantMessage
    | ToolResultMessage
    | BashExecutionMessage
    | CustomMessage
    | BranchSummaryMessage
    | CompactionSummaryMessage
)


# ---- entries --------------------------------------------------------------------------------------


class _Entry(Struct, frozen=True, gc=False, kw_only=True, tag_field="type", rename="camel", omit_defaults=True):
    """A new entry carries empty strings here; `Session.append` fills them in."""

    id: str = ""
    parent_id: str | None = ""
    timestamp: str = ""
    """ISO 8601, UTC, milliseconds."""


class MessageEntry(_Entry, frozen=True, kw_only=True, tag="message"):
    message: Message


class ModelChangeEntry(_Entry, frozen=True, kw_only=True, tag="model_change"):
    provider: str
    model_id: str


class ThinkingLevelChangeEntry(_Entry, frozen=True, kw_only=True, tag="thinking_level_change"):
    thinking_level: ThinkingLevel


class UsageEntry(_Entry, frozen=True, kw_only=True, tag="usage"):
    """Spending outside the conversation (a summary, a child run); counts in totals."""

    kind: str
    provider: str
    model: str
    usage: Usage
    note: str | None = None


class CompactionEntry(_Entry, frozen=True, kw_only=True, tag="compaction"):
    summary: str
    first_kept_entry_id: str
    """The first entry still sent in full; the entry's own id means that nothing before it is kept."""
    tokens_before: int | float
    system_message: JSONObject | None = None
    details: Any = None
    usage: Usage | None = None
    from_hook: bool = False


class ContextEditEntry(_Entry, frozen=True, kw_only=True, tag="context_edit"):
    """Changes what the model sees of `target_id`: `replacement` None hides it, `{"content": …}` replaces it."""

    target_id: str
    replacement: JSONObject | None


class BranchSummaryEntry(_Entry, frozen=True, kw_only=True, tag="branch_summary"):
    from_id: str
    summary: str
    details: Any = None
    usage: Usage | None = None
    from_hook: bool = False


class CustomEntry(_Entry, frozen=True, kw_only=True, tag="custom"):
    """Memory of an extension; never sent to the model."""

    custom_type: str
    data: Any = None


class CustomMessageEntry(_Entry, frozen=True, kw_only=True, tag="custom_message"):
    """Speech of an extension to the model; `display` False hides it from people only."""

    custom_type: str
    content: str | tuple[UserPart, ...]
    display: bool
    details: Any = None


class LabelEntry(_Entry, frozen=True, kw_only=True, tag="label"):
    """A bookmark on `target_id`; without `label` it is cleared. The latest wins."""

    target_id: str
    label: str | None = None


class SessionInfoEntry(_Entry, frozen=True, kw_only=True, tag="session_info"):
    name: str


class UnknownEntry(Struct, frozen=True, gc=False, kw_only=True):
    """An entry this version cannot interpret. It keeps its place in the tree and gives no context."""

    type: str
    id: str
    parent_id: str | None
    timestamp: str
    reason: str
    """Why: an unknown type, or the first validation problem of a known one."""
    raw: JSONObject


KnownEntry: TypeAlias = (
    MessageEntry
    | ModelChangeEntry
    | ThinkingLevelChangeEntry
    | UsageEntry
    | CompactionEntry
    | ContextEditEntry
    | BranchSummaryEntry
    | CustomEntry
    | CustomMessageEntry
    | LabelEntry
    | SessionInfoEntry
)
Entry: TypeAlias = KnownEntry | UnknownEntry

LEAF_TYPE = "branchwork:leaf"
"""Custom type of the entry that navigation appends, so that the chosen branch survives a restart."""


class Header(
    Struct, frozen=True, gc=False, kw_only=True, tag="session", tag_field="type", rename="camel", omit_defaults=True
):
    """The first line of the file; not part of the tree."""

    version: int = field(default_factory=lambda: 1)
    id: str
    timestamp: str
    cwd: str
    parent_session: str | None = None


class Problem(Struct, frozen=True, gc=False):
    """One piece of damage. `line` counts from 1; nothing that could still be read was lost to it."""

    line: int
    kind: Literal[
        "torn-tail",
        "nul-bytes",
        "several-objects",
        "line-separator",
        "missing-header",
        "foreign-header",
        "second-header",
        "newer-version",
        "orphan",
        "id-collision",
        "cycle",
        "overlong-line",
        "invalid-utf8",
        "not-json",
        "not-an-object",
        "missing-id",
        "invalid-entry",
    ]
    detail: str
    lost: bool = False
    """True when something on this line could not be read (its bytes stay in the file)."""


def text_of(content: str | tuple[Text | Image, ...]) -> str:
    """The text of a message's content; images count for nothing."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, Text))


def structure(value: Any) -> JSONObject:
    """A value of this module as plain JSON data (dicts, lists, strings, numbers)."""
    built = msgspec.to_builtins(value)
    assert isinstance(built, dict)
    return built
