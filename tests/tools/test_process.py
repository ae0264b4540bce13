"""A program runs to one of a few explicit ends; nothing of it stays behind and nothing it said is lost."""

import asyncio
import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from branchwork.tools.process import DRAIN, SHOW_INTERVAL, Launch, Shown, run_process
from branchwork.tools.truncate import Limits


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() <= before
    # Every child was waited for.
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def launch(cwd: Path, command: str, **options: Any) -> Launch:
    return Launch(
        argv=("bash", "-c", command), cwd=cwd, env={"PATH": os.environ["PATH"]}, scratch=cwd / "scratch", **options
    )


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie; who reaps orphans, and when, is not ours."""
    try:
        os.kill(pid, 0)
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    except ProcessLookupError:
        return False
    return state.stdout.strip()[:1] not in ("", "Z")


class Cancelled:
    """What a cancelled run had shown; `pids` for programs that print process ids on their first line."""

    def __init__(self, views: list[Shown]) -> None:
        self.views = views
        self.text = views[-1].text if views else ""

    @property
    def pids(self) -> list[int]:
        return [int(pid) for pid in self.text.split("\n", 1)[0].split()]


async def cancel_when_shown(launch: Launch, word: str) -> Cancelled:
    """Runs until `word` was shown, then cancels."""
    seen = asyncio.Event()
    views: list[Shown] = []

    def show(shown: Shown) -> None:
        views.append(shown)
        if word in shown.text:
            seen.set()

    task = asyncio.create_task(run_process(launch, show))
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert views[-1].final
    return Cancelled(views)


@pytest.fixture(params=["pidfd", "thread"])
def both_watches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once as Linux does it, once as systems without process descriptors do."""
    if request.param == "pidfd" and not hasattr(os, "pidfd_open"):
        pytest.skip("this system has no pidfd_open")
    if request.param == "thread":

        def refuse(pid: int) -> int:
            raise OSError(errno.ENOSYS, "not implemented")

        monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)


@pytest.mark.usefixtures("both_watches")
@pytest.mark.parametrize(
    ("command", "code", "signal"),
    [
        ("true", 0, None),
        ("exit 3", 3, None),
        ("exit 255", 255, None),
        ("no-such-program-anywhere", 127, None),
        ("kill -TERM $$", 143, "SIGTERM"),
        ("kill -KILL $$", 137, "SIGKILL"),
        ("kill -SEGV $$", 139, "SIGSEGV"),
        ("bash -c 'kill -KILL $$'; exit $?", 137, None),  # the shell's own account of its child
    ],
)
async def test_the_exit_code_is_the_shells_and_a_signal_is_named(
    tmp_path: Path, command: str, code: int, signal: str | None
) -> None:
    run = await run_process(launch(tmp_path, command))
    assert (run.exit_code, run.signal, run.timed_out, run.held_open) == (code, signal, False, False)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("echo out; echo err >&2; echo out again", "out\nerr\nout again\n"),
        ("printf 'no newline'", "no newline"),
        ("cat; echo end of input", "end of input\n"),
        ("read -r line || echo nothing to read", "nothing to read\n"),
        (r"printf 'a\000b\377c'", "a\ufffdb\ufffdc"),
        (r"printf 'caf\303'; sleep 0.05; printf '\251'", "café"),
        ("(sleep 0.03; echo late) & echo now", "now\nlate\n"),
        ("exec >&- 2>&-; exit 0", ""),
        ("pwd | tr -d '\\n' | tail -c 14", "a dir 'ü' $x "),
    ],
)
async def test_output_is_complete_and_in_order(tmp_path: Path, command: str, output: str) -> None:
    cwd = tmp_path / "a dir 'ü' $x "
    cwd.mkdir()
    run = await run_process(launch(cwd, command))
    assert run.output == output
    assert not run.held_open
    assert run.full_output is None


async def test_a_program_does_not_get_our_own_input(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"typed by a person")
    os.close(write_end)
    ours = os.dup(0)
    os.dup2(read_end, 0)
    try:
        run = await run_process(launch(tmp_path, "cat"))
    finally:
        os.dup2(ours, 0)
        os.close(ours)
        os.close(read_end)
    assert run.output == ""


async def test_only_the_given_environment_is_passed_on(tmp_path: Path) -> None:
    run = await run_process(
        Launch(argv=("/usr/bin/env",), cwd=tmp_path, env={"ONE": "1", "É": "ü"}, scratch=tmp_path / "s")
    )
    assert sorted(run.output.splitlines()) == ["ONE=1", "É=ü"]


