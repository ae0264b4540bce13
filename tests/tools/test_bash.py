"""The `bash` tool tells the model what came out, what is missing and how the command ended."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from branchwork import data
from branchwork.agent.toolset import Effect, FileLocks, ToolContext, ToolError, ToolOutput
from branchwork.session.entries import Text
from branchwork.testing.harness import memory_tree
from branchwork.tools.bash import BashArgs, BashSettings, bash_tool, shell_argv
from branchwork.tools.process import MAX_TIMEOUT
from branchwork.tools.truncate import MAX_BYTES, MAX_LINES

ENV = {"PATH": os.environ["PATH"], "BRANCHWORK_SESSION_ID": "s1"}


class Bench:
    """Runs the tool in a folder and keeps its progress."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.progress: list[ToolOutput] = []
        self.progressed = asyncio.Event()

    async def run(self, command: str, timeout: float | None = None, **settings: Any) -> ToolOutput:
        output = await bash_tool(BashSettings(**settings)).run(
            BashArgs(command=command, timeout=timeout), self.context()
        )
        assert json.loads(json.dumps(output.details)) == output.details
        return output

    def context(self) -> ToolContext:
        return ToolContext(
            call_id="c1",
            cwd=self.cwd,
            home=self.cwd,
            env=ENV,
            scratch=self.cwd.parent / "scratch",
            locks=FileLocks(),
            progress=self._show,
            images=False,
            tree=memory_tree(),
        )

    def _show(self, output: ToolOutput) -> None:
        self.progress.append(output)
        self.progressed.set()


def text(output: ToolOutput) -> str:
    (part,) = output.content
    assert isinstance(part, Text)
    return part.text


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    cwd = tmp_path / "my project"
    cwd.mkdir()
    return Bench(cwd)


@pytest.mark.parametrize(
    ("command", "timeout", "shown", "is_error"),
    [
        ("echo hi", None, "hi\n", False),
        ("echo hi", 5, "hi\n", False),
        ("echo out; echo err >&2", None, "out\nerr\n", False),
        ("true", None, "(no output)", False),
        ("exit 3", None, "(no output)\n\nCommand exited with code 3", True),
        ("echo partly; exit 1", None, "partly\n\nCommand exited with code 1", True),
        ("printf partly; exit 1", None, "partly\n\nCommand exited with code 1", True),
        ("echo; echo; exit 1", None, "\n\n\nCommand exited with code 1", True),
        ("kill -KILL $$", None, "(no output)\n\nCommand was ended by SIGKILL (exit code 137)", True),
        ("echo a; sleep 300", 1.25, "a\n\nCommand timed out after 1.25 s and was stopped", True),
        (
            "trap 'exit 0' TERM; sleep 300 & wait",
            1,
            "(no output)\n\nCommand timed out after 1 s and was stopped",
            True,
        ),
        ("cat", None, "(no output)", False),
        ('basename "$PWD"', None, "my project\n", False),
        ("echo $BRANCHWORK_SESSION_ID", None, "s1\n", False),
        ("f() { echo $1; }\nf two\nf lines", None, "two\nlines\n", False),
    ],
)
async def test_the_result_is_the_output_and_how_the_command_ended(
    bench: Bench, command: str, timeout: float | None, shown: str, is_error: bool
) -> None:
    output = await bench.run(command, timeout)
    assert text(output) == shown
    assert output.is_error == is_error


async def test_the_details_say_the_same_as_data(bench: Bench) -> None:
    output = await bench.run("echo hi; exit 3")
    wall_time_s = output.details.pop("wall_time_s")
    assert 0 < wall_time_s < 60
    assert output.details == {
        "exit_code": 3,
        "signal": None,
        "timed_out": False,
        "held_open": False,
        "truncation": {
            "truncated": False,
            "by": None,
            "total_lines": 1,
            "total_bytes": 3,
            "kept_lines": 1,
            "kept_bytes": 3,
            "first_line": 1,
            "last_line": 1,
            "partial": False,
        },
        "full_output_path": None,
    }


async def test_long_output_ends_with_what_is_missing_and_where_it_is(bench: Bench) -> None:
    output = await bench.run("seq 1 5000; exit 1")
    path = output.details["full_output_path"]
    body, notice, ending = text(output).split("\n\n")
    assert body.splitlines() == [str(number) for number in range(3001, 5001)]
    assert notice == (
        f"[Showing lines 3001-5000 of 5000 (9.8 KiB of 23.3 KiB). Full output: {path} "
        "(page through it with `read`, `offset` and `limit`)]"
    )
    assert ending == "Command exited with code 1"
    assert Path(path).read_text() == "".join(f"{number}\n" for number in range(1, 5001))
    assert Path(path).parent == bench.context().scratch


