"""Proof that a backend holds: run what it must not allow, and look from outside whether it happened."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from branchwork.policy.sandbox import attempts
from branchwork.policy.sandbox.plan import Backend, SandboxSpec, Unsupported, make_scratch

_SECONDS = 60.0
_TITLES = {
    "scratch": "writing the scratch directory",
    "write": "writing outside of it",
    "attributes": "changing mode and time of a file outside",
    "loopback": "reaching a service of this machine",
    "outside": "reaching another machine",
    "unix": "reaching a Unix socket",
    "signal": "signalling another process",
    "remount": "making the file system writable again",
    "namespace": "making a namespace",
}
_WANTED = "scratch"
"""The one that must work."""


class Check(Struct, frozen=True, kw_only=True):
    """One attempt. `holds` is whether it ended as it must; `saw` is how it ended."""

    name: str
    title: str
    holds: bool
    saw: str


class _Bait(Struct, frozen=True, kw_only=True):
    """What the attempts are made on, all of it made for them."""

    outside: Path
    folders: tuple[Path, ...]
    listener: socket.socket
    unix: socket.socket
    victim: subprocess.Popen[bytes]

    def touched(self) -> dict[str, bool]:
        """The attempts that had an effect, seen from outside."""
        attributes = (self.outside / "attributes").stat()
        return {
            "write": any((folder / ".branchwork-doctor").exists() for folder in (self.outside, *self.folders)),
            "attributes": attributes.st_mtime == 1 or attributes.st_mode & 0o777 == 0o777,
            "loopback": _was_reached(self.listener),
            "unix": _was_reached(self.unix),
            "signal": self.victim.poll() is not None,
        }


def prove(backend: Backend, env: Mapping[str, str], cwd: Path, home: Path) -> list[Check]:
    """Runs the attempts under `backend`; takes about 0.1 s. Whatever they manage to leave in `cwd`, `home` and the
    temporary directory is removed."""
    with tempfile.TemporaryDirectory(prefix="branchwork-doctor-") as name:
        area = Path(name).resolve()
        scratch = make_scratch(area)
        outside = area / "outside"
        outside.mkdir()
        (outside / "attributes").write_text("x")
        (outside / "attributes").chmod(0o600)
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as unix:
            unix.bind(str(outside / "s"))
            unix.listen()
            victim = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
            bait = _Bait(outside=outside, folders=(cwd, home), listener=listener, unix=unix, victim=victim)
            try:
                said = _run(backend, env, SandboxSpec(cwd=cwd, home=home, scratch=scratch, keep=(area,)), bait)
                touched = bait.touched()
            finally:
                victim.kill()
                victim.wait()
                for folder in bait.folders:
                    (folder / ".branchwork-doctor").unlink(missing_ok=True)
        said["scratch"] = "done" if (scratch / ".branchwork-doctor").exists() else said.get("scratch", "not tried")
    return [_check(attempt, said, touched) for attempt in _TITLES]


def _check(name: str, said: dict[str, str], touched: dict[str, bool]) -> Check:
    saw = said.get(name, "not tried")
    if name == _WANTED:
        return Check(name=name, title=_TITLES[name], holds=saw == "done", saw=saw)
    happened = saw == "done" or touched.get(name, False)
    return Check(name=name, title=_TITLES[name], holds=not happened and saw != "not tried", saw=saw)


def _run(backend: Backend, env: Mapping[str, str], spec: SandboxSpec, bait: _Bait) -> dict[str, str]:
    words = (
        str(bait.outside),
        ":".join(map(str, bait.folders)),
        str(spec.scratch),
        str(bait.listener.getsockname()[1]),
        str(bait.outside / "s"),
        str(bait.victim.pid),
        str(Path("/proc/self/ns/mnt").readlink()) if sys.platform == "linux" else "-",
    )
    # Python reads its packages from where they are, also below /tmp.
    try:
        argv = backend.wrap((sys.executable, "-I", "-S", attempts.__file__, *words), _visible(spec), env)
        process = subprocess.Popen(
            argv,
            cwd=spec.cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, Unsupported) as error:
        return {"scratch": str(error)}
    try:
        output, _ = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    lines = output.decode("utf-8", "replace").splitlines()
    said = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return said or {"scratch": lines[-1] if lines else f"exit code {process.returncode}"}


def _visible(spec: SandboxSpec) -> SandboxSpec:
    return SandboxSpec(
        cwd=spec.cwd,
        home=spec.home,
        scratch=spec.scratch,
        keep=(*spec.keep, Path(attempts.__file__), Path(sys.executable)),
    )


def _was_reached(listener: socket.socket) -> bool:
    listener.settimeout(0)
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True
