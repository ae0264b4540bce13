"""`kill -9` of the real program at any moment loses nothing that it had acknowledged."""

import itertools
import json
import random
from pathlib import Path

import pytest

from branchwork.session.operations import check
from branchwork.session.tree import Session
from branchwork.testing.clock import FakeClock, SequentialIds
from branchwork.testing.script import calls
from branchwork.testing.server import FakeModelServer
from tests.frontends.support import Program

RUNS = 50


@pytest.mark.slow
def test_kill_9_in_a_loop_loses_no_acknowledged_message_and_every_session_goes_on(tmp_path: Path) -> None:
    chance = random.Random(20261130)
    with FakeModelServer(calls(40, tool="ls", arguments=lambda n: {"limit": n + 1})) as server:
        branchwork = Program(tmp_path, openai=server.openai_url)
        acknowledged: set[str] = set()
        for run in range(RUNS):
            words = ["-p", f"run {run}", "--output", "stream-json"]
            process = branchwork.start(*words, *(["--continue"] if run else []))
            assert process.stdout is not None
            lines = list(itertools.islice(process.stdout, chance.randrange(8, 160)))
            process.kill()
            lines += process.stdout.readlines()
            process.wait()
            process.stdout.close()
            if process.stderr is not None:
                assert process.stderr.read() == ""
                process.stderr.close()
            events = [json.loads(line) for line in lines if line.endswith("\n")]
            acknowledged |= {event["entry_id"] for event in events if event["kind"] == "message_added"}
        (path,) = branchwork.session_files()
        report = check(path)
        assert [problem for problem in report.problems if problem.kind != "torn-tail"] == []
        assert branchwork.run("-p", "the last", "--continue").code == 0
        with Session.open(path, clock=FakeClock(), ids=SequentialIds(), read_only=True) as session:
            assert len(acknowledged) > RUNS
            assert acknowledged <= {node.id for node in session.branch().nodes}
