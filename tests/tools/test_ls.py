"""`ls` lists every entry of a directory, whatever it is called and whatever it is."""

import os

import pytest

from tests.tools.workplace import Workplace, needs_permissions


async def test_entries_are_sorted_without_regard_to_case_and_marked(place: Workplace) -> None:
    for name in ("b.txt", "A.txt", "a.txt", ".hidden", "Zoo/x", "\u00e9"):
        place.file(name)
    (place.cwd / "link").symlink_to("Zoo")
    (place.cwd / "broken").symlink_to("nowhere/at all")
    (place.cwd / "self").symlink_to("self")
    os.mkfifo(place.cwd / "pipe")
    assert (await place.text("ls")).split("\n") == [
        ".hidden",
        "A.txt",
        "a.txt",
        "b.txt",
        "broken@ -> nowhere/at all (broken)",
        "link@ -> Zoo",
        "pipe (FIFO)",
        "self@ -> self (broken)",
        "Zoo/",
        "\u00e9",
    ]


async def test_an_empty_directory_is_an_answer(place: Workplace) -> None:
    assert await place.text("ls", path=".") == "[The directory is empty.]"


async def test_a_link_to_a_directory_can_be_listed(place: Workplace) -> None:
    place.file("real/f")
    (place.cwd / "link").symlink_to("real")
    assert await place.text("ls", path="link") == "f"


async def test_the_limit_is_told_with_the_number_of_all_entries(place: Workplace) -> None:
    for number in range(7):
        place.file(f"f{number}")
    output = await place.run("ls", limit=3)
    assert await place.text("ls", limit=3) == "f0\nf1\nf2\n\n[3 of 7 entries shown; raise limit for more.]"
    assert output.details == {"entries": 3, "total": 7}
    assert (await place.text("ls", limit=7)).count("\n") == 6


async def test_output_stops_at_the_size_limit(place: Workplace) -> None:
    for number in range(300):
        place.file(f"{number:03}{'x' * 200}")
    assert "of 300 entries shown; 50 KiB limit.]" in await place.text("ls")


async def test_thousands_of_entries_are_listed_too(place: Workplace) -> None:
    for number in range(8000):
        os.mknod(place.cwd / f"{number:06}{'-' * 40}")
    text = await place.text("ls", limit=2)
    assert text.endswith("[2 of 8000 entries shown; raise limit for more.]")


async def test_hostile_names_stay_on_their_line(place: Workplace) -> None:
    for name in (b"new\nline", b"caf\xe9", b"\x1b[31mred"):
        (place.cwd / os.fsdecode(name)).write_text("")
    (place.cwd / "to").symlink_to(os.fsdecode(b"caf\xe9"))
    assert (await place.text("ls")).split("\n") == ["\\x1b[31mred", "caf\\xe9", "new\\x0aline", "to@ -> caf\\xe9"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("file", "Cannot list file: it is not a directory. read shows files."),
        ("nope", "Cannot list nope: no such file or directory."),
        ("file/x", "Cannot list file/x: a part of the path is a file, not a directory."),
    ],
)
async def test_what_cannot_be_listed_is_one_clear_line(place: Workplace, path: str, problem: str) -> None:
    place.file("file")
    assert await place.error("ls", path=path) == problem


@needs_permissions
async def test_entries_that_cannot_be_read_are_marked(place: Workplace) -> None:
    place.file("secret").chmod(0)
    (place.cwd / "closed").mkdir(mode=0)
    assert await place.text("ls") == "closed/ (not readable)\nsecret (not readable)"
