"""Everything that happens in a run, as frozen, numbered values.

Front ends read these and nothing else. `docs/events.md` is generated from this module
(`python -m branchwork.agent.events_doc`), and `--output stream-json` prints one event a line with the
fields below and the tag in `kind`. Names in the past tense report, names in the present tense are going on.
"""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from branchwork.session.entries import (
    AssistantMessage,
    Entry,
    JSONObject,
    Message,
    ResultPart,
    ThinkingLevel,
    ToolResultMessage,
    Usage,
)

RunEnd: TypeAlias = Literal["done", "length", "error", "aborted", "max_turns", "time_limit", "refused", "repeating"]
"""Why a run ended: the model finished, its reply was cut at the output limit, it or its server failed, someone
aborted, a limit was reached, policy ended it, or the model kept repeating one call."""

CompactionReason: TypeAlias = Literal["manual", "threshold", "overflow"]


class _Event(Struct, frozen=True, kw_only=True, tag_field="kind"):
    seq: int = 0
    """Counts from 1 within the process; no number is skipped."""


class SessionOpened(_Event, frozen=True, kw_only=True, tag="session_opened"):
    """The first event of every stream."""

    session_id: str
    session_file: str | None
    """None when the session is kept in memory only."""
    cwd: str
    model: str
    read_only: bool
    resumed: bool


class RunStarted(_Event, frozen=True, kw_only=True, tag="run_started"):
    """A prompt was accepted."""

    prompt: str


class TurnStarted(_Event, frozen=True, kw_only=True, tag="turn_started"):
    """A model reply and its tool calls begin."""

    turn: int
    """Counts from 1 within the run."""


class MessageAdded(_Event, frozen=True, kw_only=True, tag="message_added"):
    """A message is part of the session now: durable before this event is sent."""

    entry_id: str
    message: Message


class RequestStarted(_Event, frozen=True, kw_only=True, tag="request_started"):
    """A request to the model begins; `attempt` counts from 1."""

    model: str
    thinking: ThinkingLevel
    attempt: int


class TextStreamed(_Event, frozen=True, kw_only=True, tag="text"):
    """A piece of the reply's text."""

    index: int
    text: str


class ThinkingStreamed(_Event, frozen=True, kw_only=True, tag="thinking"):
    """A piece of the model's thinking."""

    index: int
    text: str


class CallStreamed(_Event, frozen=True, kw_only=True, tag="call"):
    """The model began to write a tool call; its arguments follow as `arguments`."""

    index: int
    call_id: str
    tool: str


class ArgumentsStreamed(_Event, frozen=True, kw_only=True, tag="arguments"):
    """A piece of a tool call's JSON arguments."""

    index: int
    text: str


class ReplyFinished(_Event, frozen=True, kw_only=True, tag="reply_finished"):
    """The reply is complete (or ended early: see its `stopReason`). Authoritative over the pieces."""

    message: AssistantMessage


class ToolStarted(_Event, frozen=True, kw_only=True, tag="tool_started"):
    """A call passed validation and policy; its effects may begin now."""

    call_id: str
    tool: str
    arguments: JSONObject


class ToolProgressed(_Event, frozen=True, kw_only=True, tag="tool_progress"):
    """What a running tool has to show so far; replaces the previous progress of the call."""

    call_id: str
    tool: str
    content: tuple[ResultPart, ...]
    details: Any = None


class ToolRefused(_Event, frozen=True, kw_only=True, tag="tool_refused"):
    """Policy refused a call; no `tool_started` precedes it."""

    call_id: str
    tool: str
    rule: str
    reason: str


class ToolFinished(_Event, frozen=True, kw_only=True, tag="tool_finished"):
    """A call has its one result: in completion order, while results are stored in call order."""

    call_id: str
    tool: str
    result: ToolResultMessage


class TurnFinished(_Event, frozen=True, kw_only=True, tag="turn_finished"):
    """The reply and the results of all its calls are stored."""

    turn: int
    message: AssistantMessage
    results: tuple[ToolResultMessage, ...]


class QueueChanged(_Event, frozen=True, kw_only=True, tag="queue_changed"):
    """The complete contents of both queues, as text."""

    steering: tuple[str, ...]
    follow_up: tuple[str, ...]


class RetryScheduled(_Event, frozen=True, kw_only=True, tag="retry_scheduled"):
    """The request failed before its first part and is sent again after `delay_s` seconds."""

    attempt: int
    max_attempts: int
    delay_s: float
    error: str


class RetryFinished(_Event, frozen=True, kw_only=True, tag="retry_finished"):
    """The last retry of a request succeeded, or there are none left."""

    success: bool
    attempt: int
    error: str | None = None


class CompactionStarted(_Event, frozen=True, kw_only=True, tag="compaction_started"):
    """Older conversation is being turned into notes."""

    reason: CompactionReason


class CompactionFinished(_Event, frozen=True, kw_only=True, tag="compaction_finished"):
    """Notes replaced the older conversation, or `error` says why not.

    `tokens_after` is an estimate; the next reply reports the real figure.
    """

    reason: CompactionReason
    success: bool
    tokens_before: int = 0
    tokens_after: int = 0
    error: str | None = None


class EntryAppended(_Event, frozen=True, kw_only=True, tag="entry_appended"):
    """An entry that is no message was stored."""

    entry: Entry


class LeafMoved(_Event, frozen=True, kw_only=True, tag="leaf_moved"):
    """The session goes on from another point of its tree."""

    old_leaf: str | None
    new_leaf: str | None


class ModelSelected(_Event, frozen=True, kw_only=True, tag="model_selected"):
    """Another model or thinking level is used from the next request on."""

    model: str
    thinking: ThinkingLevel


class Diagnosed(_Event, frozen=True, kw_only=True, tag="diagnostic"):
    """Something a person should know; every front end shows it."""

    level: Literal["info", "warning", "error"]
    source: str
    message: str


class RunFinished(_Event, frozen=True, kw_only=True, tag="run_finished"):
    """The run is over and nothing more will be done without new input."""

    end: RunEnd
    turns: int
    tool_calls: int
    usage: Usage
    duration_ms: int
    error: str | None = None


AgentEvent: TypeAlias = (
    SessionOpened
    | RunStarted
    | TurnStarted
    | MessageAdded
    | RequestStarted
    | TextStreamed
    | ThinkingStreamed
    | CallStreamed
    | ArgumentsStreamed
    | ReplyFinished
    | ToolStarted
    | ToolProgressed
    | ToolRefused
    | ToolFinished
    | TurnFinished
    | QueueChanged
    | RetryScheduled
    | RetryFinished
    | CompactionStarted
    | CompactionFinished
    | EntryAppended
    | LeafMoved
    | ModelSelected
    | Diagnosed
    | RunFinished
)
