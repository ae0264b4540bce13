"""The real program with the flags of modes and read-only."""

import json
from pathlib import Path

import pytest

from branchwork.testing.script import Call, Reply, Text, replies
from branchwork.testing.server import FakeModelServer
from tests.frontends.support import Program


@pytest.mark.parametrize(
    ("flag", "who"), [("--mode=plan", "Plan mode"), ("--readonly", "Readonly mode"), ("--mode=pln", "--mode=pln")]
)
def test_a_run_with_the_flag_changes_nothing(tmp_path: Path, flag: str, who: str) -> None:
    script = replies(
        Reply(parts=(Call("write", {"path": "a.txt", "content": "x"}), Call("bash", {"command": "touch b.txt"}))),
        Reply(parts=(Text("done"),)),
    )
    with FakeModelServer(script) as server:
        program = Program(tmp_path, openai=server.openai_url, anthropic=server.base_url)
        ran = program.run("-p", "go", flag)
        assert (ran.code, ran.out) == (0, "done\n"), ran.err
        said = json.dumps(server.requests[1].body)
    assert list(program.project.iterdir()) == []
    assert said.count(f"Refused by {who}") == 2


def test_the_next_program_finds_the_mode_and_the_plan(tmp_path: Path) -> None:
    plan = "# P\n## Section 4\n- [ ] A\n"
    script = replies(
        Reply(parts=(Call("workflow_plan_save", {"plan": plan}),)),
        Reply(parts=(Text("saved"),)),
        Reply(parts=(Text("again"),)),
    )
    with FakeModelServer(script) as server:
        program = Program(tmp_path, openai=server.openai_url, anthropic=server.base_url)
        assert program.run("-p", "go", "--mode=discuss").code == 0
        assert "* discuss" in program.run("-p", "/mode", "--continue").out
        assert "# P" in program.run("-p", "/plan view", "--continue").out
        assert program.run("-p", "go", "--continue").out == "again\n"
        last = json.dumps(server.requests[2].body)
    assert "Active workflow mode: Discuss." in last
    assert "next `task-42b43758f2663b3f` A" in last
    assert all("Active workflow mode" not in path.read_text() for path in program.session_files())
