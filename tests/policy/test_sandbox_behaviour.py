"""Inside the sandbox a command behaves as outside: what it reads, prints, gets and how it ends."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from branchwork.policy.sandbox.plan import SandboxSpec, Unsupported, make_scratch
from branchwork.tools.process import Launch, Shown, run_process
from tests.policy.sandbox_support import BACKENDS, backend, places, sandboxed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the backends of Linux")
each_backend = pytest.mark.parametrize("name", BACKENDS)


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    made = places(tmp_path)
    (made.cwd / "a.txt").write_text("one\ntwo\n")
    return made


@each_backend
async def test_reading_commands_work(name: str, spec: SandboxSpec) -> None:
    command = (
        "cat a.txt; ls; grep -c o a.txt; find . -type f; wc -l < a.txt; sort -r a.txt | head -1; wc -l /etc/passwd"
    )
    run = await sandboxed(name, spec, command)
    assert run.exit_code == 0
    assert run.output.startswith("one\ntwo\na.txt\n2\n./a.txt\n2\ntwo\n")


@each_backend
async def test_git_reads_the_repository(name: str, spec: SandboxSpec) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=spec.cwd, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    (spec.cwd / "a.txt").write_text("three\n")
    run = await sandboxed(
        name, spec, "set -e; git status --short; git log --format=%s; git diff --stat; git grep -n t; git blame a.txt"
    )
    assert run.exit_code == 0, run.output
    assert " M a.txt\nfirst\n a.txt | 3 +--\n" in run.output
    assert "a.txt:1:three" in run.output


@each_backend
async def test_the_scratch_directory_is_written_and_kept_between_calls(name: str, spec: SandboxSpec) -> None:
    first = await sandboxed(
        name, spec, 'echo kept > "$TMPDIR/x"; mktemp > /dev/null; mkdir "$TMPDIR/d"; mv "$TMPDIR/x" "$TMPDIR/d/"'
    )
    second = await sandboxed(name, spec, 'cat "$TMPDIR/d/x"; rm -r "$TMPDIR/d"; ls -A "$TMPDIR/d" 2>/dev/null | wc -l')
    assert (first.exit_code, second.output) == (0, "kept\n0\n")


@each_backend
async def test_in_scratch_files_move_and_link_between_directories(name: str, spec: SandboxSpec) -> None:
    code = "import os; os.mkdir('a'); os.mkdir('b'); open('a/x', 'w'); os.link('a/x', 'b/y'); os.rename('a/x', 'b/z')"
    run = await sandboxed(name, spec, f'cd "$TMPDIR" && {sys.executable} -c "{code}" && ls b')
    assert run.output == "y\nz\n"


@each_backend
async def test_no_capability_is_left_even_to_root(name: str, spec: SandboxSpec) -> None:
    run = await sandboxed(name, spec, "grep -E 'Cap(Prm|Eff|Amb)|NoNewPrivs' /proc/self/status")
    assert run.output.split()[1::2] == ["0" * 16] * 3 + ["1"]


async def test_under_bubblewrap_the_scratch_directory_is_tmp_and_has_its_own_name_too(spec: SandboxSpec) -> None:
    run = await sandboxed("bwrap", spec, f"echo x > /tmp/here; cat {spec.scratch}/here; echo $TMPDIR")
    assert run.output == "x\n/tmp\n"
    assert (spec.scratch / "here").read_text() == "x\n"


@each_backend
async def test_what_it_writes_elsewhere_fails_and_says_so(name: str, spec: SandboxSpec) -> None:
    run = await sandboxed(name, spec, "echo x > b.txt")
    assert run.exit_code == 1
    assert "Read-only file system" in run.output or "Permission denied" in run.output
    assert [path.name for path in spec.cwd.iterdir()] == ["a.txt"]


@each_backend
async def test_what_is_writable_can_be_written(name: str, spec: SandboxSpec, tmp_path: Path) -> None:
    (spec.cwd / "out").mkdir()
    wider = places(tmp_path, writable=(spec.cwd / "out",))
    run = await sandboxed(name, wider, "echo x > out/new; echo x > new")
    assert (spec.cwd / "out" / "new").read_text() == "x\n"
    assert run.exit_code == 1
    assert not (spec.cwd / "new").exists()


@each_backend
async def test_devices_for_nothing_work(name: str, spec: SandboxSpec) -> None:
    run = await sandboxed(
        name, spec, "echo x > /dev/null; head -c 3 /dev/zero | wc -c; echo out > /dev/stdout; echo err > /dev/stderr"
    )
    assert (run.exit_code, run.output) == (0, "3\nout\nerr\n")


@each_backend
async def test_standard_input_is_at_its_end(name: str, spec: SandboxSpec) -> None:
    run = await sandboxed(name, spec, "cat; read x; echo $?", timeout=20)
    assert run.output == "1\n"


@each_backend
async def test_the_command_is_passed_on_as_it_is(name: str, spec: SandboxSpec) -> None:
    run = await sandboxed(
        name, spec, """printf -- '-n\\n'; printf '%s|' "$0" 'a"b' "c'd" '$x' '`y`' $'e\\nf'; printf 'no newline'"""
    )
    assert run.output == """-n\nbash|a"b|c'd|$x|`y`|e\nf|no newline"""


