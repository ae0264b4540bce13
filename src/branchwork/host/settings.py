"""What a person prefers: `settings.toml` in BRANCHWORK_HOME, and that of a trusted project on top.

Edited by hand, so nothing that stands in them stops the program: what is wrong is reported with file and line, and
the rest counts.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from branchwork.errors import UserError
from branchwork.host.problems import Problem
from branchwork.host.settings_file import Key, line_of, parse_key, plain, set_value, show_key
from branchwork.host.settings_schema import (
    CoreSettings,
    Layering,
    Setting,
    merge,
    settings_of,
    strictest,
    struct_names,
)

FILE_NAME = "settings.toml"
PROJECT_FOLDER = ".branchwork"
LATER_TABLES = ("ui",)
"""Read by the front end that they are for; no other one complains of them."""

Table = TypeVar("Table", bound=Struct)
Report = Callable[[Key, str], None]


class Layer(Struct, frozen=True):
    """One settings file as it was read."""

    name: Literal["user", "project"]
    path: Path
    text: str
    raw: dict[str, Any]
    user_home: Path

    def problem(self, key: Key, detail: str) -> Problem:
        return Problem(self.path, f"`{show_key(key)}`: {detail}", line_of(self.text, key))


class Declared(Struct, Generic[Table], frozen=True):
    """A table of an extension, and what is wrong with it in the files."""

    value: Table
    problems: tuple[Problem, ...]


class Explained(Struct, frozen=True):
    """Where a value comes from."""

    key: str
    value: Any
    layer: Literal["default", "user", "project"]
    path: Path | None = None
    line: int | None = None


class Settings(CoreSettings, frozen=True, kw_only=True):
    layers: tuple[Layer, ...] = ()
    """The files that exist, the user's first."""
    problems: tuple[Problem, ...] = field(default=())
    """With the tables of this program; see `table` and `unclaimed` for those of extensions."""

    def table(self, name: str, kind: type[Table]) -> Declared[Table]:
        """The table `[name]` of an extension. All fields of `kind` have defaults; see settings_schema for marks.

        Raises `TypeError` for a field without a default, and `ValueError` for a name that is taken.
        """
        if name in settings_of(CoreSettings):
            raise ValueError(f"the settings table {name!r} is one of Branchwork's own")
        settings_of(kind)
        problems: list[Problem] = []
        trees = []
        for layer in self.layers:
            report = _reporter(layer, problems)
            raw = layer.raw.get(name, {})
            if isinstance(raw, dict):
                trees.append((layer, _decode(raw, kind, (name,), layer, report)))
        return Declared(_settled(trees, kind, (name,), problems), tuple(problems))

    def unclaimed(self, names: Iterable[str]) -> tuple[Problem, ...]:
        """A problem for each top-level table that is neither ours nor in `names`, those that extensions read."""
        known = (*settings_of(CoreSettings), *LATER_TABLES, *names)
        return tuple(
            layer.problem((name,), _unknown(name, known))
            for layer in self.layers
            for name, value in layer.raw.items()
            if isinstance(value, dict) and name not in known
        )

    def explain(self, key: str, tables: Mapping[str, type[Struct]] | None = None) -> Explained:
        """The value of `key` and the file and line that decided it. `tables`: those of extensions, by name.

        Raises `UserError` for a key that does not exist.
        """
        parts = parse_key(key)
        kind = (tables or {}).get(parts[0])
        kinds: Mapping[str, type[Struct]] = tables or {}
        root = self.table(parts[0], kind).value if kind else self
        value = _value_at(root, parts[1:] if kind else parts, parts, kinds)
        if isinstance(value, Struct | dict):
            raise UserError(f"`{key}` is a table; name one of its keys", exit_code=2)
        listed: Explained | None = None
        for layer in reversed(self.layers):
            raw = layer.raw.get(parts[0], {}) if kind else layer.raw
            tree = _decode(
                raw if isinstance(raw, dict) else {}, kind or CoreSettings, parts[: bool(kind)], layer, _ignore
            )
            own = _tree_at(tree, parts[1:] if kind else parts)
            source = Explained(key, value, layer.name, layer.path, line_of(layer.text, parts))
            if own is not _MISSING and own == value:
                return source
            if own is not _MISSING and isinstance(value, tuple):
                listed = listed or source
        return listed or Explained(key, value, "default")


_MISSING: Any = msgspec.UNSET


