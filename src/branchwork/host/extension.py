"""The public API: `def extension(api: ExtensionAPI) -> None` registers, and that is all it does.

Registration is possible while the extension is being loaded. What it registered is withdrawn as a whole when
it fails, is switched off, or is loaded anew.
"""

from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from math import inf
from types import UnionType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from branchwork.agent.toolset import Tool, ToolContext, ToolError, ToolOutput, ToolRun, inline_schema
from branchwork.host.branch_state import BranchState, branch_state
from branchwork.host.budget import contained, run_within
from branchwork.host.bus import Bus, Note, Request
from branchwork.host.context import ExtensionContext
from branchwork.host.hooks import BUDGET_S, Hooks
from branchwork.host.points import Decide, Observe, Point, Transform
from branchwork.host.registry import (
    Command,
    CommandHandler,
    Completer,
    Contributor,
    Flag,
    Limit,
    Registry,
    Renderer,
    Section,
    Shortcut,
    Taken,
)
from branchwork.host.settings import Settings
from branchwork.policy.posture import Restriction
from branchwork.session.entries import JSONObject, ToolResultMessage

P = TypeVar("P")
V = TypeVar("V")
S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")
N = TypeVar("N", bound=Note)
Table = TypeVar("Table", bound=Struct)


class Services(Struct, frozen=True):
    """What registration goes into; one for all extensions of a host."""

    registry: Registry
    hooks: Hooks
    bus: Bus
    settings: Settings
    report: Callable[[str, str], None]
    """(extension, text): something a person should know."""


