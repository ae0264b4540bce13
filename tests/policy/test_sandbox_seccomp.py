"""The filters, run by an interpreter of their small language, so that every processor is tested on any."""

import errno
import platform
import re
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.policy.sandbox import seccomp
from branchwork.policy.sandbox.seccomp import ALWAYS, ATTRIBUTES, MACHINES, SHARED, Filter, program

BWRAP, LANDLOCK, LANDLOCK_WITH_NETWORK = Filter(True, True), Filter(False, False), Filter(True, False)
FILTERS = (BWRAP, LANDLOCK, LANDLOCK_WITH_NETWORK)
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSED, MISSING = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
machines = pytest.mark.parametrize("machine", sorted(MACHINES))


def judge(code: bytes, number: int, arguments: tuple[int, ...] = (), *, arch: int) -> int:
    """What the kernel answers (Documentation/userspace-api/seccomp_filter.rst, classic BPF)."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, arch, 0, *padded)
    at, accumulator = 0, 0
    while True:
        operation, yes, no, k = struct.unpack_from("<HBBI", code, at * 8)
        at += 1
        if operation == 0x06:
            return int(k)
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, k)[0]
        elif operation == 0x54:
            accumulator &= k
        else:
            holds = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: accumulator & k != 0}[operation]
            at += yes if holds else no


def ask(wanted: Filter, machine: str, pair: tuple[int | None, int | None], *arguments: int) -> int:
    number = pair[MACHINES[machine].column]
    assert number is not None
    return judge(program(wanted, machine), number, arguments, arch=MACHINES[machine].arch)


@machines
@pytest.mark.parametrize("wanted", FILTERS)
def test_what_is_never_allowed_is_refused(machine: str, wanted: Filter) -> None:
    for name, pair in ALWAYS.items():
        if pair[MACHINES[machine].column] is not None:
            assert ask(wanted, machine, pair) == REFUSED, name


NEEDED = set(
    """
