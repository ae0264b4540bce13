"""Where the loop asks whoever hosts it. The default answers leave everything as it is.

The host gives an object of this class (with methods of its own) to the agent and keeps the promise that no
method raises and none takes for ever: failure rules and time budgets of extensions are its matter.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from branchwork.agent.events import CompactionReason, RunFinished, TurnFinished
from branchwork.agent.toolset import ToolOutput
from branchwork.session.entries import CompactionEntry, CustomMessageEntry, Message, ToolCall, UserMessage


class CompactionProposal(Struct, frozen=True, kw_only=True):
    """What a compaction is about to replace."""

    reason: CompactionReason
    summarised: tuple[Message, ...]
    previous: str | None
    first_kept: str
    tokens_before: int
    instructions: str | None


class CompactionAnswer(Struct, frozen=True, kw_only=True):
    """What the host wants instead of the default: to cancel, or notes of its own."""

    cancel: str | None = None
    """Why nothing is compacted; None when it goes on."""
    summary: str | None = None
    first_kept: str | None = None
    """Entry id of the first message that stays; None takes the proposal's. An empty text keeps nothing."""
    details: Any = None


class LoopHooks:
    """The default: nothing is added, nothing is changed."""

    async def run_starting(self, prompt: Sequence[UserMessage]) -> Sequence[CustomMessageEntry]:
        """Messages to store after the prompt, before the first request."""
        return ()

    async def request_messages(self) -> Sequence[Message]:
        """Messages for the next request only; they are not stored."""
        return ()

    async def tool_result(self, call: ToolCall, output: ToolOutput) -> ToolOutput:
        """The result that is stored instead of `output`."""
        return output

    async def turn_ended(self, turn: TurnFinished) -> None:
        """The turn is stored; the next one waits for this."""

    async def run_ended(self, finished: RunFinished) -> None:
        """The run is over (also when it was aborted); nothing waits but the next input."""

    async def compacting(self, proposal: CompactionProposal) -> CompactionAnswer | None:
        """None leaves the compaction to the agent."""
        return None

    async def compacted(self, entry: CompactionEntry) -> None:
        """Notes are stored and in force."""
