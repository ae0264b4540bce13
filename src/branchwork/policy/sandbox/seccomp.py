"""Filters over system calls, as classic BPF programs for seccomp(2). Nothing but a table and a small assembler.

A rule that needs more than the number of the call looks at the lower half of an argument, which is all the kernel
itself looks at where the argument is an `int`. What a pointer leads to cannot be seen. Numbers are those of
`arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`.
"""

import errno
import platform
from typing import Literal

from msgspec import Struct

_LOAD, _JEQ, _JGE, _JSET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NR, _ARCH = 0, 4
"""Offsets in `struct seccomp_data`; argument i is at 16 + 8 i, lower half first on the machines below."""
_X32 = 0x40000000

Target = Literal["next", "allow", "deny"]
Number = tuple[int | None, int | None]
"""A system call on x86_64 and on machines with the generic table; None where it does not exist."""


class Machine(Struct, frozen=True):
    """A processor: its AUDIT_ARCH value, and which number of a pair is its own."""

    arch: int
    column: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 0),
    "aarch64": Machine(0xC00000B7, 1),
    "arm64": Machine(0xC00000B7, 1),
    "riscv64": Machine(0xC00000F3, 1),
}

ALWAYS: dict[str, Number] = {
    # Other views of the file system.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    # System calls that no filter sees.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Keys of the user, and the inside of the kernel.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    # The machine as a whole.
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
}

ATTRIBUTES: dict[str, Number] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}
"""Mode, owner, times and extended attributes, which Landlock does not govern. By a path in a pointer the filter
cannot tell a file that may be written, so they are refused everywhere."""

SHARED: dict[str, Number] = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
}
"""Memory and queues of other processes, where no IPC namespace keeps them apart."""

_CLONE, _CLONE3, _UNSHARE = (56, 220), (435, 435), (272, 97)
_SOCKET, _IOCTL, _PERSONALITY, _PRLIMIT = (41, 198), (16, 29), (135, 92), (302, 261)

