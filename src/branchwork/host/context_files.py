"""Instruction files that people keep in their projects: `AGENTS.md` and its relatives."""

from pathlib import Path

from msgspec import Struct

NAMES = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
"""In each folder the first of these that exists is read."""
MAX_BYTES = 256 * 1024
"""A longer file is cut there, and a warning says so."""


class ContextFile(Struct, frozen=True):
    path: Path
    text: str


def context_files(home: Path, cwd: Path) -> tuple[tuple[ContextFile, ...], tuple[str, ...]]:
    """The files in prompt order (the person's own, then from the outermost folder down to `cwd`), and warnings."""
    files: list[ContextFile] = []
    warnings: list[str] = []
    seen: set[Path] = set()
    for folder in (home, *reversed(cwd.parents), cwd):
        for name in NAMES:
            path = folder / name
            if not path.is_file():
                continue
            real = path.resolve()
            if real not in seen:
                seen.add(real)
                _read(path, files, warnings)
            break
    return tuple(files), tuple(warnings)


def _read(path: Path, files: list[ContextFile], warnings: list[str]) -> None:
    try:
        with path.open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except OSError as error:
        warnings.append(f"{path}: cannot be read ({error.strerror}); its instructions are left out")
        return
    if len(raw) > MAX_BYTES:
        warnings.append(f"{path}: longer than {MAX_BYTES // 1024} KiB; only the beginning is used")
    text = raw[:MAX_BYTES].decode("utf-8-sig", errors="replace").strip()
    if text:
        files.append(ContextFile(path, text))
