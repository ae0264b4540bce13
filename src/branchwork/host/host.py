"""One running Branchwork: a session with its agent, and the extensions around it.

Going to another session, or reloading, builds everything anew; what was handed out before is stale then. Front
ends hold the host, subscribe to its one stream of events, and submit input.
"""

from collections.abc import Callable
from inspect import iscoroutine
from pathlib import Path
from typing import Literal

from msgspec import Struct

from branchwork.agent.agent import SessionAgent
from branchwork.agent.events import CompactionFinished, RunFinished
from branchwork.agent.hub import EventHub, Subscriber
from branchwork.agent.run import Limits
from branchwork.errors import UserError
from branchwork.host import points
from branchwork.host.assembly import AgentRequest, Surroundings, open_session
from branchwork.host.bridge import sections
from branchwork.host.budget import run_within
from branchwork.host.build import Built, Carried, build, carried, load_resources
from branchwork.host.bus import Bus
from branchwork.host.confinement import posture_of
from branchwork.host.context import CommandContext, Completed, ExtensionContext
from branchwork.host.dialogs import Dialogs
from branchwork.host.headless_ui import HeadlessScreen
from branchwork.host.hooks import BUDGET_S
from branchwork.host.loader import Loaded
from branchwork.host.points import EndReason, Handled, Input, InputContext, InputSource, StartReason
from branchwork.host.registry import Command, Completion, Registry, TextProvider
from branchwork.host.resources import Resources
from branchwork.host.settings import Settings
from branchwork.host.submission import Submitted, completions, prepare
from branchwork.host.switching import SwitchKind, fork_position, next_session
from branchwork.host.ui import UI, Level, Screen
from branchwork.models.base import ModelInfo
from branchwork.models.catalog import Catalog
from branchwork.models.select import resolve
from branchwork.policy.posture import Posture
from branchwork.session.entries import Image, ThinkingLevel
from branchwork.session.handle import Tree
from branchwork.session.tree import Session

