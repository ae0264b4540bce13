"""Puts together what belongs to one session: settings, extensions, resources, model, agent."""

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from branchwork.agent.agent import SessionAgent
from branchwork.agent.context import Context
from branchwork.agent.core import AgentParts
from branchwork.agent.gate import OpenGate
from branchwork.agent.hub import EventHub
from branchwork.agent.queue import InputQueue
from branchwork.agent.toolset import Tool
from branchwork.errors import UserError
from branchwork.host import points
from branchwork.host.assembly import builtin, choose_model, choose_tools, scratch_directory, working_directory
from branchwork.host.bridge import ExtensionGate, ExtensionLoop
from branchwork.host.bus import Bus
from branchwork.host.context import ExtensionContext
from branchwork.host.extension import Services
from branchwork.host.hooks import Failure, Hooks
from branchwork.host.loader import Candidate, Loaded, Search, candidates, load_all
from branchwork.host.places import World
from branchwork.host.prompt_sections import prompt_sections
from branchwork.host.registry import Registry
from branchwork.host.resources import Resources
from branchwork.host.settings import Settings, load_settings
from branchwork.host.trust import decide
from branchwork.models.catalog import Catalog
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
        self.agent: SessionAgent
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
        """Wait for what `later` began."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))


async def build(host: "Host", session: Session, hub: EventHub) -> Built:
    """Raises `UserError` for whatever the person must put right; everything else becomes a note."""
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
        host.note("info", "trust", decision.notice)
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
        hooks=Hooks(lambda failure: _tell_failure(host, failure)),
        bus=Bus(lambda owner, text: host.note("warning", owner, text)),
    )
    for tool in builtin(settings):
        built.registry.tools.add(tool.name, "Branchwork", tool)
    built.tree = Tree(session, lambda entry: built.agent.store(entry))
    await _load_extensions(host, built, project)
    built.flags = _flags(request.flags, built.registry)
    _make_agent(host, built, session, hub, places.user_home)
    await _load_resources(host, built, places)
    return built


def _tell_failure(host: "Host", failure: Failure) -> None:
    host.note("warning", failure.owner, f"{failure.point}: {failure.message}")


async def _load_extensions(host: "Host", built: Built, project: Path | None) -> None:
    request, settings = host.request, built.settings
    search = Search(
        home=host.world.home if request.discover and request.extensions else Path("/nonexistent"),
        project=project if request.discover and request.extensions else None,
        settings_paths=tuple(map(Path, settings.extensions.paths)) if request.extensions else (),
        given=request.extension_paths,
        installed=request.discover and request.extensions,
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


def _make_agent(host: "Host", built: Built, session: Session, hub: EventHub, user_home: Path) -> None:
    request, world, settings = host.request, host.world, built.settings
    context = Context(session)
    chosen = choose_model(request, context, Catalog(world.home, world.env, api_key=request.api_key))
    for warning in chosen.warnings:
        host.note("warning", "models", warning)
    parts = AgentParts(
        context=context,
        model=chosen.model,
        thinking=chosen.thinking or context.projection.thinking or settings.thinking,
        tools=choose_tools(request, settings, built.offered_tools()),
        sections=host.prompt_sections,
        gate=ExtensionGate(host, built.hooks, OpenGate()),
        hooks=ExtensionLoop(host, built.hooks, world.clock.now_ms),
        clock=world.clock,
        cwd=built.cwd,
        home=user_home,
        scratch=scratch_directory(session.header.id),
        env=world.env,
        tree=built.tree,
        queue=InputQueue(settings.queue.steering, settings.queue.follow_up),
        retry=settings.retry,
        compaction=settings.compaction,
        repeat_stop=settings.repeat_stop,
    )
    built.agent = SessionAgent(parts, hub=hub)


async def _load_resources(host: "Host", built: Built, places: World) -> None:
    request, settings = host.request, built.settings
    found = points.ResourcePaths()
    if built.hooks.count(points.DISCOVERING):
        payload = points.Discovering(cwd=str(built.cwd))
        context = ExtensionContext("the host", host)
        found = await built.hooks.transform(points.DISCOVERING, payload, found, context)
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
