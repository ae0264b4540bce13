"""What people typed while the agent was busy."""

from collections import deque
from typing import Literal, TypeAlias

from branchwork.session.entries import UserMessage, text_of

QueueMode: TypeAlias = Literal["one-at-a-time", "all"]


class InputQueue:
    """Two queues: `steering` is delivered before the next request, `follow_up` when the run would stop."""

    def __init__(self, steering: QueueMode = "one-at-a-time", follow_up: QueueMode = "one-at-a-time") -> None:
        self._steering_mode: QueueMode = steering
        self._follow_up_mode: QueueMode = follow_up
        self._steering: deque[UserMessage] = deque()
        self._follow_up: deque[UserMessage] = deque()

    def __bool__(self) -> bool:
        return bool(self._steering or self._follow_up)

    def steer(self, message: UserMessage) -> None:
        self._steering.append(message)

    def follow_up(self, message: UserMessage) -> None:
        self._follow_up.append(message)

    def take_steering(self) -> tuple[UserMessage, ...]:
        return _take(self._steering, self._steering_mode)

    def take_follow_up(self) -> tuple[UserMessage, ...]:
        return _take(self._follow_up, self._follow_up_mode)

    def take_back(self) -> tuple[UserMessage, ...]:
        """Empty both queues and return what was in them, steering first: the person wants to edit it."""
        taken = (*self._steering, *self._follow_up)
        self._steering.clear()
        self._follow_up.clear()
        return taken

    def texts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The contents as text: (steering, follow-up)."""
        return (
            tuple(text_of(message.content) for message in self._steering),
            tuple(text_of(message.content) for message in self._follow_up),
        )


def _take(queue: deque[UserMessage], mode: QueueMode) -> tuple[UserMessage, ...]:
    if not queue:
        return ()
    if mode == "one-at-a-time":
        return (queue.popleft(),)
    taken = tuple(queue)
    queue.clear()
    return taken
