"""Puts an agent together from what a person asked for: session, model, tools, prompt."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from branchwork.agent.agent import Agent
from branchwork.agent.context import Context
from branchwork.agent.core import AgentParts
from branchwork.agent.gate import OpenGate
from branchwork.agent.toolset import Tool
from branchwork.clock import Clock, Ids
from branchwork.errors import UserError
from branchwork.host.context_files import context_files
from branchwork.host.prompt_sections import PromptOptions, prompt_sections
from branchwork.host.settings import Settings, load_settings
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


class Assembled(Struct, frozen=True):
    agent: Agent
    warnings: tuple[str, ...]


def assemble(request: AgentRequest, world: Surroundings, *, model: Model | None = None) -> Assembled:
    """Build the agent; `model` overrides the catalogue (the demo brings its own).

    Raises `UserError` for whatever the person must put right.
    """
    settings, warnings = load_settings(world.home)
    session = open_session(request.session, world)
    try:
        cwd = working_directory(session, world)
        problems = [f"{session.path}:{problem.line}: {problem.detail}" for problem in session.problems]
        context = Context(session)
        chosen = _given(model, request) if model else _chosen(request, context, world)
        sections, more = _sections(request, world.home, cwd)
        parts = AgentParts(
            context=context,
            model=chosen.model,
            thinking=chosen.thinking or context.projection.thinking or settings.thinking,
            tools=choose_tools(request, settings),
            sections=lambda: sections,
            gate=OpenGate(),
            clock=world.clock,
            cwd=cwd,
            home=Path(world.env.get("HOME") or Path.home()),
            scratch=scratch_directory(session.header.id),
            env=world.env,
            retry=settings.retry,
            compaction=settings.compaction,
            repeat_stop=settings.repeat_stop,
        )
        return Assembled(Agent(parts), (*warnings, *problems, *chosen.warnings, *more))
    except BaseException:
        session.close()
        raise


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


class _Chosen(Struct, frozen=True):
    model: Model
    thinking: ThinkingLevel | None
    warnings: tuple[str, ...] = ()


def _given(model: Model, request: AgentRequest) -> _Chosen:
    return _Chosen(model, request.thinking or "off")


def _chosen(request: AgentRequest, context: Context, world: Surroundings) -> _Chosen:
    catalog = Catalog(world.home, world.env, api_key=request.api_key)
    used = context.projection.model
    selection = choose(catalog, explicit=request.model, session="/".join(used) if used else None)
    problems = tuple(problem.message for problem in catalog.problems)
    thinking = request.thinking or selection.thinking
    return _Chosen(catalog.create(selection.info), thinking, (*problems, *selection.warnings))


def _sections(request: AgentRequest, home: Path, cwd: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    files, warnings = context_files(home, cwd) if request.read_context_files else ((), ())
    return prompt_sections(request.prompt, files, cwd), warnings


def choose_tools(request: AgentRequest, settings: Settings) -> tuple[Tool, ...]:
    """The built-in tools that were asked for, in their stable order."""
    tools = builtin_tools(bash=BashSettings(shell=settings.shell.path, prefix=settings.shell.prefix))
    known = {tool.name for tool in tools}
    unknown = {*(request.tools or ()), *request.exclude_tools} - known
    if unknown:
        names = ", ".join(sorted(unknown))
        raise UserError(f"unknown tool {names}; there are {', '.join(sorted(known))}", exit_code=2)
    wanted = known if request.tools is None else set(request.tools)
    return tuple(tool for tool in tools if tool.name in wanted and tool.name not in request.exclude_tools)


def scratch_directory(session_id: str) -> Path:
    """Where tools put what does not fit into a result; made by the first one that needs it, mode 0700."""
    return Path(tempfile.gettempdir()) / f"branchwork-{os.getuid()}" / session_id
