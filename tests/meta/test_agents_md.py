"""The commands that AGENTS.md names run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.sources import ROOT

FENCE = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

STAND_INS = (
    # Running the tests from a test would not end; that make and pytest accept the command is what is left.
    (re.compile(r"^make "), "make --dry-run "),
    (re.compile(r"^(\.venv/bin/pytest) "), r"\1 --collect-only --quiet -p no:cacheprovider "),
)
SLOW = re.compile(r"mypy|pytest -m")


def commands() -> list[str]:
    blocks = FENCE.findall((ROOT / "AGENTS.md").read_text(encoding="utf-8"))
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith("#")]


def runnable(command: str) -> str:
    """The command with a stand-in where it must not run, and the programs of the environment that runs this test."""
    for pattern, replacement in STAND_INS:
        command = pattern.sub(replacement, command)
    return command.replace(".venv/bin/", f"{Path(sys.executable).parent}/")


def test_there_are_commands() -> None:
    assert {"make test", "make demo"} <= set(commands())


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=pytest.mark.slow if SLOW.search(each) else ()) for each in commands()]
)
def test_the_command_runs(command: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        ["bash", "-c", runnable(command)], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
