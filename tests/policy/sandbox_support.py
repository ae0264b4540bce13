"""Running the sandbox as this user and, when that is root, as one without privileges."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import branchwork
from branchwork.errors import UserError
from branchwork.policy.sandbox.plan import Backend, SandboxSpec, make_scratch
from branchwork.policy.sandbox.probe import Sandboxes
from branchwork.tools.process import Launch, ProcessRun, run_process

ESCAPES = Path(__file__).parent / "escapes"
NOBODY = 65534
LINUX = sys.platform == "linux"
BACKENDS = ("bwrap", "landlock")
"""Those of Linux, each of which must hold by itself."""


@functools.cache
def users() -> tuple[str, ...]:
    if not LINUX or os.geteuid() != 0:
        return ("user",)
    return ("root", "user") if _unprivileged_python() else ("root",)


@functools.cache
def _unprivileged_python() -> str | None:
    """An interpreter that an unprivileged user can start, with the packages that the driver needs."""
    if shutil.which("setpriv") is None:
        return None
    for python in (sys.executable, "/usr/bin/python3"):
        tried = subprocess.run(
            [*_as_nobody(), python, "-c", "import branchwork.policy.sandbox.probe"],
            env=_environment(),
            cwd="/",
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            return python
    return None


def _as_nobody() -> list[str]:
    """The second start, by the shell, is the first that the user must be allowed to make."""
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*drop, "sh", "-c", 'exec "$@"', "sh"]


def _environment() -> dict[str, str]:
    packages = [Path(branchwork.__file__).parents[1], Path(msgspec.__file__).parents[1]]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, packages)), "PYTHONDONTWRITEBYTECODE": "1"}


def attacks() -> dict[str, tuple[str, str]]:
    """Name to kind and command, from `escapes/commands.sh`."""
    parts = re.split(
        r"^#: (\S+) \[(\w+)\]\n", (ESCAPES / "commands.sh").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return {name: (kind, command) for name, kind, command in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)}


def run_driver(backend: str, user: str, chosen: Mapping[str, str], **options: Any) -> dict[str, Any]:
    """What `escapes/driver.py` tells about the attacks, run as `user` under the backend of that name."""
    unprivileged = user == "user" and os.geteuid() == 0
    with tempfile.TemporaryDirectory(prefix="branchwork-test-") as name:
        base = Path(name)
        base.chmod(0o755)
        work = base / "work"
        work.mkdir()
        job = base / "job.json"
        job.write_text(json.dumps({"backend": backend, "base": str(work), "attacks": dict(chosen), **options}))
        if unprivileged:
            os.chown(work, NOBODY, NOBODY)
        python = _unprivileged_python() if unprivileged else sys.executable
        ended = subprocess.run(
            [*(_as_nobody() if unprivileged else []), str(python), str(ESCAPES / "driver.py"), str(job)],
            env=_environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-3000:]
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


@functools.cache
def _sandboxes() -> Sandboxes:
    return Sandboxes(os.environ)


def backend(name: str, *, overlays: bool = False) -> Backend:
    """The backend of that name; the test is skipped where it does not work."""
    try:
        return _sandboxes().choose(name, overlays=overlays).backend
    except UserError as error:
        pytest.skip(str(error))


def places(base: Path, **options: Any) -> SandboxSpec:
    """A project, a home and a scratch directory beside each other in `base`."""
    base = base.resolve()
    project, home = base / "project", base / "home"
    for folder in (project, home):
        folder.mkdir(parents=True, exist_ok=True)
    return SandboxSpec(
        **{"cwd": project, "home": home, "scratch": make_scratch(base / "area"), "keep": (base,), **options}
    )


async def sandboxed(
    name: str, spec: SandboxSpec, command: str, *, timeout: float | None = 60, env: Mapping[str, str] | None = None
) -> ProcessRun:
    """Runs a shell command as the `bash` tool does."""
    environment = {**os.environ, "HOME": str(spec.home), **(env or {})}
    argv = backend(name, overlays=spec.rehearse is not None).wrap(("bash", "-c", command), spec, environment)
    launch = Launch(argv=argv, cwd=spec.cwd, env=environment, scratch=spec.scratch, timeout=timeout)
    return await run_process(launch)
