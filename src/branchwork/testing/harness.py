"""An agent on fakes, with everything that happened written down."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from branchwork.agent.agent import SessionAgent
from branchwork.agent.context import Context
from branchwork.agent.core import AgentParts
from branchwork.agent.events import AgentEvent, RunFinished
from branchwork.agent.gate import OpenGate
from branchwork.agent.run import Limits
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolRun
from branchwork.clock import Ids
from branchwork.models.scripted import ScriptedModel, Step, StepFunction
from branchwork.session.entries import AssistantMessage, Message, MessageEntry, ToolResultMessage
from branchwork.session.handle import Tree
from branchwork.session.tree import Session
from branchwork.testing.clock import FakeClock, SequentialIds

E = TypeVar("E")


def memory_session(clock: FakeClock | None = None, ids: Ids | None = None) -> Session:
    """A session that is kept nowhere."""
    return Session.create(cwd="/project", directory=None, clock=clock or FakeClock(), ids=ids or SequentialIds())


def memory_tree() -> Tree:
    """The handle of a session that is kept nowhere, as tools get it."""
    session = memory_session()
    return Tree(session, lambda entry: session.append(entry)[0])


def make_tool(name: str, run: ToolRun[Any], *, args: type[ToolArgs] = ToolArgs, **options: Any) -> Tool:
    """A tool with the least that one needs."""
    options.setdefault("effects", frozenset({Effect.READ}))
    return Tool(name=name, description=f"The {name} tool.", args=args, run=run, **options)


class Harness:
    """A `SessionAgent` on a `ScriptedModel`, a `FakeClock` and a session in memory; `events` has all it told."""

    def __init__(
        self,
        script: Iterable[Step | StepFunction] | StepFunction | ScriptedModel = (),
        *,
        tools: Sequence[Tool] = (),
        session: Session | None = None,
        **parts: Any,
    ) -> None:
        self.clock = FakeClock()
        self.session = memory_session(self.clock) if session is None else session  # an empty one is falsy
        self.model = script if isinstance(script, ScriptedModel) else ScriptedModel(script, clock=self.clock)
        options: Mapping[str, Any] = {
            "gate": OpenGate(),
            "cwd": Path("/project"),
            "home": Path("/home/someone"),
            "scratch": Path("/project/scratch"),
            "env": {},
            **parts,
        }
        self.agent = SessionAgent(
            AgentParts(context=Context(self.session), model=self.model, tools=tuple(tools), clock=self.clock, **options)
        )
        self.events: list[AgentEvent] = []
        self.agent.subscribe(self.events.append)

    async def prompt(self, text: str = "go", *, limits: Limits | None = None) -> RunFinished:
        return await self.agent.prompt(text, limits=limits)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def kinds(self) -> list[str]:
        """The tags of all events, in order."""
        return [str(event.__struct_config__.tag) for event in self.events]

    def messages(self) -> list[Message]:
        """What the session's branch holds, system messages included."""
        return [entry.message for entry in self.session.branch().entries() if isinstance(entry, MessageEntry)]

    def results(self) -> list[ToolResultMessage]:
        return [message for message in self.messages() if isinstance(message, ToolResultMessage)]


def check_pairing(messages: Sequence[Message]) -> None:
    """Every stored tool call has exactly one result, in call order, before anything else follows."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            assert waiting, f"a result without a call: {message.tool_call_id}"
            assert message.tool_call_id == waiting.pop(0), "results are not in call order"
            continue
        assert not waiting, f"calls without result before a {type(message).__name__}: {waiting}"
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.tool_calls]
    assert not waiting, f"calls without result at the end: {waiting}"
