"""What a run works on: the session, its context, the model, the tools. One owner of each."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from branchwork.agent.calls import Batch, BatchParts
from branchwork.agent.compaction import CompactionPolicy
from branchwork.agent.context import Context
from branchwork.agent.events import (
    AgentEvent,
    EntryAppended,
    LeafMoved,
    MessageAdded,
    ModelSelected,
)
from branchwork.agent.gate import Gate
from branchwork.agent.hooks import LoopHooks
from branchwork.agent.hub import EventHub
from branchwork.agent.prompt import patch, system_text, tool_sections
from branchwork.agent.queue import InputQueue
from branchwork.agent.repeat import RepeatGuard
from branchwork.agent.request import Requester, RetryPolicy
from branchwork.agent.toolset import FileLocks, Tool, ToolContext, ToolOutput
from branchwork.clock import Clock
from branchwork.models.base import Model, ModelRequest
from branchwork.models.thinking import clamp
from branchwork.session.entries import (
    KnownEntry,
    MessageEntry,
    ModelChangeEntry,
    ThinkingLevel,
    ThinkingLevelChangeEntry,
    ToolCall,
    ToolResultMessage,
)
from branchwork.session.handle import Tree

MIN_OUTPUT_TOKENS = 1_024
SESSION_VARIABLES = (
    "BRANCHWORK_SESSION_ID",
    "BRANCHWORK_SESSION_FILE",
    "BRANCHWORK_PROVIDER",
    "BRANCHWORK_MODEL",
    "BRANCHWORK_THINKING",
)


class AgentParts(Struct, frozen=True, kw_only=True):
    """Everything an agent is made of; nothing is looked up anywhere else."""

    context: Context
    """Holds the session."""
    model: Model
    thinking: ThinkingLevel = "off"
    tools: tuple[Tool, ...] = ()
    sections: Callable[[], Mapping[str, str]] = dict
    """The prompt sections beside those of the tools: name -> text as it stands in the prompt."""
    gate: Gate
    hooks: LoopHooks = field(default_factory=LoopHooks)
    clock: Clock
    cwd: Path
    home: Path
    """The person's home directory, for `~` in paths."""
    scratch: Path
    env: Mapping[str, str]
    retry: RetryPolicy = RetryPolicy()
    compaction: CompactionPolicy = CompactionPolicy()
    queue: InputQueue = field(default_factory=InputQueue)
    tree: Tree | None = None
    """What tools get of the session; by default a handle of the agent's own."""
    repeat_stop: int = 12
    """A run ends when one call is made this often in a row; 0 never ends it."""


