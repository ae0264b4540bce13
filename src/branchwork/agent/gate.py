"""The one question every tool call must pass. The answer is policy's; this is only its shape."""

from typing import Protocol

from msgspec import Struct

from branchwork.agent.toolset import Tool, ToolArgs
from branchwork.session.entries import JSONObject, ToolCall


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a call may not run; the model reads `reason`, people also see `rule`."""

    rule: str
    reason: str
    terminate: bool = False
    """Ends the run after this batch."""


class Changed(Struct, frozen=True, kw_only=True):
    """The call may run with other arguments: as validated, and as JSON for those who look on."""

    args: ToolArgs
    arguments: JSONObject


class Gate(Protocol):
    async def check(self, call: ToolCall, tool: Tool, args: ToolArgs) -> Refusal | Changed | None:
        """None lets the call run as it is. Raising refuses it."""
        ...


class OpenGate:
    """Lets everything pass: for embedding programs that bring their own boundary."""

    async def check(self, call: ToolCall, tool: Tool, args: ToolArgs) -> Refusal | None:
        return None
