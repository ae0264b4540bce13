"""One run: from a prompt to the point where nothing is left to do."""

import asyncio
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from branchwork.agent.calls import ABORTED, CUT_OFF, Batch
from branchwork.agent.core import Core
from branchwork.agent.events import (
    Diagnosed,
    QueueChanged,
    ReplyFinished,
    RunEnd,
    RunFinished,
    RunStarted,
    TurnFinished,
    TurnStarted,
)
from branchwork.agent.queue import InputQueue
from branchwork.agent.repeat import RepeatGuard
from branchwork.agent.request import Overflow, Requester
from branchwork.agent.summaries import Summaries
from branchwork.errors import UserError
from branchwork.models.base import ModelFailure
from branchwork.models.usage import add_usage
from branchwork.session.entries import AssistantMessage, MessageEntry, ToolResultMessage, Usage, UserMessage, text_of

AbortReason: TypeAlias = Literal["aborted", "time_limit"]


class Limits(Struct, frozen=True, kw_only=True):
    max_turns: int | None = None
    time_limit_s: float | None = None


class Run:
    """The loop. Lives for one prompt; `drive` is the body of its task and the only place that sees cancellation."""

    def __init__(self, core: Core, summaries: Summaries, queue: InputQueue, limits: Limits) -> None:
        self._core = core
        self._summaries = summaries
        self._queue = queue
        self._limits = limits
        self._guard = RepeatGuard(core.parts.repeat_stop)
        self._batch: Batch | None = None
        self._requester: Requester | None = None
        self._turn = 0
        self._calls = 0
        self._usage = Usage()
        self._error: str | None = None
        self._begun = False
        self._abort_reason: AbortReason | None = None
        self.failure: ModelFailure | None = None
        """The model's or its server's failure that ended the run, if one did."""

    def abort(self, reason: AbortReason) -> bool:
        """Note why the run ends; True when its task must be cancelled to end it (not if it never began)."""
        self._abort_reason = reason
        return self._begun

    async def drive(self, prompt: Sequence[UserMessage]) -> RunFinished:
        clock = self._core.parts.clock
        started = clock.monotonic()
        self._core.emit(RunStarted(prompt="\n\n".join(text_of(message.content) for message in prompt)))
        self._begun = True
        end: RunEnd
        try:
            end = self._abort_reason or await self._turns(prompt)
        except asyncio.CancelledError:
            await self._settle()
            end = self._abort_reason or "aborted"
        except UserError as error:  # storing failed: nothing more can be recorded, so nothing more is done
            await self._settle(stored=False)
            end, self._error = "error", str(error)
            self._core.emit(Diagnosed(level="error", source="session", message=str(error)))
        except BaseException:
            await self._settle()
            raise
        finished = RunFinished(
            end=end,
            turns=self._turn,
            tool_calls=self._calls,
            usage=self._usage,
            duration_ms=round((clock.monotonic() - started) * 1000),
            error=self._error,
        )
        self._core.emit(finished)
        return finished

    async def _turns(self, prompt: Sequence[UserMessage]) -> RunEnd:
        if self._summaries.due():
            await self._summaries.compact("threshold")
        pending = (*prompt, *self._take_steering())
        while True:
            self._turn += 1
            self._core.emit(TurnStarted(turn=self._turn))
            await self._store_prompt(pending)
            reply = await self._reply()
            results = await self._answer(reply)
            turn = TurnFinished(turn=self._turn, message=reply, results=results)
            self._core.emit(turn)
            self._core.sync_soon()
            await self._core.parts.hooks.turn_ended(turn)
            ended, pending = self._after(reply, results)
            if ended is not None:
                return ended
            if self._summaries.due():
                await self._summaries.compact("threshold")

    def _after(
        self, reply: AssistantMessage, results: Sequence[ToolResultMessage]
    ) -> tuple[RunEnd | None, tuple[UserMessage, ...]]:
        """What follows a turn: the end of the run, or the messages of the next turn."""
        if reply.stop_reason == "error":
            self._error = reply.error_message
            return "error", ()
        if self._guard.exhausted:
            self._error = f"the same call was made {self._guard.streak} times in a row"
            return "repeating", ()
        if results and self._batch is not None and self._batch.terminates:
            refused = any(isinstance(r.details, dict) and "refused" in r.details for r in results)
            return ("refused" if refused else "done"), ()
        pending = self._take_steering()
        if not results and not pending:
            pending = self._take_follow_up()
            if not pending:
                return ("length" if reply.stop_reason == "length" else "done"), ()
        if self._limits.max_turns is not None and self._turn >= self._limits.max_turns:
            self._error = f"the limit of {self._limits.max_turns} turns was reached"
            return "max_turns", ()
        return None, pending

    # ---- one turn ---------------------------------------------------------------------------------

    async def _store_prompt(self, messages: Sequence[UserMessage]) -> None:
        """Prompt state first, so that the branch tells what a message was asked with. One write."""
        if not messages:
            return
        added = await self._core.parts.hooks.run_starting(messages) if self._turn == 1 else ()
        prompt = (MessageEntry(message=message) for message in messages)
        self._core.store(*self._core.setup_entries(), *prompt, *added)

    async def _reply(self) -> AssistantMessage:
        requester = self._requester = self._core.requester()
        try:
            reply = await requester.run(await self._core.request())
        except Overflow as overflow:
            reply = await self._after_overflow(overflow)
        requester = self._requester
        self._requester = None
        self.failure = requester.failure
        self._core.store(MessageEntry(message=reply))
        self._core.emit(ReplyFinished(message=reply))
        self._spend([reply.usage])
        return reply

    async def _after_overflow(self, overflow: Overflow) -> AssistantMessage:
        """Compact and send the request once more; what does not fit then is the person's matter."""
        if await self._summaries.compact("overflow"):
            requester = self._requester = self._core.requester()
            try:
                return await requester.run(await self._core.request())
            except Overflow as again:
                overflow = again
        failed = self._core.requester()
        self._requester = failed
        return failed.failed(ModelFailure("overflow", f"{overflow} (use /compact, or start anew with fewer files)"))

    async def _answer(self, reply: AssistantMessage) -> tuple[ToolResultMessage, ...]:
        calls = reply.tool_calls
        if not calls:
            return ()
        batch = self._batch = self._core.batch(calls, self._guard)
        self._calls += len(calls)
        if reply.stop_reason == "length":
            batch.answer_rest(CUT_OFF)
        else:
            await batch.run()
        self._spend([result.usage for result in batch.results if result.usage is not None])
        return batch.results

    async def _settle(self, *, stored: bool = True) -> None:
        """Leave the session whole after an ending in mid-turn: every call answered, the partial reply kept."""
        if self._batch is not None:
            try:
                await self._batch.stop(ABORTED)
            except UserError:
                if stored:
                    raise
        if self._requester is not None and stored:
            partial = self._requester.cut(ABORTED)
            self._requester = None
            if partial is not None:
                self._core.store(MessageEntry(message=partial))
                self._core.emit(ReplyFinished(message=partial))

    # ---- queues and sums --------------------------------------------------------------------------

    def _take_steering(self) -> tuple[UserMessage, ...]:
        taken = self._queue.take_steering()
        self._tell_queue(taken)
        return taken

    def _take_follow_up(self) -> tuple[UserMessage, ...]:
        taken = self._queue.take_follow_up()
        self._tell_queue(taken)
        return taken

    def _tell_queue(self, taken: Sequence[UserMessage]) -> None:
        if taken:
            steering, follow_up = self._queue.texts()
            self._core.emit(QueueChanged(steering=steering, follow_up=follow_up))

    def _spend(self, usages: Sequence[Usage]) -> None:
        if usages:
            self._usage = add_usage([self._usage, *usages])