async def test_the_file_has_everything_when_the_tail_has_not(tmp_path: Path) -> None:
    run = await run_process(launch(tmp_path, "seq 1 50000", limits=Limits(lines=10, bytes=1000)))
    assert run.output == "".join(f"{number}\n" for number in range(49991, 50001))
    assert (run.truncation.first_line, run.truncation.total_lines) == (49991, 50000)
    assert run.full_output is not None
    assert run.full_output.read_text() == "".join(f"{number}\n" for number in range(1, 50001))


async def test_a_background_process_that_holds_the_output_does_not_hang_the_run(tmp_path: Path) -> None:
    run = await run_process(launch(tmp_path, "sleep 300 & echo $!"))
    pid = int(run.output)
    try:
        assert (run.exit_code, run.held_open) == (0, True)
        assert run.wall_time_s < DRAIN
        assert runs(pid)  # it was meant to go on
    finally:
        os.kill(pid, 9)


async def test_a_background_process_without_the_output_is_no_concern(tmp_path: Path) -> None:
    run = await run_process(launch(tmp_path, "sleep 300 >/dev/null 2>&1 & echo $!"))
    os.kill(int(run.output), 9)
    assert not run.held_open


async def test_a_background_process_that_never_stops_printing_does_not_hang_the_run(tmp_path: Path) -> None:
    run = await run_process(launch(tmp_path, "while echo x; do sleep 0.02; done & exit 4", drain=0.5))
    assert (run.exit_code, run.held_open) == (4, True)
    assert 0.5 <= run.wall_time_s < 0.5 + DRAIN


async def test_a_timeout_keeps_the_output_and_ends_the_whole_group(tmp_path: Path) -> None:
    command = "sleep 300 & a=$!; (sleep 300 & echo $a $!; wait) & wait"
    run = await run_process(launch(tmp_path, command, timeout=1))
    assert (run.timed_out, run.exit_code, run.signal, run.held_open) == (True, 143, "SIGTERM", False)
    assert [runs(int(pid)) for pid in run.output.split()] == [False, False]


async def test_a_program_ended_by_a_timeout_may_clean_up_and_its_own_code_is_told(tmp_path: Path) -> None:
    command = "trap 'echo cleaned; exit 5' TERM; sleep 300 & wait"
    run = await run_process(launch(tmp_path, command, timeout=1))
    assert (run.timed_out, run.exit_code, run.signal, run.output) == (True, 5, None, "cleaned\n")


async def test_a_program_that_ends_in_time_is_not_timed_out_by_what_it_left_behind(tmp_path: Path) -> None:
    command = "while echo x; do sleep 0.02; done & exit 4"
    run = await run_process(launch(tmp_path, command, timeout=0.5, drain=1.0))
    assert (run.timed_out, run.exit_code, run.held_open) == (False, 4, True)


async def test_a_group_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    command = "trap '' TERM; sleep 300 & echo $$ $!; wait"
    cancelled = await cancel_when_shown(launch(tmp_path, command, grace=0.2), "\n")
    assert [runs(pid) for pid in cancelled.pids] == [False, False]


async def test_a_child_that_ignores_the_polite_signal_does_not_outlive_its_shell(tmp_path: Path) -> None:
    command = "(trap '' TERM; sleep 300) & echo $!; wait"
    cancelled = await cancel_when_shown(launch(tmp_path, command, grace=0.2), "\n")
    assert [runs(pid) for pid in cancelled.pids] == [False]


@pytest.mark.skipif(sys.platform != "linux", reason="zombies are told from others on Linux only")
async def test_a_zombie_that_nobody_reaps_is_not_waited_for(tmp_path: Path) -> None:
    # The child stays in the group; its parent leaves it, survives and never waits for the child.
    parent = "import os, time; os.fork() and (os.setsid(), print(os.getpid(), flush=True)); time.sleep(300)"
    spec = launch(tmp_path, f"{sys.executable} -c '{parent}' & wait", grace=20.0)
    loop = asyncio.get_running_loop()
    started = loop.time()
    cancelled = await cancel_when_shown(spec, "\n")
    assert loop.time() - started < 10
    (pid,) = cancelled.pids
    assert runs(pid)
    os.kill(pid, 9)


