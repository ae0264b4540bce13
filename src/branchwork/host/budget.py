"""Runs a stranger's function with a time budget, whether it awaits or not."""

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class OutOfTime(Exception):
    """A handler used up its budget; the text says how long that was."""


async def call_within(seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, awaited if it returns an awaitable. Raises `OutOfTime` after `seconds`.

    What does not await is interrupted by an interval timer; outside the main thread, where there are no
    signals, it cannot be.
    """
    with _interrupted_after(seconds):
        result = function(*args)
    if not inspect.isawaitable(result):
        return result
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            return await _interruptible(result, seconds)
    except TimeoutError:
        if not scope.expired():
            raise
        raise OutOfTime(f"no answer within {seconds:g} s") from None


async def _interruptible(awaitable: Any, seconds: float) -> Any:
    """Drive a coroutine so that no single step of it can hold the loop beyond the budget."""
    if not inspect.iscoroutine(awaitable):
        return await awaitable
    return await _Stepped(awaitable, seconds)


class _Stepped:
    """Awaits a coroutine and puts every step of it under the interval timer."""

    def __init__(self, coroutine: Any, seconds: float) -> None:
        self._coroutine = coroutine
        self._seconds = seconds

    def __await__(self) -> Any:
        coroutine = self._coroutine
        step: Callable[[], Any] = lambda: coroutine.send(None)  # noqa: E731 - one of two ways to go on
        while True:
            try:
                with _interrupted_after(self._seconds):
                    waiting = step()
            except StopIteration as done:
                return done.value
            try:
                value = yield waiting
            except BaseException as error:  # noqa: BLE001 - a cancellation belongs to the coroutine first
                step = _thrower(coroutine, error)
            else:
                step = _sender(coroutine, value)


def _sender(coroutine: Any, value: Any) -> Callable[[], Any]:
    return lambda: coroutine.send(value)


def _thrower(coroutine: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: coroutine.throw(error)


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Within the block, Python code that runs longer than `seconds` gets `OutOfTime` raised in its middle."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"kept the program busy for more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
