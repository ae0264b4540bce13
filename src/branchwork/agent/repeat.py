"""Notices a model that makes the same call over and over."""

import msgspec

from branchwork.session.entries import ToolCall

REMIND_AT = (3, 5, 8)
STOP_AT = 12


class RepeatGuard:
    """Counts how often in a row one call (same tool, same arguments) was made within a run.

    `observe` returns what to add to the call's result; `exhausted` becomes true at `stop_at` (0: never).
    """

    def __init__(self, stop_at: int = STOP_AT) -> None:
        self._stop_at = stop_at
        self._last: bytes | None = None
        self._streak = 0

    @property
    def exhausted(self) -> bool:
        return 0 < self._stop_at <= self._streak

    @property
    def streak(self) -> int:
        return self._streak

    def observe(self, call: ToolCall) -> str | None:
        key = msgspec.json.encode((call.name, call.arguments), order="sorted")
        self._streak = self._streak + 1 if key == self._last else 1
        self._last = key
        if not self._stop_at or self._streak not in REMIND_AT:
            return None
        return (
            f"[This is call number {self._streak} in a row of {call.name} with the same arguments. The result will "
            f"not change by itself: use what you have, or do something else. The run ends at {self._stop_at}.]"
        )