@each_backend
@pytest.mark.parametrize("code", [0, 1, 3, 126, 127, 255])
async def test_the_exit_code_is_that_of_the_command(name: str, code: int, spec: SandboxSpec) -> None:
    assert (await sandboxed(name, spec, f"exit {code}")).exit_code == code


@each_backend
@pytest.mark.parametrize(("signal", "code"), [("TERM", 143), ("KILL", 137), ("SEGV", 139), ("INT", 130)])
async def test_a_signal_that_ends_the_command_is_seen_in_the_exit_code(
    name: str, signal: str, code: int, spec: SandboxSpec
) -> None:
    assert (await sandboxed(name, spec, f"ulimit -c 0; kill -{signal} $$")).exit_code == code


@each_backend
async def test_output_comes_while_the_command_runs(name: str, spec: SandboxSpec) -> None:
    os.mkfifo(spec.scratch / "go")
    shown: list[str] = []

    def show(view: Shown) -> None:
        shown.append(view.text)
        if view.text == "first\n" and not view.final:  # only now the command may go on
            with (spec.scratch / "go").open("w") as go:
                go.write("x")

    env = {**os.environ, "HOME": str(spec.home)}
    argv = backend(name).wrap(("bash", "-c", 'echo first; read x < "$TMPDIR/go"; echo second'), spec, env)
    run = await run_process(Launch(argv=argv, cwd=spec.cwd, env=env, scratch=spec.scratch, timeout=30), show)
    assert (run.output, run.timed_out) == ("first\nsecond\n", False)
    assert shown[0] == "first\n"


@each_backend
async def test_standard_error_and_output_keep_their_order(name: str, spec: SandboxSpec) -> None:
    run = await sandboxed(name, spec, "for i in 1 2 3; do echo out$i; echo err$i >&2; done")
    assert run.output == "out1\nerr1\nout2\nerr2\nout3\nerr3\n"


@pytest.mark.slow
@each_backend
async def test_fifty_megabytes_come_out_whole(name: str, spec: SandboxSpec) -> None:
    run = await sandboxed(name, spec, "head -c 50000000 /dev/zero | tr '\\0' 'y'")
    assert run.exit_code == 0
    assert run.truncation.total_bytes == 50_000_000
    assert run.full_output is not None
    assert run.full_output.stat().st_size == 50_000_000


def sleeping(marker: str) -> list[str]:
    """Command lines, of any process, that hold the marker."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                lines.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
            except OSError:
                continue
    return [line for line in lines if marker in line]


async def until(condition: Callable[[], object], seconds: float = 10) -> bool:
    """Whether it came true; nothing reports the end of processes that are not children."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.01)
    return True


async def left_of(marker: str) -> list[str]:
    """The processes that are there for good."""
    await until(lambda: not sleeping(marker))
    return sleeping(marker)


@each_backend
async def test_a_timeout_leaves_no_process(name: str, spec: SandboxSpec) -> None:
    run = await sandboxed(name, spec, "sleep 4321 & sleep 4321.5 | cat; true", timeout=0.3)
    assert run.timed_out
    assert run.wall_time_s < 5
    assert await left_of("sleep 4321") == []


@each_backend
async def test_a_command_that_ignores_the_polite_signal_ends_too(name: str, spec: SandboxSpec) -> None:
    run = await sandboxed(name, spec, "trap '' TERM INT HUP; sleep 4322; sleep 4322", timeout=0.3)
    assert run.timed_out
    assert await left_of("sleep 4322") == []