async def test_one_endless_line_shows_its_end_and_says_so(bench: Bench) -> None:
    output = await bench.run("head -c 100000 /dev/zero | tr '\\0' x; echo end")
    body, notice = text(output).split("\n\n")
    assert len(body) == MAX_BYTES - 1  # the line end is beyond the notice
    assert body.endswith("xend")
    path = output.details["full_output_path"]
    assert notice == (
        "[Showing the last 50 KiB of line 1 (50 KiB of 97.7 KiB). "
        f"Full output: {path} (cut parts out of it with `tail -c +START {path} | head -c COUNT`)]"
    )


async def test_output_that_cannot_be_saved_is_still_shown(bench: Bench) -> None:
    bench.context().scratch.write_text("in the way")
    output = await bench.run("seq 1 5000")
    assert "\n5000\n\n[Showing lines 3001-5000 of 5000 " in text(output)
    assert text(output).endswith("The full output could not be saved: File exists]")
    assert not output.is_error


async def test_a_background_process_that_holds_the_output_is_mentioned(bench: Bench) -> None:
    output = await bench.run("sleep 300 & echo $!; exit 2")
    body, notice, ending = text(output).split("\n\n")
    os.kill(int(body), 9)
    assert notice.startswith("[A process that the command started still runs and holds its output")
    assert ending == "Command exited with code 2"
    assert output.details["held_open"]


async def test_output_is_shown_while_the_command_runs_and_kept_when_it_is_cancelled(bench: Bench) -> None:
    command = "trap 'seq 1 3000; echo stopped; exit' TERM; echo started; sleep 300 & wait"
    task = asyncio.create_task(bench.run(command))
    await bench.progressed.wait()
    assert text(bench.progress[0]) == "started\n"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    last = bench.progress[-1]
    path = last.details["full_output_path"]
    assert "\n3000\nstopped\n\n[Showing lines " in text(last)
    assert Path(path).read_text().startswith("started\n1\n2\n")


async def test_a_removed_working_directory_is_named(bench: Bench) -> None:
    bench.cwd.rmdir()
    with pytest.raises(ToolError, match=r"working directory '.*my project' does not exist"):
        await bench.run("true")


@pytest.mark.parametrize(
    ("command", "timeout", "settings", "message"),
    [
        ("printf '\0'", None, {}, "NUL character"),
        ("echo \ud800", None, {}, r"'\\ud800'"),
        ("true", 0, {}, "timeout must be above 0 and at most 2147483.647 seconds, not 0"),
        ("true", -1, {}, "timeout must be above 0"),
        ("true", MAX_TIMEOUT + 1, {}, "timeout must be above 0"),
        ("true", float("nan"), {}, "timeout must be above 0"),
        ("true", None, {"shell": "/no/such/shell"}, "Cannot start '/no/such/shell': No such file"),
        ("#" * 3_000_000, None, {}, r"The command \(2.9 MiB\) is too long"),
    ],
)
async def test_what_cannot_be_run_is_refused_with_the_reason(
    bench: Bench, command: str, timeout: float | None, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError, match=message):
        await bench.run(command, timeout, **settings)


async def test_the_longest_timeout_is_accepted(bench: Bench) -> None:
    assert text(await bench.run("echo hi", MAX_TIMEOUT)) == "hi\n"


async def test_the_prefix_runs_before_the_command_in_the_same_shell(bench: Bench) -> None:
    output = await bench.run("greet you", prefix="greet() { echo hello $1; } # not part of the command")
    assert text(output) == "hello you\n"


async def test_the_wrapper_has_the_last_word_on_what_is_run(bench: Bench) -> None:
    output = await bench.run("echo $INSIDE", wrap=lambda argv: ("env", "INSIDE=sandbox", *argv))
    assert text(output) == "sandbox\n"


async def test_the_configured_shell_runs_the_command(bench: Bench) -> None:
    output = await bench.run("echo $0", shell="sh")
    assert text(output) == "sh\n"


def test_bash_is_found_on_the_path_of_the_command_and_sh_stands_in_for_it(tmp_path: Path) -> None:
    def found(*names: str) -> str:
        folder = tmp_path / "-".join(names)
        folder.mkdir()
        for name in names:
            (folder / name).touch(mode=0o755)
        return Path(shell_argv("true", BashSettings(), {"PATH": str(folder)})[0]).name

    assert found("sh", "bash") == "bash"
    assert found("sh") == "sh"


def test_the_model_is_told_the_limits_that_are_in_force() -> None:
    tool = bash_tool()
    assert (tool.name, tool.effects) == ("bash", frozenset({Effect.EXECUTE}))
    assert f"last {MAX_LINES} lines or {MAX_BYTES // 1024} KiB" in tool.description
    assert tool.description == data.text("tools/bash.md").strip()
    schema = tool.spec.parameters
    assert schema["required"] == ["command"]
    assert set(schema["properties"]) == {"command", "timeout"}
    assert all(parameter["description"] for parameter in schema["properties"].values())
