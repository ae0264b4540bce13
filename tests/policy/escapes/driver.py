"""Runs attacks under a backend, as whoever it was started as, and tells what each changed: `driver.py JOB.json`.

A process of its own, so that it can be an unprivileged user from the first instruction. Prints one JSON object:
for each attack what it changed (a list of lines, empty when the sandbox held) and the end of what it printed.
"""

import ctypes
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from branchwork.policy.sandbox.plan import SandboxSpec, make_scratch
from branchwork.policy.sandbox.probe import Sandboxes

MARK = "BRANCHWORK_ESCAPE"
SECONDS = 30.0
HERE = Path(__file__).resolve().parent


class Canary:
    """A directory outside of the sandbox, and services that write into it when they are told to."""

    def __init__(self, base: Path) -> None:
        self.base, self.path = base, base / "canary"
        self.home = base / "home"
        self.home.mkdir()
        (self.home / ".bashrc").write_text("x")
        self.build()
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(base / "socket"))
        self.abstract = socket.socket(socket.AF_UNIX)
        self.name = f"branchwork-escape-{os.getpid()}"
        self.abstract.bind("\0" + self.name)
        self.tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        for listener in (self.unix, self.abstract, self.tcp):
            listener.listen()
            threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        threading.Thread(target=self._receive, daemon=True).start()
        self.victim = self._start_victim()

    def build(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        (self.path / "dir").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(self.path)], check=True, env={**os.environ, "HOME": str(self.home)})
        for name in ("a.txt", "dir/b.txt"):
            (self.path / name).write_text("a canary sings\n")
            (self.path / name).chmod(0o640)
        (self.path / "link").symlink_to("a.txt")
        os.setxattr(self.path / "a.txt", "user.kept", b"1")
        shutil.copy("/bin/sh", self.path / "suid")
        (self.path / "suid").chmod(0o4755)

    def state(self) -> dict[str, str]:
        found = {}
        for place in (self.path, self.home):
            for path in (place, *place.rglob("*")):
                found[str(path.relative_to(self.base))] = _state(path)
        limits = Path(f"/proc/{self.victim.pid}/limits")
        alive = self.victim.poll() is None
        found["the victim"] = hashlib.sha256(limits.read_bytes()).hexdigest() if alive else "dead"
        found["shared memory"] = _objects("/proc/sysvipc/shm", "42575348")
        found["message queues"] = str(_queue_exists())
        return found

    def restore(self) -> None:
        self.build()
        self.victim.kill()
        self.victim.wait()
        self.victim = self._start_victim()
        _remove_objects()

    def _start_victim(self) -> subprocess.Popen[bytes]:
        env = {name: value for name, value in os.environ.items() if name != MARK}
        return subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, start_new_session=True, env=env)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            (self.path / "served").write_text("x")
            connection.close()

    def _receive(self) -> None:
        while True:
            self.udp.recv(1)
            (self.path / "received").write_text("x")


def _state(path: Path) -> str:
    info = path.lstat()
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    attributes = [
        (name, os.getxattr(path, name, follow_symlinks=False)) for name in os.listxattr(path, follow_symlinks=False)
    ]
    facts = (info.st_mode, info.st_uid, info.st_gid, info.st_nlink, info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
    return f"{facts} {hashlib.sha256(content).hexdigest()[:16]} {attributes}"


def _objects(table: str, key: str) -> str:
    return str([line for line in Path(table).read_text().splitlines() if str(int(key, 16)) in line.split()])


def _queue_exists() -> bool:
    """Opened without making it."""
    libc = ctypes.CDLL(None)
    fd = libc.mq_open(b"/branchwork-escape", os.O_RDONLY)
    if fd >= 0:
        os.close(fd)
    return bool(fd >= 0)


def _remove_objects() -> None:
    libc = ctypes.CDLL(None)
    libc.mq_unlink(b"/branchwork-escape")
    found = libc.shmget(0x42575348, ctypes.c_size_t(0), 0)
    if found >= 0:
        libc.shmctl(found, 0, None)


UNSEEN = 4
"""So many looks in a row must find nothing: while a process becomes another program it has no environment to see."""


def marked() -> list[int]:
    """Processes that come from an attack and run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if MARK.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_until_quiet() -> list[int]:
    """What is still there of the attack after its time is up; nothing reports the end of an orphan."""
    until = time.monotonic() + SECONDS
    unseen = 0
    while unseen < UNSEEN and time.monotonic() < until:
        time.sleep(0.01)
        unseen = 0 if marked() else unseen + 1
    return marked()


def attack(command: str, job: dict[str, Any], canary: Canary, backend: Any) -> tuple[int, str]:
    scratch = make_scratch(canary.base)
    spec = SandboxSpec(
        cwd=canary.path,
        home=canary.home,
        scratch=scratch,
        keep=(canary.base, HERE, Path(sys.executable)),
        network=job.get("network", False),
    )
    env = {
        **os.environ,
        MARK: "1",
        "HOME": str(canary.home),
        "CANARY": str(canary.path),
        "SCRATCH": str(scratch),
        "CALLS": str(HERE / "calls.py"),
        "PY": sys.executable,
        "SOCK": str(canary.base / "socket"),
        "SSH_AUTH_SOCK": str(canary.base / "socket"),
        "ABSTRACT": canary.name,
        "PORT": str(canary.port),
        "MOUNTS": str(Path("/proc/self/ns/mnt").readlink()),
        "VICTIM": str(canary.victim.pid),
    }
    process = subprocess.Popen(
        backend.wrap(("bash", "-c", command), spec, env),
        cwd=canary.path,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += b"\nOPENED nothing, but took too long"
    return process.returncode, output.decode("utf-8", "replace")


def main(job: dict[str, Any]) -> dict[str, Any]:
    backend = Sandboxes(os.environ).choose(job["backend"]).backend
    results = {}
    with tempfile.TemporaryDirectory(prefix="branchwork-escape-", dir=job["base"], ignore_cleanup_errors=True) as name:
        canary = Canary(Path(name).resolve())
        before = canary.state()
        for attack_name, command in job["attacks"].items():
            code, output = attack(command, job, canary, backend)
            left = wait_until_quiet()
            after = canary.state()
            changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
            changed += [line for line in output.splitlines() if "OPENED" in line]
            changed += [f"process {pid} is left" for pid in left]
            results[attack_name] = {"changed": changed, "code": code, "output": output[-500:]}
            if changed:
                canary.restore()
                before = canary.state()
        canary.victim.kill()
        canary.victim.wait()
        _remove_objects()
    return {"backend": backend.detail, "uid": os.getuid(), "attacks": results}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
