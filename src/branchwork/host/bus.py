"""How extensions talk to each other: requests with one owner, and notes to whoever listens.

A request is a frozen struct that names the type of its answer, so both sides are checked:

    class SavePlan(Request[PlanSaved], frozen=True):
        text: str

    bus.serve(SavePlan, save_plan, owner="plans")
    saved = await bus.request(SavePlan(text))
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import ref

from msgspec import Struct

from branchwork.host.fits import fits, result_type, type_name

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Q = TypeVar("Q", bound="Request[Any]")
N = TypeVar("N", bound="Note")

Report: TypeAlias = Callable[[str, str], None]
"""Told of failures that have no caller to be raised in: whose, and what, as one line."""

TIMEOUT_S = 1.5
"""What a request may take unless the requester says otherwise."""
CLEANUP_S = 0.5
"""How long a cancelled handler is waited for when its requester was cancelled."""
STRIKES = 3
"""Failures after which a subscriber is dropped."""
CASCADE = 1000
"""Notes that may follow from one `publish` by way of subscribers that publish in turn."""


class Request(Struct, Generic[R_co], frozen=True):
    """Base of all requests: `class Name(Request[Answer], frozen=True)`, in reach of both sides."""


class Note(Struct, frozen=True):
    """Base of all notifications: something that happened. Nobody needs to listen."""


class BusError(Exception):
    """A request that got no answer."""


class NoOwner(BusError):
    """Nobody serves requests of this type (any more)."""


class AlreadyOwned(BusError):
    """A second owner for a type of request; the first keeps it."""


class RequestTimedOut(BusError):
    """The handler took too long and was cancelled."""


class RequestCycle(BusError):
    """A request that would wait for itself, by way of the handlers in between."""


class RequestFailed(BusError):
    """The handler raised (then that is the `__cause__`), was withdrawn, or gave an answer of another type."""

    def __init__(self, message: str, *, owner: str) -> None:
        super().__init__(message)
        self.owner = owner
        """Whose handler it was."""


class _Served:
    __slots__ = ("__weakref__", "answer", "handler", "owner", "running")

    def __init__(self, owner: str, handler: Callable[[Any], Any], answer: Any) -> None:
        self.owner, self.handler, self.answer = owner, handler, answer
        self.running: set[asyncio.Task[Any]] = set()


class _Subscriber:
    __slots__ = ("__weakref__", "active", "function", "owner", "strikes")

    def __init__(self, owner: str, function: Callable[[Any], object]) -> None:
        self.owner, self.function = owner, function
        self.active, self.strikes = True, 0


class _Link:
    """One request on the way, in the chain of requests that led to it."""

    __slots__ = ("bus", "kind", "open", "outer")

    def __init__(self, bus: "Bus", kind: type, outer: "_Link | None") -> None:
        self.bus: Bus | None = bus
        self.kind, self.outer, self.open = kind, outer, True

    def close(self) -> None:
        """A task that the handler left behind keeps its context, and must not keep the bus with it."""
        self.open, self.bus, self.outer = False, None, None


_chain: ContextVar[_Link | None] = ContextVar("branchwork_requests", default=None)


class Bus:
    """One for all extensions of a session. All methods belong to the event loop that runs it.

    `owner` is the name of the extension in all of them; it is what errors and reports name. A registration
    is held until it is unsubscribed or its owner withdrawn, and nothing of it is held longer.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._served: dict[type, _Served] = {}
        self._subscribers: dict[type, list[_Subscriber]] = {}
        self._notes: deque[Note] = deque()
        self._delivering = False

    # ---- requests ----

    def serve(
        self, kind: type[Q], handler: Callable[[Q], Awaitable[object] | object], *, owner: str
    ) -> Callable[[], None]:
        """Answer requests of exactly this type; returns the function that stops it (twice does no harm).

        `handler` may be a coroutine function or a plain one, and runs in a task of its own; several requests
        may be under way at once. After stopping, those still run to their end. Raises AlreadyOwned, and
        TypeError for a type that does not say what it is answered with.
        """
        answer = result_type(kind, Request)
        present = self._served.get(kind)
        if present is not None:
            raise AlreadyOwned(f"{owner} cannot serve {kind.__name__}: {present.owner} does already")
        served = _Served(owner, handler, answer)
        self._served[kind] = served
        this = ref(served)  # so that whoever keeps the function does not keep the extension

        def stop() -> None:
            if kind in self._served and self._served[kind] is this():
                del self._served[kind]

        return stop

    async def request(self, request: Request[R], *, timeout: float = TIMEOUT_S) -> R:
        """The owner's answer, of the type that the request names.

        Raises NoOwner, RequestFailed, RequestTimedOut after `timeout` seconds of the event loop, and
        RequestCycle when the owner's handler is waiting for this very request (also from a task that it
        started, while it runs). Whoever is cancelled in here cancels the handler.
        """
        kind = type(request)
        served = self._served.get(kind)
        if served is None:
            raise NoOwner(f"nobody serves {kind.__name__}: is the extension that does switched off?")
        outer = _chain.get()
        self._refuse_cycle(kind, outer)
        link = _Link(self, kind, outer)
        token = _chain.set(link)  # the task copies the context
        try:
            task = asyncio.ensure_future(_call(served.handler, request))
        finally:
            _chain.reset(token)
        served.running.add(task)
        task.add_done_callback(served.running.discard)
        task.add_done_callback(_retrieve)
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=CLEANUP_S)
            raise
        finally:
            link.close()
        if not done:
            task.cancel()
            raise RequestTimedOut(f"{served.owner} did not answer {kind.__name__} within {timeout:g} s")
        answer: R = _answer(task, kind, served)
        return answer

    # ---- notes ----

    def subscribe(self, kind: type[N], function: Callable[[N], object], *, owner: str) -> Callable[[], None]:
        """Hear of notes of exactly this type; returns the function that ends it (twice does no harm).

        `function` is a plain one and should be quick: it holds up whoever publishes. When it raises it is
        reported, and the third time it is dropped. Raises TypeError for a coroutine function.
        """
        if iscoroutinefunction(function):
            raise TypeError(f"{owner}: a subscriber of {kind.__name__} must be a plain function; start a task in it")
        subscriber = _Subscriber(owner, function)
        self._subscribers.setdefault(kind, []).append(subscriber)
        this = ref(subscriber)  # so that whoever keeps the function does not keep the extension

        def stop() -> None:
            present = this()
            if present is not None:
                self._drop(kind, present)

        return stop

    def publish(self, note: Note) -> None:
        """Tell every subscriber, in the order in which they came. Never raises for their failures.

        A note that a subscriber publishes is delivered after the present one, so that all see one order.
        """
        self._notes.append(note)
        if self._delivering:
            return
        self._delivering = True
        try:
            for _ in range(CASCADE):
                if not self._notes:
                    return
                self._deliver(self._notes.popleft())
            left = ", ".join(sorted({type(each).__name__ for each in self._notes}))
            if left:
                self._report(
                    "bus", f"{CASCADE} notes followed from one {type(note).__name__}; dropped the rest: {left}"
                )
        finally:
            self._notes.clear()
            self._delivering = False

    # ---- owners ----

    def withdraw(self, owner: str) -> None:
        """Remove everything `owner` registered. Its running handlers are cancelled and their requests fail.

        A handler that withdraws its own owner runs to its end.
        """
        current = asyncio.current_task() if _loop_runs() else None
        for kind, served in tuple(self._served.items()):
            if served.owner == owner:
                del self._served[kind]
                for task in served.running:
                    if task is not current:
                        task.cancel()
        for note, subscribers in tuple(self._subscribers.items()):
            for subscriber in tuple(subscribers):
                if subscriber.owner == owner:
                    self._drop(note, subscriber)

    # ---- inside ----

    def _refuse_cycle(self, kind: type, link: _Link | None) -> None:
        names = [kind.__name__]
        while link is not None:
            names.append(link.kind.__name__)
            if link.open and link.kind is kind and link.bus is self:
                raise RequestCycle(f"these requests wait for each other: {' → '.join(reversed(names))}")
            link = link.outer

    def _deliver(self, note: Note) -> None:
        kind = type(note)
        for subscriber in tuple(self._subscribers.get(kind, ())):
            if not subscriber.active:
                continue
            try:
                result = subscriber.function(note)
                if iscoroutine(result):
                    result.close()
                    raise TypeError("it returned a coroutine, which nobody awaits")
            except Exception as error:  # noqa: BLE001 - boundary: an extension must not fail the publisher
                self._strike(kind, subscriber, error)

    def _strike(self, kind: type, subscriber: _Subscriber, error: Exception) -> None:
        subscriber.strikes += 1
        end = ""
        if subscriber.strikes == STRIKES:
            self._drop(kind, subscriber)
            end = f"; dropped after {STRIKES} failures"
        self._report(subscriber.owner, f"failed to take {kind.__name__}: {error!r}{end}")

    def _drop(self, kind: type, subscriber: _Subscriber) -> None:
        subscriber.active = False
        subscribers = self._subscribers.get(kind, [])
        if subscriber in subscribers:
            subscribers.remove(subscriber)
        if not subscribers:
            self._subscribers.pop(kind, None)


async def _call(handler: Callable[[Any], Any], request: Any) -> Any:
    result = handler(request)
    return await result if isawaitable(result) else result


def _answer(task: asyncio.Task[Any], kind: type, served: _Served) -> Any:
    owner = served.owner
    if task.cancelled():
        raise RequestFailed(f"{owner} gave up on {kind.__name__}: it was withdrawn or cancelled", owner=owner)
    error = task.exception()
    if error is not None:
        raise RequestFailed(f"{owner} failed to answer {kind.__name__}: {error!r}", owner=owner) from error
    answer = task.result()
    if not fits(answer, served.answer):
        found = f"{type(answer).__name__}, not {type_name(served.answer)}"
        raise RequestFailed(f"{owner} answered {kind.__name__} with a value of type {found}", owner=owner)
    return answer


def _retrieve(task: asyncio.Task[Any]) -> None:
    """A handler that nobody waits for any more may fail in silence: its requester was told already."""
    if not task.cancelled():
        task.exception()


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
