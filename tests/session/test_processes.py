"""Real processes: one writer at a time, and what a killed writer leaves."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.session.builders import created, ids_of, only_file, opened, said, texts

HOLD = """
import sys
from pathlib import Path
from branchwork.clock import RandomIds, SystemClock
from branchwork.session.tree import Session
session = Session.open(Path(sys.argv[1]), clock=SystemClock(), ids=RandomIds())
print(session.read_only, flush=True)
sys.stdin.read()
"""

WRITE = """
import sys
from pathlib import Path
from branchwork.clock import RandomIds, SystemClock
from branchwork.session.entries import MessageEntry, UserMessage
from branchwork.session.tree import Session
session = Session.open(Path(sys.argv[1]), clock=SystemClock(), ids=RandomIds())
while True:
    batch = [MessageEntry(message=UserMessage(content="x" * n * 97, timestamp=1)) for n in range(1, 4)]
    print(*(entry.id for entry in session.append(*batch)), flush=True)
"""


@contextmanager
def running(script: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_a_session_open_in_another_process_is_read_only_here_until_that_ends(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(said("one"))
    path = only_file(tmp_path)
    with running(HOLD, path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "None\n"
        with opened(path) as session:
            assert session.read_only is not None
            assert str(path) in session.read_only
            assert "another process" in session.read_only
            assert texts(session) == ["one"]
        process.kill()
        process.wait()
        with opened(path) as session:
            assert session.read_only is None


def test_a_process_started_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(said("one"))
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    with child, opened(only_file(tmp_path)) as session:
        assert session.read_only is None
        child.kill()


@pytest.mark.slow
def test_every_entry_that_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(said("one"))
        acknowledged = ids_of(session)
    path = only_file(tmp_path)
    for turn in range(50):
        with running(WRITE, path) as process:
            assert process.stdout is not None
            for _ in range(1 + turn * 7 % 30):
                acknowledged += process.stdout.readline().split()
            os.kill(process.pid, signal.SIGKILL)
            # What was in the pipe was acknowledged too, but for a line that the kill cut off.
            rest = process.stdout.read()
            acknowledged += rest[: rest.rfind("\n") + 1].split()
    with opened(path) as session:
        assert session.read_only is None
        found = ids_of(session)
        assert set(acknowledged) <= set(found)
        assert [node.id for node in session.branch().nodes] == found
        assert all(problem.kind == "torn-tail" for problem in session.problems)
