"""A home, a project, extensions in files, and a real `Host` over a scripted model."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from branchwork.agent.events import AgentEvent, Diagnosed
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext
from branchwork.host.assembly import AgentRequest, Surroundings
from branchwork.host.extension import ExtensionAPI
from branchwork.host.host import Front, Host
from branchwork.host.tool_decorator import tool
from branchwork.host.ui import Screen
from branchwork.models.scripted import ScriptedModel, Step, StepFunction
from branchwork.session.entries import MessageEntry, ToolResultMessage, text_of
from branchwork.testing.clock import FakeClock, SequentialIds

E = TypeVar("E")

BASIC = ("branchwork.extensions.session_commands", "branchwork.extensions.context_report")
"""The built-in extensions that most tests run with: more of them would only be in the way."""

FRONTS = ("print", "json", "stream-json", "library")
"""The front ends that exist."""

PARTS: dict[str, Callable[..., Any]] = {}
"""What the files of `Workshop.add` load, by a key of their own."""

Script = Iterable[Step | StepFunction] | StepFunction


class Workshop:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.extensions = self.home / "extensions"
        self.extensions.mkdir(parents=True)
        self.project.mkdir()
        self.clock = FakeClock()
        self.ids = SequentialIds()
        self.model = ScriptedModel()
        self.events: list[AgentEvent] = []
        self.hosts: list[Host] = []

    def write(self, name: str, source: str) -> Path:
        """A user extension with this source."""
        path = self.extensions / f"{name}.py"
        path.write_text(source)
        return path

    def add(self, name: str, function: Callable[[ExtensionAPI], Any]) -> Path:
        """A user extension whose function this is."""
        key = f"{self.home}:{name}"
        PARTS[key] = function
        return self.write(name, f"from tests.host.workshop import PARTS\nextension = PARTS[{key!r}]\n")

    async def open(
        self,
        script: Script = (),
        *,
        front: str = "print",
        screen: Screen | None = None,
        start: bool = True,
        builtin: tuple[str, ...] = BASIC,
        **options: Any,
    ) -> Host:
        self.model = ScriptedModel(script, clock=self.clock)
        request = replace(AgentRequest(given_model=self.model), **options)
        world = Surroundings(
            home=self.home,
            cwd=self.project,
            cwd_given=False,
            env={"HOME": str(self.home.parent), "PATH": "/usr/bin:/bin"},
            clock=self.clock,
            ids=self.ids,
        )
        host = await Host.open(request, world, Front(name=front, screen=screen, builtin=builtin))
        self.hosts.append(host)
        self.events = []
        host.subscribe(self.events.append)
        if start:
            await host.start()
        return host

    async def close(self) -> None:
        for host in self.hosts:
            await host.aclose()
        for key in [key for key in PARTS if key.startswith(f"{self.home}:")]:
            del PARTS[key]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def told(self, source: str | None = None) -> list[str]:
        """What the person was told, by one source or by all."""
        return [event.message for event in self.of(Diagnosed) if source in (None, event.source)]

    def asked(self, number: int = -1) -> str:
        """All text of one request."""
        seen = self.model.seen[number]
        return "\n".join([seen.system, *map(repr, seen.messages)])


def results(host: Host) -> list[ToolResultMessage]:
    entries = host.agent.session.branch().entries()
    messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
    return [message for message in messages if isinstance(message, ToolResultMessage)]


def texts(host: Host) -> list[str]:
    return [text_of(result.content) for result in results(host)]


class EchoArgs(ToolArgs, frozen=True):
    text: str
    times: int = 1


@tool(effects={Effect.READ})
async def echo(args: EchoArgs, ctx: ToolContext) -> str:
    """Say it again."""
    return " ".join([args.text] * args.times)


async def say(host: Host, text: str) -> str:
    """A command's answer."""
    return (await host.submit(text)).say or ""


def tool_named(name: str) -> Tool:
    return replace(echo, name=name)
