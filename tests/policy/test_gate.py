"""The gate: effects, paths and commands of a call against the posture of the moment."""

from pathlib import Path
from typing import Any

import pytest

from branchwork.agent.coerce import arguments_for
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext, ToolOutput, text_output
from branchwork.policy.gate import Decision, PolicyGate, Surface
from branchwork.policy.posture import Posture, Restriction
from branchwork.session.entries import ToolCall
from branchwork.testing.harness import make_tool
from branchwork.tools.builtin import builtin_tools

READ_ONLY = Restriction(
    contributor="plan mode", reason="Switch to build to change things.", write=(), shell="read-only", network=False
)
TOOLS = {tool.name: tool for tool in builtin_tools()}


async def nothing(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
    return text_output("")


class Place:
    def __init__(self, folder: Path) -> None:
        self.posture = Posture((READ_ONLY,))
        self.sandbox: str | None = "bwrap"
        self.cwd = folder / "w"
        self.cwd.mkdir()
        self.gate = PolicyGate(
            lambda: self.posture,
            Surface(
                cwd=self.cwd, home=folder, scratch=folder / "scratch", tmp=str(folder / "scratch"),
                env={"PATH": "/bin"},
                sandbox=lambda: self.sandbox,
            ),
        )  # fmt: skip

    def asks(self, name: str, /, **arguments: Any) -> Decision:
        tool = TOOLS[name]
        return self.gate.explain(tool, arguments_for(tool, ToolCall(id="1", name=name, arguments=arguments)))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_reading_is_always_allowed(place: Place) -> None:
    for name, arguments in (("read", {"path": "/etc/hosts"}), ("ls", {}), ("grep", {"pattern": "x"})):
        assert place.asks(name, **arguments).allowed


def test_writing_is_refused_with_the_contributor_and_what_to_do(place: Place) -> None:
    decision = place.asks("write", path="a.txt", content="x")
    assert not decision.allowed
    assert (decision.rule, decision.contributor) == ("write", "plan mode")
    assert decision.reason == "Refused by plan mode: a.txt may not be written. Switch to build to change things."
    assert not place.asks("edit", path="a.txt", edits=[{"oldText": "a", "newText": "b"}]).allowed


def test_the_scratch_directory_may_be_written(place: Place) -> None:
    assert place.asks("write", path=str(place.cwd.parent / "scratch" / "a"), content="x").allowed
    assert not place.asks("write", path=str(place.cwd.parent / "scratch" / ".." / "w" / "a"), content="x").allowed
    assert not place.asks("write", path=str(place.cwd.parent / "scratch-of-another"), content="x").allowed


def test_listed_places_may_be_written(place: Place) -> None:
    docs = Restriction(contributor="design mode", reason="", write=(str(place.cwd / "docs"),))
    place.posture = Posture((docs,))
    assert place.asks("write", path="docs/new/page.md", content="x").allowed
    assert not place.asks("write", path="docs/../src/a.py", content="x").allowed
    assert not place.asks("write", path="~/a.py", content="x").allowed


def test_commands_are_judged_where_the_shell_is_read_only(place: Place) -> None:
    reading = place.asks("bash", command="git status && ls -la | head")
    assert reading.allowed
    assert reading.sandboxed
    writing = place.asks("bash", command="rm -rf src")
    assert not writing.allowed
    assert writing.rule.startswith("shell:")
    assert writing.contributor == "plan mode"


def test_opaque_commands_run_only_in_a_sandbox(place: Place) -> None:
    opaque = "python3 -c 'print(1)'"
    assert place.asks("bash", command=opaque).sandboxed
    place.sandbox = None
    refused = place.asks("bash", command=opaque)
    assert not refused.allowed
    assert "No sandbox" in refused.reason
    assert place.asks("bash", command="ls").allowed


def test_a_shell_that_is_off_runs_nothing(place: Place) -> None:
    place.posture = Posture((Restriction(contributor="settings", reason="", shell="off"),))
    assert not place.asks("bash", command="ls").allowed


def test_a_change_of_the_posture_counts_from_the_next_call(place: Place) -> None:
    assert not place.asks("write", path="a", content="").allowed
    place.posture = Posture()
    assert place.asks("write", path="a", content="").allowed
    assert place.asks("bash", command="rm -rf src") == Decision(
        allowed=True, rule="allowed", reason="nothing forbids it"
    )


@pytest.mark.parametrize(
    ("effects", "allowed"),
    [
        ({Effect.READ}, True),
        ({Effect.WRITE}, False),
        ({Effect.EXECUTE}, False),
        ({Effect.NETWORK}, False),
        ({Effect.READ, Effect.WRITE}, False),
        (set(), True),
    ],
)
async def test_tools_of_extensions_are_judged_by_the_effects_they_declare(
    place: Place, effects: set[Effect], allowed: bool
) -> None:
    tool = make_tool("foreign", nothing, effects=frozenset(effects))
    refusal = await place.gate.check(ToolCall(id="1", name="foreign", arguments={}), tool, ToolArgs())
    assert (refusal is None) == allowed


@pytest.mark.parametrize(
    ("level", "reader", "worker"), [("all", True, True), ("readers", True, False), ("none", False, False)]
)
def test_children_are_let_through_by_what_they_can_do(place: Place, level: Any, reader: bool, worker: bool) -> None:
    place.posture = Posture((Restriction(contributor="mode", reason="", delegate=level),))

    def tool(*effects: Effect) -> Tool:
        return make_tool("child", nothing, effects=frozenset({Effect.DELEGATE, *effects}))

    assert place.gate.explain(tool(Effect.READ), ToolArgs()).allowed == reader
    assert place.gate.explain(tool(Effect.WRITE, Effect.EXECUTE), ToolArgs()).allowed == worker
