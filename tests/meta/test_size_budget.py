"""Files, functions, nesting and parameter lists stay small; the list of exceptions only shrinks."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from tests.meta.sources import python_files, relative

LIMITS = {"lines": 500, "length": 60, "nesting": 5, "parameters": 7}
"""The first value that is too much: lines of a file; lines, depth and parameters of a function."""

ALLOWLIST = Path(__file__).with_name("size_allowlist.txt")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Measures: TypeAlias = dict[tuple[str, str], int]
"""(place, kind) to value; the place is `path` or `path::Class.function`."""

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


def functions(node: ast.AST, prefix: str = "", in_class: bool = False) -> Iterator[tuple[str, Function, bool]]:
    """Every function with its dotted name and whether it is a method."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield prefix + child.name, child, in_class
                yield from functions(child, f"{prefix}{child.name}.")
            case ast.ClassDef():
                yield from functions(child, f"{prefix}{child.name}.", in_class=True)
            case _:
                yield from functions(child, prefix, in_class)


def length(function: Function) -> int:
    """Lines from `def` to the last one, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def nesting(node: ast.AST) -> int:
    """How many blocks deep the deepest statement is. `elif` goes no deeper; a function in a function starts anew."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, nesting(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def parameters(function: Function, is_method: bool) -> int:
    """All of them, `*args` and `**kwargs` included; the `self` or `cls` of a method is none."""
    spec = function.args
    count = len(spec.posonlyargs) + len(spec.args) + len(spec.kwonlyargs) + bool(spec.vararg) + bool(spec.kwarg)
    static = any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in function.decorator_list)
    return count - (is_method and not static)


def measure(place: str, source: str) -> Measures:
    """Whatever in one file is over a limit."""
    found = {(place, "lines"): len(source.splitlines())}
    for name, function, is_method in functions(ast.parse(source)):
        found[f"{place}::{name}", "length"] = length(function)
        found[f"{place}::{name}", "nesting"] = nesting(function)
        found[f"{place}::{name}", "parameters"] = parameters(function, is_method)
    return {key: value for key, value in found.items() if value >= LIMITS[key[1]]}


def parse_allowlist(text: str) -> Measures:
    """Lines `place kind value`; `#` starts a comment."""
    entries: Measures = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            place, kind, value = line.split()
            entries[place, kind] = int(value)
    return entries


def complaints(found: Measures, allowed: Measures) -> list[str]:
    """What is to be done, one line a place; empty when every offender is listed with its exact value."""
    report = []
    for place, kind in sorted(found.keys() | allowed.keys()):
        now, listed = found.get((place, kind)), allowed.get((place, kind))
        if now == listed:
            continue
        if now is None:
            report.append(f"{place}: {kind} is below {LIMITS[kind]} now; remove it from {ALLOWLIST.name}")
        elif listed is None:
            report.append(f"{place}: {kind} is {now} and must be below {LIMITS[kind]}; split it")
        elif now > listed:
            report.append(f"{place}: {kind} grew from {listed} to {now}; it may only shrink")
        else:
            report.append(f"{place}: {kind} shrank from {listed} to {now}; write {now} in {ALLOWLIST.name}")
    return report


def test_nothing_outgrows_its_budget() -> None:
    found: Measures = {}
    for path in python_files("src", "tests", "bench"):
        found |= measure(relative(path), path.read_text(encoding="utf-8"))
    assert complaints(found, parse_allowlist(ALLOWLIST.read_text(encoding="utf-8"))) == []


def test_a_file_a_function_its_depth_and_its_parameters_are_measured() -> None:
    body = "\n".join(["        pass"] * 58)
    deep = "if a:\n for b in c:\n  with d:\n   try:\n    while e: pass\n   finally: pass".replace("\n", "\n    ")
    source = f"""class A:
    def long(self):
{body}
        pass
    def wide(self, a, b, *c, d, e, f, **g): ...
    def fits(self, a, b, c, d, e, f): ...
def deep():
    {deep}
"""
    assert measure("x.py", source) == {
        ("x.py::A.long", "length"): 60,
        ("x.py::A.wide", "parameters"): 7,
        ("x.py::deep", "nesting"): 5,
    }
    assert measure("y.py", "pass\n" * 500) == {("y.py", "lines"): 500}
    assert measure("y.py", "pass\n" * 499) == {}


def test_a_chain_of_elif_is_one_level_and_an_inner_function_starts_anew() -> None:
    chain = "if a: pass\n" + "elif a: pass\n" * 9
    assert nesting(ast.parse(chain)) == 1
    assert nesting(ast.parse("if a:\n if b:\n  def f():\n   if c: pass")) == 2
    assert nesting(ast.parse("if a:\n pass\nelse:\n if b: pass\n c = 1")) == 2


def test_the_allowlist_only_shrinks() -> None:
    key = ("x.py", "lines")
    assert complaints({key: 510}, {key: 510}) == []
    assert complaints({key: 511}, {key: 510}) == ["x.py: lines grew from 510 to 511; it may only shrink"]
    assert complaints({key: 505}, {key: 510}) == ["x.py: lines shrank from 510 to 505; write 505 in size_allowlist.txt"]
    assert complaints({}, {key: 510}) == ["x.py: lines is below 500 now; remove it from size_allowlist.txt"]
    assert complaints({key: 510}, {}) == ["x.py: lines is 510 and must be below 500; split it"]
