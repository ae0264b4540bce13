"""Has the model write notes: for compaction, and about a branch that is left."""

from msgspec import Struct

from branchwork.agent import compaction
from branchwork.agent.branch_notes import left_behind
from branchwork.agent.compaction import Plan
from branchwork.agent.core import Core
from branchwork.agent.events import (
    AgentEvent,
    CompactionFinished,
    CompactionReason,
    CompactionStarted,
    Diagnosed,
    RetryFinished,
    RetryScheduled,
)
from branchwork.agent.hooks import CompactionAnswer, CompactionProposal
from branchwork.agent.request import Overflow
from branchwork.models.base import ModelFailure, ModelRequest
from branchwork.session.entries import (
    AssistantMessage,
    BranchSummaryEntry,
    CompactionEntry,
    JSONObject,
    SystemMessage,
    Usage,
    UsageEntry,
    structure,
)

TRY_AGAIN_AT = 1.1
"""After a failed compaction the context must grow by this factor before another one is tried."""


class _Notes(Struct, frozen=True):
    text: str
    usage: Usage


class _Failed(Exception):
    """The notes could not be made; the text says why."""


class Summaries:
    """Compaction and branch notes over one `Core`. A failure is told by an event and changes nothing."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._failed_at: int | None = None

    def due(self) -> bool:
        """Whether the next request should be preceded by a compaction."""
        core = self._core
        tokens = core.context.size().tokens
        if not core.parts.compaction.due(tokens, core.model.info):
            return False
        return self._failed_at is None or tokens > self._failed_at * TRY_AGAIN_AT

    async def compact(self, reason: CompactionReason, instructions: str | None = None) -> bool:
        """Replace older conversation by notes. False, with an event that says why, when it did not work."""
        core = self._core
        before = core.context.size().tokens
        try:
            found = self._plan()
            core.emit(CompactionStarted(reason=reason))
            proposal = CompactionProposal(
                reason=reason,
                summarised=found.summarised,
                previous=found.previous,
                first_kept=found.first_kept,
                tokens_before=before,
                instructions=instructions,
            )
            answer = await core.parts.hooks.compacting(proposal) or CompactionAnswer()
            if answer.cancel is not None:
                raise _Failed(answer.cancel)
            notes = await self._compaction_notes(found, instructions) if answer.summary is None else None
        except _Failed as failed:
            self._failed_at = before
            core.emit(CompactionFinished(reason=reason, success=False, tokens_before=before, error=str(failed)))
            return False
        (entry,) = core.store(self._entry(found, answer, notes, before))
        assert isinstance(entry, CompactionEntry)
        self._failed_at = None
        after = core.context.size().tokens
        core.emit(CompactionFinished(reason=reason, success=True, tokens_before=before, tokens_after=after))
        await core.parts.hooks.compacted(entry)
        return True

    async def move_with_notes(self, target: str | None, instructions: str | None) -> bool:
        """Go on from `target`, leaving notes there about what is left. False: nothing moved, an event says why."""
        core = self._core
        old = core.session.leaf_id
        window = core.model.info.context_window
        request = left_behind(core.session, target, window=window, instructions=instructions)
        if request is None or old is None:
            core.move(target)
            return True
        try:
            notes = await self._ask(request)
        except _Failed as failed:
            message = f"no notes about the branch: {failed}; nothing moved"
            core.emit(Diagnosed(level="error", source="tree", message=message))
            return False
        core.move(target)
        core.store(BranchSummaryEntry(from_id=old, summary=notes.text, usage=notes.usage))
        return True

    async def ask_aside(self, system: str, prompt: str) -> AssistantMessage:
        """A request that is no part of the conversation. Raises `ModelFailure` without a usable answer."""
        core = self._core
        requester = core.requester(self._emit_retries)
        try:
            reply = await requester.run(compaction.summary_request(system, prompt, core.session.header.id))
        except Overflow as error:
            raise ModelFailure("overflow", str(error)) from error
        info = core.model.info
        core.store(UsageEntry(kind="aside", provider=info.provider, model=info.id, usage=reply.usage))
        if compaction.summary_of(reply) is None:
            raise requester.failure or ModelFailure("rejected", f"the answer ended with {reply.stop_reason!r}")
        return reply

    # ---- inside -----------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        core = self._core
        info = core.model.info
        keep = core.parts.compaction.keep(info)
        found = compaction.plan(core.context.projection.items, min(keep, info.context_window // 4))
        if found is None:
            raise _Failed("there is nothing older than the recent messages")
        return found

    async def _compaction_notes(self, found: Plan, instructions: str | None) -> _Notes:
        core = self._core
        return await self._ask(
            compaction.request_for(
                found,
                window=core.model.info.context_window,
                instructions=instructions,
                session_id=core.session.header.id,
            )
        )

    async def _ask(self, request: ModelRequest) -> _Notes:
        try:
            reply = await self._core.requester(self._emit_retries).run(request)
        except Overflow as error:
            raise _Failed(str(error)) from error
        text = compaction.summary_of(reply)
        if text is None:
            raise _Failed(reply.error_message or f"the notes ended with {reply.stop_reason!r}")
        return _Notes(text, reply.usage)

    def _entry(self, found: Plan, answer: CompactionAnswer, notes: _Notes | None, before: int) -> CompactionEntry:
        core = self._core
        prompt = core.context.projection.prompt
        checkpoint = SystemMessage(
            content="",
            sections=dict(prompt.sections),
            tools_added=tuple(prompt.tools.values()),
            timestamp=core.parts.clock.now_ms(),
        )
        carried = compaction.carried_over(found.summarised, self._last_details())
        text = answer.summary if answer.summary is not None else notes.text if notes else ""
        return CompactionEntry(
            summary=compaction.with_carried(text, carried),
            first_kept_entry_id=found.first_kept if answer.first_kept is None else answer.first_kept,
            tokens_before=before,
            system_message=structure(checkpoint),
            details={**carried, "extension": answer.details} if answer.details is not None else carried,
            usage=notes.usage if notes else None,
            from_hook=answer.summary is not None,
        )

    def _last_details(self) -> JSONObject | None:
        """The details of the compaction that is in force, if there is one."""
        items = self._core.context.projection.items
        entry = self._core.session.entry(items[0].entry_id) if items else None
        details = entry.details if isinstance(entry, CompactionEntry) else None
        return details if isinstance(details, dict) else None

    def _emit_retries(self, event: AgentEvent) -> None:
        if isinstance(event, RetryScheduled | RetryFinished):
            self._core.emit(event)
