"""One running Branchwork: a session with its agent, and the extensions around it.

Going to another session, or reloading, builds everything anew; what was handed out before is stale then. Front
ends hold the host, subscribe to its one stream of events, and submit input.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from branchwork.agent.agent import SessionAgent
from branchwork.agent.events import CompactionFinished, RunFinished
from branchwork.agent.hub import EventHub, Subscriber
from branchwork.agent.run import Limits
from branchwork.errors import UserError
from branchwork.host import points
from branchwork.host.assembly import AgentRequest, Surroundings, choose_tools, open_session
from branchwork.host.bridge import sections
from branchwork.host.build import Built, build
from branchwork.host.bus import Bus
from branchwork.host.context import CommandContext, Completed, ExtensionContext
from branchwork.host.dialogs import Dialogs
from branchwork.host.headless_ui import HeadlessScreen
from branchwork.host.loader import Loaded
from branchwork.host.points import EndReason, Handled, Input, InputContext, InputSource, StartReason
from branchwork.host.registry import Command, Registry, TextProvider
from branchwork.host.resources import Resources
from branchwork.host.settings import Settings
from branchwork.host.submission import Submitted, prepare
from branchwork.host.switching import SwitchKind, next_session
from branchwork.host.ui import UI, Level, Screen
from branchwork.models.base import ModelInfo
from branchwork.models.catalog import Catalog
from branchwork.models.select import resolve
from branchwork.session.entries import Image, ThinkingLevel
from branchwork.session.handle import Tree
from branchwork.session.tree import Session


class Front(Struct, frozen=True, kw_only=True):
    """The front end that a host works for."""

    name: str
    screen: Screen | None = None
    """None: nobody is there to ask."""
    builtin: tuple[str, ...] = ()
    """Modules of the extensions that come with the program."""


class Host:
    """Build with `await Host.open(…)`, end with `aclose`. Belongs to one event loop.

    Raises `UserError` for whatever the person must put right.
    """

    def __init__(self, request: AgentRequest, world: Surroundings, front: Front) -> None:
        self.request = request
        self.world = world
        self.front = front
        self._hub = EventHub()
        self._generation = 0
        self._built: Built | None = None
        self._notes: list[tuple[Level, str, str]] = []
        self._announced = False
        self._wanted: list[str] = []
        self._reported: set[tuple[str, str]] = set()
        screen = front.screen or HeadlessScreen(lambda asker, text, level: self.note(level, asker, text))
        self._dialogs = Dialogs(screen, clock=world.clock, report=lambda owner, text: self.note("warning", owner, text))
        self._hub.subscribe(self._watch)
        self.draft: str | None = None
        """Text that belongs into the editor, after a fork or a move took it out of the conversation."""
        self.quitting = False

    @classmethod
    async def open(cls, request: AgentRequest, world: Surroundings, front: Front) -> "Host":
        host = cls(request, world, front)
        session = request.given_session or open_session(request.session, world)
        try:
            await host._rebuild(session)
        except BaseException:
            session.close()
            raise
        return host

    async def start(self, reason: StartReason = "startup", previous: str | None = None) -> None:
        """Announce the session and tell extensions; call once subscribers are in place."""
        self.agent.announce(resumed=len(self.agent.session) > 0)
        self._announced = True
        notes, self._notes = self._notes, []
        for level, source, text in notes:
            self.agent.diagnose(level, source, text)
        started = points.SessionStarted(reason=reason, previous=previous)
        await self._built_now.hooks.observe(points.SESSION_STARTED, started, self.context())

    # ---- what it is -------------------------------------------------------------------------------

    @property
    def _built_now(self) -> Built:
        assert self._built is not None, "the host is not open"
        return self._built

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def agent(self) -> SessionAgent:
        return self._built_now.agent

    @property
    def tree(self) -> Tree:
        return self._built_now.tree

    @property
    def settings(self) -> Settings:
        return self._built_now.settings

    @property
    def resources(self) -> Resources:
        return self._built_now.resources

    @property
    def registry(self) -> Registry:
        return self._built_now.registry

    @property
    def bus(self) -> Bus:
        return self._built_now.bus

    @property
    def extensions(self) -> tuple[Loaded, ...]:
        return self._built_now.loaded

    def hook_names(self, owner: str) -> tuple[str, ...]:
        """The hook points at which an extension takes part."""
        return self._built_now.hooks.points_of(owner)

    @property
    def home(self) -> Path:
        return self.world.home

    @property
    def cwd(self) -> Path:
        return self._built_now.cwd

    @property
    def front_end(self) -> str:
        return self.front.name

    @property
    def trusted(self) -> bool:
        return self._built_now.trusted

    def ui_for(self, owner: str) -> UI:
        return self._dialogs.ui(owner)

    def context(self) -> ExtensionContext:
        return ExtensionContext("the host", self)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Read the events of this and all following sessions."""
        return self._hub.subscribe(subscriber)

    def note(self, level: Level, source: str, text: str) -> None:
        """Tell the person, after the session is announced at the earliest. Each text of a source is told once."""
        if (source, text) in self._reported:
            return
        self._reported.add((source, text))
        if self._announced:
            self.agent.diagnose(level, source, text)
        else:
            self._notes.append((level, source, text))

    # ---- input ------------------------------------------------------------------------------------

    async def submit(
        self,
        text: str,
        images: tuple[Image, ...] = (),
        *,
        source: InputSource = "person",
        limits: Limits | None = None,
    ) -> Submitted:
        """What a person or program sent: a command, or a prompt after hooks, skills and templates.

        While a run is going on a prompt is queued as steering. Returns what became of it.
        """
        submitted = await prepare(self, text, images, source)
        if submitted.prompt is not None:
            prompt = submitted.prompt
            if self.agent.activity != "idle":
                self.agent.steer(prompt.text, prompt.images)
                return Submitted(kind="queued")
            finished = await self.agent.prompt(prompt.text, prompt.images, limits=limits)
            submitted = Submitted(kind="ran", finished=finished)
        while self._wanted and self.agent.activity == "idle":
            finished = await self.agent.prompt(self._wanted.pop(0), limits=limits)
            submitted = Submitted(kind="ran", finished=finished)
        if submitted.finished is not None:
            await self._settled(submitted.finished)
        return submitted

    async def transform_input(self, payload: InputContext, value: Input | Handled) -> Input | Handled:
        return await self._built_now.hooks.transform(points.INPUT, payload, value, self.context())

    def send(self, text: str, when: Literal["steer", "follow_up"]) -> None:
        if self.agent.activity == "idle":
            self._wanted.append(text)
        elif when == "steer":
            self.agent.steer(text)
        else:
            self.agent.follow_up(text)

    def commands(self) -> tuple[Command, ...]:
        return self.registry.commands.values()

    def command_context(self, owner: str) -> CommandContext:
        return CommandContext(owner, self)

    async def _settled(self, finished: RunFinished) -> None:
        settled = points.Settled(aborted=finished.end == "aborted")
        await self._built_now.hooks.observe(points.SETTLED, settled, self.context())

    # ---- what contexts offer ----------------------------------------------------------------------

    def flag(self, name: str) -> bool | str:
        return self._built_now.flags.get(name, False)

    def provided(self, owner: str, name: str, provider: TextProvider) -> str | None:
        try:
            text = provider(ExtensionContext(owner, self))
        except Exception as error:  # noqa: BLE001 - boundary: an extension's code
            self.note("warning", owner, f"{name} left out: {type(error).__name__}: {error}")
            return None
        if text is None or isinstance(text, str):
            return text
        self.note("warning", owner, f"{name} left out: it is {type(text).__name__}, not text")
        return None

    def choose_tools(self, names: tuple[str, ...]) -> None:
        offered = self._built_now.offered_tools()
        allowed = {tool.name for tool in choose_tools(self.request, self.settings, offered)}
        self.agent.choose_tools(tuple(tool for tool in offered if tool.name in names and tool.name in allowed))

    def select_model(self, ref: str | None, thinking: ThinkingLevel | None) -> ModelInfo:
        agent = self.agent
        model, level = agent.model, thinking
        if ref is not None:
            catalog = Catalog(self.home, self.world.env, api_key=self.request.api_key)
            selection = resolve(catalog, ref)
            model, level = catalog.create(selection.info), thinking or selection.thinking
            for warning in selection.warnings:
                self.note("warning", "models", warning)
        previous, level_before = agent.model.info.ref, agent.thinking
        agent.select(model, level or agent.thinking)
        self._built_now.later(self._tell_selection(previous, level_before))
        return model.info

    async def _tell_selection(self, previous: str, level_before: ThinkingLevel) -> None:
        agent, hooks = self.agent, self._built_now.hooks
        if agent.model.info.ref != previous:
            chosen = points.ModelChosen(model=agent.model.info.ref, previous=previous)
            await hooks.observe(points.MODEL_CHOSEN, chosen, self.context())
        if agent.thinking != level_before:
            level = points.ThinkingChosen(level=agent.thinking, previous=level_before)
            await hooks.observe(points.THINKING_CHOSEN, level, self.context())

    async def complete(self, system: str, prompt: str) -> Completed:
        reply = await self.agent.ask(system, prompt)
        return Completed(reply.text, reply.usage)

    def request_quit(self) -> None:
        self.quitting = True

    async def wait_idle(self) -> None:
        await self.agent.wait_idle()

    # ---- sessions ---------------------------------------------------------------------------------

    async def switch(self, kind: SwitchKind, target: str | None) -> str | None:
        """Go to another session. Returns why not, or None when it happened."""
        if self.agent.activity != "idle":
            return f"not while {self.agent.activity}: wait, or abort first"
        refused = await self._veto_switch(kind, target)
        if refused is not None:
            return refused
        try:
            session, self.draft = next_session(kind, target, self.agent.session, self.world, self.cwd)
        except UserError as error:
            return str(error)
        previous = self.agent.session.path
        reason: Literal["new", "resume", "fork"] = "fork" if kind == "clone" else kind
        await self._end(reason)
        await self._rebuild(session)
        await self.start(reason, str(previous) if previous else None)
        return None

    async def move(self, target: str | None, *, with_notes: bool, instructions: str | None) -> str | None:
        """Go on from another point of the tree. Returns why not, or None when it happened."""
        proposal = points.MoveProposed(target=target, with_notes=with_notes)
        verdict = await self._built_now.hooks.decide(points.MOVING, proposal, self.context())
        if verdict is not None:
            return veto_text(verdict)
        old = self.agent.session.leaf_id
        try:
            if not with_notes:
                self.agent.navigate(target)
            elif not await self.agent.navigate_with_notes(target, instructions):
                return "the notes could not be made, so nothing moved"
        except UserError as error:
            return str(error)
        moved = points.Moved(old_leaf=old, new_leaf=self.agent.session.leaf_id)
        await self._built_now.hooks.observe(points.SESSION_MOVED, moved, self.context())
        return None

    async def reload(self) -> None:
        """Read settings, resources and extensions anew; the session stays."""
        session = self.agent.session
        await self._end("reload", keep_session=True)
        await self._rebuild(session)
        await self.start("reload")

    async def aclose(self) -> None:
        """Abort, tell extensions, close. Safe to call twice."""
        if self._built is not None:
            await self._end("quit")
            self._built = None

    async def _end(self, reason: EndReason, *, keep_session: bool = False) -> None:
        built = self._built_now
        built.agent.abort()
        await built.agent.wait_idle()
        await built.hooks.observe(points.SESSION_ENDING, points.SessionEnding(reason=reason), self.context())
        await built.finish()
        await built.agent.aclose(keep_session=keep_session)
        self._announced = False
        self._generation += 1

    async def _veto_switch(self, kind: SwitchKind, target: str | None) -> str | None:
        hooks = self._built_now.hooks
        if kind == "new" or kind == "resume":
            switch = points.SwitchProposed(reason=kind, target=target)
            verdict = await hooks.decide(points.SWITCHING, switch, self.context())
        else:
            fork = points.ForkProposed(entry_id=target, position="before" if kind == "fork" and target else "at")
            verdict = await hooks.decide(points.FORKING, fork, self.context())
        return veto_text(verdict) if verdict is not None else None

    async def _rebuild(self, session: Session) -> None:
        self._generation += 1
        self._built = await build(self, session, self._hub)

    def _watch(self, event: object) -> None:
        if isinstance(event, CompactionFinished) and not event.success:
            failed = points.CompactionFailed(reason=event.reason, error=event.error or "")
            hooks = self._built_now.hooks
            self._built_now.later(hooks.observe(points.COMPACTION_FAILED, failed, self.context()))

    def prompt_sections(self) -> dict[str, str]:
        """The prompt as it is wanted now: the host's own sections, then those of extensions."""
        return {**self._built_now.sections, **sections(self)}


def veto_text(verdict: object) -> str:
    answer = getattr(verdict, "answer", None)
    if isinstance(answer, points.Veto):
        return f"{getattr(verdict, 'owner', 'an extension')} objects: {answer.reason}"
    return f"refused, because {verdict}"
