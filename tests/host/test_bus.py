"""Requests between extensions have one owner, one answer and an end; notes fail nobody but their reader."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import pytest

from branchwork.host.bus import (
    CASCADE,
    AlreadyOwned,
    Bus,
    NoOwner,
    Note,
    Request,
    RequestCycle,
    RequestFailed,
    RequestTimedOut,
)
from branchwork.host.fits import fits

T = TypeVar("T")


class Double(Request[int], frozen=True):
    number: int


class Name(Request[str | None], frozen=True):
    pass


class Forget(Request[None], frozen=True):
    pass


class PlanSaved(Note, frozen=True):
    path: str


class PlanDropped(Note, frozen=True):
    pass


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def bus(reports: list[str]) -> Bus:
    return Bus(lambda owner, text: reports.append(f"{owner}: {text}"))


async def double(request: Double) -> int:
    await asyncio.sleep(0)
    return request.number * 2


async def never(request: Request[Any]) -> Any:
    await asyncio.get_running_loop().create_future()


# ---- requests -----------------------------------------------------------------------------------------


async def test_each_requester_gets_the_answer_to_its_own_request(bus: Bus) -> None:
    bus.serve(Double, double, owner="maths")
    answers = await asyncio.gather(*(bus.request(Double(number)) for number in range(50)))
    assert answers == [number * 2 for number in range(50)]


async def test_a_plain_function_may_answer(bus: Bus) -> None:
    bus.serve(Name, lambda request: "Ada", owner="people")
    assert await bus.request(Name()) == "Ada"


async def test_a_request_that_nobody_serves_is_an_error(bus: Bus) -> None:
    with pytest.raises(NoOwner, match="nobody serves Double"):
        await bus.request(Double(1))


async def test_a_second_owner_is_refused_and_both_are_named(bus: Bus) -> None:
    bus.serve(Double, double, owner="maths")
    with pytest.raises(AlreadyOwned, match="numbers cannot serve Double: maths does already"):
        bus.serve(Double, never, owner="numbers")
    assert await bus.request(Double(2)) == 4


async def test_after_stopping_another_owner_may_come_and_is_not_stopped_by_the_first(bus: Bus) -> None:
    stop = bus.serve(Double, never, owner="maths")
    stop()
    bus.serve(Double, double, owner="numbers")
    stop()
    assert await bus.request(Double(2)) == 4


async def test_a_handler_that_raises_is_named_and_its_error_is_the_cause(bus: Bus) -> None:
    async def broken(request: Double) -> int:
        raise ZeroDivisionError("no")

    bus.serve(Double, broken, owner="maths")
    with pytest.raises(RequestFailed, match="maths failed to answer Double: ZeroDivisionError") as caught:
        await bus.request(Double(1))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.owner == "maths"


@pytest.mark.parametrize("answer", ["4", None, 4.0])
async def test_an_answer_of_another_type_is_a_failure(bus: Bus, answer: object) -> None:
    bus.serve(Double, lambda request: answer, owner="maths")
    with pytest.raises(RequestFailed, match=r"maths answered Double with a value of type .*, not int"):
        await bus.request(Double(2))


async def test_nothing_is_an_answer_where_the_request_says_so(bus: Bus) -> None:
    bus.serve(Name, lambda request: None, owner="people")
    bus.serve(Forget, lambda request: None, owner="people")
    assert await bus.request(Name()) is None
    await bus.request(Forget())


async def test_a_handler_that_takes_too_long_is_cancelled_and_named(bus: Bus) -> None:
    cancelled = asyncio.Event()

    async def slow(request: Double) -> int:
        try:
            await never(request)
        finally:
            cancelled.set()
        return 0

    bus.serve(Double, slow, owner="maths")
    with pytest.raises(RequestTimedOut, match=r"maths did not answer Double within 0.01 s"):
        await bus.request(Double(1), timeout=0.01)
    await asyncio.wait_for(cancelled.wait(), 5)


async def test_a_handler_that_will_not_be_cancelled_does_not_hold_its_requester(bus: Bus) -> None:
    release = asyncio.Event()

    async def stubborn(request: Double) -> int:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        raise ZeroDivisionError("nobody listens any more")

    bus.serve(Double, stubborn, owner="maths")
    with pytest.raises(RequestTimedOut):
        await bus.request(Double(1), timeout=0.01)
    release.set()


async def test_a_cancelled_requester_cancels_the_handler_and_waits_for_its_cleaning_up(bus: Bus) -> None:
    steps: list[str] = []
    started = asyncio.Event()

    async def tidy(request: Double) -> int:
        started.set()
        try:
            await never(request)
        finally:
            await asyncio.sleep(0)
            steps.append("tidied")
        return 0

    bus.serve(Double, tidy, owner="maths")
    requester = asyncio.ensure_future(bus.request(Double(1)))
    await started.wait()
    requester.cancel()
    with pytest.raises(asyncio.CancelledError):
        await requester
    assert steps == ["tidied"]


async def test_requests_may_nest(bus: Bus) -> None:
    async def name(request: Name) -> str:
        return str(await bus.request(Double(21)))

    bus.serve(Double, double, owner="maths")
    bus.serve(Name, name, owner="people")
    assert await bus.request(Name()) == "42"


async def test_requests_that_wait_for_each_other_are_refused_at_once(bus: Bus) -> None:
    async def name(request: Name) -> str:
        return str(await bus.request(Double(1)))

    async def via_name(request: Double) -> int:
        name = await bus.request(Name())
        return len(name or "")

    bus.serve(Name, name, owner="people")
    bus.serve(Double, via_name, owner="maths")
    with pytest.raises(RequestFailed) as caught:
        await bus.request(Name(), timeout=60)
    causes = []
    cause: BaseException | None = caught.value
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    assert isinstance(causes[-1], RequestCycle)
    assert "Name → Double → Name" in str(causes[-1])


async def test_work_that_a_handler_left_behind_may_ask_again_later(bus: Bus) -> None:
    later: list[asyncio.Task[int]] = []

    async def start(request: Name) -> str:
        later.append(asyncio.create_task(again()))
        return "started"

    async def again() -> int:
        await answered.wait()
        name = await bus.request(Name())
        return len(name or "")

    answered = asyncio.Event()
    stop = bus.serve(Name, start, owner="people")
    await bus.request(Name())
    stop()
    bus.serve(Name, lambda request: "Ada", owner="people")
    answered.set()
    assert await later[0] == 3


async def test_two_buses_know_nothing_of_each_other(bus: Bus) -> None:
    other = Bus(lambda owner, text: None)
    other.serve(Double, double, owner="maths")

    async def pass_on(request: Double) -> int:
        return await other.request(request)

    bus.serve(Double, pass_on, owner="bridge")
    assert await bus.request(Double(2)) == 4


def test_a_request_must_say_what_it_is_answered_with(bus: Bus) -> None:
    class Vague(Request, frozen=True):  # type: ignore[type-arg]  # what an untyped extension may do
        pass

    class Open(Request[T], frozen=True):
        pass

    class Forward(Request["NotThereYet"], frozen=True):  # type: ignore[name-defined]
        pass

    for kind in (Vague, Open, Forward):
        with pytest.raises(TypeError, match=f"{kind.__name__} must name what it is answered with"):
            bus.serve(kind, never, owner="x")


async def test_a_more_special_request_inherits_its_answer(bus: Bus) -> None:
    class Triple(Double, frozen=True):
        pass

    bus.serve(Triple, lambda request: "nine", owner="maths")
    with pytest.raises(RequestFailed, match="not int"):
        await bus.request(Triple(3))
    with pytest.raises(NoOwner):
        await bus.request(Double(3))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1, int | str, True),
        (None, int | str, False),
        (["a"], list[str], True),
        (("a",), list[str], False),
        ("on", Literal["on", "off"], True),
        (True, Literal[1], False),
        (1, Annotated[int, "meta"], True),
        (1, float, True),
        (True, float, False),
        (object(), Any, True),
        (None, None, True),
        (0, None, False),
    ],
)
def test_values_fit_types_as_in_annotations(value: object, kind: Any, expected: bool) -> None:
    assert fits(value, kind) is expected


# ---- notes --------------------------------------------------------------------------------------------


def test_subscribers_are_told_in_the_order_in_which_they_came(bus: Bus) -> None:
    told: list[str] = []
    bus.subscribe(PlanSaved, lambda note: told.append(f"first {note.path}"), owner="a")
    bus.subscribe(PlanSaved, lambda note: told.append(f"second {note.path}"), owner="b")
    bus.subscribe(PlanDropped, lambda note: told.append("dropped"), owner="b")
    bus.publish(PlanSaved("plan.md"))
    assert told == ["first plan.md", "second plan.md"]


def test_nobody_needs_to_listen(bus: Bus) -> None:
    bus.publish(PlanDropped())


def test_unsubscribing_twice_does_no_harm_and_ends_only_its_own_subscription(bus: Bus) -> None:
    told: list[Note] = []
    stop = bus.subscribe(PlanSaved, told.append, owner="a")
    bus.subscribe(PlanSaved, told.append, owner="a")
    stop()
    stop()
    bus.publish(PlanSaved("x"))
    assert told == [PlanSaved("x")]


def test_a_failing_subscriber_is_reported_and_dropped_the_third_time(bus: Bus, reports: list[str]) -> None:
    told: list[Note] = []
    calls: list[Note] = []

    def broken(note: PlanSaved) -> None:
        calls.append(note)
        raise ZeroDivisionError("no")

    bus.subscribe(PlanSaved, broken, owner="bad")
    bus.subscribe(PlanSaved, told.append, owner="good")
    for number in range(5):
        bus.publish(PlanSaved(str(number)))
    assert len(told) == 5
    assert len(calls) == 3
    failure = "bad: failed to take PlanSaved: ZeroDivisionError('no')"
    assert reports == [failure, failure, f"{failure}; dropped after 3 failures"]


def test_a_coroutine_function_is_no_subscriber(bus: Bus, reports: list[str]) -> None:
    async def wrong(note: PlanSaved) -> None:
        pass

    with pytest.raises(TypeError, match="must be a plain function"):
        bus.subscribe(PlanSaved, wrong, owner="a")
    bus.subscribe(PlanSaved, lambda note: wrong(note), owner="a")
    bus.publish(PlanSaved("x"))
    assert "nobody awaits" in reports[0]


def test_notes_published_by_subscribers_reach_all_in_one_order(bus: Bus) -> None:
    told: list[str] = []

    def first(note: PlanSaved) -> None:
        told.append(f"first {note.path}")
        if note.path == "a":
            bus.publish(PlanSaved("b"))

    bus.subscribe(PlanSaved, first, owner="x")
    bus.subscribe(PlanSaved, lambda note: told.append(f"second {note.path}"), owner="y")
    bus.publish(PlanSaved("a"))
    assert told == ["first a", "second a", "first b", "second b"]


def test_notes_that_breed_without_end_are_cut_off(bus: Bus, reports: list[str]) -> None:
    count = 0

    def breed(note: PlanSaved) -> None:
        nonlocal count
        count += 1
        bus.publish(note)
        bus.publish(note)

    bus.subscribe(PlanSaved, breed, owner="x")
    bus.publish(PlanSaved("x"))
    assert count == CASCADE
    assert len(reports) == 1
    assert "PlanSaved" in reports[0]
    bus.publish(PlanDropped())


# ---- owners -------------------------------------------------------------------------------------------


async def test_withdrawing_an_owner_removes_all_it_registered_and_nothing_else(bus: Bus) -> None:
    told: list[str] = []
    bus.serve(Double, double, owner="a")
    bus.serve(Name, lambda request: "Ada", owner="b")
    bus.subscribe(PlanSaved, lambda note: told.append("a"), owner="a")
    bus.subscribe(PlanDropped, lambda note: told.append("a"), owner="a")
    bus.subscribe(PlanSaved, lambda note: told.append("b"), owner="b")
    bus.withdraw("a")
    bus.publish(PlanSaved("x"))
    bus.publish(PlanDropped())
    assert told == ["b"]
    with pytest.raises(NoOwner):
        await bus.request(Double(1))
    assert await bus.request(Name()) == "Ada"
    bus.withdraw("a")


def test_a_subscriber_withdrawn_by_one_before_it_is_not_called(bus: Bus) -> None:
    told: list[str] = []
    bus.subscribe(PlanSaved, lambda note: bus.withdraw("b"), owner="a")
    bus.subscribe(PlanSaved, lambda note: told.append("b"), owner="b")
    bus.publish(PlanSaved("x"))
    assert told == []


async def test_requests_to_a_withdrawn_owner_fail_at_once(bus: Bus) -> None:
    bus.serve(Double, never, owner="a")
    requester = asyncio.ensure_future(bus.request(Double(1), timeout=60))
    await asyncio.sleep(0)
    bus.withdraw("a")
    with pytest.raises(RequestFailed, match="a gave up on Double"):
        await requester


async def test_a_handler_may_withdraw_its_own_owner(bus: Bus) -> None:
    async def reload(request: Forget) -> None:
        bus.withdraw("a")
        await asyncio.sleep(0)

    bus.serve(Forget, reload, owner="a")
    await bus.request(Forget())
    with pytest.raises(NoOwner):
        await bus.request(Forget())


class Extension:
    """Something that would be noticed if it stayed in memory."""

    async def double(self, request: Double) -> int:
        return request.number * 2

    async def fail(self, request: Double) -> int:
        raise ZeroDivisionError

    def hear(self, note: Note) -> None:
        pass


@pytest.mark.parametrize("end", ["withdraw", "unsubscribe"])
async def test_nothing_of_an_extension_stays_after_a_reload(bus: Bus, end: str) -> None:
    def load() -> tuple[weakref.ref[Extension], tuple[Callable[[], None], ...]]:
        extension = Extension()
        stops = (
            bus.serve(Double, extension.double, owner="a"),
            bus.subscribe(PlanSaved, extension.hear, owner="a"),
        )
        return weakref.ref(extension), stops

    gone, stops = load()
    assert await bus.request(Double(1)) == 2
    bus.publish(PlanSaved("x"))
    if end == "withdraw":
        bus.withdraw("a")
    else:
        for stop in stops:
            stop()
    gc.collect()
    assert gone() is None


async def test_ending_a_registration_that_was_withdrawn_does_no_harm(bus: Bus) -> None:
    stops = bus.serve(Double, double, owner="a"), bus.subscribe(PlanSaved, lambda note: None, owner="a")
    bus.withdraw("a")
    gc.collect()
    for stop in stops:
        stop()


async def test_a_task_left_behind_does_not_keep_the_bus(reports: list[str]) -> None:
    release = asyncio.Event()
    left: list[asyncio.Task[Any]] = []

    async def start(request: Name) -> str:
        left.append(asyncio.create_task(release.wait()))
        return "started"

    bus = Bus(lambda owner, text: reports.append(text))
    bus.serve(Name, start, owner="a")
    await bus.request(Name())
    gone = weakref.ref(bus)
    del bus
    gc.collect()
    assert gone() is None
    release.set()
    await left[0]
