"""Finds extensions, runs their functions, and takes back what a broken one had registered."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from branchwork.host.budget import call_within
from branchwork.host.extension import ExtensionAPI, Services

ENTRY_POINTS = "branchwork.extensions"
"""The entry point group of installed distributions."""
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


class Loaded(Struct, frozen=True, kw_only=True):
    """What came of a candidate."""

    name: str
    source: Source
    where: str
    state: Literal["loaded", "disabled", "failed", "shadowed"]
    reason: str | None = None


class Search(Struct, frozen=True, kw_only=True):
    """Where to look."""

    home: Path
    project: Path | None
    """The folder of a trusted project; None loads nothing from a project."""
    settings_paths: tuple[Path, ...] = ()
    given: tuple[Path, ...] = ()
    """From `-e`."""
    installed: bool = True


def candidates(search: Search, builtin: Iterable[str]) -> list[Candidate]:
    """All that are there: given ones first, then the project's, the person's, installed ones, built-in ones."""
    found = [_from_path(path, "given") for path in search.given]
    if search.project is not None:
        found += _from_folder(search.project / ".branchwork" / "extensions", "project")
    found += [_from_path(path, "settings") for path in search.settings_paths]
    found += _from_folder(search.home / "extensions", "user")
    if search.installed:
        found += _installed()
    found += [_builtin(module) for module in builtin]
    return found


async def load_all(
    found: Iterable[Candidate], services: Services, *, disabled: Callable[[Candidate], bool]
) -> list[Loaded]:
    """Load in the order given; of two with one name the first wins. Nothing that an extension does stops the rest."""
    done: list[Loaded] = []
    taken: dict[str, Candidate] = {}
    for candidate in found:
        winner = taken.setdefault(candidate.name, candidate)
        if winner is not candidate:
            reason = f"{winner.source} extension of that name: {winner.where}"
            done.append(_outcome(candidate, "shadowed", reason))
            services.report(candidate.name, f"{candidate.where} is not loaded; it gives way to the {reason}")
        elif disabled(candidate):
            done.append(_outcome(candidate, "disabled"))
        else:
            done.append(await _load(candidate, services))
    return done


def _outcome(candidate: Candidate, state: Any, reason: str | None = None) -> Loaded:
    return Loaded(name=candidate.name, source=candidate.source, where=candidate.where, state=state, reason=reason)


async def _load(candidate: Candidate, services: Services) -> Loaded:
    api = ExtensionAPI(candidate.name, services)
    try:
        function = await call_within(LOAD_BUDGET_S, candidate.load)
        await call_within(LOAD_BUDGET_S, function, api)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - boundary: an extension's code
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
    return Candidate(name=path.stem, source=source, where=str(path), load=lambda: _function_of(_import_path(path)))


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
        found.append(Candidate(name=point.name, source="installed", where=where, load=point.load))
    return found


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
    name = f"branchwork_extension_{path.stem}_{abs(hash(str(path.resolve()))):x}"
    for known in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
        del sys.modules[known]
    spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(path)] if path.is_dir() else None
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _function_of(module: ModuleType) -> Callable[[ExtensionAPI], Any]:
    function = getattr(module, "extension", None)
    if not callable(function):
        raise TypeError("it has no function `extension(api)`")
    found: Callable[[ExtensionAPI], Any] = function
    return found