_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET (sched.h)."""
_NEWTIME = 0x80
"""Only for unshare; in clone these bits are the exit signal."""
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xFFFFFFFF)
"""PER_LINUX, PER_LINUX32, both with UNAME26, ADDR_NO_RANDOMIZE (debuggers), and the question which it is."""

_INET, _INET6, _NETLINK = 2, 10, 16
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FILE_IOCTLS = (0x5800, 0x6600, 0x7600, 0x9400, 0xF500)
"""Types `X` (XFS and common), `f` and `v` (ext2 and common), btrfs and f2fs, of which those that carry data to the
kernel change flags, labels or subvolumes, even through a file that was opened for reading."""
_IOC_WRITE = 0x40000000
_HARMLESS_IOCTLS = (0x40049409, 0x4020940D, 0xC0189436, 0xC020660B)
"""FICLONE, FICLONERANGE, FIDEDUPERANGE need a file opened for writing; FIEMAP reads."""


class Filter(Struct, frozen=True):
    """What a filter refuses beyond what every filter does."""

    inet: bool
    """Whether Internet sockets may be made: with network, or where a network namespace makes them harmless."""
    attributes: bool
    """Whether mode, owner, times and extended attributes may change, and objects be shared with other processes."""


def supported() -> bool:
    """Whether there is a table for this processor."""
    return platform.machine() in MACHINES


def program(wanted: Filter, machine: str | None = None) -> bytes:
    """The filter as an array of `struct sock_filter`. Raises KeyError for a processor without a table."""
    target = MACHINES[machine or platform.machine()]
    code = [
        _pack(_LOAD, _ARCH),
        _pack(_JEQ, target.arch, 1, 0),
        _pack(_RETURN, _KILL_PROCESS),  # the numbers of another table would mean other calls
        _pack(_LOAD, _NR),
    ]
    if target.column == 0:
        code += [_pack(_JGE, _X32, 0, 1), _pack(_RETURN, _ERRNO | errno.EPERM)]
    refused = dict(ALWAYS) if wanted.attributes else {**ALWAYS, **ATTRIBUTES, **SHARED}
    for number in refused.values():
        code += _rule(number[target.column], [], errno.EPERM)
    code += _rule(_CLONE3[target.column], [], errno.ENOSYS)  # its flags are behind a pointer; libc then uses clone
    code += _rule(_CLONE[target.column], [_any_bit(0, _NAMESPACES)])
    code += _rule(_UNSHARE[target.column], [_any_bit(0, _NAMESPACES | _NEWTIME)])
    families = (_INET, _INET6, _NETLINK) if wanted.inet else (_NETLINK,)
    code += _rule(_SOCKET[target.column], [_one_of(0, families)])
    code += _rule(_PERSONALITY[target.column], [_one_of(0, _PERSONALITIES)])
    code += _rule(_IOCTL[target.column], [_ioctls(files=not wanted.attributes)])
    if not wanted.attributes:
        code += _rule(_PRLIMIT[target.column], [_limits_of_another()])
    return b"".join([*code, _pack(_RETURN, _ALLOW)])


class _Step(Struct, frozen=True):
    code: int
    k: int
    yes: Target = "next"
    no: Target = "next"


def _rule(number: int | None, tests: list[list[_Step]], code: int = errno.EPERM) -> list[bytes]:
    """When the call has `number`, run the tests; without any, or when one leads to "deny", it fails with `code`."""
    if number is None:
        return []
    steps = [step for test in tests for step in test]
    body = [_resolved(step, len(steps) - place - 1) for place, step in enumerate(steps)]
    body.append(_pack(_RETURN, _ERRNO | code))
    if steps:
        body.append(_pack(_RETURN, _ALLOW))
    return [_pack(_JEQ, number, 0, len(body)), *body]


def _resolved(step: _Step, following: int) -> bytes:
    """`deny` is the instruction after the last step, `allow` the one after that."""
    jump = {"next": 0, "deny": following, "allow": following + 1}
    return _pack(step.code, step.k, jump[step.yes], jump[step.no])


def _argument(index: int, *, upper: bool = False) -> _Step:
    return _Step(_LOAD, 16 + 8 * index + (4 if upper else 0))


def _any_bit(index: int, mask: int) -> list[_Step]:
    return [_argument(index), _Step(_JSET, mask, yes="deny", no="allow")]


def _one_of(index: int, values: tuple[int, ...]) -> list[_Step]:
    return [_argument(index), *(_Step(_JEQ, value, yes="allow") for value in values)]


def _ioctls(*, files: bool) -> list[_Step]:
    """Typing into a terminal is refused; with `files`, changing what a file is too."""
    typing = [_argument(1), _Step(_JEQ, _TIOCSTI, yes="deny")]
    if not files:
        return [*typing, _Step(_JEQ, _TIOCLINUX, yes="deny", no="allow")]
    *others, last = _FILE_IOCTLS
    return [
        *typing,
        _Step(_JEQ, _TIOCLINUX, yes="deny"),
        *(_Step(_JEQ, request, yes="allow") for request in _HARMLESS_IOCTLS),
        _Step(_JSET, _IOC_WRITE, no="allow"),
        _Step(_AND, 0xFF00),
        *(_Step(_JEQ, kind, yes="deny") for kind in others),
        _Step(_JEQ, last, yes="deny", no="allow"),
    ]


def _limits_of_another() -> list[_Step]:
    """prlimit(pid, resource, new): setting, for a process that is named."""
    return [
        _argument(0),
        _Step(_JEQ, 0, yes="allow"),
        _argument(2),
        _Step(_JEQ, 0, no="deny"),
        _argument(2, upper=True),
        _Step(_JEQ, 0, yes="allow"),
    ]


def _pack(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    """`struct sock_filter`: u16 code, u8 jt, u8 jf, u32 k."""
    return code.to_bytes(2, "little") + bytes((yes, no)) + k.to_bytes(4, "little")
