"""What an extension's functions get: the session, the person, the agent."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from branchwork.agent.agent import SessionAgent
from branchwork.agent.context import ContextSize
from branchwork.host.bus import Bus
from branchwork.host.resources import Resources
from branchwork.host.settings import Settings
from branchwork.models.base import ModelInfo
from branchwork.session.entries import ThinkingLevel, Usage
from branchwork.session.handle import Tree

if TYPE_CHECKING:
    from branchwork.host.registry import Command, Registry, TextProvider
    from branchwork.host.ui import UI


class Stale(RuntimeError):
    """A context was kept beyond the session or the loading that it was made for. The extension must not keep it."""


class Completed(Struct, frozen=True):
    """The answer to a request that an extension made on the side."""

    text: str
    usage: Usage


class HostPort(Protocol):
    """What contexts need of the host."""

    @property
    def generation(self) -> int:
        """Rises with every session and every loading of extensions."""
        ...

    @property
    def agent(self) -> SessionAgent: ...

    @property
    def tree(self) -> Tree: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def resources(self) -> Resources: ...

    @property
    def registry(self) -> "Registry": ...

    @property
    def bus(self) -> Bus: ...

    @property
    def home(self) -> Path: ...

    @property
    def cwd(self) -> Path: ...

    @property
    def front_end(self) -> str: ...

    @property
    def trusted(self) -> bool: ...

    def ui_for(self, owner: str) -> "UI": ...

    def flag(self, name: str) -> bool | str: ...

    def provided(self, owner: str, name: str, provider: "TextProvider") -> str | None:
        """What `provider` says; None, and one report, when it fails or says no text."""
        ...

    def choose_tools(self, owner: str, names: tuple[str, ...]) -> None: ...

    def select_model(self, ref: str | None, thinking: ThinkingLevel | None) -> ModelInfo: ...

    def send(self, text: str, when: Literal["steer", "follow_up"]) -> None: ...

    async def complete(self, system: str, prompt: str) -> Completed: ...

    async def switch(self, kind: Literal["new", "resume", "fork", "clone"], target: str | None) -> str | None: ...

    async def move(self, target: str | None, *, with_notes: bool, instructions: str | None) -> str | None: ...

    async def reload(self) -> None: ...

    async def wait_idle(self) -> None: ...

    def request_quit(self) -> None: ...

    def commands(self) -> "tuple[Command, ...]": ...


class ExtensionContext:
    """Valid for the session in which it was given; used later it raises `Stale`."""

    def __init__(self, owner: str, host: HostPort) -> None:
        self._owner = owner
        self._port = host
        self._generation = host.generation

    @property
    def _host(self) -> HostPort:
        if self._port.generation != self._generation:
            raise Stale(f"extension {self._owner} used a context of an earlier session; take the one it is given")
        return self._port

    @property
    def owner(self) -> str:
        """The extension's name."""
        return self._owner

    @property
    def tree(self) -> Tree:
        return self._host.tree

    @property
    def ui(self) -> "UI":
        return self._host.ui_for(self._owner)

    @property
    def bus(self) -> Bus:
        return self._host.bus

    @property
    def settings(self) -> Settings:
        return self._host.settings

    @property
    def resources(self) -> Resources:
        return self._host.resources

    @property
    def home(self) -> Path:
        """BRANCHWORK_HOME."""
        return self._host.home

    @property
    def cwd(self) -> Path:
        return self._host.cwd

    @property
    def front_end(self) -> str:
        """`print`, `json`, `stream-json`, `library`, …"""
        return self._host.front_end

    @property
    def trusted(self) -> bool:
        """Whether what the project brings may be loaded."""
        return self._host.trusted

    @property
    def model(self) -> ModelInfo:
        return self._host.agent.model.info

    @property
    def thinking(self) -> ThinkingLevel:
        return self._host.agent.thinking

    @property
    def running(self) -> bool:
        return self._host.agent.activity != "idle"

    @property
    def size(self) -> ContextSize:
        """What the next request will carry."""
        return self._host.agent.context_size()

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the active tools."""
        return tuple(tool.name for tool in self._host.agent.tools)

    def flag(self, name: str) -> bool | str:
        """A flag's value for this run of the program."""
        return self._host.flag(name)

    def choose_tools(self, names: tuple[str, ...]) -> None:
        """Make these the active tools from the next request on; unknown names are left out.

        The choice is recorded on the branch and holds there, also after a resume, while this extension is loaded.
        """
        self._host.choose_tools(self._owner, names)

    def select_model(self, ref: str | None = None, thinking: ThinkingLevel | None = None) -> ModelInfo:
        """Use another model or thinking level from the next request on. Raises `UserError`."""
        return self._host.select_model(ref, thinking)

    def send(self, text: str, when: Literal["steer", "follow_up"] = "follow_up") -> None:
        """Say something in the person's place: in the run that is going on, or in the next one."""
        self._host.send(text, when)

    def abort(self) -> None:
        self._host.agent.abort()

    async def complete(self, system: str, prompt: str) -> Completed:
        """One request on the side to the session's model: no tools, no history, nothing stored.

        Raises `ModelFailure` when there is no usable answer.
        """
        return await self._host.complete(system, prompt)


class CommandContext(ExtensionContext):
    """For commands, which may also go to another session: hooks could wait for each other over that."""

    @property
    def registry(self) -> "Registry":
        return self._host.registry

    @property
    def agent(self) -> SessionAgent:
        return self._host.agent

    async def new_session(self) -> str | None:
        """Start over. Returns why it was refused, or None when it happened; this context is stale then."""
        return await self._host.switch("new", None)

    async def resume(self, target: str) -> str | None:
        return await self._host.switch("resume", target)

    async def fork(self, entry_id: str | None = None) -> str | None:
        """Go on in a copy of the branch: up to before `entry_id`, or all of it."""
        return await self._host.switch("fork", entry_id)

    async def clone(self) -> str | None:
        return await self._host.switch("clone", None)

    async def move(
        self, target: str | None, *, with_notes: bool = False, instructions: str | None = None
    ) -> str | None:
        """Go on from another point of the tree. Returns why it was refused, or None."""
        return await self._host.move(target, with_notes=with_notes, instructions=instructions)

    async def reload(self) -> None:
        """Read settings, resources and extensions anew; the session stays. This context is stale then."""
        await self._host.reload()

    async def wait_idle(self) -> None:
        await self._host.wait_idle()

    def quit(self) -> None:
        self._host.request_quit()

    def commands(self) -> "tuple[Command, ...]":
        return self._host.commands()
