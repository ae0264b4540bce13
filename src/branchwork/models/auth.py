"""API keys: the file that stores them, and a wrapper that does not let them out by accident."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from branchwork.errors import UserError

FILE_NAME = "auth.json"


class Secret:
    """A key. Text, repr, formatting and pickling never show it; `reveal` does."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(("Secret", self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not serialised")


def clean_key(text: str) -> Secret:
    """The key in what a person or a file gave: surrounding space goes, space inside is refused.

    Raises `UserError`, which does not quote the text.
    """
    key = text.strip()
    if not key:
        raise UserError("the key is empty; nothing was stored")
    if any(char.isspace() or not char.isprintable() for char in key):
        raise UserError("the key contains white space or control characters; give the key alone, on one line")
    return Secret(key)


class AuthFile:
    """`auth.json`: provider name → `{"type": "api_key", "key": …}`.

    Entries of other types and unknown fields are kept as they are. Every change happens under an exclusive
    lock on `auth.json.lock` and replaces the file atomically; the file has mode 0600 from its creation.
    """

    def __init__(self, home: Path) -> None:
        self.path = home / FILE_NAME

    def keys(self) -> dict[str, Secret]:
        """Stored keys by provider; empty without a file. Raises `UserError` when it cannot be understood."""
        return {
            name: Secret(entry["key"].strip())
            for name, entry in self._read().items()
            if entry.get("type") == "api_key" and isinstance(entry.get("key"), str) and entry["key"].strip()
        }

    def set(self, provider: str, key: Secret) -> None:
        with self._locked():
            entries = self._read()
            kept = {k: v for k, v in entries.get(provider, {}).items() if k not in ("type", "key")}
            entries[provider] = {"type": "api_key", "key": key.reveal(), **kept}
            self._write(entries)

    def remove(self, provider: str) -> bool:
        """Whether there was an entry to remove."""
        if not self.path.exists():
            return False
        with self._locked():
            entries = self._read()
            if entries.pop(provider, None) is None:
                return False
            self._write(entries)
        return True

    def exposed(self) -> bool:
        """Whether the file lets anyone but its owner in."""
        try:
            return bool(self.path.stat().st_mode & 0o077)
        except OSError:
            return False

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}); check its owner and mode") from None
        if not data.strip():
            return {}
        try:
            return msgspec.json.decode(data, type=dict[str, dict[str, Any]])
        except msgspec.ValidationError:
            shape = 'it should be {"PROVIDER": {"type": "api_key", "key": …}}'
            raise UserError(f"{self.path}: not a table of providers; {shape}. The file was left as it is") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise UserError(
                f"{self.path}: not valid JSON; repair it, or move it away and store the keys again with "
                "`branchwork auth set PROVIDER`. The file was left as it is"
            ) from None

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        target = Path(os.path.realpath(self.path))
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        data = msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n"
        try:
            temporary.unlink(missing_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            _sync_directory(target.parent)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror}); the old contents are intact") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        import fcntl

        lock = self.path.with_name(f"{FILE_NAME}.lock")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise UserError(f"{lock}: cannot be opened ({error.strerror}); check the folder's owner and mode") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
