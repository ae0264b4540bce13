"""`edit` changes what it was asked to change and not one byte more."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from branchwork.tools.edit import MAX_EDIT_BYTES, prepare
from tests.tools.workplace import Workplace, needs_permissions, text_of


def one(old: str, new: str) -> dict[str, str]:
    return {"oldText": old, "newText": new}


async def edited(place: Workplace, content: str | bytes, *edits: dict[str, str]) -> bytes:
    path = place.file("f", content)
    await place.run("edit", path="f", edits=list(edits))
    return path.read_bytes()


async def refused(place: Workplace, content: str | bytes, *edits: dict[str, str]) -> str:
    path = place.file("f", content)
    before = path.read_bytes()
    message = await place.error("edit", path="f", edits=list(edits))
    assert path.read_bytes() == before
    return message


@pytest.mark.parametrize(
    ("content", "edits", "result"),
    [
        (b"one two three", [one("two", "2")], b"one 2 three"),
        (b"a\nb\nc\n", [one("c\n", "")], b"a\nb\n"),
        (b"a\nb\nc\n", [one("a", "A"), one("c", "C"), one("b", "B")], b"A\nB\nC\n"),
        (b"ab", [one("b", "a"), one("a", "b")], b"ba"),
        (b"x", [one("x", "")], b""),
        # One kind of line end in the file: new lines get it, whatever the edit was written with.
        (b"a\r\nb\r\n", [one("a\nb", "a\nnew\nb")], b"a\r\nnew\r\nb\r\n"),
        (b"a\r\nb\r\n", [one("a\r\nb", "a\nnew\nb")], b"a\r\nnew\r\nb\r\n"),
        (b"a\nb\n", [one("a\r\n", "A\r\nAA\r\n")], b"A\nAA\nb\n"),
        (b"a\r\nlast", [one("last", "last\nmore")], b"a\r\nlast\r\nmore"),
        (b"a\r\nb", [one("a\n", "")], b"b"),
        (b"a\r\nb", [one("\nb", "")], b"a"),
        (b"a", [one("a", "a\nb")], b"a\nb"),
        # Both kinds: lines that stay keep theirs, new ones get that of their neighbour.
        (b"a\r\nb\nc\r\nd\n", [one("a\nb\nc\nd", "a\nB\nc\nD")], b"a\r\nB\nc\r\nD\n"),
        (b"a\r\nb\nc\r\nd\n", [one("a\nb", "a\nnew\nb")], b"a\r\nnew\nb\nc\r\nd\n"),
        (b"a\r\nb\nc\r\nd\n", [one("b\nc", "b\nc\nnew")], b"a\r\nb\nc\r\nnew\r\nd\n"),
        (b"a\r\nb\nc\r\nd\n", [one("a", "A\nAA")], b"A\r\nAA\r\nb\nc\r\nd\n"),
        # A carriage return alone is no line end.
        (b"a\rb\nc\n", [one("c", "d")], b"a\rb\nd\n"),
        # Byte order marks and encodings.
        (b"\xef\xbb\xbfa\r\nb", [one("a", "A")], b"\xef\xbb\xbfA\r\nb"),
        (b"\xef\xbb\xbfa", [one("\ufeffa", "\ufeffA")], b"\xef\xbb\xbfA"),
        (
            b"\xff\xfe" + "a\r\n\u00e9".encode("utf-16-le"),
            [one("a\n", "b\nc\n")],
            b"\xff\xfe" + "b\r\nc\r\n\u00e9".encode("utf-16-le"),
        ),
        (b"\xfe\xff" + "\u00e9".encode("utf-16-be") + b"\xd8\x00", [one("\u00e9", "e")], b"\xfe\xff\x00e\xd8\x00"),
        (b"caf\xe9 one \xff\n", [one("one", "two")], b"caf\xe9 two \xff\n"),
        ("\u65e5\u672c\u8a9e\n".encode(), [one("\u672c", "\U0001f600")], "\u65e5\U0001f600\u8a9e\n".encode()),
        (b"a\x0cb\xe2\x80\xa8c\n", [one("b", "B")], b"a\x0cB\xe2\x80\xa8c\n"),
    ],
)
async def test_exact_passages_are_replaced_and_all_other_bytes_kept(
    place: Workplace, content: bytes, edits: list[dict[str, str]], result: bytes
) -> None:
    assert await edited(place, content, *edits) == result


@pytest.mark.parametrize(
    ("content", "edit", "result"),
    [
        ("say \u201chi\u201d\n", one('say "hi"', "say bye"), "say bye\n"),
        ("it\u2019s\n", one("it's", "it is"), "it is\n"),
        ("a \u2013 b \u2212 c\n", one("a - b - c", "x"), "x\n"),
        ("a\u00a0b\u3000c\n", one("a b c", "x"), "x\n"),
        ("\ufb01le \uff21\n", one("file A", "x"), "x\n"),
        ("cafe\u0301!\n", one("caf\u00e9!", "tea"), "tea\n"),
        ("caf\u00e9!\n", one("cafe\u0301!", "tea"), "tea\n"),
        # Trailing spaces differ; lines that stay the same in the edit keep theirs.
        ("a  \nb\t\nc\n", one("a\nb\nc", "a\nB\nc"), "a  \nB\nc\n"),
        ("a\nb\n", one("a  \nb", "a  \nB"), "a\nB\n"),
        ("if x:\n\n    y\n", one("if x:\n    \n    y", "if x:\n    \n    z"), "if x:\n\n    z\n"),
        # What stands around the passage on its line stays as it is.
        (
            "\u201ckeep\u201d \u2013 old \u2013 \u201ckeep\u201d\n",
            one("- old -", "- new -"),
            "\u201ckeep\u201d - new - \u201ckeep\u201d\n",
        ),
        ("e\u0301 \u2019x\u2019 e\u0301\n", one("'x'", "y"), "e\u0301 y e\u0301\n"),
        ("\u201ca\u201d\r\n\u201cb\u201d\r\n", one('"a"\n"b"', '"a"\nc'), "\u201ca\u201d\r\nc\r\n"),
        ("tail   \nnext", one("tail \nnext", "tail \nNEXT"), "tail   \nNEXT"),
    ],
)
async def test_typography_and_trailing_spaces_do_not_hide_a_passage(
    place: Workplace, content: str, edit: dict[str, str], result: str
) -> None:
    path = place.file("f", content)
    output = await place.run("edit", path="f", edits=[edit])
    assert path.read_bytes().decode() == result
    assert "edits[0] matched only after" in text_of(output)


async def test_an_exact_match_is_taken_before_a_similar_one(place: Workplace) -> None:
    content = 'x = \u201ca\u201d\nx = "a"\n'
    assert await edited(place, content, one('x = "a"', "y")) == "x = \u201ca\u201d\ny\n".encode()


@pytest.mark.parametrize("old", ["i", "e\u0301"])
async def test_half_of_a_folded_character_is_no_match(place: Workplace, old: str) -> None:
    assert "was not found" in await refused(place, "\ufb01 \u1ebf\n", one(old, "x"))


@pytest.mark.parametrize(
    ("content", "edits", "problem"),
    [
        ("a b a\nc a\n", [one("a", "x")], "edits[0].oldText matches 3 places (lines 1, 1, 2)"),
        ("aaa", [one("aa", "x")], "edits[0].oldText matches 2 places (lines 1, 1)"),
        ("\u2018a\u2019 \u2018a\u2019", [one("'a'", "x")], "edits[0].oldText matches 2 places (lines 1, 1)"),
        ("a\n" * 5000, [one("a", "x")], "matches 1000 or more places (lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)"),
        ("a b c", [one("a", "x"), one("", "y")], "edits[1].oldText is empty"),
        ("a b c", [one("a b", "x"), one("c", "d"), one("b c", "y")], "edits[0] and edits[2] overlap"),
        ("a b c", [one("b", "x"), one("b", "y")], "edits[0] and edits[1] overlap"),
        ("a b c", [one("b", "b")], "the edits leave it as it is"),
        ("a\r\n", [one("a\n", "a\r\n")], "the edits leave it as it is"),
        ("a b c", [one("z", "x"), one("c", "d"), one("q", "x")], "edits[2].oldText was not found"),
        ("a b c", [one("   ", "x")], "edits[0].oldText was not found"),
        (b"a\0b", [one("a", "x")], "it is binary"),
        (b"\xff\xfea", [one("a", "x")], "odd number of bytes"),
        (b"caf\xe9 au lait", [one("caf\ufffd", "tea")], "U+FFFD, which stands for bytes that are not UTF-8"),
        (b"caf\xe9 au lait", [one("au", "\ufffd")], "would destroy"),
        ("abc", [one("b", "\ud83d")], "half of a character"),
    ],
)
async def test_an_edit_that_cannot_be_made_changes_nothing_and_says_which_and_why(
    place: Workplace, content: str | bytes, edits: list[dict[str, str]], problem: str
) -> None:
    assert problem in await refused(place, content, *edits)


async def test_every_failing_edit_is_named_at_once(place: Workplace) -> None:
    message = await refused(place, "a b b\n", one("x", "y"), one("b", "c"), one("a", "A"))
    assert "edits[0].oldText was not found" in message
    assert "edits[1].oldText matches 2 places" in message
    assert "edits[2]" not in message


async def test_a_passage_that_is_not_there_comes_with_the_closest_place(place: Workplace) -> None:
    content = "".join(f"def f{number}(x):\n    return x + {number}\n\n" for number in range(50))
    message = await refused(place, content, one("def f30(x):\n\treturn x + 31\n", "pass"))
    assert "The closest place is:\n91: def f30(x):\n92:     return x + 30" in message
    message = await refused(place, content + "the quick brown fox\n", one("the quick red fox", "pass"))
    assert "The closest place is:\n151: the quick brown fox" in message
    assert "closest" not in await refused(place, content, one("nothing like it", "x"))


async def test_the_closest_place_is_short_and_sendable_whatever_the_file_holds(place: Workplace) -> None:
    content = b"word other " + b"\xff" * 100_000 + b"\n" + b"x\n" * 100
    message = await refused(place, content, one("word other thing\n" + "x\n" * 50, ""))
    assert len(message) < 2000


async def test_the_result_tells_people_and_patch_what_changed(place: Workplace) -> None:
    place.file("src/f.py", "".join(f"{number}\n" for number in range(1, 41)))
    output = await place.run("edit", path="src/f.py", edits=[one("\n30\n", "\n30\nnew\n"), one("\n10\n", "\n")])
    assert text_of(output) == "Edited src/f.py: 2 edits, +1 -1 lines, first change at line 10."
    assert output.details == {
        "diff": "    ...\n  7 7\n  8 8\n  9 9\n-10 10\n 10 11\n 11 12\n 12 13\n    ...\n"
        " 27 28\n 28 29\n 29 30\n+30 new\n 31 31\n 32 32\n 33 33",
        "patch": "--- a/src/f.py\n+++ b/src/f.py\n@@ -7,7 +7,6 @@\n 7\n 8\n 9\n-10\n 11\n 12\n 13\n"
        "@@ -28,6 +27,7 @@\n 28\n 29\n 30\n+new\n 31\n 32\n 33\n",
        "firstChangedLine": 10,
        "added": 1,
        "removed": 1,
    }


async def test_characters_written_into_a_file_of_another_encoding_are_told(place: Workplace) -> None:
    place.file("f", b"caf\xe9 one\n")
    text = await place.text("edit", path="f", edits=[one("one", "\u00e9")])
    assert "The file is not UTF-8; all other bytes were kept." in text
    assert "written as UTF-8" in text


async def test_mode_and_link_stay(place: Workplace) -> None:
    target = place.file("real", "a")
    target.chmod(0o711)
    (place.cwd / "link").symlink_to("real")
    await place.run("edit", path="link", edits=[one("a", "b")])
    assert (place.cwd / "link").is_symlink()
    assert target.read_text() == "b"
    assert target.stat().st_mode & 0o777 == 0o711


async def test_a_file_that_read_finds_under_another_spelling_can_be_edited(place: Workplace) -> None:
    path = place.file("it\u2019s.txt", "a")
    await place.run("edit", path="it's.txt", edits=[one("a", "b")])
    assert path.read_text() == "b"


async def test_a_missing_file_is_left_to_write(place: Workplace) -> None:
    message = await place.error("edit", path="nope", edits=[one("a", "b")])
    assert message == "Cannot edit nope: no such file or directory. write creates files."


async def test_a_directory_is_refused(place: Workplace) -> None:
    assert "it is a directory" in await place.error("edit", path=".", edits=[one("a", "b")])


async def test_a_huge_file_is_refused_without_being_read(place: Workplace) -> None:
    path = place.file("f", "a")
    with path.open("r+b") as file:
        file.truncate(MAX_EDIT_BYTES + 1)
    message = await place.error("edit", path="f", edits=[one("a", "b")])
    assert "over the limit of 50 MB" in message
    assert "sed" in message


@needs_permissions
async def test_a_read_only_file_is_refused(place: Workplace) -> None:
    place.file("f", "a").chmod(0o444)
    assert "the file is read-only" in await place.error("edit", path="f", edits=[one("a", "b")])


async def test_concurrent_edits_of_one_file_all_survive(place: Workplace) -> None:
    # Large enough to be worked on in threads.
    path = place.file("f", "".join(f"<{number}>\n" for number in range(300_000)))
    (place.cwd / "link").symlink_to("f")
    await asyncio.gather(
        *(
            place.run("edit", path=("f", "link")[number % 2], edits=[one(f"<{number}>", f"[{number}]")])
            for number in range(8)
        )
    )
    assert path.read_text().startswith("".join(f"[{number}]\n" for number in range(8)) + "<8>\n")


@pytest.mark.slow
async def test_the_largest_file_is_edited_in_reasonable_time_and_output(place: Workplace) -> None:
    path = place.file("f", b"0123456789 abcdefg\r\n" * (MAX_EDIT_BYTES // 20 - 10) + b"the end\r\n")
    output = await place.run("edit", path="f", edits=[one("the end", "the\nend")])
    assert path.read_bytes().endswith(b"g\r\nthe\r\nend\r\n")
    assert len(json.dumps(output.details)) < 1000
    assert "large" in await place.error("edit", path="f", edits=[one("not there", "x")])


EDITS = [{"oldText": "a", "newText": "b"}]


@pytest.mark.parametrize(
    "sent",
    [
        {"path": "f", "edits": EDITS},
        {"path": "f", "edits": EDITS[0]},
        {"path": "f", "edits": json.dumps(EDITS)},
        {"path": "f", "edits": json.dumps(EDITS[0])},
        {"path": "f", "edits": [json.dumps(EDITS[0])]},
        {"path": "f", "oldText": "a", "newText": "b"},
        {"path": "f", "old_text": "a", "new_text": "b"},
        {"path": "f", "old_string": "a", "new_string": "b"},
        {"path": "f", "edits": [], "oldText": "a", "newText": "b"},
        {"path": "f", "edits": [{"old_string": "a", "new_text": "b"}]},
    ],
)
async def test_the_spellings_models_use_all_mean_the_same(place: Workplace, sent: dict[str, Any]) -> None:
    before = json.dumps(sent)
    assert prepare(sent) == {"path": "f", "edits": EDITS}
    assert json.dumps(sent) == before
    path = place.file("f", "a")
    await place.run("edit", **sent)
    assert path.read_text() == "b"


@pytest.mark.parametrize(
    "sent",
    [
        {"path": "f"},
        {"path": "f", "edits": []},
        {"path": "f", "edits": "not json"},
        {"path": "f", "edits": 7},
        {"path": "f", "edits": [{"oldText": "a"}]},
        {"path": "f", "oldText": "a"},
        {"path": "f", "edits": [{"oldText": "a", "newText": "b", "replaceAll": True}]},
    ],
)
async def test_what_cannot_be_understood_is_left_to_validation(place: Workplace, sent: dict[str, Any]) -> None:
    place.file("f", "a")
    assert "Invalid arguments for edit" in await place.error("edit", **sent)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    place = Workplace(tmp_path)
    place.file("f", "a")
    asyncio.run(place.run("edit", path="f", edits=EDITS))
    assert [path.name for path in place.cwd.iterdir()] == ["f"]
