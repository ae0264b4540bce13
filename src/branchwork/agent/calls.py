"""Runs the tool calls of one reply: every call gets exactly one result, in call order, in every ending."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from branchwork.agent.coerce import arguments_for
from branchwork.agent.events import AgentEvent, ToolFinished, ToolProgressed, ToolRefused, ToolStarted
from branchwork.agent.gate import Changed, Gate, Refusal
from branchwork.agent.hooks import LoopHooks
from branchwork.agent.repeat import RepeatGuard
from branchwork.agent.toolset import Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.clock import Clock
from branchwork.session.codec import encode_object
from branchwork.session.entries import Text, ToolCall, ToolResultMessage

ABORTED = "Operation aborted"
CUT_OFF = (
    "This call was not made: the reply reached the output limit, so its arguments may be cut off. Send a shorter one."
)
STOP_GRACE = 5.0
"""Seconds a cancelled tool has to clean up before the run goes on without it."""


class BatchParts(Struct, frozen=True, kw_only=True):
    """What a batch needs from the agent."""

    tools: Mapping[str, Tool]
    gate: Gate
    hooks: LoopHooks
    guard: RepeatGuard
    clock: Clock
    emit: Callable[[AgentEvent], None]
    store: Callable[[Sequence[ToolResultMessage]], None]
    """Makes results part of the session, in call order. Must not await."""
    context: Callable[[str, Callable[[ToolOutput], None]], ToolContext]
    """(call id, progress) -> context."""


class _Call:
    """One call on its way to its one result."""

    __slots__ = ("args", "arguments", "call", "note", "partial", "result", "started", "terminate", "tool")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.tool: Tool | None = None
        self.args: ToolArgs | None = None
        self.arguments = call.arguments
        self.note: str | None = None
        self.started: float | None = None
        self.partial: ToolOutput | None = None
        self.result: ToolResultMessage | None = None
        self.terminate = False


class Batch:
    """The calls of one reply.

    `run` may be cancelled at any await; then `stop` must follow, which leaves no task behind and gives each
    open call its result. Results are stored as soon as all calls before them have theirs.
    """

    def __init__(self, calls: Sequence[ToolCall], parts: BatchParts) -> None:
        self._parts = parts
        self._calls = [_Call(call) for call in calls]
        self._stored = 0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def results(self) -> tuple[ToolResultMessage, ...]:
        """What is stored so far, in call order."""
        return tuple(item.result for item in self._calls[: self._stored] if item.result is not None)

    @property
    def terminates(self) -> bool:
        """Whether every result asks to end the run."""
        return bool(self._calls) and all(item.terminate for item in self._calls)

    async def run(self) -> None:
        tools = [self._parts.tools.get(item.call.name) for item in self._calls]
        if any(tool is not None and tool.sequential for tool in tools):
            for item in self._calls:
                await self._prepare(item)
                if item.result is None:
                    await self._execute(item)
            return
        for item in self._calls:
            await self._prepare(item)
        waiting = [item for item in self._calls if item.result is None]
        if len(waiting) == 1:  # the common case needs no task of its own
            await self._execute(waiting[0])
            return
        self._tasks = [asyncio.create_task(self._execute(item)) for item in waiting]
        if self._tasks:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()

    async def stop(self, reason: str = ABORTED) -> None:
        """End whatever still runs and answer what is unanswered; safe to call after any ending of `run`."""
        running = [task for task in self._tasks if not task.done()]
        for task in running:
            task.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_GRACE
        while running and (left := deadline - loop.time()) > 0:
            try:
                _, pending = await asyncio.wait(running, timeout=left)
            except asyncio.CancelledError:
                continue  # someone is impatient; the tools are already told to stop
            running = list(pending)
        self.answer_rest(reason)

    def answer_rest(self, reason: str) -> None:
        """Give every call without a result an error result that says why, and store them all."""
        for item in self._calls:
            if item.result is None:
                partial = item.partial.content if item.partial else ()
                details = item.partial.details if item.partial else None
                output = ToolOutput(content=(*partial, Text(text=reason)), details=details, is_error=True)
                self._finish(item, output)

    # ---- one call ---------------------------------------------------------------------------------

    async def _prepare(self, item: _Call) -> None:
        call = item.call
        item.note = self._parts.guard.observe(call)
        tool = self._parts.tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(self._parts.tools)) or "none"
            self._finish(item, text_output(f"Tool {call.name} not found. Available tools: {known}.", is_error=True))
            return
        try:
            args = arguments_for(tool, call)
        except ToolError as error:
            self._finish(item, text_output(str(error), is_error=True))
            return
        answer = await self._ask(call, tool, args)
        if isinstance(answer, Changed):
            args, item.arguments = answer.args, answer.arguments
        elif answer is not None:
            refusal = answer
            self._parts.emit(ToolRefused(call_id=call.id, tool=call.name, rule=refusal.rule, reason=refusal.reason))
            details = {"refused": {"rule": refusal.rule}}
            self._finish(item, text_output(refusal.reason, details=details, is_error=True), terminate=refusal.terminate)
            return
        item.tool, item.args = tool, args

    async def _ask(self, call: ToolCall, tool: Tool, args: ToolArgs) -> Refusal | Changed | None:
        try:
            return await self._parts.gate.check(call, tool, args)
        except Exception as error:  # noqa: BLE001 - boundary: a gate that fails has not allowed anything
            return Refusal(rule="gate-failed", reason=f"The policy gate failed: {error!r}")

    async def _execute(self, item: _Call) -> None:
        tool, args = item.tool, item.args
        assert tool is not None
        assert args is not None
        parts = self._parts
        item.started = parts.clock.monotonic()
        parts.emit(ToolStarted(call_id=item.call.id, tool=tool.name, arguments=item.arguments))

        def progress(output: ToolOutput) -> None:
            if item.result is None:
                item.partial = output
                parts.emit(
                    ToolProgressed(call_id=item.call.id, tool=tool.name, content=output.content, details=output.details)
                )

        try:
            output = await tool.run(args, parts.context(item.call.id, progress))
        except ToolError as error:
            output = text_output(str(error), details=error.details, is_error=True)
        except Exception as error:  # noqa: BLE001 - boundary: a broken tool is an answer to the model, not a crash
            output = text_output(f"{tool.name} failed: {type(error).__name__}: {error}", is_error=True)
        self._finish(item, _storable(tool.name, await parts.hooks.tool_result(item.call, _storable(tool.name, output))))

    def _finish(self, item: _Call, output: ToolOutput, *, terminate: bool = False) -> None:
        if item.result is not None:
            return
        clock = self._parts.clock
        content = output.content
        if item.note is not None:
            content = (*content, Text(text=item.note))
        item.terminate = terminate or output.terminate
        item.result = ToolResultMessage(
            tool_call_id=item.call.id,
            tool_name=item.call.name,
            content=content,
            is_error=output.is_error,
            details=output.details,
            usage=output.usage,
            duration_ms=None if item.started is None else round((clock.monotonic() - item.started) * 1000),
            timestamp=clock.now_ms(),
        )
        self._parts.emit(ToolFinished(call_id=item.call.id, tool=item.call.name, result=item.result))
        self._store_ready()

    def _store_ready(self) -> None:
        ready: list[ToolResultMessage] = []
        for item in self._calls[self._stored :]:
            if item.result is None:
                break
            ready.append(item.result)
        if ready:
            self._parts.store(ready)
            self._stored += len(ready)


def _storable(tool: str, output: ToolOutput) -> ToolOutput:
    """The output, or an error in its place when it could not become part of a session file."""
    if not isinstance(output, ToolOutput):
        return text_output(f"{tool} failed: it returned {type(output).__name__} instead of a ToolOutput", is_error=True)
    if output.details is None:
        return output
    try:
        encode_object({"details": output.details})
    except (TypeError, ValueError, RecursionError) as error:
        return replace(output, details={"unstorable": str(error)})
    return output
