"""`find` matches globs against names or paths, quickly even for hostile patterns."""

import os
import time

import pytest

from branchwork.tools.find import MAX_RESULTS
from tests.tools.workplace import Workplace, needs_permissions

FILES = (
    "README.md",
    "Makefile",
    "src/app.py",
    "src/App.tsx",
    "src/util/text.py",
    "src/util/deep/er/text.py",
    "tests/test_app.py",
    "tests/data/a-b.txt",
    "tests/data/[x].txt",
    "tests/data/{y}.txt",
    ".config/settings.toml",
    "build/app.py",
    ".git/HEAD",
)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("text.py", ["src/util/deep/er/text.py", "src/util/text.py"]),
        ("*.toml", [".config/settings.toml"]),
        ("app.*", ["src/App.tsx", "src/app.py"]),
        ("App.*", ["src/App.tsx"]),
        ("readme.md", ["README.md"]),
        ("src/*.py", ["src/app.py"]),
        ("/src/*.py", ["src/app.py"]),
        ("./src/*.py", ["src/app.py"]),
        ("util/*.py", []),
        ("**/*.py", ["src/app.py", "src/util/deep/er/text.py", "src/util/text.py", "tests/test_app.py"]),
        ("src/**/*.py", ["src/app.py", "src/util/deep/er/text.py", "src/util/text.py"]),
        ("src/**/deep/**/*.py", ["src/util/deep/er/text.py"]),
        ("**/util/**", ["src/util/deep/", "src/util/deep/er/", "src/util/deep/er/text.py", "src/util/text.py"]),
        ("src/util/**", ["src/util/deep/", "src/util/deep/er/", "src/util/deep/er/text.py", "src/util/text.py"]),
        ("util", ["src/util/"]),
        ("u*/", ["src/util/"]),
        ("app.py/", []),
        ("src/*/", ["src/util/"]),
        ("{src,tests}/*.py", ["src/app.py", "tests/test_app.py"]),
        ("*.{tsx,{md,toml}}", [".config/settings.toml", "README.md", "src/App.tsx"]),
        ("test{,_app}.py", ["tests/test_app.py"]),
        ("?-?.txt", ["tests/data/a-b.txt"]),
        ("[a-c]-b.txt", ["tests/data/a-b.txt"]),
        ("[!b]-b.txt", ["tests/data/a-b.txt"]),
        ("[^a]-b.txt", []),
        ("src/util[+-0]text.py", []),
        ("\\[x\\].txt", ["tests/data/[x].txt"]),
        ("[[]x[]].txt", ["tests/data/[x].txt"]),
        ("{y}.txt", ["tests/data/{y}.txt"]),
        ("a+b", []),
        ("HEAD", []),
        ("(", []),
        ("[", []),
    ],
)
async def test_a_pattern_finds_what_it_describes(place: Workplace, pattern: str, found: list[str]) -> None:
    for name in FILES:
        place.file(name)
    place.file(".gitignore", "build/\n")
    text = await place.text("find", pattern=pattern)
    assert text.split("\n") == (found or [f"Nothing matches {pattern!r}."])


async def test_results_are_relative_to_the_searched_folder(place: Workplace) -> None:
    for name in FILES:
        place.file(name)
    assert await place.text("find", pattern="*.py", path="src/util") == "deep/er/text.py\ntext.py"
    assert await place.text("find", pattern=f"{place.cwd}/src/util/*.py", path="src/util") == "text.py"


async def test_the_limit_is_told_only_when_there_is_more(place: Workplace) -> None:
    for number in range(5):
        place.file(f"f{number}")
    assert await place.text("find", pattern="f*", limit=5) == "f0\nf1\nf2\nf3\nf4"
    text = await place.text("find", pattern="f*", limit=4)
    assert text.endswith("\n\n[4 results, the limit; there are more. Narrow the search or raise limit.]")


async def test_the_default_limits_hold(place: Workplace) -> None:
    for number in range(MAX_RESULTS + 1):
        place.file(f"{number:04}")
    assert f"[{MAX_RESULTS} results, the limit" in await place.text("find", pattern="*")
    for number in range(400):
        place.file(f"long/{'x' * 200}{number}")
    assert "Stopped after 50 KiB of output" in await place.text("find", pattern="x*")


async def test_hostile_names_stay_on_their_line(place: Workplace) -> None:
    for name in (b"new\nline", b"caf\xe9", b" lead"):
        (place.cwd / os.fsdecode(name)).write_text("")
    assert await place.text("find", pattern="*") == " lead\ncaf\\xe9\nnew\\x0aline"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"pattern": "x", "path": "nope"}, "Cannot search nope: no such file or directory."),
        ({"pattern": "x", "path": "file"}, "it is not a directory"),
        ({"pattern": "[z-a]"}, "Invalid character class [z-a]"),
        ({"pattern": "{a,b}" * 20}, "more than 1000 alternatives"),
        ({"pattern": ""}, "Invalid arguments for find"),
    ],
)
async def test_what_cannot_be_searched_is_an_error_that_says_why(
    place: Workplace, arguments: dict[str, object], problem: str
) -> None:
    place.file("file")
    assert problem in await place.error("find", **arguments)


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 30 + "*b", "**/" * 20 + "b", "**/a*/" * 12 + "b", "**/*a*a*a*a*a*a/**/*a*a*a*a*a/**/b", "[+--]", "[[a]"],
)
async def test_no_pattern_is_slow_or_noisy(place: Workplace, pattern: str) -> None:
    place.file("/".join(["a" * 60] * 40))
    start = time.process_time()
    await place.text("find", pattern=pattern)
    assert time.process_time() - start < 2


async def test_links_are_not_followed(place: Workplace) -> None:
    place.file("real/f")
    (place.cwd / "loop").symlink_to(".")
    assert await place.text("find", pattern="f") == "real/f"
    assert await place.text("find", pattern="f", path="loop") == "real/f"


@needs_permissions
async def test_folders_that_cannot_be_read_are_told(place: Workplace) -> None:
    place.file("open/f")
    closed = place.file("closed/f").parent
    closed.chmod(0)
    try:
        assert await place.text("find", pattern="f") == "open/f\n\n[1 folders could not be read.]"
    finally:
        closed.chmod(0o755)
