"""`branchwork -p`: the real program, the real tools, a fake server."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from branchwork import __version__
from branchwork.testing.faults import Refused
from branchwork.testing.script import Call, Reply, Text, Tokens, calls, fails_then, replies, says
from branchwork.testing.server import FakeModelServer
from tests.frontends.support import Program

WORK = replies(
    Reply(parts=(Text("Looking."), Call("bash", {"command": "ls"}))),
    Reply(parts=(Call("write", {"path": "a.txt", "content": "one\ntwo\n"}),)),
    Reply(parts=(Call("edit", {"path": "a.txt", "edits": [{"oldText": "two", "newText": "2"}]}), Call("ls", {}))),
    Reply(parts=(Text("Done: a.txt."),), usage=Tokens(input=100, output=20, cache_read=50)),
)

PLANS = ["workflow_plan_save", "workflow_plan_tick"]
"""The tools that built-in extensions add."""


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Program]:
    with FakeModelServer(WORK) as server:
        yield Program(tmp_path, openai=server.openai_url, anthropic=server.base_url)


def body(server: FakeModelServer, number: int) -> dict[str, Any]:
    found = server.requests[number].body
    assert found is not None
    return found


def program(tmp_path: Path, server: FakeModelServer) -> Program:
    return Program(tmp_path, openai=server.openai_url, anthropic=server.base_url)


@pytest.mark.parametrize("model", ["fake/m1", "fakea/a1"])
def test_a_task_with_several_tools_is_done_and_only_the_answer_is_printed(work: Program, model: str) -> None:
    ran = work.run("-p", "make a.txt", "--model", model)
    assert (ran.code, ran.out) == (0, "Done: a.txt.\n"), ran.err
    assert (work.project / "a.txt").read_text() == "one\n2\n"
    (path,) = work.session_files()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines[0]["type"] == "session"
    assert lines[0]["cwd"] == str(work.project)


def test_json_output_is_one_object_with_every_documented_field(work: Program) -> None:
    ran = work.run("-p", "make a.txt", "--output", "json")
    found = ran.json
    assert ran.code == 0
    assert found["result"] == "Done: a.txt."
    assert (found["stop"], found["turns"], found["tool_calls"], found["model"]) == ("done", 4, 4, "fake/m1")
    assert found["session_file"] == str(work.session_files()[0])
    assert found["session_id"] in found["session_file"]
    assert found["duration_ms"] > 0
    usage = found["usage"]
    assert (usage["input"], usage["output"], usage["cache_read"], usage["cache_write"]) == (130, 35, 50, 0)
    assert usage["cost"] == pytest.approx((130 * 1.0 + 35 * 2.0 + 50 * 0.1) / 1e6)


def test_stream_json_numbers_every_event_and_ends_with_the_run(work: Program) -> None:
    ran = work.run("-p", "make a.txt", "--output", "stream-json")
    events = ran.events
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["kind"] == "session_opened"
    assert events[-1]["kind"] == "run_finished"
    assert events[-1]["end"] == "done"
    started = [event["call_id"] for event in events if event["kind"] == "tool_started"]
    finished = [event["call_id"] for event in events if event["kind"] == "tool_finished"]
    assert sorted(started) == sorted(finished)
    assert len(started) == 4


def test_standard_input_is_appended_to_the_prompt(tmp_path: Path) -> None:
    with FakeModelServer(says("ok")) as server:
        ran = program(tmp_path, server).run("-p", "explain", stdin="the diff\n")
        assert ran.code == 0
        text = json.dumps(body(server, 0)["messages"][-1])
        assert "explain\\n\\nthe diff" in text


def test_continue_resume_and_fork_go_on_with_the_history(tmp_path: Path) -> None:
    with FakeModelServer(says("answer")) as server:
        branchwork = program(tmp_path, server)
        first = branchwork.run("-p", "one", "--output", "json", "--name", "my work").json
        assert branchwork.run("-p", "two", "--continue").code == 0
        resumed = branchwork.run("-p", "three", "--resume", first["session_id"][:13], "--output", "json").json
        assert resumed["session_file"] == first["session_file"]
        before = Path(first["session_file"]).read_bytes()
        forked = branchwork.run("-p", "four", "--fork", first["session_id"], "--output", "json").json
        assert forked["session_id"] != first["session_id"]
        assert Path(first["session_file"]).read_bytes() == before
        said = [message["content"] for message in body(server, -1)["messages"] if message["role"] == "user"]
        assert "one" in str(said[0])
        assert len(said) == 4


def test_no_session_leaves_nothing_behind(tmp_path: Path) -> None:
    with FakeModelServer(says("ok")) as server:
        branchwork = program(tmp_path, server)
        found = branchwork.run("-p", "hi", "--no-session", "--output", "json").json
        assert found["session_file"] is None
        assert branchwork.session_files() == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["-p"], 2, "no prompt"),
        (["-p", "x", "--continue", "--no-session"], 2, "exclude each other"),
        (["-p", "x", "--tools", "read,fly"], 2, "unknown tool fly"),
        (["-p", "x", "--model", "nowhere/none"], 3, "nowhere"),
        (["-p", "x", "--resume", "deadbeef"], 2, "deadbeef"),
        (["-p", "x", "--continue"], 1, "no session"),
        (["-p", "x", "--cwd", "missing"], 2, "missing"),
        (["-p", "x", "--max-turns", "0"], 2, "--max-turns"),
        (["-p", "x", "--nonsense"], 2, "--nonsense"),
        (["-p", "x"], 3, "127.0.0.1:9"),
    ],
)
def test_what_a_person_must_put_right_is_said_in_one_line(
    tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    branchwork = Program(tmp_path)
    (branchwork.home / "settings.toml").write_text("[retry]\nmax_retries = 0\n")
    ran = branchwork.run(*words)
    assert (ran.code, ran.out) == (code, ""), ran.err
    assert says in ran.err.strip().splitlines()[-1]
    assert "Traceback" not in ran.err
    assert "secret-key" not in ran.err


def test_a_failed_request_is_sent_again_and_the_run_goes_on(tmp_path: Path) -> None:
    with FakeModelServer(fails_then(Refused("rate_limit", retry_after=0), says("ok"))) as server:
        branchwork = program(tmp_path, server)
        (branchwork.home / "settings.toml").write_text("[retry]\nbase_delay_s = 0.01\n")
        ran = branchwork.run("-p", "x")
        assert (ran.code, ran.out) == (0, "ok\n")
        assert "trying again" in ran.err


def test_an_empty_answer_is_an_error(tmp_path: Path) -> None:
    with FakeModelServer(says("")) as server:
        ran = program(tmp_path, server).run("-p", "x")
        assert (ran.code, ran.out) == (1, "")
        assert "empty answer" in ran.err


def test_an_answer_cut_at_the_output_limit_is_printed_and_exits_5(tmp_path: Path) -> None:
    with FakeModelServer(says("half", stop="length")) as server:
        ran = program(tmp_path, server).run("-p", "x")
        assert (ran.code, ran.out) == (5, "half\n")


def test_the_turn_limit_exits_5(tmp_path: Path) -> None:
    with FakeModelServer(calls(9, tool="ls", arguments=lambda n: {"limit": n + 1})) as server:
        ran = program(tmp_path, server).run("-p", "x", "--max-turns", "2")
        assert ran.code == 5
        assert "limit of 2 turns" in ran.err


def test_the_time_limit_exits_5_and_ends_the_running_command(tmp_path: Path) -> None:
    with FakeModelServer(calls(1, tool="bash", arguments={"command": "sleep 300"})) as server:
        ran = program(tmp_path, server).run("-p", "x", "--time-limit", "1")
        assert ran.code == 5
        assert "time limit" in ran.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_cleanly_with_the_session_saved(tmp_path: Path, number: signal.Signals) -> None:
    command = "echo begun; echo $$ > pid; sleep 300"
    script = replies(Reply(parts=(Call("bash", {"command": command}),)), Reply(parts=(Text("Going on."),)))
    with FakeModelServer(script) as server:
        branchwork = program(tmp_path, server)
        process = branchwork.start("-p", "x", "--output", "stream-json")
        assert process.stdout is not None
        for line in process.stdout:
            if '"tool_progress"' in line and "begun" in line:
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert json.loads(out.splitlines()[-1])["end"] == "aborted"
        child = int((branchwork.project / "pid").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
        (path,) = branchwork.session_files()
        last = json.loads(path.read_bytes().splitlines()[-1])
        assert last["message"]["role"] == "toolResult"
        assert "begun" in last["message"]["content"][0]["text"]
        ran = branchwork.run("-p", "go on", "--continue")
        assert ran.code == 0, ran.err


def test_the_tools_of_a_run_can_be_chosen(tmp_path: Path) -> None:
    with FakeModelServer(says("ok")) as server:
        branchwork = program(tmp_path, server)
        branchwork.run("-p", "x", "--tools", "grep,read")
        branchwork.run("-p", "x", "--exclude-tools", "bash")
        branchwork.run("-p", "x", "--tools", "")
        names = [[tool["function"]["name"] for tool in body(server, n).get("tools", [])] for n in range(3)]
        assert names == [["read", "grep"], ["read", "edit", "write", "grep", "find", "ls", *PLANS], []]


def test_a_broken_pipe_is_no_crash(work: Program) -> None:
    process = work.start("-p", "make a.txt", "--output", "stream-json")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.wait(timeout=30)
    process.stderr.close()
    assert "Traceback" not in err
    assert process.returncode == 1


def test_instruction_files_and_prompt_options_reach_the_model(tmp_path: Path) -> None:
    with FakeModelServer(says("ok")) as server:
        branchwork = program(tmp_path, server)
        (branchwork.project / "AGENTS.md").write_text("Always use tabs.")
        branchwork.run("-p", "x", "--append-system-prompt", "Answer in French.")
        system = body(server, 0)["messages"][0]["content"]
        assert "Always use tabs." in str(system)
        assert "Answer in French." in str(system)
        branchwork.run("-p", "x", "--no-context-files", "--system-prompt", "You are a parrot.")
        system = str(body(server, 1)["messages"][0]["content"])
        assert "Always use tabs." not in system
        assert "You are a parrot." in system


@pytest.mark.parametrize("words", [["--version"], ["-V"], ["-V", "-p"]])
def test_the_version_is_printed(tmp_path: Path, words: list[str]) -> None:
    assert Program(tmp_path).run(*words).out == f"branchwork {__version__}\n"
