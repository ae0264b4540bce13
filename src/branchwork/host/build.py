"""Puts together what belongs to one session: settings, extensions, resources, model, agent."""

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from branchwork.agent.agent import SessionAgent
from branchwork.agent.context import Context
from branchwork.agent.core import AgentParts
from branchwork.agent.hub import EventHub
from branchwork.agent.queue import InputQueue
from branchwork.agent.toolset import Tool
from branchwork.errors import UserError
from branchwork.host import points
from branchwork.host.assembly import (
    AgentRequest,
    Chosen,
    builtin,
    choose_model,
    choose_tools,
    scratch_directory,
    working_directory,
)
from branchwork.host.bridge import ExtensionGate, ExtensionLoop
from branchwork.host.bus import Bus
from branchwork.host.confinement import Confinement
from branchwork.host.extension import Services
from branchwork.host.hooks import Failure, Hooks
from branchwork.host.loader import Candidate, Loaded, Search, candidates, load_all
from branchwork.host.places import World
from branchwork.host.prompt_sections import prompt_sections
from branchwork.host.registry import BRANCHWORK, Registry
from branchwork.host.resources import Resources
from branchwork.host.settings import Settings, load_settings
from branchwork.host.switching import SwitchKind
from branchwork.host.tool_choice import ToolChoice
from branchwork.host.trust import decide
from branchwork.models.base import Model
from branchwork.models.catalog import Catalog
from branchwork.policy.gate import PolicyGate
from branchwork.session.entries import ThinkingLevel
from branchwork.session.handle import Tree
from branchwork.session.tree import Session

if TYPE_CHECKING:
    from branchwork.host.host import Host


class Built:
    """All that is made anew with a session or a reload."""

    def __init__(self, *, settings: Settings, cwd: Path, trusted: bool, hooks: Hooks, bus: Bus) -> None:
        self.settings = settings
        self.cwd = cwd
        self.trusted = trusted
        self.registry = Registry()
        self.hooks = hooks
        self.bus = bus
        self.loaded: tuple[Loaded, ...] = ()
        self.flags: dict[str, bool | str] = {}
        self.resources = Resources()
        self.sections: Mapping[str, str] = {}
        self.places: World
        self.confinement: Confinement
        self.agent: SessionAgent
        self.tool_choice: ToolChoice
        self.retired: list[Model] = []
        """Models that another one took the place of; a request may still be under way."""
        self.tree: Tree
        self._tasks: set[asyncio.Task[Any]] = set()

    def offered_tools(self) -> tuple[Tool, ...]:
        return self.registry.tools.values()

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something for extensions that nobody waits for; `finish` does."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait for what `later` began, and close what is not used any more."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
        for model in self.retired:
            await model.aclose()


class Carried(Struct, frozen=True, kw_only=True):
    """What was chosen since the start and stays so in what is built next."""

    model: str | None = None
    """None: the session's own."""
    thinking: ThinkingLevel | None = None


def carried(built: Built, kind: SwitchKind | Literal["reload"]) -> Carried:
    if kind == "resume":
        return Carried()
    return Carried(model=built.agent.model.info.ref, thinking=built.agent.thinking)