async def test_a_child_with_its_own_output_gets_time_to_clean_up_too(tmp_path: Path) -> None:
    child = "trap 'sleep 0.2; echo cleaned >log; exit' TERM; echo ready >ready; while :; do sleep 0.01; done"
    command = f'bash -c "{child}" >/dev/null 2>&1 & until [ -e ready ]; do sleep 0.01; done; echo up; wait'
    await cancel_when_shown(launch(tmp_path, command), "up")
    assert (tmp_path / "log").read_text() == "cleaned\n"


@pytest.mark.usefixtures("both_watches")
async def test_a_cancelled_run_shows_everything_it_printed(tmp_path: Path) -> None:
    command = "trap 'seq 1 3000; exit' TERM; echo up; sleep 300 & wait"
    cancelled = await cancel_when_shown(launch(tmp_path, command), "up")
    last = cancelled.views[-1]
    assert last.text.endswith("\n2999\n3000\n")
    assert (last.truncation.kept_lines, last.truncation.total_lines) == (2000, 3001)
    assert last.full_output is not None
    assert last.full_output.read_text().startswith("up\n1\n2\n")


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="pipes have one size here")
async def test_a_cancelled_run_shows_what_was_still_in_a_large_pipe(tmp_path: Path) -> None:
    program = """
import fcntl, os, signal
fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"x" * 800_000), os._exit(0)))
print(os.getpid(), flush=True)
signal.pause()
"""
    spec = Launch(argv=(sys.executable, "-c", program), cwd=tmp_path, env={}, scratch=tmp_path / "scratch")
    views: list[Shown] = []
    seen = asyncio.Event()

    def show(shown: Shown) -> None:
        views.append(shown)
        seen.set()

    task = asyncio.create_task(run_process(spec, show))
    await seen.wait()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    # The loop stands still until the program has written everything and is gone.
    os.waitid(os.P_PID, int(views[0].text), os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - to hold up the loop
    with pytest.raises(asyncio.CancelledError):
        await task
    assert views[-1].truncation.total_bytes == len(views[0].text) + 800_000


async def test_a_run_can_be_cancelled_while_it_waits_for_a_background_process(tmp_path: Path) -> None:
    # The shell is gone when this is shown: views come at intervals, and the shell ends before the first.
    command = "while echo x; do sleep 0.02; done & echo $! $$"
    cancelled = await cancel_when_shown(launch(tmp_path, command), "x")
    assert [runs(pid) for pid in cancelled.pids] == [False, False]


async def test_a_second_cancellation_does_not_cut_the_first_one_short(tmp_path: Path) -> None:
    views: list[Shown] = []
    seen = asyncio.Event()

    def show(shown: Shown) -> None:
        views.append(shown)
        seen.set()

    command = "trap 'echo asked; sleep 0.2; echo cleaned >log; exit' TERM; echo up; sleep 300 & wait"
    task = asyncio.create_task(run_process(launch(tmp_path, command), show))
    await seen.wait()
    task.cancel()
    while "asked" not in views[-1].text:
        seen.clear()
        await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert views[-1].final
    assert (tmp_path / "log").read_text() == "cleaned\n"


async def test_a_cancellation_while_a_timeout_ends_the_group_waits_for_it(tmp_path: Path) -> None:
    command = "trap 'echo asked' TERM; echo $$; while :; do sleep 0.01; done"
    cancelled = await cancel_when_shown(launch(tmp_path, command, timeout=0.3, grace=0.5), "asked")
    assert [runs(pid) for pid in cancelled.pids] == [False]
    assert cancelled.text.count("asked") == 1


@pytest.mark.parametrize("turns", range(12))
async def test_a_run_cancelled_at_any_early_moment_leaves_nothing(tmp_path: Path, turns: int) -> None:
    task = asyncio.create_task(run_process(launch(tmp_path, "echo $$ >pid; sleep 300")))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = tmp_path / "pid"
    if pid.exists() and pid.read_text():
        assert not runs(int(pid.read_text()))


async def test_a_run_that_is_thrown_away_kills_its_program(tmp_path: Path) -> None:
    pids: list[int] = []
    seen = asyncio.Event()

    def show(shown: Shown) -> None:
        pids.append(int(shown.text))
        seen.set()

    run = run_process(launch(tmp_path, "echo $$; sleep 300"), show)
    run.send(None)
    await seen.wait()
    run.close()
    assert not runs(pids[0])


async def test_the_end_of_the_loop_kills_what_a_cancellation_was_still_waiting_for(tmp_path: Path) -> None:
    async def main() -> None:
        command = "trap '' TERM; echo $$ >pid; echo up; while :; do sleep 0.05; done"
        seen = asyncio.Event()
        task = asyncio.create_task(run_process(launch(tmp_path, command), lambda _: seen.set()))
        await seen.wait()
        task.cancel()
        await asyncio.wait({task}, timeout=0)

    await asyncio.to_thread(asyncio.run, main())
    assert not runs(int((tmp_path / "pid").read_text()))


async def test_views_are_few_small_and_end_with_the_result(tmp_path: Path) -> None:
    views: list[Shown] = []
    command = "for i in {1..100}; do seq 1 100; sleep 0.005; done"
    run = await run_process(launch(tmp_path, command), views.append)
    assert 2 <= len(views) <= run.wall_time_s / SHOW_INTERVAL + 1
    assert all(view.truncation.kept_lines <= 200 for view in views[:-1])
    assert [view.final for view in views] == [False] * (len(views) - 1) + [True]
    assert (views[-1].text, views[-1].truncation) == (run.output, run.truncation)


async def test_a_short_run_is_not_shown(tmp_path: Path) -> None:
    views: list[Shown] = []
    run = await run_process(launch(tmp_path, "echo hi"), views.append)
    assert views == [] or run.wall_time_s >= SHOW_INTERVAL


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"cwd": "gone"}, FileNotFoundError),
        ({"cwd": "file"}, NotADirectoryError),
        ({"argv": ("no-such-program",)}, FileNotFoundError),
        ({"argv": ("bash", "-c", "true\0")}, ValueError),
        ({"argv": ("bash", "-c", "\ud800")}, ValueError),
        ({"argv": ("bash", "-c", "#" * 3_000_000)}, OSError),
    ],
)
async def test_what_cannot_be_started_raises_and_leaves_nothing_open(
    tmp_path: Path, options: dict[str, Any], error: type[Exception]
) -> None:
    (tmp_path / "file").write_text("")
    cwd = tmp_path / options.pop("cwd", ".")
    given = {"argv": ("true",), "env": {"PATH": os.environ["PATH"]}, "scratch": tmp_path, **options}
    with pytest.raises(error):
        await run_process(Launch(cwd=cwd, **given))