@each_backend
async def test_a_cancelled_command_leaves_no_process(name: str, spec: SandboxSpec) -> None:
    task = asyncio.create_task(sandboxed(name, spec, 'echo > "$TMPDIR/started"; sleep 4323'))
    assert await until((spec.scratch / "started").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await left_of("sleep 4323") == []


@each_backend
async def test_one_that_is_cancelled_at_once_leaves_no_process(name: str, spec: SandboxSpec) -> None:
    for _ in range(5):
        task = asyncio.create_task(sandboxed(name, spec, "sleep 4324"))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await left_of("sleep 4324") == []


@each_backend
def test_an_interrupt_from_the_keyboard_ends_it(name: str, spec: SandboxSpec) -> None:
    """SIGINT goes to the whole foreground group."""
    env = {**os.environ, "HOME": str(spec.home)}
    argv = backend(name).wrap(("bash", "-c", "echo ready; sleep 4325"), spec, env)
    with subprocess.Popen(
        argv, cwd=spec.cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.killpg(process.pid, 2)
        assert process.wait(10) in (-2, 130)
    assert asyncio.run(left_of("sleep 4325")) == []


async def test_under_bubblewrap_nothing_outlives_the_command(spec: SandboxSpec) -> None:
    run = await sandboxed("bwrap", spec, "nohup setsid sleep 4326 > /dev/null 2>&1 & disown; echo done")
    assert run.output == "done\n"
    assert await left_of("sleep 4326") == []


@each_backend
async def test_python_and_its_tests_run(name: str, spec: SandboxSpec) -> None:
    (spec.cwd / "test_one.py").write_text("def test_one(tmp_path):\n    (tmp_path / 'x').write_text('x')\n")
    (spec.cwd / "test_two.py").write_text(
        "import asyncio, subprocess\ndef test_two():\n    asyncio.run(asyncio.sleep(0))\n"
        "    assert subprocess.run(['true']).returncode == 0\n"
    )
    run = await sandboxed(name, spec, f'{sys.executable} -m pytest -q -p no:cacheprovider --basetemp "$TMPDIR/tests"')
    assert "2 passed" in run.output
    assert sorted(path.name for path in spec.cwd.iterdir()) == ["a.txt", "test_one.py", "test_two.py"]


async def test_under_bubblewrap_files_in_scratch_get_modes_and_times(spec: SandboxSpec) -> None:
    run = await sandboxed(
        "bwrap", spec, "cp -p a.txt /tmp/b; chmod 700 /tmp/b; touch -d 2001-01-01 /tmp/b; stat -c %a,%Y /tmp/b"
    )
    assert run.output.startswith("700,9783")


async def test_under_bubblewrap_a_command_has_a_loopback_of_its_own(spec: SandboxSpec) -> None:
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0));"
        "c = socket.create_connection(s.getsockname()); print('ok')"
    )
    assert (await sandboxed("bwrap", spec, f'{sys.executable} -c "{code}"')).output == "ok\n"


@each_backend
async def test_with_network_a_service_of_this_machine_is_reached(name: str, spec: SandboxSpec, tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        open_spec = places(tmp_path, network=True)
        run = await sandboxed(
            name, open_spec, f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo connected"
        )
    assert run.output == "connected\n"


@each_backend
async def test_no_variable_leads_to_a_service_of_the_user(name: str, spec: SandboxSpec) -> None:
    env = {"SSH_AUTH_SOCK": "/x", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/x", "DISPLAY": ":0", "KEPT": "1"}
    run = await sandboxed(name, spec, 'echo "$SSH_AUTH_SOCK$DBUS_SESSION_BUS_ADDRESS$DISPLAY$KEPT"', env=env)
    assert run.output == "1\n"


@each_backend
def test_a_terminal_cannot_be_typed_into(name: str, spec: SandboxSpec) -> None:
    """Even with the terminal as its standard output and as its controlling terminal."""
    import pty

    env = {**os.environ, "HOME": str(spec.home)}
    code = "import fcntl; fcntl.ioctl(1, 0x5412, b'x')"
    argv = backend(name).wrap((sys.executable, "-I", "-c", code), spec, env)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(argv[0], list(argv), env)
    output = b""
    while True:
        try:
            data = os.read(terminal, 4096)
        except OSError:
            break
        if not data:
            break
        output += data
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0
    assert b"Operation not permitted" in output
    os.close(terminal)


async def test_what_is_hidden_cannot_be_read(spec: SandboxSpec, tmp_path: Path) -> None:
    (spec.home / "keys").mkdir()
    (spec.home / "keys" / "id").write_text("secret")
    (spec.home / "token").write_text("secret")
    closed = places(tmp_path, hide=(spec.home / "keys", spec.home / "token", spec.home / "gone"))
    run = await sandboxed("bwrap", closed, "cat ~/keys/id; ls -A ~/keys; cat ~/token; echo x > ~/keys/new; echo end")
    assert "secret" not in run.output
    assert run.output.endswith("end\n")
    with pytest.raises(Unsupported, match="cannot hide"):
        backend("landlock").wrap(("true",), closed, {})


@each_backend
def test_a_scratch_directory_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    scratch = make_scratch(tmp_path / "area")
    scratch.rmdir()
    scratch.symlink_to(tmp_path)
    with pytest.raises(Unsupported, match="leads elsewhere"):
        backend(name).wrap(("true",), SandboxSpec(cwd=tmp_path, home=tmp_path, scratch=scratch), {})


@each_backend
def test_a_scratch_directory_that_is_gone_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="is gone"):
        backend(name).wrap(("true",), SandboxSpec(cwd=tmp_path, home=tmp_path, scratch=tmp_path / "no"), {})
