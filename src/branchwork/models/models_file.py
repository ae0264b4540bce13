"""Reads `models.toml`: what a person adds to, or changes in, the built-in catalogue.

Each value is checked on its own. A wrong one is reported in one line and left out; the rest stays usable.
Messages never quote a value, since it might be a key.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from branchwork.models.auth import Secret
from branchwork.models.base import Price
from branchwork.session.entries import JSONObject, ThinkingLevel

FILE_NAME = "models.toml"

Positive = Annotated[int, Meta(ge=1)]
Dollars = Annotated[float, Meta(ge=0)]
Api = Annotated[str, Meta(pattern=r"^(openai-chat|anthropic|local|pydantic-ai:[a-z0-9_-]+)$")]
Url = Annotated[str, Meta(pattern=r"^https?://\S+$")]

HINTS = {
    "api": 'one of "openai-chat", "anthropic", "pydantic-ai:PROVIDER"',
    "base_url": 'an address such as "http://127.0.0.1:8000/v1"',
    "key": 'the key as a string, or use key_env = "NAME_OF_A_VARIABLE"',
    "key_env": "the name of an environment variable, or a list of names",
    "headers": 'a table of strings, such as { "X-Title" = "me" }',
    "options": "a table; docs/models.md lists the names",
    "thinking": 'a list of "minimal", "low", "medium", "high", "xhigh", "max"',
    "cost": "a table of US dollars per million tokens: input, output, cache_read, cache_write",
    "images": "true or false",
    "context_window": "a number of tokens above 0",
    "max_tokens": "a number of tokens above 0",
    "id": "the model's name at the server, as a string",
    "name": "a string",
    "default": 'a string "PROVIDER/ID" or "PROVIDER/ID:LEVEL"',
    "providers": "tables [providers.NAME]",
    "models": "tables [[providers.NAME.models]]",
}

OPTION_NAMES = frozenset(
    {
        "cache_key",
        "cache_ttl",
        "call_id_length",
        "extra_body",
        "include_usage",
        "max_tokens_field",
        "parallel_tool_calls",
        "reasoning_effort",
        "strict_tools",
        "system_role",
        "thinking_display",
        "thinking_field",
        "thinking_style",
    }
)
"""What the adapters understand; a test compares it with theirs."""


class Problem(Struct, frozen=True):
    """Something a person should know about the catalogue or its keys, in one line."""

    level: Literal["warning", "error"]
    message: str


class CostTable(Struct, frozen=True):
    input: Dollars = 0.0
    output: Dollars = 0.0
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None

    def price(self) -> Price:
        """Cache figures that are left out count as plain input."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return Price(self.input, self.output, read, write, source=FILE_NAME)


class ModelTable(Struct, frozen=True):
    """One `[[providers.NAME.models]]`; None means that the file does not say."""

    id: str
    name: str | None = None
    api: Api | None = None
    context_window: Positive | None = None
    max_tokens: Positive | None = None
    thinking: tuple[ThinkingLevel, ...] | None = None
    images: bool | None = None
    cost: CostTable | None = None
    options: JSONObject = field(default_factory=dict)


class ProviderTable(Struct, frozen=True):
    """One `[providers.NAME]`; None means that the file does not say."""

    api: Api | None = None
    base_url: Url | None = None
    key: str | None = None
    key_env: str | tuple[str, ...] | None = None
    headers: dict[str, str] | None = None
    options: JSONObject | None = None
    models: tuple[ModelTable, ...] = ()

    @property
    def secret(self) -> Secret | None:
        return Secret(self.key.strip()) if self.key and self.key.strip() else None

    @property
    def variables(self) -> tuple[str, ...] | None:
        return (self.key_env,) if isinstance(self.key_env, str) else self.key_env

    def __repr__(self) -> str:
        """Without the key."""
        return f"ProviderTable(api={self.api!r}, base_url={self.base_url!r}, models={len(self.models)})"


class ModelsFile(Struct, frozen=True):
    default: str | None = None
    providers: dict[str, ProviderTable] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_models_file(home: Path) -> ModelsFile:
    """What `models.toml` in `home` says; empty without a file. Never raises for what is in it."""
    path = home / FILE_NAME
    try:
        text = path.read_bytes().decode()
        readable = bool(path.stat().st_mode & 0o044)
    except FileNotFoundError:
        return ModelsFile()
    except OSError as error:
        return _broken(path, f"cannot be read ({error.strerror}); check its owner and mode")
    except UnicodeDecodeError:
        return _broken(path, "is not UTF-8 text; save it as UTF-8")
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return _broken(path, f"is not valid TOML: {error}; nothing in it is used until that is mended")
    return _Reader(path).read(document, readable)


