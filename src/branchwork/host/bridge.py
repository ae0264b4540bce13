"""Between the loop and the extensions: the loop's questions become hook points."""

from collections.abc import Callable, Sequence

from branchwork.agent.coerce import arguments_for
from branchwork.agent.events import RunFinished, TurnFinished
from branchwork.agent.gate import Changed, Gate, Refusal
from branchwork.agent.hooks import CompactionAnswer, CompactionProposal, LoopHooks
from branchwork.agent.toolset import Tool, ToolArgs, ToolOutput
from branchwork.host import points
from branchwork.host.context import HostPort
from branchwork.host.hooks import Failure, Hooks, Verdict
from branchwork.host.points import Block, CallChecked, ChangeArguments, RequestStarting, ResultReady, RunStarting
from branchwork.session.entries import (
    LEAF_TYPE,
    CompactionEntry,
    CustomMessage,
    CustomMessageEntry,
    Message,
    ToolCall,
    UserMessage,
)

CONTRIBUTED = "context"
"""Custom type of the message that carries what context contributors say."""


class ExtensionLoop(LoopHooks):
    """Asks the handlers of each point. None of its methods raises but for cancellation."""

    def __init__(self, host: HostPort, hooks: Hooks, now_ms: Callable[[], int]) -> None:
        self._host = host
        self._hooks = hooks
        self._now_ms = now_ms

    async def run_starting(self, prompt: Sequence[UserMessage]) -> Sequence[CustomMessageEntry]:
        payload = RunStarting(prompt=tuple(prompt))
        nothing: Sequence[CustomMessageEntry] = ()
        return await self._hooks.transform(points.RUN_STARTING, payload, nothing, _check_entries)

    async def request_messages(self) -> Sequence[Message]:
        agent = self._host.agent
        said = contributed(self._host)
        start: Sequence[CustomMessage] = ()
        if said:
            text = "\n\n".join(said.values())
            start = (CustomMessage(custom_type=CONTRIBUTED, content=text, display=False, timestamp=self._now_ms()),)
        payload = RequestStarting(tokens=agent.context_size().tokens, context_window=agent.model.info.context_window)
        return await self._hooks.transform(points.REQUEST_STARTING, payload, start)

    async def tool_result(self, call: ToolCall, output: ToolOutput) -> ToolOutput:
        return await self._hooks.transform(points.TOOL_RESULT, ResultReady(call=call), output)

    async def turn_ended(self, turn: TurnFinished) -> None:
        await self._hooks.observe(points.TURN_ENDED, turn)

    async def run_ended(self, finished: RunFinished) -> None:
        await self._hooks.observe(points.RUN_ENDED, finished)

    async def compacting(self, proposal: CompactionProposal) -> CompactionAnswer | None:
        return await self._hooks.transform(points.COMPACTING, proposal, CompactionAnswer(), self._check_notes)

    async def compacted(self, entry: CompactionEntry) -> None:
        await self._hooks.observe(points.COMPACTED, points.Compacted(entry=entry))

    def _check_notes(self, answer: CompactionAnswer) -> None:
        """Nothing of the conversation may be lost by a slip: notes are not empty, and what stays is on the branch."""
        if answer.cancel is not None:
            return
        if answer.summary is not None and not answer.summary.strip():
            raise ValueError("the summary is empty")
        if answer.first_kept is not None and answer.summary is None:
            raise ValueError("`first_kept` needs a `summary` of what is before it")
        if answer.first_kept and answer.first_kept not in {node.id for node in self._host.tree.branch().nodes}:
            raise ValueError(f"there is no entry {answer.first_kept!r} on the branch to keep")


class ExtensionGate:
    """Extensions decide first and may change the arguments; the policy's gate then judges what would be run."""

    def __init__(self, host: HostPort, hooks: Hooks, inner: Gate) -> None:
        self._host = host
        self._hooks = hooks
        self._inner = inner

    async def check(self, call: ToolCall, tool: Tool, args: ToolArgs) -> Refusal | Changed | None:
        if not self._hooks.count(points.TOOL_CALL):
            return await self._inner.check(call, tool, args)
        validated: dict[int, ToolArgs] = {}

        def revise(payload: CallChecked, answer: Block | ChangeArguments) -> CallChecked | None:
            if not isinstance(answer, ChangeArguments):
                return None
            revised = CallChecked(call=payload.call, arguments=answer.arguments)
            validated[id(revised)] = arguments_for(tool, _with_arguments(call, answer))
            return revised

        first = CallChecked(call=call, arguments=call.arguments)
        last, verdict = await self._hooks.decide_revising(points.TOOL_CALL, first, revise)
        if verdict is not None:
            return _refusal(verdict)
        if last is first:
            return await self._inner.check(call, tool, args)
        changed = Changed(args=validated[id(last)], arguments=last.arguments)
        judged = await self._inner.check(_with_arguments(call, last), tool, changed.args)
        return judged or changed


def _check_entries(entries: Sequence[CustomMessageEntry]) -> None:
    """The session gives ids, places and times; an extension only says something."""
    for entry in entries:
        if entry.id or entry.parent_id != "" or entry.timestamp:
            raise ValueError("a message to add has no id, parent or time yet")
        if entry.custom_type in ("", LEAF_TYPE):
            raise ValueError(f"{entry.custom_type!r} cannot be a custom type; use the extension's name")


def _with_arguments(call: ToolCall, source: CallChecked | ChangeArguments) -> ToolCall:
    return ToolCall(id=call.id, name=call.name, arguments=source.arguments)


def _refusal(verdict: Verdict | Failure) -> Refusal:
    if isinstance(verdict, Failure):
        return Refusal(rule=f"extension:{verdict.owner}", reason=f"refused, because {verdict}")
    block = verdict.answer
    return Refusal(rule=f"extension:{verdict.owner}", reason=block.reason, terminate=block.terminate)


def contributed(host: HostPort) -> dict[str, str]:
    """What the context contributors say now, by their name; one that fails says nothing and is reported."""
    found: dict[str, str] = {}
    for owned in host.registry.contributors.owned():
        text = host.provided(owned.owner, f"context {owned.value.name}", owned.value.provider)
        if text:
            found[owned.value.name] = text
    return found


def sections(host: HostPort) -> dict[str, str]:
    """The prompt sections of extensions, in their order."""
    found: dict[str, str] = {}
    owned_sections = sorted(host.registry.sections.owned(), key=lambda owned: (owned.value.order, owned.value.name))
    for owned in owned_sections:
        text = host.provided(owned.owner, f"section {owned.value.name}", owned.value.provider)
        if text:
            found[owned.value.name] = text
    return found
