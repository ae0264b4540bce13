"""One dispatcher for each kind of hook; the failure rules are here and nowhere else."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from branchwork.host.budget import Misbehaved, OutOfTime, call_within
from branchwork.host.points import Decide, Observe, Point, Transform

P = TypeVar("P")
V = TypeVar("V")

BUDGET_S = 5.0
"""What a handler may take, unless it was registered with a budget of its own."""
STRIKES = 3
"""An observer is dropped when it failed this often."""


class Failure(Struct, frozen=True):
    """A handler that did not do its part, for people and for the verdict that follows."""

    owner: str
    point: str
    message: str

    def __str__(self) -> str:
        return f"extension {self.owner}: {self.point}: {self.message}"


class Verdict(Struct, frozen=True):
    """An answer and whose it is."""

    owner: str
    answer: Any


class _Handler:
    __slots__ = ("budget", "function", "owner", "strikes")

    def __init__(self, owner: str, function: Callable[..., Any], budget: float) -> None:
        self.owner = owner
        self.function = function
        self.budget = budget
        self.strikes = 0


class Hooks:
    """All handlers, in the order in which their extensions were loaded.

    `report` is told of every failure, once for each handler and kind of failure text. `context_of` makes what a
    handler of an extension is given beside the payload. Payloads and values are copies: what a handler does to
    them in place changes nothing. What it returns is checked field by field against its type.
    """

    def __init__(self, report: Callable[[Failure], None], context_of: Callable[[str], Any]) -> None:
        self._handlers: dict[str, list[_Handler]] = {}
        self._report = report
        self._context_of = context_of
        self._reported: set[tuple[str, str, str]] = set()

    def add(
        self, point: Point, owner: str, function: Callable[..., Any], budget: float = BUDGET_S
    ) -> Callable[[], None]:
        """Register; returns the function that withdraws the handler again (twice does no harm)."""
        handler = _Handler(owner, function, budget)
        self._handlers.setdefault(point.name, []).append(handler)

        def remove() -> None:
            handlers = self._handlers.get(point.name, [])
            if handler in handlers:
                handlers.remove(handler)

        return remove

    def withdraw(self, owner: str) -> None:
        for handlers in self._handlers.values():
            handlers[:] = [handler for handler in handlers if handler.owner != owner]

    def points_of(self, owner: str) -> tuple[str, ...]:
        """The names of the points that an extension has handlers at."""
        return tuple(name for name, handlers in self._handlers.items() if any(each.owner == owner for each in handlers))

    def count(self, point: Point) -> int:
        return len(self._handlers.get(point.name, ()))

    async def observe(self, point: Observe[P], payload: P) -> None:
        for handler in tuple(self._handlers.get(point.name, ())):
            try:
                await self._call(handler, payload)
            except Exception as error:  # noqa: BLE001 - boundary: an extension's code
                self._strike(point, handler, error)

    async def transform(
        self, point: Transform[P, V], payload: P, value: V, check: Callable[[V], None] | None = None
    ) -> V:
        """The value after all handlers. What `check` raises for a new value counts as the handler's failure."""
        for handler in tuple(self._handlers.get(point.name, ())):
            try:
                changed = await self._call(handler, payload, value)
                if changed is None:
                    continue
                changed = _checked(changed, point.returns, point.items)
                if check is not None:
                    check(changed)
            except Exception as error:  # noqa: BLE001 - boundary: an extension's code
                self._tell(point, handler, error)
                continue
            value = changed
            if isinstance(value, point.final):
                return value
        return value

    async def decide(self, point: Decide[P, V], payload: P) -> Verdict | Failure | None:
        """The first verdict, or the failure that must count as the strictest one; None when nobody objects."""
        _, verdict = await self.decide_revising(point, payload, lambda payload, answer: None)
        return verdict

    async def decide_revising(
        self, point: Decide[P, V], payload: P, revise: Callable[[P, V], P | None]
    ) -> tuple[P, Verdict | Failure | None]:
        """Like `decide`, for answers that change what the next handler is asked.

        `revise` gives the new payload, or None when the answer is a verdict. What it raises counts as the
        handler's failure. Returns the last payload with the verdict.
        """
        for handler in tuple(self._handlers.get(point.name, ())):
            try:
                answer = await self._call(handler, payload)
                if answer is None:
                    continue
                answer = _checked(answer, point.returns)
                revised = revise(payload, answer)
            except Exception as error:  # noqa: BLE001 - boundary: an extension's code has not allowed anything
                return payload, self._tell(point, handler, error)
            if revised is None:
                return payload, Verdict(handler.owner, answer)
            payload = revised
        return payload, None

    async def _call(self, handler: _Handler, *values: Any) -> Any:
        copies = [deepcopy(value) for value in values]
        return await call_within(handler.budget, handler.function, *copies, self._context_of(handler.owner))

    def _strike(self, point: Point, handler: _Handler, error: Exception) -> None:
        handler.strikes += 1
        self._tell(point, handler, error)
        handlers = self._handlers[point.name]
        if handler.strikes >= STRIKES and handler in handlers:
            handlers.remove(handler)
            self._report(Failure(handler.owner, point.name, f"dropped after failing {STRIKES} times"))

    def _tell(self, point: Point, handler: _Handler, error: Exception) -> Failure:
        known = isinstance(error, OutOfTime | Misbehaved | _Rubbish)
        failure = Failure(handler.owner, point.name, str(error) if known else f"{type(error).__name__}: {error}")
        key = (failure.owner, failure.point, failure.message)
        if key not in self._reported:
            self._reported.add(key)
            self._report(failure)
        return failure


class _Rubbish(Exception):
    """A handler returned something that its point does not know."""


def _checked(value: Any, wanted: tuple[type[Any], ...], items: type[Any] | None = None) -> Any:
    """A copy of what a handler returned, or of each of its items, every field of the declared type."""
    if not isinstance(value, wanted):
        names = " or ".join(kind.__name__ for kind in wanted)
        raise _Rubbish(f"returned {type(value).__name__} instead of {names} or None")
    if items is not None:
        return tuple(_checked(item, (items,)) for item in value)
    try:
        return msgspec.convert(msgspec.to_builtins(value), type(value))
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
        raise _Rubbish(f"returned a {type(value).__name__} that does not fit: {error}") from error