def _broken(path: Path, what: str) -> ModelsFile:
    return ModelsFile(problems=(Problem("error", f"{path}: {what}"),))


Table = TypeVar("Table", ModelTable, ProviderTable, CostTable)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._problems: list[Problem] = []

    def read(self, document: dict[str, Any], readable: bool) -> ModelsFile:
        default = document.pop("default", None)
        if default is not None and not isinstance(default, str):
            self._wrong("top level", "default", "it is not a string")
            default = None
        tables = document.pop("providers", {})
        if not isinstance(tables, dict):
            self._wrong("top level", "providers", "it is not a table")
            tables = {}
        for key in document:
            self._unknown("top level", key, ("default", "providers"))
        providers = {name: self._provider(name, table) for name, table in tables.items() if self._named(name, table)}
        if readable and any(each.secret for each in providers.values()):
            self._warn("holds a key and others may read it; run `chmod 600` on it, or use key_env")
        return ModelsFile(default=default, providers=providers, problems=tuple(self._problems))

    def _named(self, name: str, table: object) -> bool:
        where = f"[providers.{name}]"
        if not isinstance(table, dict):
            self._wrong(where, "providers", "it is not a table")
            return False
        if not name or "/" in name or any(char.isspace() for char in name):
            self._warn(f"{where}: a provider's name has neither `/` nor white space; rename it", "error")
            return False
        return True

    def _provider(self, name: str, table: dict[str, Any]) -> ProviderTable:
        rows = table.pop("models", [])
        provider = self._table(f"[providers.{name}]", table, ProviderTable)
        if not isinstance(rows, list):
            self._wrong(f"[providers.{name}]", "models", "it is not an array of tables")
            rows = []
        models = tuple(
            model for number, row in enumerate(rows, 1) if (model := self._model(name, number, row)) is not None
        )
        return msgspec.structs.replace(provider, models=models)

    def _model(self, provider: str, number: int, row: object) -> ModelTable | None:
        where = f"[[providers.{provider}.models]] number {number}"
        if not isinstance(row, dict):
            self._wrong(where, "models", "it is not a table")
            return None
        if not isinstance(row.get("id"), str) or not row["id"].strip():
            self._wrong(where, "id", "it is missing or not a string; the model is left out")
            return None
        where = f"{where} ({row['id']})"
        cost = row.pop("cost", None)
        if cost is not None and not isinstance(cost, dict):
            self._wrong(where, "cost", "it is not a table")
            cost = None
        model = self._table(where, row, ModelTable)
        if cost is not None:
            model = msgspec.structs.replace(model, cost=self._table(f"{where} cost", cost, CostTable))
        return model

    def _table(self, where: str, table: dict[str, Any], kind: type[Table]) -> Table:
        """`table` as `kind`, without what is unknown or does not fit."""
        fields = {each.name: each for each in msgspec.structs.fields(kind)}
        good: dict[str, Any] = {}
        for key, value in table.items():
            if key not in fields:
                self._unknown(where, key, tuple(fields))
                continue
            if key == "options" and isinstance(value, dict):
                for name in value.keys() - OPTION_NAMES:
                    self._unknown(f"{where} options", name, tuple(sorted(OPTION_NAMES)))
            try:
                good[key] = msgspec.convert(value, fields[key].type)
            except msgspec.ValidationError as error:
                self._wrong(where, key, _reason(error))
        return kind(**good)

    def _wrong(self, where: str, key: str, reason: str) -> None:
        hint = HINTS.get(key, "a number, 0 or above")
        self._problems.append(Problem("error", f"{self._path}: {where}: `{key}` is ignored: {reason}; write {hint}"))

    def _unknown(self, where: str, key: str, known: tuple[str, ...]) -> None:
        import difflib

        near = difflib.get_close_matches(key, known, n=1)
        advice = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
        self._warn(f"{where}: unknown key `{key}` is ignored; {advice}")

    def _warn(self, message: str, level: Literal["warning", "error"] = "warning") -> None:
        separator = " " if message.startswith("holds") else ": "
        self._problems.append(Problem(level, f"{self._path}{separator}{message}"))


def _reason(error: msgspec.ValidationError) -> str:
    """msgspec's reason without its place or any quoted value: an invalid enum value is part of the text."""
    text = str(error).split(" - at ")[0]
    if text.startswith("Invalid enum value"):
        return "it has a value that is not known"
    if "matching regex" in text:
        return "it does not look like one"
    return text[:1].lower() + text[1:]