mount umount2 pivot_root chroot open_tree move_mount fsopen fsmount fsconfig
mount_setattr setns open_by_handle_at io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key
bpf perf_event_open userfaultfd chmod fchmod fchmodat fchmodat2 chown fchown
lchown fchownat utime utimes futimesat utimensat setxattr lsetxattr fsetxattr
removexattr lremovexattr fremovexattr setxattrat removexattrat file_setattr shmget shmat msgget
semget mq_open
""".split()  # noqa: SIM905  # a list of this length is not read by anyone
)


def test_the_calls_that_mattered_before_are_in_the_tables() -> None:
    assert NEEDED - {*ALWAYS, *ATTRIBUTES, *SHARED} == set()


@machines
def test_attributes_and_shared_objects_are_refused_only_where_nothing_else_governs_them(machine: str) -> None:
    for name, pair in {**ATTRIBUTES, **SHARED}.items():
        if pair[MACHINES[machine].column] is not None:
            assert ask(LANDLOCK, machine, pair) == REFUSED, name
            assert ask(BWRAP, machine, pair) == ALLOW, name


@machines
@pytest.mark.parametrize("wanted", FILTERS)
def test_every_other_call_is_allowed(machine: str, wanted: Filter) -> None:
    """openat, read, write, execve, kill, exit_group, ptrace, socketpair."""
    for pair in ((257, 56), (0, 63), (1, 64), (59, 221), (62, 129), (231, 94), (101, 117), (53, 199)):
        assert ask(wanted, machine, pair) == ALLOW


@machines
def test_a_process_is_made_but_not_a_namespace(machine: str) -> None:
    clone, clone3, unshare = (56, 220), (435, 435), (272, 97)
    assert ask(BWRAP, machine, clone, 0x1200011) == ALLOW
    assert ask(BWRAP, machine, clone, 0x3D0F00) == ALLOW  # a thread, as libc makes it
    assert ask(BWRAP, machine, clone3) == MISSING
    assert ask(BWRAP, machine, unshare, 0x400) == ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask(BWRAP, machine, clone, flag | 17) == REFUSED
        assert ask(BWRAP, machine, unshare, flag) == REFUSED
    assert ask(BWRAP, machine, unshare, 0x80) == REFUSED


@machines
@given(family=st.integers(0, 2**32 - 1), upper=st.integers(0, 2**32 - 1))
def test_only_known_families_of_sockets_are_made(machine: str, family: int, upper: int) -> None:
    socket = (41, 198)
    allowed = {BWRAP: (2, 10, 16), LANDLOCK: (16,), LANDLOCK_WITH_NETWORK: (2, 10, 16)}
    for wanted, families in allowed.items():
        answer = ask(wanted, machine, socket, upper << 32 | family)
        assert answer == (ALLOW if family in families else REFUSED)


@machines
def test_terminals_are_not_typed_into_and_files_keep_their_flags(machine: str) -> None:
    ioctl = (16, 29)
    for request in (0x5412, 0x541C, 0xFFFFFFFF00005412):
        for wanted in FILTERS:
            assert ask(wanted, machine, ioctl, 1, request) == REFUSED
    for request in (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x800C6613 | 0x40000000, 0x50009417, 0x5000940F):
        assert ask(LANDLOCK, machine, ioctl, 1, request) == REFUSED
        assert ask(BWRAP, machine, ioctl, 1, request) == ALLOW
    for request in (0x5401, 0x5413, 0x541B, 0x80086601, 0x801C581F, 0xC020660B, 0x40049409, 0x4020940D, 0x5421):
        assert ask(LANDLOCK, machine, ioctl, 1, request) == ALLOW


@machines
def test_limits_are_read_of_all_and_set_for_itself(machine: str) -> None:
    prlimit = (302, 261)
    assert ask(LANDLOCK, machine, prlimit, 0, 7, 0x7FFF00000000) == ALLOW
    assert ask(LANDLOCK, machine, prlimit, 5, 7, 0) == ALLOW
    assert ask(LANDLOCK, machine, prlimit, 5, 7, 0x7FFF00000000) == REFUSED
    assert ask(LANDLOCK, machine, prlimit, 5, 7, 0x10) == REFUSED


@machines
def test_the_personality_is_asked_for_but_hardly_changed(machine: str) -> None:
    personality = (135, 92)
    assert ask(BWRAP, machine, personality, 0xFFFFFFFF) == ALLOW
    assert ask(BWRAP, machine, personality, 0x0400000) == REFUSED


def test_the_numbers_of_another_table_end_the_process() -> None:
    code = program(BWRAP, "x86_64")
    assert judge(code, 0, arch=0x40000003) == KILL  # i386, also through the old interrupt
    assert judge(code, 0x40000000, arch=MACHINES["x86_64"].arch) == REFUSED  # x32
    assert judge(code, 0x40000000 + 257, arch=MACHINES["x86_64"].arch) == REFUSED


@machines
@pytest.mark.parametrize("wanted", FILTERS)
def test_a_program_is_within_the_limit_of_the_kernel(machine: str, wanted: Filter) -> None:
    assert len(program(wanted, machine)) % 8 == 0
    assert len(program(wanted, machine)) // 8 <= 4096


def headers() -> dict[int, dict[str, int]]:
    """Column to the table that the system's headers have, where they are installed."""
    found = {}
    for column, pattern in enumerate(("*/asm/unistd_64.h", "asm-generic/unistd.h")):
        for path in Path("/usr/include").glob(pattern):
            lines = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            found[column] = {name: int(number) for name, number in lines}
    return found


@pytest.mark.skipif(sys.platform != "linux" or not headers(), reason="needs the headers of Linux")
def test_the_numbers_are_those_of_the_kernel() -> None:
    table = {
        **ALWAYS,
        **ATTRIBUTES,
        **SHARED,
        "clone": seccomp._CLONE,
        "clone3": seccomp._CLONE3,
        "unshare": seccomp._UNSHARE,
        "socket": seccomp._SOCKET,
        "ioctl": seccomp._IOCTL,
        "personality": seccomp._PERSONALITY,
        "prlimit64": seccomp._PRLIMIT,
    }
    checked = 0
    for column, known in headers().items():
        if column == 0 and platform.machine() != "x86_64":
            continue
        for name, pair in table.items():
            if name in known:  # headers may be older than the newest calls
                assert pair[column] == known[name], name
                checked += 1
            elif pair[column] is not None and max(known.values()) > pair[column]:  # type: ignore[operator]
                pytest.fail(f"{name} is not in the table")
    assert checked > 50
