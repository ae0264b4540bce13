"""What is wrong with a file that a person keeps; told to them, and stops nothing."""

from pathlib import Path

from msgspec import Struct


class Problem(Struct, frozen=True):
    path: Path
    detail: str
    line: int | None = None
    """1-based."""

    def __str__(self) -> str:
        """One line: file, line, what, what to do."""
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.detail}"
