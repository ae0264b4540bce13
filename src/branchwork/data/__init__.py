"""Texts that ship with the package."""

from functools import cache
from pathlib import Path


@cache
def text(name: str) -> str:
    """The UTF-8 text of a file of this folder, e.g. `text("tools/bash.md")`. Raises OSError when it is missing."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
