"""The one gate: every tool call passes it, whoever asked for it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from branchwork.agent.gate import Refusal
from branchwork.agent.toolset import Effect, Tool
from branchwork.policy.posture import Posture, Restriction, within
from branchwork.session.entries import ToolCall
from branchwork.tools.paths import locate


class Decision(Struct, frozen=True, kw_only=True):
    """What the gate says of a call, for `policy explain` and the screen."""

    allowed: bool
    rule: str
    reason: str
    contributor: str | None = None
    sandboxed: bool = False
    """Whether the call runs inside the sandbox."""


class Surface(Struct, frozen=True, kw_only=True):
    """The world that calls are judged against."""

    cwd: Path
    home: Path
    scratch: Path
    """Can be written whatever the posture is."""
    tmp: str | None
    """Where commands may write by their text: `/tmp`, whose place the scratch directory takes in the sandbox; never
    a directory that the project is in."""
    env: dict[str, str]
    sandbox: Callable[[], str | None]
    """The name of the backend in force; None when there is none. Asked when a command needs it."""


class PolicyGate:
    """Implements `branchwork.agent.gate.Gate`. The posture is asked for at every call, so that a change counts
    from the next call on."""

    def __init__(self, posture: Callable[[], Posture], surface: Surface) -> None:
        self._posture = posture
        self._surface = surface

    async def check(self, call: ToolCall, tool: Tool, args: Any) -> Refusal | None:
        decision = self.explain(tool, args)
        if decision.allowed:
            return None
        return Refusal(rule=decision.rule, reason=decision.reason)

    def explain(self, tool: Tool, args: Any) -> Decision:
        """The decision on one call: the first refusal of its effects, or what allowed it."""
        posture = self._posture()
        sandboxed = False
        if Effect.WRITE in tool.effects:
            refused = self._writing(posture, tool, args)
            if refused is not None:
                return refused
        if Effect.EXECUTE in tool.effects:
            decision = self._executing(posture, tool, args)
            if not decision.allowed:
                return decision
            sandboxed = decision.sandboxed
        if Effect.NETWORK in tool.effects and (restriction := posture.against_network()):
            return _refused("network", restriction, f"{tool.name} uses the network")
        restriction = posture.against_delegation() if Effect.DELEGATE in tool.effects else None
        if restriction is not None and (restriction.delegate == "none" or not _reads_only(tool)):
            return _refused("delegation", restriction, f"{tool.name} starts another agent")
        rule = "sandboxed" if sandboxed else "allowed"
        return Decision(allowed=True, rule=rule, reason="nothing forbids it", sandboxed=sandboxed)

    def _writing(self, posture: Posture, tool: Tool, args: Any) -> Decision | None:
        if tool.touches is None:
            restriction = posture.against_writing(None)
            return _refused("write", restriction, f"{tool.name} writes") if restriction else None
        for text in tool.touches(args):
            path = locate(text, cwd=self._surface.cwd, home=self._surface.home, similar=tool.name != "write")
            restriction = posture.against_writing(path)
            if restriction is not None and not within(os.path.realpath(path), self._surface.scratch):
                return _refused("write", restriction, f"{text} may not be written")
        return None

    def _executing(self, posture: Posture, tool: Tool, args: Any) -> Decision:
        restriction = posture.against_shell()
        if restriction is None:
            return Decision(allowed=True, rule="shell-free", reason="the shell is not restricted")
        if restriction.shell == "off" or tool.command is None:
            return _refused("shell-off", restriction, f"{tool.name} runs programs")
        from branchwork.policy.shell import judge

        surface = self._surface
        judgement = judge(
            tool.command(args),
            cwd=str(surface.cwd),
            tmp=surface.tmp,
            home=str(surface.home),
            env=surface.env,
        )
        if judgement.verdict == "B":
            return _refused(f"shell:{judgement.rule}", restriction, judgement.reason)
        backend = surface.sandbox()
        if judgement.verdict == "S" and backend is None:
            why = f"{judgement.reason} No sandbox works on this machine, so such commands are refused."
            return _refused(f"shell:{judgement.rule}", restriction, why)
        return Decision(
            allowed=True,
            rule=f"shell:{judgement.rule}",
            reason=judgement.reason,
            contributor=restriction.contributor,
            sandboxed=backend is not None,
        )


def _refused(rule: str, restriction: Restriction, what: str) -> Decision:
    return Decision(
        allowed=False,
        rule=rule,
        reason=f"Refused by {restriction.contributor}: {what.rstrip('.')}. {restriction.reason}",
        contributor=restriction.contributor,
    )


def _reads_only(tool: Tool) -> bool:
    """Whether what the tool starts can only read: it declares no other effect than delegating and reading."""
    return tool.effects <= {Effect.READ, Effect.DELEGATE}
