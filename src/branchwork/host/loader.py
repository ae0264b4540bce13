"""Finds extensions, runs their functions, and takes back what a broken one had registered."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from branchwork.host.budget import call_within
from branchwork.host.extension import ExtensionAPI, Services

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "branchwork.extensions"
"""The entry point group of installed distributions."""
PREFIX = "branchwork_extension_"
"""Of the module names of extensions that are loaded from a path."""
LOAD_BUDGET_S = 10.0
"""What an extension's module and its function may take together."""

Source: TypeAlias = Literal["built-in", "user", "project", "settings", "given", "installed"]


class Candidate(Struct, frozen=True, kw_only=True):
    """An extension that could be loaded. `name` is what settings and `--disable` call it."""

    name: str
    source: Source
    where: str
    """The file or folder, the module, or the distribution."""
    load: Callable[[], Any]
    """Returns the extension's function. Imports its code."""

    @property
    def is_file(self) -> bool:
        return self.source not in ("installed", "built-in")


class Loaded(Struct, frozen=True, kw_only=True):
    """What came of a candidate."""

    name: str
    source: Source
    where: str
    state: Literal["loaded", "disabled", "failed", "shadowed"]
    reason: str | None = None


class Search(Struct, frozen=True, kw_only=True):
    """Where to look."""

    home: Path | None
    """BRANCHWORK_HOME; None loads nothing from it."""
    project: Path | None
    """The folder of a trusted project; None loads nothing from a project."""
    settings_paths: tuple[Path, ...] = ()
    given: tuple[Path, ...] = ()
    """From `-e`."""
    installed: bool = True


def candidates(search: Search, builtin: Iterable[str]) -> list[Candidate]:
    """All that are there, in the order in which the first of a name wins: given ones, then the project's, those of
    the settings, the person's, installed ones, built-in ones. A file that is reached twice counts once."""
    found = [_from_path(path, "given") for path in search.given]
    if search.project is not None:
        found += _from_folder(search.project / ".branchwork" / "extensions", "project")
    found += [_from_path(path, "settings") for path in search.settings_paths]
    if search.home is not None:
        found += _from_folder(search.home / "extensions", "user")
    if search.installed:
        found += _installed()
    found += [_builtin(module) for module in builtin]
    first: dict[str, Candidate] = {}
    for candidate in found:
        first.setdefault(os.path.realpath(candidate.where) if candidate.is_file else candidate.where, candidate)
    return list(first.values())


async def load_all(
    found: Iterable[Candidate], services: Services, *, disabled: Callable[[Candidate], bool]
) -> list[Loaded]:
    """The outcome for each candidate, in the order given; of two with one name the first wins.

    Built-in ones are loaded before all others, so that nobody takes a name away from them; who wants to replace one
    gives an extension its name or switches it off. Nothing that an extension does stops the rest.
    """
    taken: dict[str, Candidate] = {}
    outcomes: dict[int, Loaded] = {}
    todo: list[tuple[int, Candidate]] = []
    for number, candidate in enumerate(found):
        winner = taken.setdefault(candidate.name, candidate)
        if winner is not candidate:
            reason = f"{winner.source} extension of that name: {winner.where}"
            outcomes[number] = _outcome(candidate, "shadowed", reason)
            services.report(candidate.name, f"{candidate.where} is not loaded; it gives way to the {reason}")
        elif disabled(candidate):
            outcomes[number] = _outcome(candidate, "disabled")
        else:
            todo.append((number, candidate))
    for number, candidate in sorted(todo, key=lambda each: each[1].source != "built-in"):
        outcomes[number] = await _load(candidate, services)
    return [outcomes[number] for number in sorted(outcomes)]


def _outcome(candidate: Candidate, state: Any, reason: str | None = None) -> Loaded:
    return Loaded(name=candidate.name, source=candidate.source, where=candidate.where, state=state, reason=reason)


