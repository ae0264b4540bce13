import asyncio
import uuid

import pytest

from branchwork.clock import Clock, Ids
from branchwork.testing.clock import START_MS, FakeClock, SequentialIds


async def test_sleeping_takes_no_time_but_moves_the_clock() -> None:
    clock: Clock = FakeClock()
    await clock.sleep(90.5)
    assert clock.monotonic() == 90.5
    assert clock.now_ms() == START_MS + 90_500


async def test_sleeps_are_recorded_in_order() -> None:
    clock = FakeClock()
    for seconds in (2.0, 0.0, 4.0):
        await clock.sleep(seconds)
    assert clock.sleeps == [2.0, 4.0]


async def test_other_tasks_run_during_a_sleep() -> None:
    clock = FakeClock()
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    task = asyncio.create_task(other())
    await clock.sleep(1)
    order.append("after")
    await task
    assert order == ["other", "after"]


async def test_a_sleep_can_be_cancelled() -> None:
    task = asyncio.create_task(FakeClock().sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_time_never_goes_back() -> None:
    clock = FakeClock()
    clock.advance(3)
    assert clock.monotonic() == 3
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_sequential_ids_count_and_have_the_shape_of_real_ones() -> None:
    ids: Ids = SequentialIds()
    assert [ids.entry(), ids.entry()] == ["00000001", "00000002"]
    first, second = uuid.UUID(ids.session(START_MS)), uuid.UUID(ids.session(START_MS))
    assert (first.version, first.variant) == (7, uuid.RFC_4122)
    assert first < second
