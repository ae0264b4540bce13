"""Runs a program in a process group of its own and reads what it prints, with explicit conditions for the end.

The run ends when the program has exited and its output was closed or has been silent for `QUIET`. A
background process that keeps the output open does not delay the end for longer than `drain`. A timeout or a
cancellation ends the whole group: SIGTERM, then SIGKILL to what is left after `grace`.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from branchwork.tools.spill import Capture
from branchwork.tools.truncate import LIMITS, Limits, Truncation

MAX_TIMEOUT = 2147483.647
"""Seconds; the longest delay of a signed 32-bit count of milliseconds, as the host of origin has it."""

QUIET = 0.1
DRAIN = 2.0
GRACE = 2.0
_KILL_WAIT = 1.0
"""After SIGKILL only a process inside an uninterruptible system call is still there; it is not waited for."""

_REAP_WAIT = 0.2
"""The same where nothing can be awaited any more, because the loop itself is ending."""

SHOW_INTERVAL = 0.08
SHOW_LIMITS = Limits(lines=200, bytes=8 * 1024)
"""What a running program shows; a screen has no more room, and every view is an event."""

_READ_SIZE = 64 * 1024
_LARGEST_PIPE = 1024 * 1024
"""Bytes; what an unprivileged process may enlarge a pipe to (pipe(7))."""
_POLL = 0.02


class Launch(Struct, frozen=True, kw_only=True):
    """What to run. Standard input is empty, so that a program that reads it gets its end at once."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    scratch: Path
    """Where the complete output goes when it exceeds the limits."""
    timeout: float | None = None
    """Seconds until the group is ended, counted while the program runs; None is no limit."""
    grace: float = GRACE
    """Seconds between SIGTERM and SIGKILL."""
    drain: float = DRAIN
    """Seconds after the exit during which output is read at most."""
    limits: Limits = LIMITS
    name: str = "output"
    """Beginning of the file name of the complete output."""


class Shown(Struct, frozen=True, kw_only=True):
    """The end of the output so far, standard output and standard error in the order they arrived."""

    text: str
    truncation: Truncation
    full_output: Path | None
    spill_error: str | None
    final: bool
    """The complete output within the limits of the launch; views before it have `SHOW_LIMITS`."""


class ProcessRun(Struct, frozen=True, kw_only=True):
    """How a program ended and the end of what it printed."""

    output: str
    truncation: Truncation
    full_output: Path | None
    """All output, byte by byte; only when the limits cut it."""
    spill_error: str | None
    """Why `full_output` is missing or has only the beginning."""
    exit_code: int
    """128 + n when signal n ended the program, as shells report it."""
    signal: str | None
    """The name of that signal, e.g. `SIGKILL`."""
    timed_out: bool
    held_open: bool
    """Some process still has the output open; it was closed on our side and nobody reads it any more."""
    wall_time_s: float


async def run_process(launch: Launch, show: Callable[[Shown], None] | None = None) -> ProcessRun:
    """Runs a program to its end.

    `show` is called with the latest output at most once per `SHOW_INTERVAL`, for the first time after one
    interval; a run that was shown is shown a last time when it ends. A cancelled run has no result to return, so
    everything it printed is shown before `CancelledError` goes on, and its group is gone by then.

    Raises OSError when the program cannot be started, ValueError when an argument holds a NUL or a lone surrogate.
    """
    run = _Run(launch, show)
    try:
        return await run.finish()
    except asyncio.CancelledError:
        await run.cancel()
        raise
    finally:
        run.close()