async def build(host: "Host", session: Session, hub: EventHub, kept: Carried | None) -> Built:
    """All but the resources. `kept` is None at the start of the program.

    Raises `UserError` for whatever the person must put right; everything else becomes a note. Touches nothing of
    what the host has in force.
    """
    request, world = host.request, host.world
    cwd = working_directory(session, world)
    places = World(
        home=world.home,
        user_home=Path(world.env.get("HOME") or Path.home()),
        cwd=cwd,
        context_files=request.read_context_files and request.discover,
    )
    decision = decide(places, flag=request.trust)
    if decision.problem is not None:
        host.note("warning", "trust", str(decision.problem))
    if decision.notice is not None and request.discover:
        host.note("warning", "trust", decision.notice)
    project = decision.project if decision.trusted else None
    settings = load_settings(world.home, project, user_home=places.user_home)
    for problem in settings.problems:
        host.note("warning", "settings", str(problem))
    for damage in session.problems:
        host.note("warning", "session", f"{session.path}:{damage.line}: {damage.detail}")
    built = Built(
        settings=settings,
        cwd=cwd,
        trusted=decision.trusted,
        hooks=Hooks(lambda failure: _tell_failure(host, failure), host.context_for),
        bus=Bus(lambda owner, text: host.note("warning", owner, text)),
    )
    built.confinement = Confinement(
        host.posture, cwd=cwd, home=places.user_home, area=scratch_directory(session.header.id), env=world.env
    )
    for tool in builtin(settings, built.confinement.wrap):
        built.registry.tools.add(tool.name, BRANCHWORK, tool)
    built.tree = Tree(session, lambda entry: built.agent.store(entry))
    await _load_extensions(host, built, project)
    _report_unknown_tables(host, built)
    words = request.flags if kept is None else _known_flags(host, built.registry)
    built.flags = _flags(words, built.registry)
    built.places = places
    _make_agent(host, built, session, hub, kept)
    return built


def _report_unknown_tables(host: "Host", built: Built) -> None:
    """A table that nobody reads, unless whoever reads it is switched off or broken."""
    if host.request.extensions and all(loaded.state == "loaded" for loaded in built.loaded):
        for problem in built.settings.unclaimed(built.registry.table_types()):
            host.note("warning", "settings", str(problem))


def _known_flags(host: "Host", registry: Registry) -> tuple[str, ...]:
    """Of the words that the program was started with those that are still known: extensions may be gone since."""
    known = tuple(word for word in host.request.flags if registry.flags.get(_flag_name(word)) is not None)
    for word in host.request.flags:
        if word not in known:
            host.note("warning", "extensions", f"--{_flag_name(word)} is no option any more")
    return known


def _flag_name(word: str) -> str:
    return word.removeprefix("--").partition("=")[0]


def _tell_failure(host: "Host", failure: Failure) -> None:
    host.note("warning", failure.owner, f"{failure.point}: {failure.message}")


async def _load_extensions(host: "Host", built: Built, project: Path | None) -> None:
    request, settings = host.request, built.settings
    found = request.discover and request.extensions
    search = Search(
        home=host.world.home if found else None,
        project=project if found else None,
        settings_paths=tuple(map(Path, settings.extensions.paths)) if found else (),
        given=request.extension_paths,
        installed=found,
    )
    off = {*request.disabled, *settings.extensions.disabled}
    known = candidates(search, host.front.builtin if request.extensions else ())
    unknown = sorted(off - {candidate.name for candidate in known})
    if unknown and request.extensions:
        host.note("warning", "extensions", f"no extension is called {', '.join(unknown)}; nothing was switched off")
    services = Services(
        registry=built.registry,
        hooks=built.hooks,
        bus=built.bus,
        settings=settings,
        report=lambda owner, text: host.note("warning", owner, text),
    )

    def disabled(candidate: Candidate) -> bool:
        return candidate.name in off

    built.loaded = tuple(await load_all(known, services, disabled=disabled))


def _flags(words: tuple[str, ...], registry: Registry) -> dict[str, bool | str]:
    """The values of extensions' flags. Raises `UserError` (usage) for a word that nobody registered."""
    values: dict[str, bool | str] = {flag.name: flag.default for flag in registry.flags.values()}
    for word in words:
        name, given, value = word.removeprefix("--").partition("=")
        if name not in values:
            raise UserError(f"unknown option {word.partition('=')[0]} (branchwork --help)", exit_code=2)
        if isinstance(values[name], bool) and given:
            raise UserError(f"--{name} takes no value", exit_code=2)
        if not isinstance(values[name], bool) and not given:
            raise UserError(f"--{name} needs a value: --{name}=VALUE", exit_code=2)
        values[name] = value if given else True
    return values