async def _load(candidate: Candidate, services: Services) -> Loaded:
    api = ExtensionAPI(candidate.name, services)
    try:
        function = await call_within(LOAD_BUDGET_S, candidate.load)
        await call_within(LOAD_BUDGET_S, function, api)
    except Exception as error:  # noqa: BLE001 - boundary: an extension's code
        for part in (services.registry, services.hooks, services.bus):
            part.withdraw(candidate.name)
        reason = f"{type(error).__name__}: {error}"
        services.report(candidate.name, f"cannot be loaded from {candidate.where} ({reason}); the rest works")
        return _outcome(candidate, "failed", reason)
    finally:
        api.close()
    return _outcome(candidate, "loaded")


# ---- finding --------------------------------------------------------------------------------------


def _from_folder(folder: Path, source: Source) -> list[Candidate]:
    """Python files and packages right in `folder`, by name."""
    try:
        names = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "_")))
    except OSError:
        return []
    return [
        _from_path(path, source)
        for path in names
        if path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").is_file())
    ]


def _from_path(path: Path, source: Source) -> Candidate:
    name = path.stem if path.suffix == ".py" else path.name
    return Candidate(name=name, source=source, where=str(path), load=lambda: _function_of(_import_path(path)))


def _builtin(module: str) -> Candidate:
    name = module.rpartition(".")[2].replace("_", "-")
    return Candidate(
        name=name, source="built-in", where=module, load=lambda: _function_of(importlib.import_module(module))
    )


def _installed() -> list[Candidate]:
    """Extensions of installed distributions. Reading all metadata takes longer than the rest of a start, so that
    is done only when some distribution's entry points mention the group."""
    if not any(_mentions_group(Path(entry)) for entry in sys.path if entry):
        return []
    from importlib.metadata import entry_points

    found = []
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        where = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
        found.append(Candidate(name=point.name, source="installed", where=where, load=partial(_from_point, point)))
    return found


def _from_point(point: "EntryPoint") -> Callable[[ExtensionAPI], Any]:
    """What an entry point names: the function, or the module that has it."""
    loaded = point.load()
    if isinstance(loaded, ModuleType):
        return _function_of(loaded)
    if not callable(loaded):
        raise TypeError(f"{point.value} is {type(loaded).__name__}, not a function `extension(api)`")
    function: Callable[[ExtensionAPI], Any] = loaded
    return function


def _mentions_group(folder: Path) -> bool:
    try:
        with os.scandir(folder) as rows:
            names = [row.path for row in rows if row.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return False
    for name in names:
        try:
            if ENTRY_POINTS.encode() in Path(name, "entry_points.txt").read_bytes():
                return True
        except OSError:
            continue
    return False


def _import_path(path: Path) -> ModuleType:
    """The module at `path` (a file, or a folder with `__init__.py`), read anew each time."""
    file = path / "__init__.py" if path.is_dir() else path
    name = f"{PREFIX}{path.stem}_{abs(hash(str(path.resolve()))):x}"
    for known in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
        del sys.modules[known]
    if file.suffix != ".py":
        raise ImportError(f"{file} is no Python file")
    importlib.invalidate_caches()
    if not any(finder is _Inner for finder in sys.meta_path):
        sys.meta_path.insert(0, _Inner)
    spec = importlib.util.spec_from_file_location(
        name,
        file,
        loader=_FromSource(name, str(file)),
        submodule_search_locations=[str(path)] if path.is_dir() else None,
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


class _FromSource(importlib.machinery.SourceFileLoader):
    """Compiles what the file says now. Compiled files next to it would be older than a change within their second,
    and are no good guests in a project."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _Inner:
    """Finds the modules inside of extensions that are packages, so that they too are read from their source."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(PREFIX):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader) and spec.origin:
            spec.loader = _FromSource(fullname, spec.origin)
        return spec


def _function_of(module: ModuleType) -> Callable[[ExtensionAPI], Any]:
    function = getattr(module, "extension", None)
    if not callable(function):
        raise TypeError("it has no function `extension(api)`")
    found: Callable[[ExtensionAPI], Any] = function
    return found
