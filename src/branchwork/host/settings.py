"""`settings.toml` in BRANCHWORK_HOME: what a person prefers. Edited by hand; a broken file stops nothing."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from branchwork.agent.compaction import CompactionPolicy
from branchwork.agent.request import RetryPolicy
from branchwork.session.entries import ThinkingLevel


class ShellSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str | None = None
    """The shell that runs `bash` commands; by default `bash`, else `sh`."""
    prefix: str | None = None
    """Put before every command, such as `source ~/.profile;`."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    thinking: ThinkingLevel = "medium"
    """For new sessions, as far as the model can; which model is a matter of models.toml."""
    repeat_stop: int = 12
    """A run ends when one tool call is made this often in a row; 0 switches the guard off."""
    retry: RetryPolicy = RetryPolicy()
    compaction: CompactionPolicy = CompactionPolicy()
    shell: ShellSettings = ShellSettings()


def load_settings(home: Path) -> tuple[Settings, tuple[str, ...]]:
    """The settings and what is wrong with the file, a line each. Bad values are left out, good ones count."""
    path = home / "settings.toml"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Settings(), ()
    except OSError as error:
        return Settings(), (f"{path}: cannot be read ({error.strerror}); using the defaults",)
    import tomllib

    try:
        table = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return Settings(), (f"{path}: not TOML ({error}); using the defaults until it is corrected",)
    return _lenient(path, table)


def _lenient(path: Path, table: dict[str, Any]) -> tuple[Settings, tuple[str, ...]]:
    try:
        return msgspec.convert(table, Settings), ()
    except msgspec.ValidationError:
        pass
    good: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in table.items():
        try:
            msgspec.convert({key: value}, Settings)
        except msgspec.ValidationError as error:
            problems.append(f"{path}: {key}: {error}; using the default")
        else:
            good[key] = value
    return msgspec.convert(good, Settings), tuple(problems)
