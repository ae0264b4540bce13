"""The repository's own source, as data for the tests of its rules."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "branchwork"


def python_files(*folders: str) -> list[Path]:
    """Every Python file below `folders` of the repository, sorted."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def repository_files() -> list[Path]:
    """What git tracks, and what it would track next: files that are neither ignored nor deleted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return sorted(path for name in set(listed.stdout.split("\0")) - {""} if (path := ROOT / name).is_file())


class Import(NamedTuple):
    line: int
    module: str
    """Absolute dotted name, the imported attribute included (`from a.b import c` is `a.b.c`)."""
    relative: bool = False


def imports(tree: ast.AST) -> Iterator[Import]:
    """Every import in a module: inside functions, below `TYPE_CHECKING`, and through `import_module("…")`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (Import(node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                stem = f"{module}." if module else ""
                yield from (Import(node.lineno, stem + alias.name, relative=bool(level)) for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(node.lineno, name)
            case _:
                pass
