"""What a person asked for, and the steps from there to the parts of an agent."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from branchwork.agent.context import Context
from branchwork.agent.toolset import Tool
from branchwork.clock import Clock, Ids
from branchwork.errors import UserError
from branchwork.host.prompt_sections import PromptOptions
from branchwork.host.settings import Settings
from branchwork.models.base import Model
from branchwork.models.catalog import Catalog
from branchwork.models.select import choose
from branchwork.session.entries import SessionInfoEntry, ThinkingLevel
from branchwork.session.listing import most_recent, resolve
from branchwork.session.operations import fork, session_directory
from branchwork.session.tree import Session
from branchwork.tools.bash import BashSettings
from branchwork.tools.builtin import builtin_tools


class SessionChoice(Struct, frozen=True, kw_only=True):
    kind: Literal["new", "continue", "resume", "fork", "none"] = "new"
    target: str | None = None
    """An id, the beginning of one, or a path; for `resume` and `fork`."""
    name: str | None = None


class AgentRequest(Struct, frozen=True, kw_only=True):
    session: SessionChoice = SessionChoice()
    model: str | None = None
    api_key: str | None = None
    thinking: ThinkingLevel | None = None
    tools: tuple[str, ...] | None = None
    """None: all built-in ones."""
    exclude_tools: tuple[str, ...] = ()
    prompt: PromptOptions = PromptOptions()
    read_context_files: bool = True
    given_session: Session | None = None
    """Instead of one that `session` describes; the host closes it."""
    given_model: Model | None = None
    """Instead of one from the catalogue."""
    skill_paths: tuple[Path, ...] = ()
    extension_paths: tuple[Path, ...] = ()
    disabled: tuple[str, ...] = ()
    """Extensions not to load, by name."""
    extensions: bool = True
    """False loads none but those of `extension_paths`."""
    discover: bool = True
    """False reads no skills, templates, context files and user extensions: for child runs."""
    trust: bool | None = None
    """The person's word for this run; None asks the remembered decision."""
    flags: tuple[str, ...] = ()
    """`--name` or `--name=value` words that only extensions know."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """The world an agent is put together in."""

    home: Path
    """BRANCHWORK_HOME."""
    cwd: Path
    cwd_given: bool
    """Whether the person named the folder, which then wins over the session's own."""
    env: Mapping[str, str]
    clock: Clock
    ids: Ids


def open_session(choice: SessionChoice, world: Surroundings) -> Session:
    home, cwd = world.home, world.cwd
    match choice.kind:
        case "none":
            session = Session.create(cwd=str(cwd), directory=None, clock=world.clock, ids=world.ids)
        case "new":
            directory = session_directory(home, str(cwd))
            session = Session.create(cwd=str(cwd), directory=directory, clock=world.clock, ids=world.ids)
        case "continue":
            path = most_recent(home, cwd)
            if path is None:
                raise UserError(f"no session in {cwd} to continue; start one without --continue")
            session = Session.open(path, clock=world.clock, ids=world.ids)
        case "resume":
            path = resolve(choice.target or "", home, cwd)
            session = Session.open(path, clock=world.clock, ids=world.ids)
        case _:
            session = _forked(resolve(choice.target or "", home, cwd), world)
    if choice.name is not None and session.read_only is None:
        session.append(SessionInfoEntry(name=" ".join(choice.name.split())))
    return session


def _forked(path: Path, world: Surroundings) -> Session:
    with Session.open(path, clock=world.clock, ids=world.ids, read_only=True) as source:
        directory = session_directory(world.home, source.header.cwd)
        return fork(source, source.leaf_id, position="at", directory=directory, clock=world.clock, ids=world.ids)


def working_directory(session: Session, world: Surroundings) -> Path:
    """The session's folder, unless the person named another; it must exist."""
    cwd = world.cwd if world.cwd_given else Path(session.header.cwd)
    if not cwd.is_dir():
        raise UserError(f"the session's folder {cwd} is gone; name another with --cwd")
    return cwd


class Chosen(Struct, frozen=True):
    model: Model
    thinking: ThinkingLevel | None
    """None when nobody named a level."""
    warnings: tuple[str, ...] = ()


def choose_model(request: AgentRequest, context: Context, catalog: Catalog) -> Chosen:
    """The model that was asked for, or the session's own, or the default. Raises `UserError` with exit code 3."""
    if request.given_model is not None:
        return Chosen(request.given_model, request.thinking or "off")
    used = context.projection.model
    selection = choose(catalog, explicit=request.model, session="/".join(used) if used else None)
    problems = tuple(problem.message for problem in catalog.problems)
    thinking = request.thinking or selection.thinking
    return Chosen(catalog.create(selection.info), thinking, (*problems, *selection.warnings))


def choose_tools(request: AgentRequest, settings: Settings, offered: Sequence[Tool]) -> tuple[Tool, ...]:
    """Of the tools on offer those that were asked for and that the settings allow, in their stable order."""
    known = {tool.name for tool in offered}
    unknown = {*(request.tools or ()), *request.exclude_tools} - known
    if unknown:
        names = ", ".join(sorted(unknown))
        raise UserError(f"unknown tool {names}; there are {', '.join(sorted(known))}", exit_code=2)
    wanted = known if request.tools is None else set(request.tools)
    if settings.tools.allow is not None:
        wanted &= set(settings.tools.allow)
    wanted -= {*request.exclude_tools, *settings.tools.exclude}
    return tuple(tool for tool in offered if tool.name in wanted)


def builtin(settings: Settings, wrap: Callable[[tuple[str, ...]], tuple[str, ...]]) -> tuple[Tool, ...]:
    """The built-in tools; commands are run as `wrap` says."""
    return builtin_tools(bash=BashSettings(shell=settings.shell.path, prefix=settings.shell.prefix, wrap=wrap))


def scratch_directory(session_id: str) -> Path:
    """Where tools put what does not fit into a result; made by the first one that needs it, mode 0700."""
    return Path(tempfile.gettempdir()) / f"branchwork-{os.getuid()}" / session_id
