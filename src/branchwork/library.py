"""Branchwork in a program of your own.

    import asyncio
    from branchwork import Agent, Session

    async def main() -> None:
        async with await Agent.open(model="ollama/qwen3:8b", session=Session.in_memory()) as agent:
            async for event in agent.run("What is in this folder?"):
                print(event)

    asyncio.run(main())

`Agent` is a session with its model, tools and extensions, without a front end. Events are those of
`docs/events.md`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from branchwork.agent.events import AgentEvent, ReplyFinished, RunFinished
from branchwork.agent.run import Limits
from branchwork.clock import Clock, Ids, RandomIds, SystemClock
from branchwork.extensions import BUILTIN
from branchwork.host.assembly import AgentRequest, Surroundings
from branchwork.host.host import Front, Host
from branchwork.host.ui import Screen
from branchwork.models.base import Model
from branchwork.session.entries import Image, ThinkingLevel
from branchwork.session.tree import Session


class World(Struct, frozen=True, kw_only=True):
    """Where the agent lives. The defaults are those of the program."""

    home: Path | None = None
    """BRANCHWORK_HOME; by default what the environment says, else `~/.branchwork`."""
    cwd: Path | None = None
    """By default the session's folder, else the process's."""
    env: Mapping[str, str] | None = None
    clock: Clock | None = None
    ids: Ids | None = None
    screen: Screen | None = None
    """Answers the dialogs of extensions; by default nobody does."""


class Agent:
    """Open with `await Agent.open(…)`, close with `aclose` or `async with`. Belongs to one event loop."""

    def __init__(self, host: Host) -> None:
        self.host = host
        """Everything else: extensions, settings, commands, other sessions."""

    @classmethod
    async def open(
        cls,
        *,
        model: str | Model | None = None,
        thinking: ThinkingLevel | None = None,
        session: Session | None = None,
        tools: Sequence[str] | None = None,
        options: AgentRequest | None = None,
        world: World | None = None,
    ) -> Self:
        """`model` as `PROVIDER/ID[:LEVEL]` or a `Model`; `session` an opened one, by default a new one on disk.

        `tools` names the active ones (None: all). `options` says more; `discover=False` there reads no user
        extensions, skills, templates and instruction files, as child runs want it. Raises `UserError`.
        """
        request = replace(
            options or AgentRequest(),
            given_session=session,
            model=model if isinstance(model, str) else None,
            given_model=None if model is None or isinstance(model, str) else model,
            thinking=thinking,
            tools=None if tools is None else tuple(tools),
        )
        world = world or World()
        front = Front(name="library", screen=world.screen, builtin=BUILTIN)
        host = await Host.open(request, _surroundings(world, session), front)
        await host.start()
        return cls(host)

    @property
    def session(self) -> Session:
        return self.host.agent.session

    async def prompt(self, text: str, images: Sequence[Image] = (), *, limits: Limits | None = None) -> str:
        """Run until nothing is left to do and return the answer's text. Raises `RunFailed` for every other ending."""
        finished: RunFinished | None = None
        answer = ""
        async for event in self.run(text, images, limits=limits):
            if isinstance(event, ReplyFinished):
                answer = event.message.text
            if isinstance(event, RunFinished):
                finished = event
        if finished is None or finished.end != "done":
            raise RunFailed(finished)
        return answer

    async def run(
        self, text: str, images: Sequence[Image] = (), *, limits: Limits | None = None
    ) -> AsyncIterator[AgentEvent]:
        """The events of one run as they happen. Leaving the loop early aborts the run and saves the session."""
        events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        unsubscribe = self.host.subscribe(events.put_nowait)
        task = asyncio.ensure_future(self.host.submit(text, tuple(images), source="program", limits=limits))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            unsubscribe()
            if not task.done():
                self.host.agent.abort()
                await asyncio.wait([task])

    def steer(self, text: str) -> None:
        """Say something in the run that is going on."""
        self.host.agent.steer(text)

    def abort(self) -> None:
        self.host.agent.abort()

    async def aclose(self) -> None:
        await self.host.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class RunFailed(Exception):
    """A run that did not end with an answer. `finished` says how it ended (None: a command took the input)."""

    def __init__(self, finished: RunFinished | None) -> None:
        why = "the input was handled by a command" if finished is None else finished.error or finished.end
        super().__init__(f"no answer: {why}")
        self.finished = finished


def _surroundings(world: World, session: Session | None) -> Surroundings:
    env = os.environ if world.env is None else world.env
    home = world.home or Path(env.get("BRANCHWORK_HOME") or Path.home() / ".branchwork").expanduser()
    own = Path(session.header.cwd) if session is not None and session.header.cwd else Path.cwd()
    return Surroundings(
        home=home.absolute(),
        cwd=(world.cwd or own).absolute(),
        cwd_given=world.cwd is not None,
        env=dict(env),
        clock=world.clock or SystemClock(),
        ids=world.ids or RandomIds(),
    )
