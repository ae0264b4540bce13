"""`read` shows whole lines, says what is missing, and never holds more of a file than it shows."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.agent.toolset import ToolError
from branchwork.tools.files import BINARY_PROBE
from branchwork.tools.read import COUNT_BYTES, page_of
from branchwork.tools.truncate import MAX_BYTES, MAX_LINES
from tests.tools.workplace import Workplace, printed_by, text_of


@pytest.mark.parametrize(
    ("content", "arguments", "shown"),
    [
        (b"one\ntwo\n", {}, "one\ntwo\n"),
        (b"one\ntwo", {}, "one\ntwo"),
        (b"", {}, "[The file is empty.]"),
        (b"\n", {}, "\n"),
        (b"one\r\ntwo\r\n", {}, "one\ntwo\n"),
        (b"\xef\xbb\xbfone\n", {}, "one\n"),
        (b"a\nb\nc\n", {"limit": 2}, "a\nb\n\n[Lines 1-2 of 3. Continue with offset=3.]"),
        (b"a\nb\nc\n", {"limit": 3}, "a\nb\nc\n"),
        (b"a\nb\nc\n", {"offset": 2, "limit": 1}, "b\n\n[Lines 2-2 of 3. Continue with offset=3.]"),
        (b"a\nb\nc", {"offset": 2}, "b\nc\n\n[Lines 2-3 of 3, the end.]"),
        (b"a\nb\nc", {"offset": 3}, "c\n\n[Lines 3-3 of 3, the end.]"),
        (b"a\nb\n", {"offset": 0}, "a\nb\n"),
        (b"a\nb\n", {"offset": "2"}, "b\n\n[Lines 2-2 of 2, the end.]"),
        (b"a\nb\n", {"offset": None, "limit": None}, "a\nb\n"),
        (b"caf\xe9\n", {}, "caf\ufffd\n\n[Bytes that are not valid UTF-8 are shown as \ufffd.]"),
        ("h\u00e9\n".encode("utf-16"), {}, "h\u00e9\n\n[Decoded from UTF-16-LE.]"),
        (b"\xfe\xff" + "a\r\nb".encode("utf-16-be"), {}, "a\nb\n\n[Decoded from UTF-16-BE.]"),
        ("\ufeffa\n".encode("utf-32-le"), {}, "a\n\n[Decoded from UTF-32-LE.]"),
        (b"x" * 9000 + b"\0\n", {}, "x" * 9000 + "\u2400\n\n[NUL bytes are shown as \u2400.]"),
        (b"BM is how this sentence begins.\n", {}, "BM is how this sentence begins.\n"),
    ],
)
async def test_text_is_shown_as_it_is_with_a_notice_when_something_is_missing_or_changed(
    place: Workplace, content: bytes, arguments: dict[str, object], shown: str
) -> None:
    place.file("f", content)
    assert await place.text("read", path="f", **arguments) == shown


async def test_a_long_file_is_cut_after_the_line_limit(place: Workplace) -> None:
    place.file("f", "".join(f"{number}\n" for number in range(1, 2 * MAX_LINES + 1)))
    output = await place.run("read", path="f")
    text = text_of(output)
    assert text.endswith(
        f"\n{MAX_LINES}\n\n[Lines 1-{MAX_LINES} of {2 * MAX_LINES}. Continue with offset={MAX_LINES + 1}.]"
    )
    assert output.details["truncation"]["by"] == "lines"
    rest = await place.text("read", path="f", offset=MAX_LINES + 1)
    assert rest.startswith(f"{MAX_LINES + 1}\n")
    assert rest.endswith("the end.]")


async def test_a_limit_above_the_maximum_does_not_lift_it(place: Workplace) -> None:
    place.file("f", "x\n" * (MAX_LINES + 1))
    assert f"Lines 1-{MAX_LINES} of {MAX_LINES + 1}" in await place.text("read", path="f", limit=10**9)


async def test_wide_lines_are_cut_at_whole_lines_below_the_size_limit(place: Workplace) -> None:
    line = "\u00e9" * 499 + "\n"
    place.file("f", line * 100)
    output = await place.run("read", path="f")
    count = MAX_BYTES // len(line.encode())
    assert text_of(output) == (
        line * count + f"\n[Lines 1-{count} of 100 (50 KiB limit). Continue with offset={count + 1}.]"
    )
    assert output.details["truncation"]["kept_bytes"] == count * len(line.encode())


@pytest.mark.parametrize("size", [MAX_BYTES - 1, MAX_BYTES])
async def test_one_line_that_just_fits_is_shown(place: Workplace, size: int) -> None:
    place.file("f", "x" * size)
    assert await place.text("read", path="f") == "x" * size
    place.file("g", "x" * (size - 1) + "\n")
    assert await place.text("read", path="g") == "x" * (size - 1) + "\n"


@pytest.mark.parametrize(("before", "name"), [(0, "f"), (3, "odd 'name"), (1, "new\nline")])
async def test_a_line_that_is_too_long_comes_with_a_command_that_shows_its_beginning(
    place: Workplace, before: int, name: str
) -> None:
    place.file(name, "short\n" * before + "y" * (MAX_BYTES + 1) + "\nend\n")
    text = await place.text("read", path=name, offset=before + 1)
    assert f"Line {before + 1} alone is longer than 50 KiB" in text
    command = text.removesuffix("]").partition("run in bash: ")[2]
    assert printed_by(command) == b"y" * MAX_BYTES


async def test_a_long_line_in_the_middle_ends_the_page_before_it(place: Workplace) -> None:
    place.file("f", "a\n" + "y" * (MAX_BYTES + 1) + "\nend\n")
    assert await place.text("read", path="f") == "a\n\n[Lines 1-1 of 3 (50 KiB limit). Continue with offset=2.]"


@pytest.mark.parametrize(
    ("content", "offset", "have"),
    [(b"", 2, "is empty"), (b"a", 2, "has 1 line"), (b"a\n", 2, "has 1 line"), (b"a\nb\nc", 9, "has 3 lines")],
)
async def test_an_offset_past_the_end_tells_how_many_lines_there_are(
    place: Workplace, content: bytes, offset: int, have: str
) -> None:
    place.file("f", content)
    assert await place.error("read", path="f", offset=offset) == f"Cannot read f from line {offset}: the file {have}."


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        (b"\x7fELF\x02\x01\x01\0\0", "ELF executable"),
        (b"%PDF-1.7\nno NUL so far", "PDF"),
        (b"PK\x03\x04\0\0", "ZIP"),
        (b"SQLite format 3\0", "SQLite"),
        (b"abc\0def", "type unknown"),
        ("plain words".encode("utf-16-le"), "UTF-16 without a byte order mark"),
    ],
)
async def test_binary_files_are_refused_with_their_size_and_a_guess(
    place: Workplace, content: bytes, guess: str
) -> None:
    place.file("f", content)
    message = await place.error("read", path="f")
    assert "it is binary" in message
    assert f"({len(content)} B, " in message
    assert guess in message


async def test_directories_are_left_to_ls(place: Workplace) -> None:
    assert await place.error("read", path=".") == "Cannot read .: it is a directory. ls lists what is in it."


@pytest.mark.parametrize("tool", ["read", "edit", "write"])
async def test_pipes_sockets_and_devices_are_refused_without_opening_them(
    place: Workplace, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(place.cwd / "pipe")
    rest: dict[str, object] = {"content": "x"} if tool == "write" else {}
    if tool == "edit":
        rest = {"edits": [{"oldText": "a", "newText": "b"}]}
    assert "it is a FIFO" in await place.error(tool, path="pipe", **rest)
    assert "it is a character device" in await place.error(tool, path="/dev/null", **rest)
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(place.cwd)  # a socket's path is limited to about 100 bytes
        server.bind("sock")
        assert "it is a socket" in await place.error(tool, path="sock", **rest)


async def test_a_missing_file_is_one_clear_line(place: Workplace) -> None:
    assert await place.error("read", path="nope.txt") == "Cannot read nope.txt: no such file or directory."
    place.file("f")
    assert "a part of the path is a file" in await place.error("read", path="f/x")
    assert "name is too long" in await place.error("read", path="x" * 300)


async def test_a_file_that_states_no_size_is_read_all_the_same(place: Workplace) -> None:
    path = Path("/proc/self/status")
    if not path.exists():
        pytest.skip("no /proc here")
    assert "VmRSS" in await place.text("read", path=str(path))


async def test_lines_far_behind_are_not_counted(place: Workplace) -> None:
    path = place.file("f", "first\n" + "x" * BINARY_PROBE + "\n")
    os.truncate(path, COUNT_BYTES + (4 << 20))  # sparse: it takes no space
    output = await place.run("read", path="f", limit=1)
    assert text_of(output) == "first\n\n[Lines 1-1 of more than 2. Continue with offset=2.]"
    assert output.details["truncation"]["total_lines"] is None


@given(
    st.lists(st.sampled_from([b"", b"a", b"\n", b"\n\n", b"caf\xc3\xa9\r\n", b"x" * 30_000, b"last"]), max_size=12),
    st.integers(1, 15),
    st.integers(1, 5),
)
def test_a_page_does_not_depend_on_how_the_file_arrives(pieces: list[bytes], first: int, limit: int) -> None:
    content = b"".join(pieces)
    lines = content.splitlines(keepends=True) if b"\r" not in content else content.replace(b"\r", b"?").splitlines(True)
    if first > max(len(lines), 1):
        with pytest.raises(ToolError, match="empty" if not lines else f"has {len(lines)} line"):
            page_of(iter(filter(None, pieces)), first, limit, "f")
        return
    page = page_of(iter(filter(None, pieces)), first, limit, "f")
    assert page == page_of(iter([content] if content else []), first, limit, "f")
    kept: list[bytes] = []
    for line in lines[first - 1 : first - 1 + limit]:
        if sum(map(len, kept)) + len(line) > MAX_BYTES:
            break
        kept.append(line)
    assert page.data.replace(b"\r", b"?") == b"".join(kept)
    assert (page.count, page.total, page.counted) == (len(kept), len(lines), True)
    assert page.more == (first - 1 + len(kept) < len(lines))


MEASURE = """
import asyncio, resource, sys
from pathlib import Path
from branchwork.agent.toolset import FileLocks, ToolContext, ToolError
from branchwork.testing.harness import memory_tree
from branchwork.tools.read import ReadArgs, read
folder = Path(sys.argv[1])
ctx = ToolContext(call_id="c", cwd=folder, home=folder, env={}, scratch=folder, locks=FileLocks(),
                  progress=lambda output: None, images=False, tree=memory_tree())
for offset in map(int, sys.argv[3:]):
    try:
        print(len(asyncio.run(read(ReadArgs(path=sys.argv[2], offset=offset), ctx)).content[0].text))
    except ToolError as error:
        print(error)
status = Path("/proc/self/status")
if status.exists():  # on Linux ru_maxrss begins with the size of the parent (exec_mmap keeps the old maximum)
    print(int(status.read_text().partition("VmHWM:")[2].split()[0]) // 1024)
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 * 1024))
"""


@pytest.mark.slow
@pytest.mark.parametrize("line", [64, 0])
def test_a_file_of_a_gigabyte_is_read_in_less_than_100_megabytes(tmp_path: Path, line: int) -> None:
    block = (b"x" * (line - 1) + b"\n" if line else b"x" * 64) * (1 << 14)
    with (tmp_path / "big").open("wb") as file:
        for _ in range(1 << 10):
            file.write(block)
    lines = (1 << 30) // line if line else 1
    try:
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(tmp_path), "big", "1", str(lines), str(lines + 1)],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        (tmp_path / "big").unlink()
    *_, past, megabytes = done.stdout.splitlines()
    assert past.endswith(f"has {lines} line{'s' if lines > 1 else ''}.")
    assert int(megabytes) < 100
