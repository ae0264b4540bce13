"""Tries what a sandbox must not allow, and says how each attempt ended.

Run as a program inside the sandbox: `python -I -S attempts.py OUTSIDE FOLDERS SCRATCH PORT SOCKET PID MOUNTS`.
OUTSIDE is a directory that may not be written, FOLDERS are more of them, joined by `:`, PID is a process that may
not be signalled, and MOUNTS the mount namespace of whoever asks, as `/proc/self/ns/mnt` names it. Prints a line for
each attempt: name, tab, `done` or the error. Whoever runs it knows better than this program whether something
happened, and looks.
"""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

NEW_USER, NEW_NAMESPACE = 0x10000000, 0x00020000
"""CLONE_NEWUSER, CLONE_NEWNS (sched.h)."""
MS_BIND, MS_REMOUNT, MNT_DETACH = 0x1000, 0x20, 2
"""From mount.h; a remount without MS_RDONLY makes writable."""
UNROUTED = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737): a packet to it reaches nobody."""
SECONDS = 3.0

libc = ctypes.CDLL(None, use_errno=True)


def write(folder: str) -> None:
    with Path(folder, ".branchwork-doctor").open("x") as file:
        file.write("x")


def write_all(folders: list[str]) -> None:
    """Done as soon as one can be written."""
    failed = OSError("there is no folder")
    for folder in folders:
        try:
            write(folder)
        except OSError as error:
            failed = error
        else:
            return
    raise failed


def change_attributes(folder: str) -> None:
    path = Path(folder, "attributes")
    os.utime(path, (1, 1))
    path.chmod(0o777)


def connect(family: int, kind: int, address: object) -> None:
    with socket.socket(family, kind) as client:
        client.settimeout(SECONDS)
        try:
            client.connect(address)  # type: ignore[arg-type]  # typed as Any by some versions of the stubs only
            client.send(b"x")
        except TimeoutError:
            return  # sent, and nobody there


def checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def remount(folder: str, mounts: str) -> None:
    if sys.platform != "linux":
        raise OSError("there is no such call here")
    if str(Path("/proc/self/ns/mnt").readlink()) == mounts:
        # Where it would last, mount in a way that changes nothing, and take it back.
        here = folder.encode()
        checked(libc.mount(here, here, None, ctypes.c_ulong(MS_BIND), None))
        libc.umount2(here, MNT_DETACH)
        return
    checked(libc.mount(None, b"/", None, ctypes.c_ulong(MS_BIND | MS_REMOUNT), None))
    write(folder)


def namespace() -> None:
    if sys.platform != "linux":
        raise OSError("there is no such call here")
    checked(libc.unshare(NEW_USER | NEW_NAMESPACE))


def attempt(name: str, what: Callable[[], None]) -> None:
    try:
        what()
    except OSError as error:
        ended = error.strerror or str(error)
    else:
        ended = "done"
    sys.stdout.write(f"{name}\t{ended}\n")
    sys.stdout.flush()


def main(outside: str, folders: str, scratch: str, port: str, path: str, *others: str) -> None:
    pid, mounts = others
    attempt("scratch", lambda: write(scratch))
    attempt("write", lambda: write_all([outside, *folders.split(":")]))
    attempt("attributes", lambda: change_attributes(outside))
    attempt("loopback", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(port))))
    attempt("outside", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, UNROUTED))
    attempt("unix", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, path))
    attempt("signal", lambda: os.kill(int(pid), signal.SIGTERM))
    attempt("remount", lambda: remount(outside, mounts))
    attempt("namespace", namespace)


if __name__ == "__main__":
    main(*sys.argv[1:])
