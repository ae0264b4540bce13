"""Seatbelt, the sandbox of macOS, through `sandbox-exec`."""

import sys
from collections.abc import Mapping
from pathlib import Path

from branchwork.policy.sandbox.plan import (
    SandboxSpec,
    Unsupported,
    Unusable,
    changed_environment,
    existing,
    scratch_of,
)

BINARY = Path("/usr/bin/sandbox-exec")


class Seatbelt:
    name = "seatbelt"
    detail = f"Seatbelt ({BINARY})"
    hides = True
    overlays = False

    def wrap(self, argv: tuple[str, ...], spec: SandboxSpec, env: Mapping[str, str]) -> tuple[str, ...]:
        if spec.rehearse:
            raise Unsupported("Seatbelt cannot rehearse writes; that takes Linux and bubblewrap 0.11 or later")
        text, parameters = profile(spec)
        changed, gone = changed_environment(spec, spec.scratch, env)
        words = [str(BINARY), "-p", text]
        for name, value in parameters.items():
            words += ["-D", f"{name}={value}"]
        words.append("/usr/bin/env")
        for name in gone:
            words += ["-u", name]
        return (*words, *(f"{name}={value}" for name, value in changed.items()), *argv)


def profile(spec: SandboxSpec) -> tuple[str, dict[str, str]]:
    """The rules, of which the last that matches decides, and the paths they name.

    Paths are parameters, so that none needs quoting. They are resolved, as the kernel compares them: `/tmp` and
    `/var` are symbolic links on macOS.
    """
    lines = [
        "(version 1)",
        "(allow default)",
        "(deny file-write*)",
        '(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))',
        "(deny signal)",
        "(allow signal (target same-sandbox))",
        "(deny network-outbound (remote unix-socket))",
        "(deny job-creation)",
        "(deny appleevent-send)",
    ]
    if not spec.network:
        lines.append("(deny network*)")
    parameters = {}
    for number, path in enumerate(existing((scratch_of(spec), *spec.writable))):
        parameters[f"WRITE{number}"] = str(path)
        lines.append(f'(allow file-write* (subpath (param "WRITE{number}")))')
    for number, path in enumerate(existing(spec.hide)):
        parameters[f"HIDE{number}"] = str(path)
        lines.append(f'(deny file-read* file-write* (subpath (param "HIDE{number}")))')
    return "\n".join(lines), parameters


def seatbelt() -> Seatbelt | Unusable:
    """Whether this is macOS with its tool; whether it holds is for the probe."""
    if sys.platform != "darwin":
        return Unusable("seatbelt", "Seatbelt is a part of macOS")
    return Seatbelt() if BINARY.exists() else Unusable("seatbelt", f"{BINARY} is missing")
