"""A path means what the model wrote, and only if that does not exist, what it probably meant."""

import os
import unicodedata
from pathlib import Path

import pytest

from branchwork.agent.toolset import ToolError
from branchwork.tools.paths import locate, relative, resolve, shell_word, shown
from tests.tools.workplace import Workplace, needs_permissions, printed_by


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("a.txt", "work/a.txt"),
        ("./sub/../a.txt", "work/sub/../a.txt"),
        ("../a.txt", "work/../a.txt"),
        ("", "work"),
        (".", "work"),
        ("~", "home"),
        ("~/notes.md", "home/notes.md"),
        ("~//etc/passwd", "home/etc/passwd"),
        ("~other/x", "work/~other/x"),
        ("@a.txt", "work/a.txt"),
        ("@~/notes.md", "home/notes.md"),
        ("@@a.txt", "work/@a.txt"),
        ("with space.txt", "work/with space.txt"),
        ("odd\u00a0space\u202f.txt", "work/odd space .txt"),
        ("a\\x41.txt", "work/a\\x41.txt"),
    ],
)
def test_a_path_that_does_not_exist_has_its_plain_meaning(place: Workplace, text: str, means: str) -> None:
    assert resolve(text, place.context()) == place.cwd.parent / means


def test_an_absolute_path_is_kept(place: Workplace) -> None:
    assert resolve("/etc//hosts", place.context()) == Path("/etc/hosts")


@pytest.mark.parametrize(
    "name", ["@a.txt", "odd\u00a0space", "a\\xff", "~weird", " lead", "trail ", "-rf", "new\nline", "'"]
)
def test_a_literal_name_that_exists_always_wins(place: Workplace, name: str) -> None:
    path = place.file(name)
    place.file("a.txt")
    place.file("odd space")
    assert resolve(name, place.context(), similar=True) == path


def test_a_new_file_in_a_folder_with_an_at_sign_keeps_it(place: Workplace) -> None:
    (place.cwd / "@types").mkdir()
    assert resolve("@types/index.d.ts", place.context()) == place.cwd / "@types/index.d.ts"


@pytest.mark.parametrize(
    ("written", "on_disk"),
    [
        ("Screenshot 2025-01-02 at 3.04.05 PM.png", "Screenshot 2025-01-02 at 3.04.05\u202fPM.png"),
        ("shot at 9.00 am.png", "shot at 9.00\u202fam.png"),
        ("it's.txt", "it\u2019s.txt"),
        ("caf\u00e9.txt", unicodedata.normalize("NFD", "caf\u00e9.txt")),
        (unicodedata.normalize("NFD", "caf\u00e9.txt"), "caf\u00e9.txt"),
        ("l'\u00e9t\u00e9.txt", unicodedata.normalize("NFD", "l\u2019\u00e9t\u00e9.txt")),
        ("two\u00a0words.txt", "two words.txt"),
    ],
)
def test_other_spellings_find_a_file_that_exists_but_never_name_a_new_one(
    place: Workplace, written: str, on_disk: str
) -> None:
    path = place.file(on_disk)
    assert resolve(written, place.context(), similar=True) == path
    if "\u00a0" not in written:
        assert resolve(written, place.context()) != path


def test_a_name_that_is_not_utf8_can_be_named_as_it_is_shown(place: Workplace) -> None:
    path = place.cwd / os.fsdecode(b"caf\xe9.txt")
    path.write_text("x")
    name = shown(path.name)
    assert name == "caf\\xe9.txt"
    assert resolve(name, place.context()) == path


@pytest.mark.parametrize("text", ["a\0b", "half \ud800 character"])
def test_text_that_cannot_be_a_path_is_refused(place: Workplace, text: str) -> None:
    with pytest.raises(ToolError, match="Invalid path"):
        resolve(text, place.context())


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain.txt", "plain.txt"),
        ("new\nline\x1b[31m\x7f", "new\\x0aline\\x1b[31m\\x7f"),
        ("\udcff\udc80", "\\xff\\x80"),
        ("\ud800", "\ufffd"),
        ("caf\u00e9 \u65e5\u672c", "caf\u00e9 \u65e5\u672c"),
    ],
)
def test_a_shown_name_is_one_harmless_line(text: str, safe: str) -> None:
    assert shown(text) == safe
    shown(text).encode()


def test_a_name_below_the_working_directory_is_shown_relative_to_it() -> None:
    assert relative(Path("/w/src/a"), Path("/w")) == "src/a"
    assert relative(Path("/other/a"), Path("/w")) == "/other/a"


@pytest.mark.parametrize("name", ["plain", "two words", "quo'te", "new\nline", "back\\slash\t'x'", "\udcff"])
def test_a_shell_word_is_the_name_again_for_bash(name: str) -> None:
    assert printed_by(f"printf %s {shell_word(name)}") == os.fsencode(name)


@pytest.mark.parametrize("tool", ["read", "edit", "write", "grep", "find", "ls"])
async def test_a_loop_of_links_is_one_clear_line_from_every_tool(place: Workplace, tool: str) -> None:
    (place.cwd / "one").symlink_to("two")
    (place.cwd / "two").symlink_to("one")
    rest: dict[str, object] = {
        "edit": {"edits": [{"oldText": "a", "newText": "b"}]},
        "write": {"content": "x"},
        "grep": {"pattern": "x"},
        "find": {"pattern": "x"},
    }.get(tool, {})  # type: ignore[assignment]
    message = await place.error(tool, path="one", **rest)
    assert message.count("\n") == 0
    assert "its symbolic links form a loop" in message


async def test_a_dangling_link_says_where_it_points(place: Workplace) -> None:
    (place.cwd / "link").symlink_to("gone.txt")
    assert await place.error("read", path="link") == (
        "Cannot read link: it is a symbolic link to gone.txt, which does not exist."
    )


@needs_permissions
async def test_missing_permissions_are_one_clear_line(place: Workplace) -> None:
    secret = place.file("closed/secret.txt", "x")
    secret.parent.chmod(0)
    try:
        assert (
            await place.error("read", path="closed/secret.txt") == "Cannot read closed/secret.txt: permission denied."
        )
        assert "permission denied" in await place.error("ls", path="closed")
    finally:
        secret.parent.chmod(0o755)


def test_policy_can_locate_without_a_running_tool(tmp_path: Path) -> None:
    assert locate("~/x", cwd=tmp_path, home=tmp_path / "h") == tmp_path / "h/x"