async def test_runs_side_by_side_keep_their_output_apart(tmp_path: Path) -> None:
    results = await asyncio.gather(
        *(
            run_process(launch(tmp_path, f"for i in 1 2 3; do echo {number}; done; exit {number}"))
            for number in range(8)
        )
    )
    assert [run.output for run in results] == [f"{number}\n" * 3 for number in range(8)]
    assert [run.exit_code for run in results] == list(range(8))


@pytest.mark.slow
async def test_programs_that_end_at_once_lose_nothing(tmp_path: Path) -> None:
    text = "x" * 40_000
    (tmp_path / "text").write_text(text)
    for _ in range(200):
        run = await run_process(launch(tmp_path, "cat text"))
        assert run.output == text


# In a process of its own, because the peak of memory is one number for a whole process.
HUGE = """
import asyncio, os, resource, sys
from pathlib import Path
from branchwork.tools.process import Launch, run_process

def peak():
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size // 1024 if sys.platform == "darwin" else size

async def main(command):
    def launch(text):
        return Launch(argv=("bash", "-c", text), cwd=Path.cwd(), env=dict(os.environ), scratch=Path.cwd())
    await run_process(launch("true"))
    before = peak()
    run = await run_process(launch(command), lambda shown: None)
    print(peak() - before, run.truncation.total_bytes, run.full_output.stat().st_size)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["yes 'a line of ordinary length' | head -c 300000000", "head -c 300000000 /dev/zero | tr '\\0' x"]
)
def test_output_of_any_size_takes_bounded_memory(tmp_path: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HUGE, command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    grown_kib, total, on_disk = map(int, done.stdout.split())
    assert (total, on_disk) == (300_000_000, 300_000_000)
    assert grown_kib < 8 * 1024


@pytest.mark.slow
async def test_starting_a_program_costs_little(tmp_path: Path) -> None:
    spec = launch(tmp_path, "true")
    times = sorted([(await run_process(spec)).wall_time_s for _ in range(50)])
    assert times[len(times) // 4] < 0.008
