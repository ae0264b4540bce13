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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace

from branchwork.agent.events import AgentEvent, ReplyFinished, RunFinished
from branchwork.agent.run import Limits
from branchwork.clock import Clock, Ids, RandomIds, SystemClock
from branchwork.errors import UserError
from branchwork.extensions import BUILTIN
from branchwork.host.assembly import AgentRequest, Surroundings
from branchwork.host.host import Front, Host
from branchwork.host.submission import Submitted
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
        self._left: asyncio.Future[Any] | None = None
        """A run that nobody listens to any more, until it has cleaned up."""

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

        `tools` names the active ones (None: all). `options` says more, and what is given here wins; `discover=False`
        there reads no user extensions, skills, templates and instruction files, as child runs want it. Raises
        `UserError`; `session` is closed then.
        """
        request = options or AgentRequest()
        if isinstance(model, str):
            request = replace(request, model=model, given_model=None)
        elif model is not None:
            request = replace(request, model=None, given_model=model)
        request = replace(
            request,
            given_session=request.given_session if session is None else session,
            thinking=thinking or request.thinking,
            tools=request.tools if tools is None else tuple(tools),
        )
        world = world or World()
        front = Front(name="library", screen=world.screen, builtin=BUILTIN)
        host = await Host.open(request, _surroundings(world, request.given_session), front)
        try:
            await host.start()
        except BaseException:
            await host.aclose()
            raise
        return cls(host)

    @property
    def session(self) -> Session:
        return self.host.agent.session

    async def prompt(self, text: str, images: Sequence[Image] = (), *, limits: Limits | None = None) -> str:
        """Run until nothing is left to do and return the answer's text. Raises `RunFailed` for every other ending."""
        finished: RunFinished | None = None
        answer = ""
        events = self.run(text, images, limits=limits)
        try:
            async for event in events:
                if isinstance(event, ReplyFinished):
                    answer = event.message.text
                if isinstance(event, RunFinished):
                    finished = event
        finally:
            await events.aclose()
        if finished is None or finished.end != "done":
            raise RunFailed(finished)
        return answer

    def run(self, text: str, images: Sequence[Image] = (), *, limits: Limits | None = None) -> "Events":
        """The events of one run as they happen. Leaving the loop early aborts the run and saves the session.

        The run starts with the first event that is asked for, and raises `UserError` there while another one of
        this agent goes on: `steer` is for that.
        """
        return Events(self, text, tuple(images), limits)

    def steer(self, text: str) -> None:
        """Say something in the run that is going on."""
        self.host.agent.steer(text)

    def abort(self) -> None:
        self.host.agent.abort()

    async def aclose(self) -> None:
        """Abort, save, close the session. Safe to call twice."""
        await self.host.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Events:
    """An async iterator. Whoever lets go of it, or calls `aclose`, ends the run."""

    def __init__(self, agent: Agent, text: str, images: tuple[Image, ...], limits: Limits | None) -> None:
        self._agent = agent
        self._input = (text, images, limits)
        self._queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        self._task: asyncio.Future[Submitted] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        if self._over:
            raise StopAsyncIteration
        task = self._task or await self._start()
        event = await self._queue.get()
        if event is not None:
            return event
        self._end()
        await task
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Abort the run if it is not over, and wait until it has cleaned up and the session is saved."""
        task = self._task
        self._end()
        if task is not None and not task.done():
            self._agent.abort()
            await asyncio.wait([task])

    async def _start(self) -> "asyncio.Future[Submitted]":
        agent, (text, images, limits) = self._agent, self._input
        if agent._left is not None:
            await asyncio.wait([agent._left])
            agent._left = None
        if agent.host.agent.activity != "idle":
            raise UserError(f"the agent is {agent.host.agent.activity}: steer it, wait, or abort first")
        self._unsubscribe = agent.host.subscribe(self._queue.put_nowait)
        put = self._queue.put_nowait  # not `self`, which nobody but the loop over it is to hold

        def tell(done: "asyncio.Future[Submitted]") -> None:
            if not done.cancelled():
                done.exception()  # raised in the loop, if that is still there
            put(None)

        task = asyncio.ensure_future(agent.host.submit(text, images, source="program", limits=limits))
        task.add_done_callback(tell)
        self._task = task
        return task

    def _end(self) -> None:
        self._over = True
        if self._unsubscribe is not None:
            self._unsubscribe()

    def __del__(self) -> None:
        self._end()
        task = self._task
        if task is not None and not task.done() and not task.get_loop().is_closed():
            self._agent._left = task
            self._agent.abort()


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
