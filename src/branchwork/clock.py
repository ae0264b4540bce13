"""Time and identity as parameters, so that tests own both."""

import os
import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, Unix milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)


class Ids(Protocol):
    def entry(self) -> str:
        """Eight lowercase hex digits."""
        ...

    def session(self, now_ms: int) -> str:
        """A UUID of version 7 (RFC 9562): time-ordered, so that listings sort by age."""
        ...


class RandomIds:
    def entry(self) -> str:
        return os.urandom(4).hex()

    def session(self, now_ms: int) -> str:
        value = (now_ms & ((1 << 48) - 1)) << 80 | int.from_bytes(os.urandom(10), "big")
        value = value & ~(0xF << 76) | 0x7 << 76
        value = value & ~(0x3 << 62) | 0x2 << 62
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def iso(now_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds and a `Z`, as session files have it."""
    seconds, millis = divmod(now_ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{millis:03d}Z"
