"""The hook points: what an extension may watch, change or decide, and with what.

A point is a value; its kind says what a handler may return and what happens when it fails:

* `Observe`: returns nothing. Raising or running out of time is reported; the third time the handler is dropped.
* `Transform`: returns the new value, or None to leave it. On failure the previous value stays.
* `Decide`: returns a verdict of the point's types, or None for no objection. On failure: the strictest verdict.
"""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from branchwork.agent.events import CompactionReason, RunFinished, TurnFinished
from branchwork.agent.hooks import CompactionAnswer, CompactionProposal
from branchwork.agent.toolset import ToolOutput
from branchwork.session.entries import (
    CompactionEntry,
    CustomMessage,
    CustomMessageEntry,
    Image,
    JSONObject,
    ThinkingLevel,
    ToolCall,
    UserMessage,
)

P = TypeVar("P")
V = TypeVar("V")

StartReason: TypeAlias = Literal["startup", "new", "resume", "fork", "reload"]
EndReason: TypeAlias = Literal["quit", "new", "resume", "fork", "reload"]
InputSource: TypeAlias = Literal["person", "program", "extension"]


class Observe(Struct, Generic[P], frozen=True):
    """`payload` is what the handler is given."""

    name: str
    payload: type[P]


class Transform(Struct, Generic[P, V], frozen=True):
    """The handler is given the payload and the value so far; `returns` are the types of a new value."""

    name: str
    payload: type[P]
    returns: tuple[type[Any], ...]
    final: tuple[type[Any], ...] = ()
    """Values after which no other handler is asked."""
    items: type[Any] | None = None
    """What a value that is a sequence is made of."""


class Decide(Struct, Generic[P, V], frozen=True):
    """`returns` are the types of a verdict."""

    name: str
    payload: type[P]
    returns: tuple[type[Any], ...]


# ---- payloads and values --------------------------------------------------------------------------


class SessionStarted(Struct, frozen=True, kw_only=True):
    reason: StartReason
    previous: str | None = None
    """The file of the session that this one follows or was forked from."""


class SessionEnding(Struct, frozen=True, kw_only=True):
    """The last chance to write; the session is still open."""

    reason: EndReason


class Moved(Struct, frozen=True, kw_only=True):
    old_leaf: str | None
    new_leaf: str | None


class Input(Struct, frozen=True, kw_only=True):
    """What was submitted, before skills and templates are expanded."""

    text: str
    images: tuple[Image, ...] = ()


class InputContext(Struct, frozen=True, kw_only=True):
    source: InputSource
    running: bool
    """Whether a run is going on, so that the input will be queued."""


class Handled(Struct, frozen=True, kw_only=True):
    """The input is dealt with and goes no further. `say` is shown to the person."""

    say: str | None = None


class RunStarting(Struct, frozen=True, kw_only=True):
    prompt: tuple[UserMessage, ...]


class RequestStarting(Struct, frozen=True, kw_only=True):
    tokens: int
    """What the request will carry, partly estimated."""
    context_window: int


class CallChecked(Struct, frozen=True, kw_only=True):
    """A call whose arguments are valid. `arguments` are as other handlers may have changed them."""

    call: ToolCall
    arguments: JSONObject


class Block(Struct, frozen=True, kw_only=True):
    """The call may not run; the model reads `reason`."""

    reason: str
    terminate: bool = False
    """Ends the run after the batch."""


class ChangeArguments(Struct, frozen=True, kw_only=True):
    """The call runs with these arguments, which are validated again."""

    arguments: JSONObject


class ResultReady(Struct, frozen=True, kw_only=True):
    call: ToolCall


class CompactionFailed(Struct, frozen=True, kw_only=True):
    reason: CompactionReason
    error: str


class Compacted(Struct, frozen=True, kw_only=True):
    entry: CompactionEntry


class MoveProposed(Struct, frozen=True, kw_only=True):
    target: str | None
    with_notes: bool


class ForkProposed(Struct, frozen=True, kw_only=True):
    entry_id: str | None
    position: Literal["before", "at"]


class SwitchProposed(Struct, frozen=True, kw_only=True):
    reason: Literal["new", "resume"]
    target: str | None


class Veto(Struct, frozen=True, kw_only=True):
    """It does not happen; the person reads `reason`."""

    reason: str


class ModelChosen(Struct, frozen=True, kw_only=True):
    model: str
    previous: str | None


class ThinkingChosen(Struct, frozen=True, kw_only=True):
    level: ThinkingLevel
    previous: ThinkingLevel


class ResourcePaths(Struct, frozen=True, kw_only=True):
    """Folders to look into, beside the usual ones."""

    skills: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()


class Discovering(Struct, frozen=True, kw_only=True):
    cwd: str


class Settled(Struct, frozen=True, kw_only=True):
    """Nothing is queued and nothing runs."""

    aborted: bool


# ---- the points -----------------------------------------------------------------------------------

SESSION_STARTED = Observe("session_started", SessionStarted)
SESSION_ENDING = Observe("session_ending", SessionEnding)
SESSION_MOVED = Observe("session_moved", Moved)
TURN_ENDED = Observe("turn_ended", TurnFinished)
RUN_ENDED = Observe("run_ended", RunFinished)
SETTLED = Observe("settled", Settled)
COMPACTED = Observe("compacted", Compacted)
COMPACTION_FAILED = Observe("compaction_failed", CompactionFailed)
MODEL_CHOSEN = Observe("model_chosen", ModelChosen)
THINKING_CHOSEN = Observe("thinking_chosen", ThinkingChosen)

INPUT: Transform[InputContext, Input | Handled] = Transform("input", InputContext, (Input, Handled), (Handled,))
RUN_STARTING: Transform[RunStarting, Sequence[CustomMessageEntry]] = Transform(
    "run_starting", RunStarting, (tuple, list), (), CustomMessageEntry
)
REQUEST_STARTING: Transform[RequestStarting, Sequence[CustomMessage]] = Transform(
    "request_starting", RequestStarting, (tuple, list), (), CustomMessage
)
TOOL_RESULT: Transform[ResultReady, ToolOutput] = Transform("tool_result", ResultReady, (ToolOutput,))
DISCOVERING: Transform[Discovering, ResourcePaths] = Transform("discovering", Discovering, (ResourcePaths,))
COMPACTING: Transform[CompactionProposal, CompactionAnswer] = Transform(
    "compacting", CompactionProposal, (CompactionAnswer,)
)

TOOL_CALL: Decide[CallChecked, Block | ChangeArguments] = Decide("tool_call", CallChecked, (Block, ChangeArguments))
MOVING: Decide[MoveProposed, Veto] = Decide("moving", MoveProposed, (Veto,))
FORKING: Decide[ForkProposed, Veto] = Decide("forking", ForkProposed, (Veto,))
SWITCHING: Decide[SwitchProposed, Veto] = Decide("switching", SwitchProposed, (Veto,))

Point: TypeAlias = Observe[Any] | Transform[Any, Any] | Decide[Any, Any]

ALL: tuple[Point, ...] = (
    SESSION_STARTED,
    SESSION_ENDING,
    SESSION_MOVED,
    TURN_ENDED,
    RUN_ENDED,
    SETTLED,
    COMPACTED,
    COMPACTION_FAILED,
    MODEL_CHOSEN,
    THINKING_CHOSEN,
    INPUT,
    RUN_STARTING,
    REQUEST_STARTING,
    TOOL_RESULT,
    DISCOVERING,
    COMPACTING,
    TOOL_CALL,
    MOVING,
    FORKING,
    SWITCHING,
)