class ExtensionAPI:
    """Handed to an extension's function, once. Afterwards its methods raise RuntimeError."""

    def __init__(self, name: str, services: Services) -> None:
        self._name = name
        self._services = services
        self._open = True

    @property
    def name(self) -> str:
        """The extension's own name; its entries in the session are best of this custom type."""
        return self._name

    def close(self) -> None:
        """The host's sign that loading is over."""
        self._open = False

    # ---- what the model and the person can use ----------------------------------------------------

    def add_tool(self, tool: Tool) -> None:
        """Raises ValueError when the name is taken; built-in tools are not replaced either."""
        if not isinstance(tool, Tool):
            raise TypeError(f"add_tool takes a Tool (see @tool), not {type(tool).__name__}")
        added = replace(
            tool,
            run=_contained(tool),
            schema=tool.schema or _own_schema(tool),
            convert=tool.convert and _refusing(tool.convert),
            prepare=tool.prepare and _refusing(tool.prepare),
        )
        self._add(lambda: self._here.registry.tools.add(tool.name, self._name, added))

    def add_command(
        self,
        name: str,
        handler: CommandHandler,
        *,
        description: str,
        arguments: str = "",
        complete: Completer | None = None,
        while_running: bool = False,
    ) -> None:
        """`/name`. The handler gets the text after the name and a `CommandContext`, and returns what to show."""
        command = Command(
            name=name.removeprefix("/"),
            description=description,
            handler=handler,
            arguments=arguments,
            complete=complete,
            while_running=while_running,
        )
        self._add(lambda: self._here.registry.commands.add(command.name, self._name, command))

    def add_flag(self, name: str, *, help: str, default: bool | str = False) -> None:
        """`--name` on the command line; read it with `ctx.flag(name)`."""
        flag = Flag(name=name.removeprefix("--"), help=help, default=default)
        self._add(lambda: self._here.registry.flags.add(flag.name, self._name, flag))

    def add_shortcut(
        self, key: str, handler: Callable[[ExtensionContext], Awaitable[None]], *, description: str
    ) -> None:
        """A key in front ends that have keys, such as `ctrl+shift+r`."""
        shortcut = Shortcut(key=key.lower(), description=description, handler=handler)
        self._add(lambda: self._here.registry.shortcuts.add(shortcut.key, self._name, shortcut))

    def add_renderer(self, custom_type: str, render: Callable[[Any], Sequence[str]]) -> None:
        """How entries and messages of a custom type are shown."""
        renderer = Renderer(custom_type=custom_type, render=render)
        self._add(lambda: self._here.registry.renderers.add(custom_type, self._name, renderer))

    # ---- what the model reads ---------------------------------------------------------------------

    def add_section(self, name: str, provider: Callable[[ExtensionContext], str | None], *, order: int = 500) -> None:
        """A section of the system prompt, asked for before each request. Stored as a patch when it changes,
        so a text that changes often belongs into `add_context`."""
        section = Section(name=name, provider=provider, order=order)
        self._add(lambda: self._here.registry.sections.add(name, self._name, section))

    def add_context(self, provider: Callable[[ExtensionContext], str | None], *, name: str | None = None) -> None:
        """Text for the next request only, asked for before each one; neither stored nor shown."""
        contributor = Contributor(name=name or self._name, provider=provider)
        self._add(lambda: self._here.registry.contributors.add(contributor.name, self._name, contributor))

    # ---- what may be touched ----------------------------------------------------------------------

    def add_limit(self, provider: Callable[[ExtensionContext], Restriction | None], *, name: str | None = None) -> None:
        """Narrow what may be touched: asked at every call, so that a change counts from the next one on.

        A provider that fails forbids everything that changes anything.
        """
        limit = Limit(name=name or self._name, provider=provider)
        self._add(lambda: self._here.registry.limits.add(limit.name, self._name, limit))

    # ---- hooks ------------------------------------------------------------------------------------

    def observe(
        self, point: Observe[P], handler: Callable[[P, ExtensionContext], Any], *, budget: float = BUDGET_S
    ) -> Callable[[], None]:
        """Watch. Returns the function that ends it. `budget` is in seconds."""
        return self._hook(point, Observe, handler, budget)

    def transform(
        self,
        point: Transform[P, V],
        handler: Callable[[P, V, ExtensionContext], Any],
        *,
        budget: float = BUDGET_S,
    ) -> Callable[[], None]:
        """Change a value: the handler returns the new one, or None to leave it."""
        return self._hook(point, Transform, handler, budget)

    def decide(
        self, point: Decide[P, V], handler: Callable[[P, ExtensionContext], Any], *, budget: float = BUDGET_S
    ) -> Callable[[], None]:
        """Object: the handler returns a verdict, or None. One that fails counts as the strictest verdict."""
        return self._hook(point, Decide, handler, budget)

    # ---- state, other extensions, settings --------------------------------------------------------

    def branch_state(
        self,
        initial: S,
        change: type[C] | UnionType,
        step: Callable[[S, C], S],
        *,
        name: str | None = None,
        read_result: Callable[[ToolResultMessage], C | None] | None = None,
    ) -> BranchState[S, C]:
        """State that follows the branch. `name` is the custom type of its entries, by default the extension's."""
        services = self._here
        return branch_state(
            name or self._name,
            initial=initial,
            change=change,
            step=step,
            read_result=read_result,
            diagnose=lambda text: services.report(self._name, text),
        )

    def serve(self, kind: type[Request[R]], handler: Callable[[Any], Any]) -> Callable[[], None]:
        """Own a kind of request; a second owner is refused."""
        return self._here.bus.serve(kind, handler, owner=self._name)

    def subscribe(self, kind: type[N], function: Callable[[N], object]) -> Callable[[], None]:
        """Be told of a kind of note."""
        return self._here.bus.subscribe(kind, function, owner=self._name)

    def settings(self, table: str, kind: type[Table]) -> Table:
        """The table `[table]` of the settings, declared by `kind`. What is wrong in it is reported."""
        services = self._here
        self._add(lambda: services.registry.tables.add(table, self._name, kind))
        declared = services.settings.table(table, kind)
        for problem in declared.problems:
            services.report(self._name, str(problem))
        return declared.value

    # ---- inside -----------------------------------------------------------------------------------

    @property
    def _here(self) -> Services:
        if not self._open:
            raise RuntimeError(f"extension {self._name}: registration is over once the extension is loaded")
        return self._services

    def _hook(self, point: Point, kind: type, handler: Any, budget: float) -> Callable[[], None]:
        if not isinstance(point, kind):
            found = type(point).__name__
            raise TypeError(f"{getattr(point, 'name', point)!r} is a point of kind {found}, not {kind.__name__}")
        if not callable(handler) or not 0 < budget < inf:
            raise TypeError(f"a handler of {point.name} is a function with a budget of some seconds")
        return self._here.hooks.add(point, self._name, handler, budget)

    def _add(self, put: Callable[[], None]) -> None:
        self._here  # noqa: B018 - raises when loading is over
        try:
            put()
        except Taken as taken:
            raise ValueError(str(taken)) from None


def _contained(tool: Tool) -> ToolRun[Any]:
    """The tool's function, unable to end the program or to cancel the run that it is part of."""
    function = tool.run

    async def run(args: Any, ctx: ToolContext) -> ToolOutput:
        output: ToolOutput = await contained(function, args, ctx)
        return output

    return run


def _refusing(function: Callable[[JSONObject], Any]) -> Callable[[JSONObject], Any]:
    """What an extension does to arguments before a call: failing at it refuses the call, and no more."""

    def run(arguments: JSONObject) -> Any:
        try:
            return run_within(BUDGET_S, function, deepcopy(arguments))
        except ToolError:
            raise
        except Exception as error:
            raise ToolError(f"{type(error).__name__}: {error}") from error

    return run


def _own_schema(tool: Tool) -> JSONObject:
    """Made once for each loading and kept with the tool: a cache by type would keep the types of all loadings."""
    (ref,), components = msgspec.json.schema_components([tool.args], ref_template="#/$defs/{name}")
    schema: JSONObject = inline_schema(ref, components)
    schema.pop("title", None)
    return schema
