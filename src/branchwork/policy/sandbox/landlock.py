"""Landlock with a filter over system calls: confines where nothing can be mounted.

Weaker than mounts: the scratch directory is not `/tmp` (variables lead to it), nothing can be hidden, processes of
the user stay visible, mode, owner and times cannot be changed anywhere, and pseudo-terminals cannot be opened.
"""

import ctypes
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from branchwork.policy.sandbox import launcher, seccomp
from branchwork.policy.sandbox.plan import (
    SandboxSpec,
    Unsupported,
    Unusable,
    changed_environment,
    existing,
    scratch_of,
)

OLDEST = 3
"""Earlier versions (kernels before 6.2) let files be truncated."""
NEWEST = 7
"""Later versions are used as this one; what they add is not written for."""
_SIGNALS, _DEVICES = 6, 5
_GET_VERSION = 1


class Landlock(Struct, frozen=True, kw_only=True):
    abi: int
    python: str
    """An interpreter that anyone who runs commands here can start."""

    name = "landlock"
    hides = False
    overlays = False

    @property
    def detail(self) -> str:
        lacks = [
            what
            for since, what in ((_DEVICES, "settings of devices"), (_SIGNALS, "signals to other processes"))
            if self.abi < since
        ]
        gap = f"; this kernel does not hold back {' and '.join(lacks)}" if lacks else ""
        return f"Landlock version {self.abi} and a filter over system calls{gap}"

    def wrap(self, argv: tuple[str, ...], spec: SandboxSpec, env: Mapping[str, str]) -> tuple[str, ...]:
        if spec.hide:
            raise Unsupported("Landlock cannot hide files")
        if spec.rehearse:
            raise Unsupported("Landlock cannot rehearse writes; that takes bubblewrap 0.11 or later")
        rules = seccomp.program(seccomp.Filter(inet=spec.network, attributes=False))
        words = [self.python, "-I", "-S", launcher.__file__, "--abi", str(self.abi), "--filter", rules.hex()]
        for path in existing((scratch_of(spec), *spec.writable)):
            words += ["--write", str(path)]
        if spec.network:
            words.append("--network")
        changed, gone = changed_environment(spec, spec.scratch, env)
        for name, value in changed.items():
            words += ["--set", f"{name}={value}"]
        for name in gone:
            words += ["--unset", name]
        return (*words, "--", *argv)


def landlock(python: str | None = None) -> Landlock | Unusable:
    """What the kernel says it can do; whether it does is for the probe."""
    if sys.platform != "linux":
        return Unusable("landlock", "Landlock is a part of Linux")
    if not seccomp.supported():
        return Unusable("landlock", "there is no table of system calls for this processor")
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(ctypes.c_long(launcher.CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(_GET_VERSION))
    if abi < 0:
        return Unusable("landlock", "the kernel has no Landlock, or it is switched off")
    if abi < OLDEST:
        return Unusable("landlock", f"the kernel has version {abi} of Landlock, {OLDEST} is needed (Linux 6.2)")
    return Landlock(abi=min(abi, NEWEST), python=python or str(Path(sys.executable)))
