"""What extensions registered, and whose each thing is."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from branchwork.agent.toolset import Tool
from branchwork.host.context import CommandContext, ExtensionContext
from branchwork.policy.posture import Restriction

T = TypeVar("T")

BRANCHWORK = "Branchwork"
"""The owner of what does not come from an extension."""
COMMAND_NAME = re.compile(r"[a-z][a-z0-9_-]*")
FLAG_NAME = re.compile(r"[a-z][a-z0-9-]*")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What all providers accept."""
OWN_FLAGS = frozenset(
    [
        "help",
        "version",
        "print",
        "output",
        "debug",
        "model",
        "thinking",
        "api-key",
        "continue",
        "resume",
        "fork",
        "no-session",
        "name",
        "tools",
        "exclude-tools",
        "cwd",
        "max-turns",
        "time-limit",
        "extension",
        "no-extensions",
        "disable",
        "skill",
        "trust",
        "no-trust",
        "system-prompt",
        "append-system-prompt",
        "no-context-files",
    ]
)
"""The program's own: a flag of such a name would never reach its extension."""
OWN_SECTIONS = frozenset(("preamble", "tools", "rules", "addendum", "project_context", "skills", "cwd"))


class Completion(Struct, frozen=True):
    """One way to go on with a command's arguments."""

    value: str
    description: str = ""


CommandHandler: TypeAlias = Callable[[str, CommandContext], Awaitable[str | None]]
Completer: TypeAlias = Callable[[str, ExtensionContext], Sequence[Completion]]
TextProvider: TypeAlias = Callable[[ExtensionContext], str | None]


class Command(Struct, frozen=True, kw_only=True):
    """`/name ARGUMENTS`. The handler's text is shown to the person."""

    name: str
    description: str
    handler: CommandHandler
    arguments: str = ""
    """How the arguments are written, such as `[add|list] TEXT`; for help."""
    complete: Completer | None = None
    while_running: bool = False
    """Whether it may be given while a run is going on."""


class Flag(Struct, frozen=True, kw_only=True):
    """`--name` on the command line, for one run of the program."""

    name: str
    help: str
    default: bool | str = False


class Shortcut(Struct, frozen=True, kw_only=True):
    key: str
    description: str
    handler: Callable[[ExtensionContext], Awaitable[None]]


class Section(Struct, frozen=True, kw_only=True):
    """A part of the system prompt; `order` sorts them, then the name. The provider's None leaves it out."""

    name: str
    provider: TextProvider
    order: int = 500


class Contributor(Struct, frozen=True, kw_only=True):
    """Text for the next request only, which is not stored."""

    name: str
    provider: TextProvider


class Limit(Struct, frozen=True, kw_only=True):
    """Takes something away from what may be touched, as long as the provider gives a restriction."""

    name: str
    provider: Callable[[ExtensionContext], Restriction | None]


class Renderer(Struct, frozen=True, kw_only=True):
    """Turns an entry or message of a custom type into plain lines that every front end can draw."""

    custom_type: str
    render: Callable[[Any], Sequence[str]]


class Owned(Struct, Generic[T], frozen=True):
    owner: str
    value: T


class Taken(Exception):
    """The name belongs to somebody already; the text says to whom."""


class Shelf(Generic[T]):
    """Things of one kind by name. The first owner keeps a name; nobody is renamed or replaced silently.

    `reserved` names belong to the program; `pattern` is what a name looks like.
    """

    def __init__(
        self, kind: str, *, reserved: frozenset[str] = frozenset(), pattern: re.Pattern[str] | None = None
    ) -> None:
        self._kind = kind
        self._reserved = reserved
        self._pattern = pattern
        self._things: dict[str, Owned[T]] = {}

    def add(self, name: str, owner: str, value: T) -> None:
        """Raises `Taken`, and ValueError for what cannot be a name."""
        there = self._things.get(name)
        if there is not None or name in self._reserved:
            whose = there.owner if there is not None else BRANCHWORK
            raise Taken(f"the {self._kind} {name!r} belongs to {whose} already")
        if not name or (self._pattern is not None and not self._pattern.fullmatch(name)):
            raise ValueError(f"{name!r} cannot be the name of a {self._kind}")
        self._things[name] = Owned(owner, value)

    def withdraw(self, owner: str) -> None:
        self._things = {name: there for name, there in self._things.items() if there.owner != owner}

    def get(self, name: str) -> T | None:
        there = self._things.get(name)
        return there.value if there is not None else None

    def owner(self, name: str) -> str | None:
        there = self._things.get(name)
        return there.owner if there is not None else None

    def values(self) -> tuple[T, ...]:
        return tuple(there.value for there in self._things.values())

    def owned(self) -> tuple[Owned[T], ...]:
        return tuple(self._things.values())

    def by_name(self) -> Mapping[str, T]:
        return {name: there.value for name, there in self._things.items()}

    def names_of(self, owner: str) -> tuple[str, ...]:
        return tuple(name for name, there in self._things.items() if there.owner == owner)


class Registry:
    """All shelves. `withdraw` leaves nothing of an owner behind."""

    def __init__(self) -> None:
        self.tools: Shelf[Tool] = Shelf("tool", pattern=TOOL_NAME)
        self.commands: Shelf[Command] = Shelf("command", pattern=COMMAND_NAME)
        self.flags: Shelf[Flag] = Shelf("flag", reserved=OWN_FLAGS, pattern=FLAG_NAME)
        self.shortcuts: Shelf[Shortcut] = Shelf("shortcut")
        self.sections: Shelf[Section] = Shelf("prompt section", reserved=OWN_SECTIONS)
        self.contributors: Shelf[Contributor] = Shelf("context contributor")
        self.renderers: Shelf[Renderer] = Shelf("renderer")
        self.limits: Shelf[Limit] = Shelf("limit")
        self.tables: Shelf[type[Struct]] = Shelf("settings table")

    def table_types(self) -> Mapping[str, type[Struct]]:
        """What extensions declared for tables of the settings."""
        return self.tables.by_name()

    def shelves(self) -> dict[str, Shelf[Any]]:
        """By the plural name that `branchwork extensions` shows."""
        return {
            "tools": self.tools,
            "commands": self.commands,
            "flags": self.flags,
            "shortcuts": self.shortcuts,
            "sections": self.sections,
            "contributors": self.contributors,
            "renderers": self.renderers,
            "limits": self.limits,
            "settings": self.tables,
        }

    def withdraw(self, owner: str) -> None:
        for shelf in self.shelves().values():
            shelf.withdraw(owner)
