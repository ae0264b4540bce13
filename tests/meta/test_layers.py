"""Imports point down only. A cycle or a look upwards is a design message, not something to import late."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.sources import PACKAGE, imports, python_files, relative

ORDER = (
    "",  # the package itself
    "errors",
    "clock",
    "data",
    "session",
    "models",
    "agent",
    "tools",
    "policy",
    "host",
    "delegation",
    "extensions",
    "library",
    "frontends",
    "cli",
    "__main__",
)
"""From the bottom up. A layer may import itself and those before it."""

TESTING_SEES = set(ORDER[: ORDER.index("frontends")]) | {"testing"}


def allowed(layer: str) -> set[str]:
    if layer == "testing":
        return TESTING_SEES
    if layer == "":  # the package names what it offers; each name is imported when it is first used
        return set(ORDER[: ORDER.index("library") + 1])
    return set(ORDER[: ORDER.index(layer) + 1])


def layer_of(path: Path) -> str:
    """`session` for src/branchwork/session/store.py, `clock` for src/branchwork/clock.py."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def targets(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, imported name and layer of every import of this package."""
    known = {*ORDER, "testing"}
    for found in imports(tree):
        if found.relative:
            yield found.line, found.module, "relative"
            continue
        head, _, rest = found.module.partition(".")
        if head == "branchwork":
            second = rest.partition(".")[0]
            yield found.line, found.module, second if second in known else ""


def violations(source: str, layer: str) -> list[str]:
    seen = allowed(layer)
    return [f"line {line} imports {name}" for line, name, target in targets(ast.parse(source)) if target not in seen]


@pytest.mark.parametrize("path", python_files("src"), ids=relative)
def test_imports_point_down(path: Path) -> None:
    layer = layer_of(path)
    assert layer == "testing" or layer in ORDER, f"{relative(path)} is in no layer; give it a place in ORDER"
    assert violations(path.read_text(encoding="utf-8"), layer) == []


def test_every_way_to_import_is_seen() -> None:
    source = """
from typing import TYPE_CHECKING
import branchwork.frontends.console
from branchwork import cli, __version__
if TYPE_CHECKING:
    from branchwork.host import extension
def late():
    from branchwork.tools.read import read
    import importlib
    importlib.import_module("branchwork.testing")
from . import tree
from branchwork.session.entries import Entry
from branchwork.models import base
"""
    assert sorted(violations(source, "models")) == [
        "line 10 imports branchwork.testing",
        "line 11 imports tree",
        "line 3 imports branchwork.frontends.console",
        "line 4 imports branchwork.cli",
        "line 6 imports branchwork.host.extension",
        "line 8 imports branchwork.tools.read.read",
    ]


def test_no_layer_but_testing_may_use_the_test_doubles() -> None:
    assert [layer for layer in ORDER if "testing" in allowed(layer)] == []
    assert "testing" in allowed("testing")
    assert "frontends" not in allowed("testing")
