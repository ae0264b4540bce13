"""What a command of the command line gets instead of globals."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from msgspec import Struct


class Console(Struct, frozen=True, kw_only=True):
    out: TextIO
    err: TextIO
    stdin: TextIO
    env: Mapping[str, str]
    cwd: Path
    home: Path
    """`BRANCHWORK_HOME`, by default `~/.branchwork`; may not exist yet."""

    def print(self, text: str = "") -> None:
        self.out.write(text + "\n")

    def warn(self, text: str) -> None:
        self.err.write(f"branchwork: {text}\n")


def system_console() -> Console:
    """The process's own streams and environment."""
    import io
    import os

    env = dict(os.environ)
    stdin: TextIO | None = sys.stdin  # None when the descriptor is closed
    home = Path(env.get("BRANCHWORK_HOME") or Path.home() / ".branchwork").expanduser().absolute()
    return Console(out=sys.stdout, err=sys.stderr, stdin=stdin or io.StringIO(), env=env, cwd=Path.cwd(), home=home)