def _make_agent(host: "Host", built: Built, session: Session, hub: EventHub, kept: Carried | None) -> None:
    request, world, settings, user_home = host.request, host.world, built.settings, built.places.user_home
    context = Context(session)
    if kept is not None:
        request = _continued(host, built, kept)
    chosen = choose_model(request, context, Catalog(world.home, world.env, api_key=request.api_key))
    for warning in chosen.warnings:
        host.note("warning", "models", warning)
    allowed = choose_tools(request, settings, built.offered_tools())
    parts = AgentParts(
        context=context,
        model=chosen.model,
        thinking=_thinking(request, chosen, context, settings),
        tools=allowed,
        sections=host.prompt_sections,
        gate=ExtensionGate(host, built.hooks, PolicyGate(host.posture, built.confinement.surface())),
        hooks=ExtensionLoop(host, built.hooks, world.clock.now_ms),
        clock=world.clock,
        cwd=built.cwd,
        home=user_home,
        scratch=built.confinement.scratch,
        env=world.env,
        tree=built.tree,
        queue=InputQueue(settings.queue.steering, settings.queue.follow_up),
        retry=settings.retry,
        compaction=settings.compaction,
        repeat_stop=settings.repeat_stop,
    )
    built.agent = SessionAgent(parts, hub=hub)
    names = {loaded.name for loaded in built.loaded if loaded.state == "loaded"}
    built.tool_choice = ToolChoice(
        built.agent,
        built.tree,
        allowed,
        loaded=names.__contains__,
        report=lambda source, text: host.note("warning", source, text),
    )
    built.tool_choice.restore()


def _continued(host: "Host", built: Built, kept: Carried) -> AgentRequest:
    """The request of the start as it reads now: chosen models count, and tools that are gone stop nothing."""
    request = host.request
    given = request.given_model
    if given is not None and kept.model not in (None, given.info.ref):
        given = None
    known = {tool.name for tool in built.offered_tools()}
    named = {*(request.tools or ()), *request.exclude_tools}
    if named - known:
        host.note("warning", "tools", f"not available any more: {', '.join(sorted(named - known))}")
    return replace(
        request,
        given_model=given,
        model=kept.model if given is None else None,
        thinking=kept.thinking,
        tools=None if request.tools is None else tuple(name for name in request.tools if name in known),
        exclude_tools=tuple(name for name in request.exclude_tools if name in known),
    )


def _thinking(request: AgentRequest, chosen: Chosen, context: Context, settings: Settings) -> ThinkingLevel:
    if request.given_model is not None:  # somebody else's choice: no level of the settings is meant for it
        return request.thinking or context.projection.thinking or "off"
    return chosen.thinking or context.projection.thinking or settings.thinking


async def load_resources(host: "Host", built: Built) -> None:
    """What the model is told of: skills, templates, files with instructions. The host must be in its new state."""
    request, settings, places = host.request, built.settings, built.places
    found = points.ResourcePaths()
    if built.hooks.count(points.DISCOVERING):
        payload = points.Discovering(cwd=str(built.cwd))
        found = await built.hooks.transform(points.DISCOVERING, payload, found)
    if request.discover:
        world = World(
            home=places.home,
            user_home=places.user_home,
            cwd=places.cwd,
            trusted=built.trusted,
            settings_paths={
                "skills": tuple(map(Path, (*settings.skills.paths, *found.skills))),
                "prompts": tuple(map(Path, (*settings.prompts.paths, *found.prompts))),
                "agents": tuple(map(Path, found.agents)),
            },
            given_paths={"skills": request.skill_paths},
            context_files=places.context_files,
        )
        built.resources = Resources.load(world)
        for problem in built.resources.problems:
            host.note("warning", "resources", str(problem))
    readers = {"read", "bash"} & {tool.name for tool in built.agent.tools}
    built.sections = prompt_sections(
        request.prompt,
        built.resources.context_files,
        built.cwd,
        skills=built.resources.skills if readers else (),
    )
