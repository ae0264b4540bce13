"""Which backend is in force: the first that is seen to hold."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from branchwork.errors import UserError
from branchwork.policy.sandbox.bwrap import bubblewrap, packaged_binary, system_binary
from branchwork.policy.sandbox.landlock import landlock
from branchwork.policy.sandbox.plan import Backend, SandboxSpec, Unconfined, Unusable, make_scratch
from branchwork.policy.sandbox.seatbelt import seatbelt

NAMES = ("bwrap", "landlock", "seatbelt", "none")
"""In the order in which they are tried."""
_SECONDS = 20.0

_TRIAL = '(echo x >"$1") 2>/dev/null && exit 3; (echo x >"$2/written") || exit 4; test -d "$3" || exit 5; exit 0'
_MEANING = {
    3: "commands can write outside the scratch directory",
    4: "commands cannot write the scratch directory",
    5: "commands cannot see the working directory",
}


class Chosen(Struct, frozen=True, kw_only=True):
    """The backend in force, and those before it in the order that do not hold."""

    backend: Backend
    refused: tuple[Unusable, ...]


class Sandboxes:
    """The backends of this machine. Each is tried once, when it is first asked for, which takes about 20 ms.

    Nothing is kept on disk: an old answer could promise a confinement that is gone.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._chosen: dict[tuple[str | None, bool], Chosen] = {}

    def choose(self, name: str | None = None, *, overlays: bool = False) -> Chosen:
        """The first that holds, or the one of `name`; with `overlays`, the first that can also rehearse writes.

        Falls back to none only without a name. Raises UserError when what is asked for does not exist or hold.
        """
        key = (name, overlays)
        if key not in self._chosen:
            self._chosen[key] = self._choose(name, overlays)
        return self._chosen[key]

    def _choose(self, name: str | None, overlays: bool) -> Chosen:
        if name is not None and name not in NAMES:
            raise UserError(f"there is no sandbox {name!r}; it is one of {', '.join(NAMES)}", exit_code=2)
        refused: list[Unusable] = []
        for candidate in () if name == "none" else self._candidates(name):
            found = candidate if isinstance(candidate, Unusable) else tried(candidate, self._env)
            if isinstance(found, Unusable):
                refused.append(found)
            elif overlays and not found.overlays:
                refused.append(Unusable(found.name, f"{found.detail}: has no overlays"))
            else:
                return Chosen(backend=found, refused=tuple(refused))
        why = "; ".join(each.reason for each in refused) or "it has no overlays"
        if overlays:
            raise UserError(f"writes cannot be rehearsed here: {why}")
        if name not in (None, "none"):
            raise UserError(f"the sandbox {name} does not work here: {why}")
        return Chosen(backend=Unconfined(), refused=tuple(refused))

    def _candidates(self, name: str | None) -> Iterator[Backend | Unusable]:
        kinds: dict[str, Callable[[], Iterator[Backend | Unusable]]] = {
            "bwrap": self._bubblewraps,
            "landlock": lambda: iter((landlock(),)),
            "seatbelt": lambda: iter((seatbelt(),)),
        }
        for kind, make in kinds.items():
            if name in (None, kind):
                yield from make()

    def _bubblewraps(self) -> Iterator[Backend | Unusable]:
        if sys.platform != "linux":
            yield Unusable("bwrap", "bubblewrap is for Linux")
            return
        for binary in (system_binary(self._env), packaged_binary()):
            if isinstance(binary, Unusable):
                yield binary
                continue
            yield bubblewrap(binary)
            if os.geteuid() == 0:
                yield bubblewrap(binary, user_namespace=True)


def tried(backend: Backend, env: Mapping[str, str]) -> Backend | Unusable:
    """The backend, if a command that it runs can write where it may, and cannot where it may not."""
    with tempfile.TemporaryDirectory(prefix="branchwork-probe-") as name:
        area = Path(name).resolve()
        scratch = make_scratch(area)
        outside = area / "outside"
        spec = SandboxSpec(cwd=area, home=area, scratch=scratch)
        argv = ("/bin/sh", "-c", _TRIAL, "sh", str(outside), str(scratch), str(area))
        try:
            ended = subprocess.run(
                backend.wrap(argv, spec, env),
                cwd=area,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                start_new_session=True,
                timeout=_SECONDS,
                check=False,
            )
        except OSError as error:
            return Unusable(backend.name, f"{backend.detail}: {error.strerror}")
        except subprocess.TimeoutExpired:
            return Unusable(backend.name, f"{backend.detail}: no answer in {_SECONDS:.0f} s")
        if outside.exists():
            return Unusable(backend.name, f"{backend.detail}: {_MEANING[3]}")
        ran = (scratch / "written").exists()
    if ended.returncode == 0:
        return backend if ran else Unusable(backend.name, f"{backend.detail}: {_MEANING[4]}")
    said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = _MEANING.get(ended.returncode) or (said[-1] if said else f"exit code {ended.returncode}")
    return Unusable(backend.name, f"{backend.detail}: {reason}")
