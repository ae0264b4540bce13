"""`branchwork doctor`: what the program finds on this machine, and proof that its sandbox holds."""

import argparse
import json
import platform
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import branchwork
from branchwork.agent.toolset import ToolError
from branchwork.frontends.console import Console
from branchwork.policy.sandbox.probe import NAMES, Chosen, Sandboxes
from branchwork.policy.sandbox.proof import Check, prove
from branchwork.tools import ripgrep

SUMMARY = "say what the program finds here, and prove that commands are confined; exit code 1 when they are not"
_SECONDS = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--backend", choices=NAMES, help="the sandbox to look at, instead of the first that works")


def run(args: argparse.Namespace, console: Console) -> int:
    chosen = Sandboxes(console.env).choose(args.backend)
    user_home = Path(console.env.get("HOME") or Path.home())
    checks = prove(chosen.backend, console.env, console.cwd, user_home)
    holds = all(check.holds for check in checks)
    facts = _facts(console)
    if args.json:
        console.print(json.dumps(_told(facts, chosen, checks, holds), indent=2))
    else:
        _print(console, facts, chosen, checks, holds)
    return 0 if holds else 1


def _facts(console: Console) -> dict[str, str]:
    return {
        "branchwork": branchwork.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "home": f"{console.home}{'' if console.home.is_dir() else ' (does not exist yet)'}",
        "rg": _program("rg", console),
        "git": _program("git", console),
        "clock": _clock(),
    }


def _program(name: str, console: Console) -> str:
    """Its version and path, or that it is missing."""
    found = shutil.which(name, path=console.env.get("PATH"))
    if name == "rg":
        try:
            found = ripgrep.binary(console.env)
        except ToolError:
            pass
    if found is None:
        return "not found"
    try:
        said = subprocess.run(
            [found, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
            env=dict(console.env),
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"{found} does not work: {error}"
    return f"{said.decode('utf-8', 'replace').partition(chr(10))[0]} ({found})"


def _clock() -> str:
    """Sessions are named and sorted by the time; a clock before the program was installed is wrong."""
    installed = Path(branchwork.__file__).stat().st_mtime
    now = time.time()
    shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{shown} (wrong: before this program was installed)" if now < installed - 60 else shown


def _told(facts: dict[str, str], chosen: Chosen, checks: list[Check], holds: bool) -> dict[str, Any]:
    return {
        **facts,
        "sandbox": {
            "backend": chosen.backend.name,
            "detail": chosen.backend.detail,
            "holds": holds,
            "overlays": chosen.backend.overlays,
            "refused": [{"backend": each.name, "reason": each.reason} for each in chosen.refused],
            "checks": [
                {"name": each.name, "title": each.title, "holds": each.holds, "saw": each.saw} for each in checks
            ],
        },
    }


def _print(console: Console, facts: dict[str, str], chosen: Chosen, checks: list[Check], holds: bool) -> None:
    for name, value in facts.items():
        console.print(f"{name:11} {value}")
    console.print(f"{'sandbox':11} {chosen.backend.name}: {chosen.backend.detail}")
    console.print(f"{'rehearsal':11} {'possible' if chosen.backend.overlays else 'not possible with this sandbox'}")
    for each in chosen.refused:
        console.print(f"{'':11} not used: {each.name}, {each.reason}")
    console.print()
    for check in checks:
        console.print(f"{'PASS' if check.holds else 'FAIL'}  {check.title}: {check.saw}")
    console.print()
    console.print("Commands are confined." if holds else "COMMANDS ARE NOT CONFINED as the lines with FAIL say.")