class _Run:
    def __init__(self, launch: Launch, show: Callable[[Shown], None] | None) -> None:
        self._launch, self._show = launch, show
        self._loop = asyncio.get_running_loop()
        self._capture = Capture(launch.scratch, launch.name, launch.limits)
        self._started = self._loop.time()
        self._process, self._pipe = _start(launch)
        self._exited, self._unwatch = _watch_exit(self._process, self._loop)
        self._ended: asyncio.Future[None] = self._loop.create_future()  # end of the output
        self._last_data = self._started
        self._next_view = self._started + SHOW_INTERVAL
        self._view_timer: asyncio.TimerHandle | None = None
        self._viewed = False
        self._stopping: asyncio.Task[None] | None = None
        self._loop.add_reader(self._pipe, self._read)

    async def finish(self) -> ProcessRun:
        await asyncio.wait({self._exited}, timeout=self._launch.timeout)
        timed_out = not self._exited.done()
        if timed_out:
            await self._stop()
        await self._drain()
        held_open = not self._ended.done()
        shown = self._finish_output()
        if self._viewed:
            self._view(shown)
        exit_code, signal_name = _how_it_ended(self._process)
        return ProcessRun(
            output=shown.text,
            truncation=shown.truncation,
            full_output=shown.full_output,
            spill_error=shown.spill_error,
            exit_code=exit_code,
            signal=signal_name,
            timed_out=timed_out,
            held_open=held_open,
            wall_time_s=self._loop.time() - self._started,
        )

    async def cancel(self) -> None:
        """Ends the group and shows what it printed. Bounded, and not cut short by another cancellation."""
        try:
            await self._stop()
        except asyncio.CancelledError:
            pass  # the caller goes on with the first one
        self._read_rest()
        shown = self._finish_output()
        if self._capture.total_bytes:
            self._view(shown)

    def close(self) -> None:
        """Releases everything, whatever happened. A group that is still there is killed."""
        if self._process.poll() is None:
            self._signal(signal.SIGKILL)
            try:
                self._process.wait(_REAP_WAIT)
            except subprocess.TimeoutExpired:
                pass
        if self._view_timer is not None:
            self._view_timer.cancel()
        self._unwatch()
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)
        self._capture.close()

    # Output

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, _READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            self._loop.remove_reader(self._pipe)
            if not self._ended.done():
                self._ended.set_result(None)
            return
        self._last_data = self._loop.time()
        self._capture.add(data)
        if self._show is not None and self._view_timer is None:
            self._view_timer = self._loop.call_at(max(self._next_view, self._last_data), self._view_latest)

    def _read_rest(self) -> None:
        """What is in the pipe now; not more than fits, since a writer may go on for ever."""
        for _ in range(_LARGEST_PIPE // _READ_SIZE):
            if not self._ended.done():
                self._read()

    async def _drain(self) -> None:
        """Waits for the end of the output, for silence, or for the time to be up."""
        now = self._loop.time()
        deadline, quiet_from = now + self._launch.drain, now
        while not self._ended.done():
            until = min(max(quiet_from, self._last_data) + QUIET, deadline)
            if until <= self._loop.time():
                return
            await asyncio.wait({self._ended}, timeout=until - self._loop.time())

    def _finish_output(self) -> Shown:
        text, truncation = self._capture.finish()
        return self._shown(text, truncation, final=True)

    def _view_latest(self) -> None:
        self._view_timer = None
        self._next_view = self._loop.time() + SHOW_INTERVAL
        self._viewed = True
        self._view(self._shown(*self._capture.now(SHOW_LIMITS), final=False))

    def _shown(self, text: str, truncation: Truncation, *, final: bool) -> Shown:
        return Shown(
            text=text,
            truncation=truncation,
            full_output=self._capture.full_output,
            spill_error=self._capture.spill_error,
            final=final,
        )

    def _view(self, shown: Shown) -> None:
        if self._view_timer is not None:
            self._view_timer.cancel()
            self._view_timer = None
        if self._show is not None:
            self._show(shown)

    # The end of the group

    async def _stop(self) -> None:
        """Ends the group. A cancellation is passed on only once that is done."""
        if self._stopping is None:  # once: the group's id may have another owner afterwards
            self._stopping = self._loop.create_task(self._end_group())
        cancelled: asyncio.CancelledError | None = None
        while not self._stopping.done():
            try:
                await asyncio.wait({self._stopping})
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    async def _end_group(self) -> None:
        try:
            self._signal(signal.SIGTERM)
            await self._let_it_end(self._loop.time() + self._launch.grace)
        finally:
            self._signal(signal.SIGKILL)
        await self._let_it_end(self._loop.time() + _KILL_WAIT)

    async def _let_it_end(self, deadline: float) -> None:
        await asyncio.wait({self._exited}, timeout=deadline - self._loop.time())
        self._process.poll()  # a leader that is not reaped would count as a member
        while self._loop.time() < deadline:
            if not (self._signal(0) and _group_runs(self._process.pid)):
                return
            await asyncio.sleep(_POLL)  # nothing reports the end of the other members

    def _signal(self, number: int) -> bool:
        """Whether the group has members. Its id is the leader's, and is not given out again while it has."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # a member runs as another user
            return True
        return True


def _start(launch: Launch) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and the end of the pipe that its output comes from."""
    read_end, write_end = os.pipe()
    try:
        os.set_blocking(read_end, False)
        process = subprocess.Popen(
            launch.argv,
            cwd=launch.cwd,
            env=launch.env,
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return process, read_end


def _watch_exit(
    process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop
) -> tuple[asyncio.Future[None], Callable[[], None]]:
    """A future that is done when the process has exited, and what ends the watch.

    The child watchers of asyncio differ between versions in when a wait returns (some wait for the pipes too),
    so this one depends on none of them.
    """
    if sys.platform == "linux":
        try:
            return _watch_pidfd(os.pidfd_open(process.pid), loop)
        except OSError:  # kernels before 5.3, and sandboxes that refuse the call
            pass
    return _watch_in_thread(process, loop)


def _watch_pidfd(fd: int, loop: asyncio.AbstractEventLoop) -> tuple[asyncio.Future[None], Callable[[], None]]:
    exited: asyncio.Future[None] = loop.create_future()
    open_fds = [fd]

    def unwatch() -> None:
        if open_fds:
            loop.remove_reader(open_fds[0])
            os.close(open_fds.pop())

    def on_exit() -> None:
        unwatch()
        exited.set_result(None)

    loop.add_reader(fd, on_exit)
    return exited, unwatch


def _watch_in_thread(
    process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop
) -> tuple[asyncio.Future[None], Callable[[], None]]:
    exited: asyncio.Future[None] = loop.create_future()

    def report() -> None:
        if not exited.done():
            exited.set_result(None)

    def wait() -> None:
        process.wait()
        try:
            loop.call_soon_threadsafe(report)
        except RuntimeError:  # the loop was closed; nobody waits any more
            pass

    threading.Thread(target=wait, name=f"wait-{process.pid}", daemon=True).start()
    return exited, lambda: None


def _how_it_ended(process: subprocess.Popen[bytes]) -> tuple[int, str | None]:
    """Exit code as shells report it, and the name of the signal that ended the process."""
    code = process.poll()
    if code is None:  # killed, and stuck in a system call that it does not leave
        code = -signal.SIGKILL
    if code >= 0:
        return code, None
    try:
        name = signal.Signals(-code).name
    except ValueError:  # real-time signals between the named ones
        name = f"signal {-code}"
    return 128 - code, name


def _group_runs(group: int) -> bool:
    """Whether a group that has members has one that is not a zombie.

    An orphan stays a zombie until the first process of the system reaps it, which that of a container may do
    late or never. True where this cannot be told; the file format is that of proc_pid_stat(5).
    """
    if sys.platform != "linux":
        return True
    try:
        processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return True
    return any(_in_group_and_running(process, group) for process in processes)


def _in_group_and_running(process: Path, group: int) -> bool:
    try:
        stat = (process / "stat").read_bytes()
    except OSError:  # it ended meanwhile
        return False
    # The name of the program comes before in parentheses and may hold anything.
    state, _parent, member_of = stat.rpartition(b")")[2].split(None, 3)[:3]
    return int(member_of) == group and state not in (b"Z", b"X")