class Core:
    """The state that runs, compaction and navigation share. Changes only by storing entries first."""

    def __init__(self, parts: AgentParts, hub: EventHub) -> None:
        self.parts = parts
        self.hub = hub
        self.context = parts.context
        self.session = parts.context.session
        self.model = parts.model
        self.thinking: ThinkingLevel = clamp(parts.thinking, parts.model.info)
        self.tools: tuple[Tool, ...] = parts.tools
        self.tree = parts.tree or Tree(self.session, lambda entry: self.store(entry)[0])
        self._locks = FileLocks()
        self._syncing: asyncio.Future[None] | None = None

    def emit(self, event: AgentEvent) -> None:
        self.hub.emit(event)

    # ---- storing ----------------------------------------------------------------------------------

    def store(self, *entries: KnownEntry) -> tuple[KnownEntry, ...]:
        """Append durably, then fold, then tell. Raises `SessionWriteError` with nothing changed."""
        stored = self.session.append(*entries)
        self.context.append(stored)
        for entry in stored:
            if isinstance(entry, MessageEntry):
                self.emit(MessageAdded(entry_id=entry.id, message=entry.message))
            else:
                self.emit(EntryAppended(entry=entry))
        return stored

    def sync_soon(self) -> None:
        """Push what was appended to the disk, beside the next request; a failure is raised by the next call."""
        if self.session.read_only is not None or self.session.path is None:
            return
        if self._syncing is not None and not self._syncing.done():
            return
        self._check_sync()
        self._syncing = asyncio.get_running_loop().run_in_executor(None, self.session.sync)

    async def synced(self) -> None:
        """Wait until everything appended so far is on the disk."""
        if self._syncing is not None:
            await asyncio.wait([self._syncing])
        self.sync_soon()
        if self._syncing is not None:
            await asyncio.wait([self._syncing])
            self._check_sync()

    def _check_sync(self) -> None:
        done, self._syncing = self._syncing, None
        if done is not None:
            done.result()

    def select(self, model: Model, thinking: ThinkingLevel) -> None:
        """Use another model or thinking level from the next request on; recorded with that request."""
        self.model = model
        self.thinking = clamp(thinking, model.info)
        self.emit(ModelSelected(model=model.info.ref, thinking=self.thinking))

    def wanted_sections(self) -> dict[str, str]:
        given = dict(self.parts.sections())
        preamble = {"preamble": given.pop("preamble")} if "preamble" in given else {}
        return {**preamble, **tool_sections(self.tools), **given}

    def setup_entries(self) -> list[KnownEntry]:
        """What must be stored before the next request so that the branch tells how it was made."""
        projection = self.context.projection
        entries: list[KnownEntry] = []
        info = self.model.info
        if projection.model != (info.provider, info.id):
            entries.append(ModelChangeEntry(provider=info.provider, model_id=info.id))
        if projection.thinking != self.thinking:
            entries.append(ThinkingLevelChangeEntry(thinking_level=self.thinking))
        specs = [tool.spec for tool in self.tools]
        change = patch(projection.prompt, self.wanted_sections(), specs, self.parts.clock.now_ms())
        if change is not None:
            entries.append(MessageEntry(message=change))
        return entries

    # ---- requests and calls -----------------------------------------------------------------------

    async def request(self) -> ModelRequest:
        setup = self.setup_entries()
        if setup:
            self.store(*setup)
        info = self.model.info
        used = self.context.size().tokens
        room = info.context_window - used - max(4_096, info.context_window * 15 // 100)
        return ModelRequest(
            system=system_text(self.context.projection.prompt),
            transcript=self.context.transcript,
            tools=tuple(tool.spec for tool in self.tools),
            thinking=self.thinking,
            max_tokens=max(min(info.max_tokens, room), min(MIN_OUTPUT_TOKENS, info.max_tokens)),
            session_id=self.session.header.id,
            extra=tuple(await self.parts.hooks.request_messages()),
        )

    def requester(self, emit: Callable[[AgentEvent], None] | None = None) -> Requester:
        return Requester(self.model, self.parts.clock, emit or self.emit, self.parts.retry)

    def batch(self, calls: Sequence[ToolCall], guard: RepeatGuard) -> Batch:
        parts = BatchParts(
            tools={tool.name: tool for tool in self.tools},
            gate=self.parts.gate,
            hooks=self.parts.hooks,
            guard=guard,
            clock=self.parts.clock,
            emit=self.emit,
            store=self._store_results,
            context=self._tool_context,
        )
        return Batch(calls, parts)

    def _store_results(self, results: Sequence[ToolResultMessage]) -> None:
        self.store(*(MessageEntry(message=result) for result in results))

    def _tool_context(self, call_id: str, progress: Callable[[ToolOutput], None]) -> ToolContext:
        return ToolContext(
            call_id=call_id,
            cwd=self.parts.cwd,
            home=self.parts.home,
            env=self._tool_env(),
            scratch=self.parts.scratch,
            locks=self._locks,
            progress=progress,
            images=self.model.info.images,
            tree=self.tree,
        )

    def _tool_env(self) -> dict[str, str]:
        env = {key: value for key, value in self.parts.env.items() if key not in SESSION_VARIABLES}
        path = self.session.path
        info = self.model.info
        values = (self.session.header.id, str(path) if path else "", info.provider, info.id, self.thinking)
        env.update({key: value for key, value in zip(SESSION_VARIABLES, values, strict=True) if value})
        env["AI_AGENT"] = "branchwork"
        return env

    def move(self, target: str | None) -> None:
        """Go on from `target`; None starts a second root."""
        old = self.session.leaf_id
        self.session.navigate(target)
        self.context.rebuild()
        self.emit(LeafMoved(old_leaf=old, new_leaf=self.session.leaf_id))
