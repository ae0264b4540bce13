"""Time and identity that tests own."""

import asyncio

START_MS = 1_750_000_000_000
"""15 June 2025, 15:06:40 UTC."""


class FakeClock:
    """Implements `branchwork.clock.Clock`. Time moves by `sleep`, which returns at once, and by `advance`."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self.sleeps: list[float] = []
        """The seconds of each sleep, in order; sleeps of zero are not noted."""
        self._start_ms = start_ms
        self._elapsed = 0.0

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Jump ahead; other tasks get their turn, and a cancellation arrives here as in a real sleep."""
        if seconds > 0:
            self.sleeps.append(seconds)
            self._elapsed += seconds
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds!r}")
        self._elapsed += seconds


class SequentialIds:
    """Implements `branchwork.clock.Ids` with 00000001, 00000002, … for entries and the same for sessions."""

    def __init__(self) -> None:
        self._entries = 0
        self._sessions = 0

    def entry(self) -> str:
        self._entries += 1
        return f"{self._entries:08x}"

    def session(self, now_ms: int) -> str:
        self._sessions += 1
        stamp = f"{now_ms:012x}"
        return f"{stamp[:8]}-{stamp[8:]}-7000-8000-{self._sessions:012x}"