def load_settings(home: Path, project: Path | None = None, *, user_home: Path | None = None) -> Settings:
    """The settings of the person and, when given, of the trusted folder `project`. Never raises for what they say.

    `user_home` is what `~` stands for in paths, by default the parent of `home`.
    """
    problems: list[Problem] = []
    places: list[tuple[Literal["user", "project"], Path]] = [("user", home / FILE_NAME)]
    if project is not None and not _same(project / PROJECT_FOLDER, home):
        places.append(("project", project / PROJECT_FOLDER / FILE_NAME))
    layers = [layer for name, path in places if (layer := _read(name, path, user_home or home.parent, problems))]
    if not layers:
        return Settings(problems=tuple(problems)) if problems else Settings()
    trees = []
    for layer in layers:
        known = settings_of(CoreSettings)
        raw = {key: value for key, value in layer.raw.items() if key in known or not isinstance(value, dict)}
        trees.append((layer, _decode(raw, CoreSettings, (), layer, _reporter(layer, problems))))
    core = _settled(trees, CoreSettings, (), problems)
    fields = {name: getattr(core, name) for name in core.__struct_fields__}
    return Settings(**fields, layers=tuple(layers), problems=tuple(problems))


def change_setting(path: Path, key: str, value: Any) -> None:
    """`set_value`, after a check of what belongs to this program. Raises `UserError` for what would be reported."""
    parts = parse_key(key)
    found: list[str] = []
    table = plain(value)
    if value is not None:
        for part in reversed(parts):
            table = {part: table}
        layer = Layer("user", path, "", {}, path.parent)
        known = settings_of(CoreSettings)
        if len(parts) == 1 or parts[0] in known:
            _decode(table, CoreSettings, (), layer, lambda at, detail: found.append(f"`{show_key(at)}`: {detail}"))
    if found:
        raise UserError(f"{found[0]}; nothing was changed", exit_code=2)
    set_value(path, key, value)


def _same(left: Path, right: Path) -> bool:
    try:
        return left.samefile(right)
    except OSError:
        return False


def _read(name: Literal["user", "project"], path: Path, user_home: Path, problems: list[Problem]) -> Layer | None:
    try:
        if not path.is_file():
            return None
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problems.append(Problem(path, f"cannot be read ({error.strerror}); nothing in it is used"))
        return None
    except UnicodeDecodeError:
        problems.append(Problem(path, "not UTF-8; nothing in it is used until it is saved as UTF-8"))
        return None
    import tomllib

    try:
        return Layer(name, path, text, tomllib.loads(text), user_home)
    except RecursionError:
        problems.append(Problem(path, "nested too deeply; nothing in it is used"))
    except tomllib.TOMLDecodeError as error:
        import re

        line = re.search(r"at line (\d+)", str(error))
        detail = f"not TOML ({error}); nothing in it is used until it is corrected"
        problems.append(Problem(path, detail, int(line[1]) if line else text.count("\n") + 1))
    return None


def _reporter(layer: Layer, problems: list[Problem]) -> Report:
    return lambda key, detail: problems.append(layer.problem(key, detail))


def _ignore(key: Key, detail: str) -> None:
    """For a second reading, whose problems are known."""


def _decode(raw: Mapping[str, Any], kind: type[Struct], at: Key, layer: Layer, report: Report) -> dict[str, Any]:
    """The good values of a table, tables inside as dicts; the others are reported."""
    known = settings_of(kind)
    tree: dict[str, Any] = {}
    for key, value in raw.items():
        setting = known.get(key)
        if setting is None:
            report((*at, key), _unknown(key, known))
        elif not setting.table and not setting.tables:
            tree |= _decode_value(key, value, setting, (*at, key), layer, report)
        elif not isinstance(value, dict):
            report((*at, key), f"it should be a table [{show_key((*at, key))}]; it is ignored")
        elif setting.table:
            tree[key] = _decode(value, setting.table, (*at, key), layer, report)
        elif setting.tables:
            tree[key] = {}
            for name, row in value.items():
                if isinstance(row, dict):
                    tree[key][name] = _decode(row, setting.tables, (*at, key, name), layer, report)
                else:
                    report((*at, key, name), "it should be a table; it is ignored")
    return tree


def _decode_value(key: str, value: Any, setting: Setting, at: Key, layer: Layer, report: Report) -> dict[str, Any]:
    """`{key: value}`, or nothing when the value does not fit and the default is to hold."""
    try:
        good = setting.check(value)
    except ValueError as error:
        if not setting.layering.narrows:
            report(at, f"{error}; it is ignored")
            return {}
        kept = strictest(setting, value)
        report(at, f"{error}; until it is corrected it counts as {_show(kept)}")
        return {key: kept}
    if setting.layering is Layering.COMBINE:
        if any("\0" in text for text in good):
            report(at, "a path holds no null character; it is ignored")
            return {}
        return {key: tuple(_absolute(text, layer) for text in good)}
    if setting.layering is Layering.USER_ONLY and layer.name == "project":
        report(at, "only the user's own settings can say this; it is ignored")
        return {}
    return {key: good}


