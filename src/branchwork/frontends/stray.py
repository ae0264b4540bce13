"""Keeps what extensions print apart from what the program answers."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

from branchwork.frontends.console import Console


class Stray(io.TextIOBase):
    """Writes to another stream and cannot close it."""

    def __init__(self, target: TextIO) -> None:
        self._target = target

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return self._target.write(text)

    def flush(self) -> None:
        self._target.flush()

    def fileno(self) -> int:
        return self._target.fileno()

    def isatty(self) -> bool:
        return self._target.isatty()

    def close(self) -> None:
        """Somebody else's stream stays open."""


@contextmanager
def stray_output(console: Console) -> Iterator[None]:
    """Within the block `print` and `sys.stdout` lead to standard error; the program writes to `console`."""
    with redirect_stdout(Stray(console.err)), redirect_stderr(Stray(console.err)):
        yield
