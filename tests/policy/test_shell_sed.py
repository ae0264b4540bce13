"""The reader of sed scripts finds what a script writes and runs."""

import pytest

from branchwork.policy.shell_sed import Unreadable, sed_effects


@pytest.mark.parametrize(
    "script",
    [
        "p",
        "1,5p",
        "$d",
        "/a/,/b/p",
        "s/a/b/g",
        "s|[/]|x|",
        "s/[^/]*$//",
        "y/ab/cd/",
        "/a/!d",
        "1~2p",
        "a\\\ntext w x",
        ":a;N;ba",
        "/x/{s/a/b/;p}",
        "s/w/e/",
        "\\,a,p",
        "s/a\\/b/c/I",
    ],
)
def test_scripts_that_only_edit_have_no_effects(script: str) -> None:
    found = sed_effects(script)
    assert (found.writes, found.runs) == ([], False)


@pytest.mark.parametrize(
    ("script", "file"),
    [
        ("w x", "x"),
        ("1,5w x", "x"),
        ("s/a/b/w x", "x"),
        ("s/a/b/gw x y", "x y"),
        ("/a/{w x\n}", "x"),
        ("W x", "x"),
        (":a;w x", "x"),
        ("p;p;w x", "x"),
        ("a\\\ntext\nw x", "x"),
        ("s/[/]/b/w x", "x"),
        ("y/a/b/;w x", "x"),
    ],
)
def test_files_that_are_written_are_found(script: str, file: str) -> None:
    assert sed_effects(script).writes == [file]


@pytest.mark.parametrize("script", ["e", "1e rm x", "s/a/b/e", "s/a/b/ge", "/a/e rm"])
def test_scripts_that_run_commands_are_found(script: str) -> None:
    assert sed_effects(script).runs


@pytest.mark.parametrize("script", ["s/a", "s/a/b", "k", "s/[a/b/", "/a", "5", "v x", "s\na\nb\n", "pp x"])
def test_what_cannot_be_followed_is_said(script: str) -> None:
    with pytest.raises(Unreadable):
        sed_effects(script)
