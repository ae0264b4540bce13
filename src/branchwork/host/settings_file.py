"""TOML files that people edit: where a key stands, and changing one key without touching the rest."""

import re
from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from branchwork.errors import UserError
from branchwork.host.shared_files import locked, replace_file

Key: TypeAlias = tuple[str | int, ...]
"""Table and key names from the top level down; a number counts the tables of an array from 0."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY_PART = re.compile(r"""[ \t]*("(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*(\.?)""")
_SCALAR = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|[^,\]}#\n]+",
    re.DOTALL,
)


def parse_key(text: str) -> tuple[str, ...]:
    """`compaction.models."a/b"` → its parts. Raises `UserError` when it is not a TOML key."""
    parts, end = _key(text, 0)
    if not parts or end != len(text):
        raise UserError(f'{text!r} is not a settings key; write it like retry.max_retries or a."b/c".d', exit_code=2)
    return parts


def show_key(key: Key) -> str:
    """A key as it is written in a file; numbers of array tables as `[0]`."""
    shown = ""
    for part in key:
        if isinstance(part, int):
            shown += f"[{part}]"
            continue
        bare = re.fullmatch(r"[A-Za-z0-9_-]+", part) is not None
        quoted = part if bare else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
        shown += f".{quoted}" if shown else quoted
    return shown


def line_of(text: str, key: Key) -> int | None:
    """The line (from 1) of `key` in valid TOML, or else of the innermost table around it; None at the top level."""
    lines = key_lines(text)
    while key:
        if key in lines:
            return lines[key]
        key = key[:-1]
    return None


@lru_cache(maxsize=4)
def key_lines(text: str) -> Mapping[Key, int]:
    """The line (from 1) where each key and table of a valid TOML document first stands. Wrong TOML gives some."""
    scanner = _Scanner(text)
    try:
        scanner.document()
    except RecursionError:
        pass
    return scanner.lines


class _Scanner:
    """Walks over the text; knows just enough of TOML to tell keys from values."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Key, int] = {}
        self._text = text
        self._at = 0
        self._breaks = [found.start() for found in re.finditer("\n", text)]
        self._tables: dict[Key, int] = {}
        """How many tables each array has so far."""

    def document(self) -> None:
        base: Key = ()
        while self._skip():
            before = self._at
            if self._take("[["):
                base = self._header("]]", array=True)
            elif self._take("["):
                base = self._header("]", array=False)
            else:
                self._pair(base)
            if self._at == before:
                return

    def _header(self, close: str, *, array: bool) -> Key:
        line = self._line()
        parts, self._at = _key(self._text, self._at)
        self._take(close)
        key: Key = ()
        for number, part in enumerate(parts):
            key = (*key, part)
            if array and number == len(parts) - 1:
                self._tables[key] = self._tables.get(key, 0) + 1
            self.lines.setdefault(key, line)
            if key in self._tables:
                key = (*key, self._tables[key] - 1)
                self.lines.setdefault(key, line)
        return key

    def _pair(self, base: Key) -> None:
        line = self._line()
        parts, self._at = _key(self._text, self._at)
        key = base
        for part in parts:
            key = (*key, part)
            self.lines.setdefault(key, line)
        if parts and self._take("="):
            self._value(key)

    def _value(self, key: Key) -> None:
        self._skip()
        if self._take("["):
            self._items(key)
        elif self._take("{"):
            while self._skip() and not self._take("}"):
                before = self._at
                self._pair(key)
                self._skip()
                self._take(",")
                if self._at == before:
                    return
        elif found := _SCALAR.match(self._text, self._at):
            self._at = found.end()

    def _items(self, key: Key) -> None:
        number = 0
        while self._skip() and not self._take("]"):
            before = self._at
            self.lines.setdefault((*key, number), self._line())
            self._value((*key, number))
            number += 1
            self._skip()
            self._take(",")
            if self._at == before:
                return

    def _skip(self) -> bool:
        """Over space, line breaks and comments; whether anything is left."""
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(self._text)

    def _take(self, word: str) -> bool:
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _line(self) -> int:
        return bisect_left(self._breaks, self._at) + 1


def _key(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """The parts of a dotted key at `at`, and where it ends."""
    parts: list[str] = []
    while found := _KEY_PART.match(text, at):
        at = found.end()
        parts.append(_plain(found[1]))
        if not found[2]:
            return tuple(parts), at
    return (), at


def _plain(part: str) -> str:
    if part[0] not in "\"'":
        return part
    import tomllib

    try:
        return str(tomllib.loads(f"key = {part}")["key"])
    except tomllib.TOMLDecodeError:
        return part[1:-1]


def set_value(path: Path, key: str, value: Any) -> None:
    """Give `key` (dotted, as in TOML) this value; None takes the key out. Everything else stays as it is written.

    `value` is what TOML has, or tuples and structs of it. Makes the file when it is missing; keeps its mode and
    follows links. Other writers wait, and what they wrote is kept. Raises `UserError` for a key that is none, a file
    that is not TOML (it is left alone), or one that cannot be written.
    """
    parts = parse_key(key)
    value = plain(value)
    with locked(path) as target:
        try:
            text = target.read_bytes().decode()
        except FileNotFoundError:
            text = ""
        except UnicodeDecodeError:
            raise UserError(f"{path}: not UTF-8; save it as UTF-8 first. The file was left as it is") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); nothing was changed") from None
        changed = edited(text, parts, value, path)
        if changed != text:
            replace_file(target, changed.encode())


def plain(value: Any) -> Any:
    """`value` as TOML has it: structs as dicts, tuples as lists."""
    value = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def edited(text: str, parts: tuple[str, ...], value: Any, path: Path) -> str:
    """`text` with that one key changed. `path` is for messages. Raises `UserError`."""
    import tomllib

    try:
        wanted = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not TOML ({error}); correct it first. The file was left as it is") from None
    if not _assign(wanted, parts, value, path):
        return text
    changed = _edit(text, parts, value)
    if tomllib.loads(changed) != wanted:
        raise UserError(
            f"{path}: `{show_key(parts)}` cannot be changed without disturbing the rest; edit the file by hand"
        )
    return changed


def _assign(table: dict[str, Any], parts: tuple[str, ...], value: Any, path: Path) -> bool:
    """Do it to plain data. False: nothing to do."""
    for number, part in enumerate(parts[:-1], 1):
        if part not in table and value is None:
            return False
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UserError(f"{path}: `{show_key(parts[:number])}` is a value, so nothing can be set in it")
        table = inner
    if value is None:
        return table.pop(parts[-1], None) is not None
    table[parts[-1]] = value
    return True


def _edit(text: str, parts: tuple[str, ...], value: Any) -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document: Any = tomlkit.parse(text)
        table = document
        for part in parts[:-1]:
            if part not in table:
                table[part] = tomlkit.table(is_super_table=part != parts[-2])
            table = table[part]
        if value is None:
            del table[parts[-1]]
        else:
            table[parts[-1]] = value
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, TypeError) as error:
        raise UserError(f"`{show_key(parts)}` cannot be set: {error}") from None
