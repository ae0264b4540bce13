"""Instruction files that people keep in their projects: `AGENTS.md` and its relatives. They need no trust."""

from pathlib import Path

from msgspec import Struct

from branchwork.host.places import is_file, is_folder
from branchwork.host.problems import Problem

NAMES = ("AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD")
"""In each folder the first of these that exists is read."""
MAX_BYTES = 256 * 1024
"""A longer file is cut there, and a problem says so."""


class ContextFile(Struct, frozen=True):
    path: Path
    text: str


def find_context_files(home: Path, cwd: Path) -> tuple[tuple[ContextFile, ...], tuple[Problem, ...]]:
    """The files in prompt order: the person's own, then from the outermost folder down to `cwd`.

    In a linked worktree inside its main repository the main copies of files that the worktree has are left out.
    """
    files: list[ContextFile] = []
    problems: list[Problem] = []
    seen: set[Path] = set()
    worktree = _nested_worktree(cwd)
    for folder in (home, *reversed(cwd.parents), cwd):
        path = next((folder / name for name in NAMES if is_file(folder / name)), None)
        if path is None or (worktree and worktree.has_copy_of(path)):
            continue
        real = path.resolve()
        if real not in seen:
            seen.add(real)
            _read(path, files, problems)
    return tuple(files), tuple(problems)


class _Worktree(Struct, frozen=True):
    """A linked worktree that lies inside the main repository's folder."""

    folder: Path
    main: Path

    def has_copy_of(self, path: Path) -> bool:
        """Whether `path` is a file of the main repository outside of the worktree, which has one of that name."""
        if not path.is_relative_to(self.main) or path.is_relative_to(self.folder):
            return False
        return is_file(self.folder / path.relative_to(self.main))


def _nested_worktree(cwd: Path) -> _Worktree | None:
    """By gitrepository-layout(5): `.git` is a file `gitdir: PATH`, and PATH/commondir leads to the main `.git`."""
    for folder in (cwd, *cwd.parents):
        link = folder / ".git"
        if is_folder(link):
            return None
        if not is_file(link):
            continue
        try:
            text = link.read_text(encoding="utf-8").strip()
            private = folder / text.removeprefix("gitdir:").strip()
            common = (private / (private / "commondir").read_text(encoding="utf-8").strip()).resolve()
            nested = next((each for each in folder.parents if (each / ".git").resolve() == common), None)
        except (OSError, UnicodeDecodeError, ValueError):
            return None
        return None if nested is None else _Worktree(folder, nested)
    return None


def _read(path: Path, files: list[ContextFile], problems: list[Problem]) -> None:
    try:
        with path.open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except OSError as error:
        problems.append(Problem(path, f"cannot be read ({error.strerror}); its instructions are left out"))
        return
    if len(raw) > MAX_BYTES:
        problems.append(Problem(path, f"longer than {MAX_BYTES // 1024} KiB; only the beginning is used"))
    text = raw[:MAX_BYTES].decode("utf-8-sig", errors="replace").strip()
    if text:
        files.append(ContextFile(path, text))
