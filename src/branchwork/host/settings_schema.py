"""What may stand in `settings.toml`: a struct for each table, and how a project's values meet the user's.

A field is marked with `Annotated[type, Layering.X]`. All fields have defaults. A bare `int` or `float` means a
finite number of 0 or more; a field that wants another range says so with `msgspec.Meta`.
"""

import math
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from branchwork.agent.compaction import CompactionPolicy
from branchwork.agent.queue import QueueMode
from branchwork.agent.request import RetryPolicy
from branchwork.session.entries import ThinkingLevel


class Layering(Enum):
    """What a project's value does to the user's. Those that only narrow hold for what is safety-relevant."""

    REPLACE = "wins"
    COMBINE = "is added"
    """A list of paths; relative ones start at the folder of their settings file, `~` at the person's home."""
    INTERSECT = "can only take away from what is allowed"
    """A list of what is allowed, where None allows all."""
    UNION = "can only add to what is refused"
    """A list of what is refused."""
    TRUE_WINS = "can only switch on"
    FALSE_WINS = "can only switch off"
    SMALLEST = "can only lower"
    """A limit."""
    FIRST_WINS = "can only make stricter"
    """A `Literal` that lists the strictest value first."""
    USER_ONLY = "does not count"

    @property
    def narrows(self) -> bool:
        return self not in (Layering.REPLACE, Layering.COMBINE)


Paths: TypeAlias = Annotated[tuple[str, ...], Layering.COMBINE]


class ShellSettings(Struct, frozen=True, kw_only=True):
    path: str | None = None
    """The shell that runs `bash` commands; by default `bash`, else `sh`."""
    prefix: str | None = None
    """Put before every command, such as `source ~/.profile;`."""


class ToolSettings(Struct, frozen=True, kw_only=True):
    allow: Annotated[tuple[str, ...] | None, Layering.INTERSECT] = None
    """Only these tools; None: all."""
    exclude: Annotated[tuple[str, ...], Layering.UNION] = ()
    """All but these."""


class ExtensionSettings(Struct, frozen=True, kw_only=True):
    disabled: Annotated[tuple[str, ...], Layering.UNION] = ()
    """Names of extensions, built-in ones included."""
    paths: Paths = ()
    """Files or packages to load besides those that are found."""


class SkillSettings(Struct, frozen=True, kw_only=True):
    paths: Paths = ()
    """Skills, or folders of skills, besides the usual places."""


class PromptSettings(Struct, frozen=True, kw_only=True):
    paths: Paths = ()
    """Prompt templates, or folders of them, besides the usual places."""


class QueueSettings(Struct, frozen=True, kw_only=True):
    """How many of the waiting messages go into one request."""

    steering: QueueMode = "one-at-a-time"
    follow_up: QueueMode = "one-at-a-time"


class CoreSettings(Struct, frozen=True, kw_only=True):
    thinking: ThinkingLevel = "medium"
    """For new sessions, as far as the model can; which model is a matter of models.toml."""
    repeat_stop: int = 12
    """A run ends when one tool call is made this often in a row; 0 switches the guard off."""
    retry: RetryPolicy = RetryPolicy()
    compaction: CompactionPolicy = CompactionPolicy()
    shell: ShellSettings = ShellSettings()
    tools: ToolSettings = ToolSettings()
    extensions: ExtensionSettings = ExtensionSettings()
    skills: SkillSettings = SkillSettings()
    prompts: PromptSettings = PromptSettings()
    queue: QueueSettings = QueueSettings()