def _absolute(text: str, layer: Layer) -> str:
    if text == "~" or text.startswith("~/"):
        return str(layer.user_home / text[2:])
    return str(layer.path.parent / text)


def _unknown(key: str, known: Iterable[str]) -> str:
    import difflib

    names = tuple(known)
    near = difflib.get_close_matches(key, names, n=1)
    if near:
        return f"unknown, so it is ignored; did you mean `{near[0]}`?"
    inside = [
        f"{name}.{key}"
        for name, setting in settings_of(CoreSettings).items()
        if setting.table and key in settings_of(setting.table)
    ]
    if inside:
        return f"unknown here, so it is ignored; did you mean `{inside[0]}`?"
    return f"unknown, so it is ignored; there are {', '.join(names)}"


def _settled(trees: list[tuple[Layer, dict[str, Any]]], kind: type[Table], at: Key, problems: list[Problem]) -> Table:
    """The layers on top of each other. Values that a table's own check refuses give way: the project's first."""
    user: dict[str, Any] = {}
    for layer, tree in trees:
        attempt = tree if layer.name == "user" else _onto(user, tree, kind, at, _reporter(layer, problems))
        try:
            _build(attempt, kind)
        except (ValueError, TypeError) as error:
            problems.append(layer.problem(at, f"{error}; what stands here is not used, except where it only limits"))
            attempt = _limits(tree, kind) if layer.name == "user" else user
        user = attempt
    try:
        return _build(user, kind)
    except (ValueError, TypeError):
        return kind()


def _limits(tree: dict[str, Any], kind: type[Struct]) -> dict[str, Any]:
    """The keys that say what may happen."""
    kept: dict[str, Any] = {}
    for key, value in tree.items():
        setting = settings_of(kind)[key]
        if setting.table:
            kept[key] = _limits(value, setting.table)
        elif not setting.tables and setting.layering.narrows:
            kept[key] = value
    return kept


def _onto(user: dict[str, Any], project: dict[str, Any], kind: type[Struct], at: Key, report: Report) -> dict[str, Any]:
    merged = dict(user)
    for key, value in project.items():
        setting = settings_of(kind)[key]
        here = (*at, key)
        if setting.table:
            merged[key] = _onto(user.get(key, {}), value, setting.table, here, report)
        elif setting.tables:
            rows = user.get(key, {})
            inner = {
                name: _onto(rows.get(name, {}), row, setting.tables, (*here, name), report)
                for name, row in value.items()
            }
            merged[key] = {**rows, **inner}
        else:
            mine = user.get(key, setting.default)
            merged[key] = merge(setting.layering, setting.type, mine, value)
            if setting.layering.narrows and _refused(setting.layering, value, merged[key]):
                report(here, f"a project {setting.layering.value}, so it is {_show(merged[key])}")
    return merged


def _refused(layering: Layering, wanted: Any, got: Any) -> bool:
    """Whether the project asked for more than it gets."""
    if layering is Layering.UNION:
        return False
    return bool(set(wanted or ()) - set(got or ())) if layering is Layering.INTERSECT else wanted != got


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_show(each) for each in value) + "]"
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def _build(tree: dict[str, Any], kind: type[Table]) -> Table:
    """The struct with these values. Raises `ValueError` or `TypeError` when its own check refuses them."""
    names = struct_names(kind)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        setting = settings_of(kind)[key]
        if setting.table:
            values[names[key]] = _build(value, setting.table)
        elif setting.tables:
            values[names[key]] = {name: _build(row, setting.tables) for name, row in value.items()}
        else:
            values[names[key]] = value
    return kind(**values)


def _value_at(root: Any, parts: tuple[str, ...], whole: tuple[str, ...], tables: Mapping[str, type[Struct]]) -> Any:
    value = root
    for part in parts:
        if isinstance(value, Struct):
            kind = CoreSettings if isinstance(value, CoreSettings) else type(value)
            names = struct_names(kind)
            if part not in names:
                raise UserError(f"`{show_key(whole)}`: {_unknown(part, (*names, *tables))}", exit_code=2)
            value = getattr(value, names[part])
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            raise UserError(f"there is no setting `{show_key(whole)}`", exit_code=2)
    return value


def _tree_at(tree: Any, parts: tuple[str, ...]) -> Any:
    for part in parts:
        if not isinstance(tree, dict) or part not in tree:
            return _MISSING
        tree = tree[part]
    return tree
