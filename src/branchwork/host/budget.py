"""Runs a stranger's function so that it can neither hold the program up nor end it.

Whatever it raises arrives as an ordinary exception: also `SystemExit`, a cancellation that nobody asked for, and
exceptions of its own that are no `Exception`. Only what a person does passes through: a real cancellation and
KeyboardInterrupt.
"""

import asyncio
import inspect
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

CLEANUP_S = 0.5
"""How long a function that was cancelled may clean up before it is closed, if its budget is not shorter."""


class OutOfTime(Exception):
    """A handler used up its budget; the text says how long that was."""


class Misbehaved(Exception):
    """A handler tried to end the program or to cancel what it is part of."""


class _Interrupt(BaseException):
    """Raised in the middle of a stranger's code; no `Exception`, so that `except Exception` does not hold it."""


async def call_within(seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, awaited if it returns an awaitable. Raises `OutOfTime` after `seconds`.

    What does not await is interrupted by an interval timer; outside the main thread, where there are no
    signals, it cannot be. A coroutine that does not end when it is cancelled is closed.
    """
    result = run_within(seconds, function, *args)
    if not inspect.isawaitable(result):
        return result
    return await _await(result, seconds)


def run_within(seconds: float, function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, which must not take longer than `seconds`: `call_within` without the awaiting."""
    with _ordinary_errors(None), _interrupted_after(seconds):
        return function(*args)


async def contained(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)`, awaited if it returns an awaitable, for as long as it takes; for what a person can abort."""
    task = asyncio.current_task()
    with _ordinary_errors(task):
        result = function(*args)
        return await result if inspect.isawaitable(result) else result


async def _await(awaitable: Any, seconds: float) -> Any:
    task = asyncio.current_task()
    assert task is not None, "a budget needs a task"
    deadline = _Deadline(task, seconds)
    try:
        with _ordinary_errors(task, deadline):
            result = await (_Stepped(awaitable, seconds) if inspect.iscoroutine(awaitable) else awaitable)
    finally:
        deadline.end()
    if deadline.fired:  # it swallowed the cancellation, and answered after all
        raise deadline.error
    return result


class _Deadline:
    """Cancels a task after some seconds, and again until `end`."""

    def __init__(self, task: "asyncio.Task[Any]", seconds: float) -> None:
        self._task = task
        self._seconds = seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._fire)
        self.fired = 0

    @property
    def error(self) -> OutOfTime:
        return OutOfTime(f"no answer within {self._seconds:g} s")

    def _fire(self) -> None:
        self.fired += 1
        self._task.cancel()
        self._timer = asyncio.get_running_loop().call_later(min(CLEANUP_S, self._seconds), self._fire)

    def end(self) -> None:
        self._timer.cancel()
        for _ in range(self.fired):
            self._task.uncancel()


class _Stepped:
    """Awaits a coroutine and puts every step of it under the interval timer; a second cancellation closes it."""

    def __init__(self, coroutine: Any, seconds: float) -> None:
        self._coroutine = coroutine
        self._seconds = seconds

    def __await__(self) -> Any:
        coroutine = self._coroutine
        step: Callable[[], Any] = lambda: coroutine.send(None)  # noqa: E731 - one of two ways to go on
        cancelled = False
        while True:
            try:
                with _interrupted_after(self._seconds):
                    waiting = step()
            except StopIteration as done:
                return done.value
            try:
                value = yield waiting
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError | GeneratorExit):
                    if cancelled or isinstance(error, GeneratorExit):
                        self._close()
                        raise
                    cancelled = True
                step = _thrower(coroutine, error)
            else:
                step = _sender(coroutine, value)

    def _close(self) -> None:
        try:
            with _interrupted_after(self._seconds):
                self._coroutine.close()
        except Exception:  # noqa: BLE001 - boundary: it was told to end in every way there is
            return


def _sender(coroutine: Any, value: Any) -> Callable[[], Any]:
    return lambda: coroutine.send(value)


def _thrower(coroutine: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: coroutine.throw(error)


@contextmanager
def _ordinary_errors(task: "asyncio.Task[Any] | None", deadline: _Deadline | None = None) -> Iterator[None]:
    """Within the block, whatever a stranger raises becomes an `Exception`."""
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError as error:
        fired = deadline.fired if deadline is not None else 0
        if task is not None and task.cancelling() > before + fired:
            raise  # somebody else wants this to end
        if deadline is not None and fired:
            raise deadline.error from None
        raise Misbehaved("raised CancelledError, though nobody cancelled it") from error
    except SystemExit as error:
        raise Misbehaved(f"tried to end the program (SystemExit: {error.code})") from error
    except BaseException as error:
        raise Misbehaved(f"raised {type(error).__name__}: {error}") from error


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Within the block, Python code that runs longer than `seconds` is interrupted: it raises `OutOfTime`.

    Blocks may be nested; the outer one's time goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        raise _Interrupt

    started = time.monotonic()
    before = signal.signal(signal.SIGALRM, expire)
    outer, _ = signal.setitimer(signal.ITIMER_REAL, seconds, max(seconds, CLEANUP_S))
    try:
        yield
    except _Interrupt:
        raise OutOfTime(f"kept the program busy for more than {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if outer:
            left = outer - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.001), CLEANUP_S)
