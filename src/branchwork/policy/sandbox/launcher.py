"""Confines its own process with Landlock and a filter over system calls, then becomes the command.

Run as a program: `python -I -S launcher.py OPTIONS -- COMMAND…`, unprivileged, Linux only. Starting Python is what
the confinement costs, so it imports nothing but `ctypes`, and nothing of the package.

    --abi N            version of Landlock to use
    --write PATH       may be written, with everything in it; repeatable
    --network          TCP is not refused
    --filter HEX       program for seccomp(2)
    --set NAME=VALUE   --unset NAME

Ends with 126 and a line on standard error when it cannot confine, 127 when the command cannot be started.
"""

import ctypes
import os
import stat
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""The same numbers on every processor (unistd.h)."""
PATH_BENEATH = 1
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 22, 24, 38, 47
SECCOMP_MODE_FILTER, PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
CAPABILITY_VERSION_3 = 0x20080522

WRITE_FILE, REFER, TRUNCATE, IOCTL_DEV = 1 << 1, 1 << 13, 1 << 14, 1 << 15
MAKE_AND_REMOVE = sum(1 << bit for bit in range(4, 13))
"""REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM."""
TCP = 0b11
"""BIND_TCP, CONNECT_TCP; from version 4."""
SCOPED = 0b11
"""ABSTRACT_UNIX_SOCKET, SIGNAL; from version 6."""
SCRATCH_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def call(number: int, *args: object) -> int:
    result: int = libc.syscall(ctypes.c_long(number), *args)
    return result


def prctl(option: int, *args: int) -> int:
    padded = [ctypes.c_ulong(value) for value in (*args, 0, 0, 0, 0)[:4]]
    result: int = libc.prctl(ctypes.c_int(option), *padded)
    return result


def drop_capabilities() -> None:
    """What root can do beyond what its files allow. Nothing to do, and no error, for anyone else."""
    capability = 0
    while prctl(PR_CAPBSET_DROP, capability) == 0:
        capability += 1
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)
    check(libc.capset(header, bytes(24)), "capset")


def restrict(abi: int, writable: list[str], network: bool) -> None:
    """No write but below `writable`; from then on, for this process and all that come from it."""
    handled = WRITE_FILE | MAKE_AND_REMOVE | REFER | TRUNCATE | (IOCTL_DEV if abi >= 5 else 0)
    attributes = [handled, TCP if abi >= 4 and not network else 0, SCOPED if abi >= 6 else 0]
    words = 1 if abi < 4 else 2 if abi < 6 else 3
    attr = b"".join(value.to_bytes(8, sys.byteorder) for value in attributes[:words])
    ruleset = check(call(CREATE_RULESET, attr, ctypes.c_size_t(len(attr)), ctypes.c_uint(0)), "Landlock")
    for path in (*writable, *SCRATCH_DEVICES):
        try:
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rights = handled if stat.S_ISDIR(os.fstat(beneath).st_mode) else handled & (WRITE_FILE | TRUNCATE | IOCTL_DEV)
        rule = rights.to_bytes(8, sys.byteorder) + beneath.to_bytes(4, sys.byteorder)
        check(call(ADD_RULE, ctypes.c_int(ruleset), PATH_BENEATH, rule, 0), f"Landlock rule for {path}")
        os.close(beneath)
    check(call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0)), "Landlock")
    os.close(ruleset)


def filter_calls(program: bytes) -> None:
    """struct sock_fprog: the number of eight-byte instructions, then a pointer to them."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    prog = Program(len(program) // 8, program)
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(prog), 0, 0), "seccomp")


def main(words: list[str]) -> int:
    abi, network, program = 0, False, b""
    writable: list[str] = []
    env = dict(os.environ)
    while (option := words.pop(0)) != "--":
        if option == "--network":
            network = True
            continue
        value = words.pop(0)
        if option == "--abi":
            abi = int(value)
        elif option == "--write":
            writable.append(value)
        elif option == "--filter":
            program = bytes.fromhex(value)
        elif option == "--set":
            name, _, text = value.partition("=")
            env[name] = text
        else:
            env.pop(value, None)
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        check(prctl(PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
        restrict(abi, writable, network)
        drop_capabilities()
        filter_calls(program)
    except OSError as error:
        sys.stderr.write(f"sandbox: {error.strerror or error}\n")
        return 126
    try:
        os.execvpe(words[0], words, env)
    except OSError as error:
        sys.stderr.write(f"{words[0]}: {error.strerror}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
