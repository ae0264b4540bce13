"""What a sandbox must hold back, said once for every backend, and what a backend is."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct


class Layers(Struct, frozen=True, kw_only=True):
    """An overlay over a project: it is read as it is, what is written lands in `upper`."""

    project: Path
    upper: Path
    work: Path
    """An empty directory on the file system of `upper`, for the kernel's own use."""


class SandboxSpec(Struct, frozen=True, kw_only=True):
    """What one command may touch. Everything can be read but what `hide` names; paths are absolute."""

    cwd: Path
    home: Path
    """The person's home directory."""
    scratch: Path
    """The one directory that can always be written, as `make_scratch` returns it. Kept for the session; where the
    backend can, it is `/tmp` too."""
    writable: tuple[Path, ...] = ()
    """Files and directories that can be written beside it; none in a mode that only reads."""
    network: bool = False
    """Whether other machines, and services of this one, can be reached. Unix sockets never can."""
    keep: tuple[Path, ...] = ()
    """What must stay visible although it is below `/tmp`, where the scratch directory takes its place."""
    hide: tuple[Path, ...] = ()
    """What must not be read. Only backends that mount can do this; see `Backend.hides`."""
    rehearse: Layers | None = None
    """Let writes to a project go to an overlay; see `Backend.overlays`."""


class Unusable(Struct, frozen=True):
    """A backend that does not hold here, and why, in a phrase."""

    name: str
    reason: str


class Unsupported(Exception):
    """The backend cannot do what the spec asks for; the text says what and may be shown to a person."""


class Backend(Protocol):
    """A way to confine commands that has been seen to work on this machine."""

    @property
    def name(self) -> str:
        """`bwrap`, `landlock`, `seatbelt` or `none`."""
        ...

    @property
    def detail(self) -> str:
        """What exactly is in force, for people: a path and a version."""
        ...

    @property
    def hides(self) -> bool: ...

    @property
    def overlays(self) -> bool: ...

    def wrap(self, argv: tuple[str, ...], spec: SandboxSpec, env: Mapping[str, str]) -> tuple[str, ...]:
        """The argument list that runs `argv` confined. `env` is the environment it will be started with.

        Standard input, output and error, the exit code and the process group stay those of the command. It has
        to be started in a session of its own, as `run_process` does, and while this process lives. A command
        that a signal ends may be reported with exit code 128 + signal. Raises Unsupported.
        """
        ...


class Unconfined:
    """Runs commands as they are. Chosen only when nothing else works, or by name."""

    name = "none"
    detail = "commands are not confined"
    hides = False
    overlays = False

    def wrap(self, argv: tuple[str, ...], spec: SandboxSpec, env: Mapping[str, str]) -> tuple[str, ...]:
        return argv


SERVICES = (
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DOCKER_HOST",
    "TMUX",
    "STY",
)
"""Variables that lead to services of the user that cannot be reached; without them programs do not try."""

CACHES = {
    "XDG_CACHE_HOME": ".cache",
    "PYTHONPYCACHEPREFIX": ".cache/pycache",
    "MYPY_CACHE_DIR": ".cache/mypy",
    "RUFF_CACHE_DIR": ".cache/ruff",
    "GOCACHE": ".cache/go-build",
    "npm_config_cache": ".cache/npm",
}
"""Where programs keep what they can make again, below the scratch directory; elsewhere they would fail to."""


def changed_environment(spec: SandboxSpec, temporary: Path, env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Variables to set and to take away, for a command whose directory for temporary files is `temporary`."""
    changed = {name: str(temporary) for name in ("TMPDIR", "TMP", "TEMP")}
    # Else a git command that reads tries to refresh the index too.
    changed["GIT_OPTIONAL_LOCKS"] = "0"
    if not spec.writable:
        changed.update({name: str(temporary / where) for name, where in CACHES.items()})
    return changed, [name for name in SERVICES if name in env]


def make_scratch(area: Path) -> Path:
    """The scratch directory in `area`, which is made if need be and must be in no directory that commands can write.

    Resolved here and not again: a link that a command puts in its place later must not be followed.
    """
    area.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = area.resolve() / "scratch"
    scratch.mkdir(exist_ok=True, mode=0o700)
    return scratch


def scratch_of(spec: SandboxSpec) -> Path:
    """The scratch directory. Raises Unsupported when it is gone or another directory is in its place."""
    if not spec.scratch.is_dir():
        raise Unsupported(f"the scratch directory {spec.scratch} is gone")
    if os.path.realpath(spec.scratch) != str(spec.scratch):
        raise Unsupported(f"the scratch directory {spec.scratch} leads elsewhere")
    return spec.scratch


def inside(path: Path, folder: Path) -> bool:
    """Whether `path` is `folder` or below it, by their text."""
    return path == folder or folder in path.parents


def existing(paths: tuple[Path, ...]) -> list[Path]:
    """Those that exist, with symbolic links resolved, each once and outer ones first."""
    found = {Path(os.path.realpath(path)) for path in paths if path.exists()}
    return sorted(found, key=lambda path: len(path.parts))
