"""The agent as front ends and embedding programs see it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from branchwork.agent.context import Context, ContextSize
from branchwork.agent.core import AgentParts, Core
from branchwork.agent.events import Diagnosed, QueueChanged, RunFinished, SessionOpened
from branchwork.agent.hub import EventHub, Subscriber
from branchwork.agent.run import AbortReason, Limits, Run
from branchwork.agent.summaries import Summaries
from branchwork.agent.toolset import Tool
from branchwork.errors import UserError
from branchwork.models.base import Model, ModelFailure
from branchwork.session.entries import AssistantMessage, Image, KnownEntry, Text, ThinkingLevel, UserMessage
from branchwork.session.tree import Session

T = TypeVar("T")

Activity: TypeAlias = Literal["idle", "running", "compacting", "summarising", "closed"]


class SessionAgent:
    """One session with one model. All methods belong to the event loop that runs it.

    At most one activity is under way: `prompt`, `compact` and `navigate` are refused (`UserError`) while
    another runs; `steer`, `follow_up`, `take_back` and `abort` are for that time.
    """

    def __init__(self, parts: AgentParts, *, hub: EventHub | None = None) -> None:
        """`hub` is given when several agents follow each other on one stream of events."""
        self._hub = hub or EventHub()
        self._core = Core(parts, self._hub)
        self._summaries = Summaries(self._core)
        self._queue = parts.queue
        self._activity: Activity = "idle"
        self._run: Run | None = None
        self._task: asyncio.Future[Any] | None = None
        self._idle: asyncio.Event | None = None

    # ---- what it is -------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        return self._core.session

    @property
    def model(self) -> Model:
        return self._core.model

    @property
    def thinking(self) -> ThinkingLevel:
        return self._core.thinking

    @property
    def activity(self) -> Activity:
        return self._activity

    @property
    def failure(self) -> ModelFailure | None:
        """What the model or its server failed with in the last run, if it did."""
        return self._run.failure if self._run else None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The active ones."""
        return self._core.tools

    def choose_tools(self, tools: tuple[Tool, ...]) -> None:
        """Takes effect with the next request, where the change is recorded."""
        self._core.tools = tools

    def context_size(self) -> ContextSize:
        """Tokens the next request will carry; partly estimated."""
        return self._core.context.size()

    @property
    def context(self) -> Context:
        return self._core.context

    def store(self, entry: KnownEntry) -> KnownEntry:
        """Append an entry that is no message of person or model, and tell about it. Raises `SessionWriteError`."""
        (stored,) = self._core.store(entry)
        return stored

    def diagnose(self, level: Literal["info", "warning", "error"], source: str, message: str) -> None:
        """Tell every front end something that a person should know."""
        self._core.emit(Diagnosed(level=level, source=source, message=message))

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        return self._hub.subscribe(subscriber)

    def announce(self, *, resumed: bool) -> None:
        """Send `session_opened`, the first event of every stream."""
        session = self.session
        self._core.emit(
            SessionOpened(
                session_id=session.header.id,
                session_file=str(session.path) if session.path else None,
                cwd=str(self._core.parts.cwd),
                model=self.model.info.ref,
                read_only=session.read_only is not None,
                resumed=resumed,
            )
        )

    # ---- input ------------------------------------------------------------------------------------

    async def prompt(self, text: str, images: Sequence[Image] = (), *, limits: Limits | None = None) -> RunFinished:
        """Run until nothing is left to do. Cancelling this call aborts the run and leaves the session whole."""
        limits = limits or Limits()
        self._claim("running")
        run = self._run = Run(self._core, self._summaries, self._queue, limits)
        task = asyncio.ensure_future(run.drive((self._message(text, images),)))
        self._task = task
        timer = None
        if limits.time_limit_s is not None:
            timer = asyncio.get_running_loop().call_later(limits.time_limit_s, self._abort, "time_limit")
        try:
            finished = await self._outlive(task)
        finally:
            if timer is not None:
                timer.cancel()
            await self._release()
        await self._core.parts.hooks.run_ended(finished)
        return finished

    def steer(self, text: str, images: Sequence[Image] = ()) -> None:
        """Deliver after the current reply and its tool calls, before the next request."""
        self._queue.steer(self._message(text, images))
        self._tell_queue()

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> None:
        """Deliver when the run would stop."""
        self._queue.follow_up(self._message(text, images))
        self._tell_queue()

    def take_back(self) -> tuple[UserMessage, ...]:
        """Empty both queues, for the editor."""
        taken = self._queue.take_back()
        if taken:
            self._tell_queue()
        return taken

    def abort(self) -> None:
        """End what is under way as soon as its tools allow; nothing happens when idle."""
        self._abort("aborted")

    # ---- the session ------------------------------------------------------------------------------

    async def compact(self, instructions: str | None = None) -> bool:
        """Replace older conversation by notes now. False, with an event saying why, when it did not work."""
        self._claim("compacting")
        task = asyncio.ensure_future(self._summaries.compact("manual", instructions))
        self._task = task
        try:
            return await self._outlive(task)
        finally:
            await self._release()

    def select(self, model: Model, thinking: ThinkingLevel) -> None:
        """Takes effect with the next request, also in the middle of a run."""
        self._core.select(model, thinking)

    def navigate(self, target: str | None) -> None:
        """Go on from `target`; None starts a second root."""
        self._refuse_unless_idle("move in the tree")
        self._core.move(target)

    async def navigate_with_notes(self, target: str | None, instructions: str | None = None) -> bool:
        """Go on from `target` with the model's notes about what is left behind.

        False, with a diagnostic, when the notes could not be made: then nothing has moved.
        """
        self._claim("summarising")
        task = asyncio.ensure_future(self._summaries.move_with_notes(target, instructions))
        self._task = task
        try:
            return await self._outlive(task)
        finally:
            await self._release()

    async def ask(self, system: str, prompt: str) -> AssistantMessage:
        """One request on the side: no tools, no history; its usage is recorded. Raises `ModelFailure`."""
        return await self._summaries.ask_aside(system, prompt)

    async def wait_idle(self) -> None:
        """Until nothing is under way; a run that is being aborted counts until it has cleaned up."""
        while self._idle is not None:
            await self._idle.wait()

    async def aclose(self, *, keep_session: bool = False) -> None:
        """Abort, wait, close the model's connections and the session. Safe to call twice."""
        if self._activity == "closed":
            return
        self.abort()
        await self.wait_idle()
        await self._core.synced()
        self._activity = "closed"
        await self.model.aclose()
        if not keep_session:
            self.session.close()

    # ---- inside -----------------------------------------------------------------------------------

    def _claim(self, activity: Activity) -> None:
        self._refuse_unless_idle("start")
        reason = self.session.read_only
        if reason is not None:
            raise UserError(reason)
        self._activity = activity
        self._idle = asyncio.Event()

    def _refuse_unless_idle(self, what: str) -> None:
        if self._activity != "idle":
            raise UserError(f"cannot {what} while {self._activity}: wait, or abort first")

    def _abort(self, reason: AbortReason) -> None:
        task = self._task
        if task is None or task.done():
            return
        self._task = None  # a second abort must not disturb the cleaning up
        if self._activity != "running" or self._run is None or self._run.abort(reason):
            task.cancel()

    async def _outlive(self, task: asyncio.Future[T]) -> T:
        """The task's result; if the caller is cancelled, abort, wait for the cleaning up, and pass it on."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            self.abort()
            while not task.done():
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError:
                    continue
            raise

    async def _release(self) -> None:
        self._task = None
        if self._activity != "closed":
            self._activity = "idle"
        idle, self._idle = self._idle, None
        if idle is not None:
            idle.set()
        await self._core.synced()

    def _message(self, text: str, images: Sequence[Image]) -> UserMessage:
        return UserMessage(content=(Text(text=text), *images), timestamp=self._core.parts.clock.now_ms())

    def _tell_queue(self) -> None:
        steering, follow_up = self._queue.texts()
        self._core.emit(QueueChanged(steering=steering, follow_up=follow_up))
