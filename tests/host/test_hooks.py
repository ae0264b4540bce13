"""Three kinds of hook, three failure rules; a hostile handler changes nothing and stops nothing."""

import asyncio
import time
from typing import Any

import pytest

from branchwork.host import points
from branchwork.host.budget import OutOfTime, call_within
from branchwork.host.hooks import STRIKES, Failure, Hooks, Verdict
from branchwork.host.points import (
    INPUT,
    MOVING,
    SETTLED,
    TOOL_CALL,
    Block,
    CallChecked,
    ChangeArguments,
    Decide,
    Handled,
    Input,
    InputContext,
    MoveProposed,
    Observe,
    Settled,
    Transform,
    Veto,
)
from branchwork.session.entries import ToolCall

CONTEXT = InputContext(source="person", running=False)
CALL = CallChecked(call=ToolCall(id="1", name="read", arguments={"path": "a"}), arguments={"path": "a"})


class Board:
    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.hooks = Hooks(self.failures.append, lambda owner: owner)


def spin(*_: Any) -> None:
    """Keeps the thread busy without ever awaiting."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        pass


async def never(*_: Any) -> None:
    await asyncio.Event().wait()


def raises(*_: Any) -> None:
    raise ValueError("no")


HOSTILE = {"raises": raises, "never answers": never, "spins": spin, "rubbish": lambda *_: 7}


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_transformer_leaves_the_value_and_is_named(board: Board, name: str) -> None:
    board.hooks.add(INPUT, "evil", HOSTILE[name], 0.05)
    board.hooks.add(INPUT, "good", lambda context, value, _: Input(text=value.text + "!"))
    assert await board.hooks.transform(INPUT, CONTEXT, Input(text="hi")) == Input(text="hi!")
    assert [failure.owner for failure in board.failures] == ["evil"]
    assert board.failures[0].point == "input"


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_decider_counts_as_a_refusal(board: Board, name: str) -> None:
    board.hooks.add(TOOL_CALL, "evil", HOSTILE[name], 0.05)
    verdict = await board.hooks.decide(TOOL_CALL, CALL)
    assert isinstance(verdict, Failure)
    assert verdict.owner == "evil"


@pytest.mark.parametrize("name", ["raises", "never answers", "spins"])
async def test_a_failing_observer_is_dropped_the_third_time_and_reported_once(board: Board, name: str) -> None:
    seen: list[Settled] = []
    board.hooks.add(SETTLED, "evil", HOSTILE[name], 0.02)
    board.hooks.add(SETTLED, "good", lambda event, _: seen.append(event))
    for _ in range(STRIKES + 2):
        await board.hooks.observe(SETTLED, Settled(aborted=False))
    assert len(seen) == STRIKES + 2
    assert len(board.failures) == 2
    assert "dropped" in board.failures[1].message
    assert board.hooks.count(SETTLED) == 1


async def test_the_first_verdict_wins_and_says_whose_it_is(board: Board) -> None:
    board.hooks.add(MOVING, "a", lambda *_: None)
    board.hooks.add(MOVING, "b", lambda *_: Veto(reason="not now"))
    board.hooks.add(MOVING, "c", raises)
    proposal = MoveProposed(target=None, with_notes=False)
    assert await board.hooks.decide(MOVING, proposal) == Verdict("b", Veto(reason="not now"))
    assert board.failures == []


async def test_changed_arguments_are_what_the_next_handler_is_asked_about(board: Board) -> None:
    seen: list[Any] = []
    board.hooks.add(TOOL_CALL, "a", lambda *_: ChangeArguments(arguments={"path": "b"}))
    board.hooks.add(TOOL_CALL, "b", lambda payload, _: seen.append(payload.arguments))

    def revise(payload: CallChecked, answer: Block | ChangeArguments) -> CallChecked | None:
        return (
            CallChecked(call=payload.call, arguments=answer.arguments) if isinstance(answer, ChangeArguments) else None
        )

    payload, verdict = await board.hooks.decide_revising(TOOL_CALL, CALL, revise)
    assert (payload.arguments, verdict, seen) == ({"path": "b"}, None, [{"path": "b"}])


async def test_input_that_is_handled_goes_no_further(board: Board) -> None:
    board.hooks.add(INPUT, "a", lambda *_: Handled(say="done"))
    board.hooks.add(INPUT, "b", raises)
    assert await board.hooks.transform(INPUT, CONTEXT, Input(text="x")) == Handled(say="done")
    assert board.failures == []


async def test_withdrawing_removes_all_of_an_owner_and_only_those(board: Board) -> None:
    remove = board.hooks.add(SETTLED, "a", raises)
    board.hooks.add(INPUT, "a", raises)
    board.hooks.add(INPUT, "b", lambda *_: Input(text="b"))
    remove()
    remove()
    board.hooks.withdraw("a")
    assert board.hooks.count(SETTLED) == 0
    assert await board.hooks.transform(INPUT, CONTEXT, Input(text="")) == Input(text="b")


async def test_a_cancellation_reaches_the_handler_and_passes_through(board: Board) -> None:
    cleaned: list[bool] = []

    async def slow(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    board.hooks.add(SETTLED, "a", slow, 60)
    task = asyncio.create_task(board.hooks.observe(SETTLED, Settled(aborted=False)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
    assert board.failures == []


async def test_a_coroutine_that_stops_awaiting_is_interrupted_too() -> None:
    async def late() -> None:
        await asyncio.sleep(0)
        spin()

    with pytest.raises(OutOfTime, match="busy"):
        await call_within(0.05, late)


async def test_values_and_errors_of_a_coroutine_come_through_unchanged() -> None:
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            a += 100
        return a + b

    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    assert await call_within(5, add, 1, 2) == 103
    with pytest.raises(KeyError):
        await call_within(5, fail)


def test_every_point_is_listed_once_and_documented() -> None:
    declared = [value for value in vars(points).values() if isinstance(value, Observe | Transform | Decide)]
    assert {point.name for point in declared} == {point.name for point in points.ALL}
    assert len({point.name for point in points.ALL}) == len(points.ALL)