SENT_RUNS = 50
"""Runs that extensions may start in a row before a person has to say something again."""


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
        screen = front.screen or HeadlessScreen(lambda asker, text, level: self._tell(level, asker, text))
        self._dialogs = Dialogs(screen, clock=world.clock, report=lambda owner, text: self.note("warning", owner, text))
        self._hub.subscribe(self._watch)
        self.draft: str | None = None
        """Text that belongs into the editor, after a fork or a move took it out of the conversation."""
        self.quitting = False

    @classmethod
    async def open(cls, request: AgentRequest, world: Surroundings, front: Front) -> "Host":
        host = cls(request, world, front)
        session = request.given_session
        if session is None:  # an empty one counts as false
            session = open_session(request.session, world)
        try:
            await host._install(await host._build(session, None))
        except BaseException:
            session.close()
            raise
        return host

    async def start(self, reason: StartReason = "startup", previous: str | None = None) -> None:
        """Announce the session and tell extensions; call once subscribers are in place."""
        self.agent.announce(resumed=len(self.agent.session) > 0)
        self._tell_notes()
        started = points.SessionStarted(reason=reason, previous=previous)
        await self._built_now.hooks.observe(points.SESSION_STARTED, started)

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

    def context_for(self, owner: str) -> ExtensionContext:
        """What an extension's functions are given, valid until another session or loading follows."""
        return ExtensionContext(owner, self)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Read the events of this and all following sessions."""
        return self._hub.subscribe(subscriber)

    def note(self, level: Level, source: str, text: str) -> None:
        """Tell the person, after the session is announced at the earliest. Each text of a source is told once."""
        if (source, text) in self._reported:
            return
        self._reported.add((source, text))
        self._tell(level, source, text)

    def _tell(self, level: Level, source: str, text: str) -> None:
        if self._announced:
            self.agent.diagnose(level, source, text)
        else:
            self._notes.append((level, source, text))

    def _tell_notes(self) -> None:
        self._announced = True
        notes, self._notes = self._notes, []
        for level, source, text in notes:
            self.agent.diagnose(level, source, text)

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
            await self._settled(finished)
            submitted = Submitted(kind="ran", finished=finished)
        for _ in range(SENT_RUNS):
            if not self._wanted or self.agent.activity != "idle":
                return submitted
            finished = await self.agent.prompt(self._wanted.pop(0), limits=limits)
            await self._settled(finished)
            submitted = Submitted(kind="ran", say=submitted.say, finished=finished)
        if self._wanted:
            self._wanted.clear()
            self._tell(
                "warning", "extensions", f"{SENT_RUNS} runs were asked for in a row; what else was sent is dropped"
            )
        return submitted

    async def transform_input(self, payload: InputContext, value: Input | Handled) -> Input | Handled:
        return await self._built_now.hooks.transform(points.INPUT, payload, value)

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

    def completions(self, text: str) -> tuple[Completion, ...]:
        """How the command line `text` may go on."""
        return completions(self, text)

    async def _settled(self, finished: RunFinished) -> None:
        if self._wanted:
            return  # more runs follow
        settled = points.Settled(aborted=finished.end == "aborted")
        await self._built_now.hooks.observe(points.SETTLED, settled)

    # ---- what contexts offer ----------------------------------------------------------------------

    def flag(self, name: str) -> bool | str:
        return self._built_now.flags.get(name, False)

    def provided(self, owner: str, name: str, provider: TextProvider) -> str | None:
        try:
            text = run_within(BUDGET_S, provider, self.context_for(owner))
        except Exception as error:  # noqa: BLE001 - boundary: an extension's code
            self.note("warning", owner, f"{name} left out: {type(error).__name__}: {error}")
            return None
        if text is None or isinstance(text, str):
            return text
        if iscoroutine(text):
            text.close()
        self.note("warning", owner, f"{name} left out: it is {type(text).__name__}, not text")
        return None

    def choose_tools(self, owner: str, names: tuple[str, ...]) -> None:
        self._built_now.tool_choice.choose(owner, names)

    def select_model(self, ref: str | None, thinking: ThinkingLevel | None) -> ModelInfo:
        agent = self.agent
        model, level = agent.model, thinking
        if ref is not None:
            catalog = Catalog(self.home, self.world.env, api_key=self.request.api_key)
            selection = resolve(catalog, ref)
            model, level = catalog.create(selection.info), thinking or selection.thinking
            for warning in selection.warnings:
                self.note("warning", "models", warning)
            self._built_now.retired.append(agent.model)
        previous, level_before = agent.model.info.ref, agent.thinking
        agent.select(model, level or agent.thinking)
        self._built_now.later(self._tell_selection(previous, level_before))
        return model.info

    async def _tell_selection(self, previous: str, level_before: ThinkingLevel) -> None:
        agent, hooks = self.agent, self._built_now.hooks
        if agent.model.info.ref != previous:
            chosen = points.ModelChosen(model=agent.model.info.ref, previous=previous)
            await hooks.observe(points.MODEL_CHOSEN, chosen)
        if agent.thinking != level_before:
            level = points.ThinkingChosen(level=agent.thinking, previous=level_before)
            await hooks.observe(points.THINKING_CHOSEN, level)

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
            session, draft = next_session(kind, target, self.agent.session, self.world, self.cwd)
        except UserError as error:
            return str(error)
        try:
            built = await self._build(session, carried(self._built_now, kind))
        except BaseException as error:
            session.close()
            if isinstance(error, UserError):
                return str(error)
            raise
        previous = self.agent.session.path
        reason: Literal["new", "resume", "fork"] = "fork" if kind == "clone" else kind
        await self._end(reason)
        await self._install(built)
        self.draft = draft
        await self.start(reason, str(previous) if previous else None)
        return None

    async def move(self, target: str | None, *, with_notes: bool, instructions: str | None) -> str | None:
        """Go on from another point of the tree. Returns why not, or None when it happened."""
        proposal = points.MoveProposed(target=target, with_notes=with_notes)
        verdict = await self._built_now.hooks.decide(points.MOVING, proposal)
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
        self._built_now.tool_choice.restore()
        moved = points.Moved(old_leaf=old, new_leaf=self.agent.session.leaf_id)
        await self._built_now.hooks.observe(points.SESSION_MOVED, moved)
        return None

    async def reload(self) -> None:
        """Read settings, resources and extensions anew; the session stays."""
        if self.agent.activity != "idle":
            raise UserError(f"cannot reload while {self.agent.activity}: wait, or abort first")
        session = self.agent.session
        built = await self._build(session, carried(self._built_now, "reload"))
        entries = len(session)
        await self._end("reload", keep_session=True)
        if len(session) != entries:  # written by extensions at the end
            built.agent.context.rebuild()
        await self._install(built)
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
        try:
            await built.hooks.observe(points.SESSION_ENDING, points.SessionEnding(reason=reason))
            await built.finish()
            await built.agent.aclose(keep_session=keep_session)
        finally:
            for loaded in built.loaded:
                self._dialogs.withdraw(loaded.name)
                built.bus.withdraw(loaded.name)
            self._announced = False
            self._generation += 1

    async def _build(self, session: Session, kept: Carried | None) -> Built:
        """Make everything anew beside what is in force, which stays so when this raises `UserError`."""
        announced, self._announced = self._announced, False
        try:
            return await build(self, session, self._hub, kept)
        except BaseException:
            if announced:
                self._tell_notes()
            raise

    async def _install(self, built: Built) -> None:
        self._generation += 1
        self._built = built
        await load_resources(self, built)

    async def _veto_switch(self, kind: SwitchKind, target: str | None) -> str | None:
        hooks = self._built_now.hooks
        if kind == "new" or kind == "resume":
            switch = points.SwitchProposed(reason=kind, target=target)
            verdict = await hooks.decide(points.SWITCHING, switch)
        else:
            position = fork_position(self.agent.session, target if kind == "fork" else None)
            fork = points.ForkProposed(entry_id=target, position=position)
            verdict = await hooks.decide(points.FORKING, fork)
        return veto_text(verdict) if verdict is not None else None

    def _watch(self, event: object) -> None:
        if isinstance(event, CompactionFinished) and not event.success:
            failed = points.CompactionFailed(reason=event.reason, error=event.error or "")
            hooks = self._built_now.hooks
            self._built_now.later(hooks.observe(points.COMPACTION_FAILED, failed))

    def posture(self) -> Posture:
        """What may be touched at this moment."""
        return posture_of(self)

    def prompt_sections(self) -> dict[str, str]:
        """The prompt as it is wanted now: the host's own sections, then those of extensions."""
        return {**self._built_now.sections, **sections(self)}


def veto_text(verdict: object) -> str:
    answer = getattr(verdict, "answer", None)
    if isinstance(answer, points.Veto):
        return f"{getattr(verdict, 'owner', 'an extension')} objects: {answer.reason}"
    return f"refused, because {verdict}"
