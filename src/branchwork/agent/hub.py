"""Numbers events and hands them to subscribers."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from branchwork.agent.events import AgentEvent, Diagnosed

Subscriber: TypeAlias = Callable[[AgentEvent], None]


class EventHub:
    """One stream of events for any number of readers, in order, without gaps.

    Subscribers run at once, in the order in which they came; one that blocks holds the agent up, which is
    how a slow reader of `stream-json` is honoured. One that raises is removed and the others are told.
    """

    def __init__(self) -> None:
        self._seq = 0
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Returns the function that ends the subscription (calling it again does nothing)."""
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def emit(self, event: AgentEvent) -> None:
        if not self._subscribers:
            return
        self._seq += 1
        numbered = replace(event, seq=self._seq)
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(numbered)
            except OSError:
                self._subscribers.remove(subscriber)
                raise  # the reader is gone (a closed pipe): the run has nobody to report to
            except Exception as error:  # noqa: BLE001 - boundary: a front end must not take the run down
                self._subscribers.remove(subscriber)
                name = getattr(subscriber, "__qualname__", repr(subscriber))
                self.emit(
                    Diagnosed(level="error", source="events", message=f"{name} failed and was removed: {error!r}")
                )
