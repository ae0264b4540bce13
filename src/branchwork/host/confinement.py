"""What may be touched in a session: the posture from all contributors, and the gate that applies it."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from branchwork.agent.toolset import ToolError
from branchwork.host.budget import run_within
from branchwork.host.context import ExtensionContext
from branchwork.host.hooks import BUDGET_S
from branchwork.policy.gate import Surface
from branchwork.policy.posture import Posture, Restriction

if TYPE_CHECKING:
    from branchwork.host.host import Host
    from branchwork.policy.sandbox.plan import Backend
    from branchwork.policy.sandbox.probe import Sandboxes


def posture_of(host: "Host") -> Posture:
    """Every contributor is asked now. One that fails forbids whatever changes anything, and is reported."""
    found: list[Restriction] = []
    for owned in host.registry.limits.owned():
        try:
            restriction = run_within(BUDGET_S, owned.value.provider, ExtensionContext(owned.owner, host))
        except Exception as error:  # noqa: BLE001 - boundary: an extension's code that has not allowed anything
            host.note("error", owned.owner, f"limit {owned.value.name} failed: {type(error).__name__}: {error}")
            restriction = failed(owned.owner)
        if restriction is None:
            continue
        if not isinstance(restriction, Restriction):
            kind = type(restriction).__name__
            host.note("error", owned.owner, f"limit {owned.value.name} gave {kind} instead of a Restriction")
            restriction = failed(owned.owner)
        found.append(restriction)
    return Posture(tuple(found))


def failed(owner: str) -> Restriction:
    return Restriction(
        contributor=f"extension {owner}",
        reason="It failed to say what is allowed, so nothing may be changed until it is repaired or switched off.",
        write=(),
        shell="off",
        network=False,
        delegate="none",
    )


class Confinement:
    """Runs the commands of a session as its posture at that moment wants it."""

    def __init__(
        self, posture: Callable[[], Posture], *, cwd: Path, home: Path, area: Path, env: Mapping[str, str]
    ) -> None:
        self._posture = posture
        self._cwd = cwd
        self._home = home
        self._area = area
        self._env = env
        self._sandboxes: Sandboxes | None = None

    @property
    def scratch(self) -> Path:
        """The one directory that can be written under every posture; made when something needs it."""
        return Path(os.path.realpath(self._area)) / "scratch"

    def surface(self) -> Surface:
        """What the gate judges calls against."""
        real = os.path.realpath(self._cwd)
        below_tmp = real == "/tmp" or real.startswith("/tmp/")
        return Surface(
            cwd=self._cwd,
            home=self._home,
            scratch=self.scratch,
            tmp=str(self.scratch) if below_tmp else "/tmp",
            env=dict(self._env),
            sandbox=self.name,
        )

    @property
    def backend(self) -> "Backend":
        """The one in force; tried when it is first needed."""
        if self._sandboxes is None:
            from branchwork.policy.sandbox.probe import Sandboxes

            self._sandboxes = Sandboxes(self._env)
        return self._sandboxes.choose().backend

    def name(self) -> str | None:
        """The backend's name; None when nothing confines here."""
        name = self.backend.name
        return None if name == "none" else name

    def wrap(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The argument list that runs `argv` under the posture of now. Raises `ToolError`."""
        posture = self._posture()
        if posture.shell == "free" and posture.writable is None and posture.network:
            return argv
        from branchwork.policy.sandbox.plan import SandboxSpec, Unsupported, make_scratch

        spec = SandboxSpec(
            cwd=self._cwd,
            home=self._home,
            scratch=make_scratch(self._area),
            keep=(self.scratch,),
            writable=tuple(map(Path, posture.writable or ())),
            network=posture.network,
        )
        try:
            return self.backend.wrap(argv, spec, self._env)
        except Unsupported as error:
            raise ToolError(f"The sandbox {self.backend.name} cannot run this: {error}") from None