class Setting(Struct, frozen=True):
    """One field of a table."""

    type: Any
    layering: Layering
    default: Any
    table: type[Struct] | None = None
    """The value is such a table."""
    tables: type[Struct] | None = None
    """The value is a table of such tables, under names that are free."""

    def check(self, value: Any) -> Any:
        """`value` as the field's type. Raises `ValueError` with what it should be."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and not math.isfinite(value):
            raise ValueError("it is not a finite number")
        if number and value < 0 and {int, float}.intersection(_marked_members(self.type)):
            raise ValueError("it is below 0")
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            raise ValueError(self._hint(value) or str(error).split(" - at ")[0]) from None

    def _hint(self, value: Any) -> str:
        kinds = _members(self.type)
        words = _words(self.type)
        if not words:
            wanted = [text for kind, text in _WANTED.items() if kind in kinds]
            fits = type(value) in kinds
            return f"it should be {wanted[0]}" if wanted and not fits else ""
        import difflib

        near = difflib.get_close_matches(value, words, n=1) if isinstance(value, str) else []
        listed = ", ".join(f'"{word}"' for word in words)
        return f'did you mean "{near[0]}"? It is one of {listed}' if near else f"it should be one of {listed}"


_WANTED = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string in quotes",
    tuple[str, ...]: 'a list of strings, such as ["a", "b"]',
}


@cache
def settings_of(kind: type[Struct]) -> Mapping[str, Setting]:
    """The fields of a table. Raises `TypeError` when one has no default: a table may be missing."""
    found = {}
    for each in msgspec.structs.fields(kind):
        if each.required:
            raise TypeError(f"{kind.__name__}.{each.name} needs a default, since a file may leave it out")
        factory = each.default_factory
        default = each.default if factory is msgspec.NODEFAULT else factory()
        marks = [mark for mark in _marks(each.type) if isinstance(mark, Layering)]
        bare = _bare(each.type)
        found[each.encode_name] = Setting(
            type=each.type,
            layering=marks[0] if marks else Layering.REPLACE,
            default=default,
            table=bare if _is_table(bare) else None,
            tables=_tables(bare),
        )
    return types.MappingProxyType(found)


def _tables(kind: Any) -> type[Struct] | None:
    inner = get_args(kind)[1:] if get_origin(kind) is dict else ()
    return inner[0] if inner and _is_table(inner[0]) else None


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _marks(kind: Any) -> tuple[Any, ...]:
    return get_args(kind)[1:] if get_origin(kind) is Annotated else ()


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of a union, without marks."""
    return tuple(_bare(each) for each in _marked_members(kind))


def _marked_members(kind: Any) -> tuple[Any, ...]:
    """The members of a union. A `Meta` stays, since it says which numbers fit; other marks go."""
    if get_origin(kind) is Annotated and not any(isinstance(mark, Meta) for mark in _marks(kind)):
        return _marked_members(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(member for each in get_args(kind) for member in _marked_members(each))
    return (kind,)


def _words(kind: Any) -> tuple[str, ...]:
    """What a `Literal` in `kind` lists, in its order."""
    return next((get_args(each) for each in _members(kind) if get_origin(each) is Literal), ())


def struct_names(kind: type[Struct]) -> dict[str, str]:
    """Name in the file → attribute."""
    return {each.encode_name: each.name for each in msgspec.structs.fields(kind)}


def merge(layering: Layering, kind: Any, user: Any, project: Any) -> Any:
    """What holds when both say something; `user` is the default when the user says nothing.

    For every layering but REPLACE and COMBINE the result allows nothing that `user` does not.
    """
    match layering:
        case Layering.REPLACE:
            return project
        case Layering.COMBINE | Layering.UNION:
            return tuple(dict.fromkeys((*user, *project)))
        case Layering.INTERSECT:
            if user is None or project is None:
                return project if user is None else user
            return tuple(each for each in user if each in project)
        case Layering.TRUE_WINS:
            return user or project
        case Layering.FALSE_WINS:
            return user and project
        case Layering.SMALLEST:
            return min(user, project)
        case Layering.FIRST_WINS:
            return min(user, project, key=_words(kind).index)
        case Layering.USER_ONLY:
            return user


def strictest(setting: Setting, value: Any) -> Any:
    """What stands for a value that makes no sense: as little as possible is allowed until it is corrected."""
    match setting.layering:
        case Layering.INTERSECT | Layering.UNION:
            rows = value if isinstance(value, list) else [value]
            return tuple(row for row in rows if isinstance(row, str))
        case Layering.TRUE_WINS:
            return True
        case Layering.FALSE_WINS:
            return False
        case Layering.FIRST_WINS:
            return _words(setting.type)[0]
        case Layering.REPLACE | Layering.COMBINE | Layering.SMALLEST | Layering.USER_ONLY:
            return setting.default
