"""Frontmatter: YAML 1.2 as plain data, whatever stands there, and the text below it in any case."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from branchwork.host.frontmatter import MAX_BODY, MAX_FRONTMATTER, Document, parse, read_document, read_head
from branchwork.host.yaml_reader import MAX_DEPTH, MAX_NODES, YamlProblem, read_full, read_mapping
from branchwork.host.yaml_simple import read_simple

FILE = Path("SKILL.md")


def of(text: str) -> Document:
    return parse(text.encode(), FILE)


def test_metadata_and_body() -> None:
    text = "---\nname: a\ndescription: Use it: \nx-own: {deep: [1, two]}\n---\n\n# Title\n\n---\nname: not this\n---\n"
    document = of(text.replace("Use it: ", "'Use it: '"))
    assert document.metadata == {"name": "a", "description": "Use it: ", "x-own": {"deep": [1, "two"]}}
    assert document.body == "# Title\n\n---\nname: not this\n---"
    assert document.problem is None


@pytest.mark.parametrize(
    "text", ["", "no frontmatter", "\n---\nname: a\n---\n", "----\nname: a\n----\n", "text\n---\na: b\n---"]
)
def test_a_file_without_frontmatter_is_all_body(text: str) -> None:
    assert of(text) == Document({}, text.strip("\n"))


@pytest.mark.parametrize("head", ["", "\n", "# nothing\n", "---\n"])
def test_empty_frontmatter_is_no_problem(head: str) -> None:
    document = of(f"---\n{head}---\nbody" if head != "---\n" else "---\n---\nbody")
    assert (document.metadata, document.body, document.problem) == ({}, "body", None)


def test_words_that_old_yaml_took_for_something_else_are_strings() -> None:
    text = "a: off\nb: yes\nc: no\nd: on\ne: 2024-01-31\nf: 1:30\ng: 0x1F\nh: 0o17\ni: 017\nj: 1_000\nk: ~\nl: True\n"
    text += "m: .5\nn: 1e3\n"
    expected: dict[str, Any] = {
        "a": "off",
        "b": "yes",
        "c": "no",
        "d": "on",
        "e": "2024-01-31",
        "f": "1:30",
        "g": 31,
        "h": 15,
        "i": 17,
        "j": "1_000",
        "k": None,
        "l": True,
        "m": 0.5,
        "n": 1000.0,
    }
    assert read_mapping(text) == expected
    assert read_full(text) == expected
    assert read_full("off: yes\n1: x\n") == {"off": "yes", "1": "x"}
    assert read_full("a: .inf\nb: -.Inf\n") == read_simple("a: .inf\n") | {"b": float("-inf")}  # type: ignore[operator]


@pytest.mark.parametrize(
    ("head", "line", "detail"),
    [
        ("a: 1\na: 2\n", 3, "the key `a` stands twice"),
        ("- a\n- b\n", 2, "not a mapping"),
        ("just text\n", 2, "not a mapping"),
        ("a: &x [1]\nb: *x\n", 2, "anchors and aliases"),
        ("a: *x\n", 2, "anchors and aliases"),
        ("a: !!python/object/apply:os.system ['true']\n", 2, "tags"),
        ("a: !x y\n", 2, "tags"),
        ("description: Use this: always\n", 2, "put the value in quotes"),
        ("a:\n\t- b\n", 3, "\\t"),
        ("a: [1, 2\n", 2, "while parsing a flow sequence, expected"),
        ("? [a]\n: b\n", 2, "a key is not plain text"),
        ("a: 'x\n", 2, "while scanning a quoted scalar, found unexpected end"),
        ("a: b\n... \nc: d\n", None, "more than one document"),
        ("%YAML 1.1\n", 3, "expected"),
        ("a: \x07\n", None, "special characters are not allowed"),
        ("a:" + " [" * (MAX_DEPTH + 3) + "]" * (MAX_DEPTH + 3), 2, "nested more than"),
        ("a: [" + "1," * (MAX_NODES + 1) + "]\n", 2, "more than 4000 values"),
        ("a: " + "{" * 9000 + "\n", 2, "nested more than"),
        ("a: " + "[" * 9000 + "\n", 2, "nested more than"),
        ("- " * 5000 + "\n", 2, "nested more than"),
        ("a: " + "x" * MAX_FRONTMATTER + "\n", 1, "longer than 16 KiB"),
    ],
)
def test_hostile_or_wrong_frontmatter_is_a_problem_and_the_body_stays(head: str, line: int | None, detail: str) -> None:
    started = time.process_time()
    document = of(f"---\n{head.rstrip(chr(10))}\n---\nThe body.")
    assert document.metadata == {}
    assert document.body == "The body."
    assert document.problem is not None
    assert detail in document.problem.detail
    assert document.problem.line == line
    assert time.process_time() - started < 3


def test_an_alias_bomb_is_refused_at_once() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 60))
    assert "anchors" in str(of(f"---\nl0: &l0 x\n{levels}---\n").problem)


def test_without_a_closing_line_all_is_text() -> None:
    document = of("---\nname: a\nSome text\n")
    assert (document.metadata, document.body) == ({}, "---\nname: a\nSome text")
    assert "no closing `---`" in str(document.problem)


def test_mark_line_ends_and_space_behind_the_fences_do_not_matter() -> None:
    document = parse(b"\xef\xbb\xbf--- \r\nname: a\r\ntext: |\r\n  x\r\n  y\r\n---\t\r\nOne\r\nTwo\r\n", FILE)
    assert document == Document({"name": "a", "text": "x\ny\n"}, "One\nTwo")


def test_bytes_that_are_no_utf8_are_replaced_and_named() -> None:
    document = parse(b"---\nname: a\n---\ncaf\xe9", FILE)
    assert (document.metadata, document.body) == ({"name": "a"}, "caf\ufffd")
    assert str(document.problem) == "SKILL.md:4: not UTF-8; characters are replaced"


def test_a_line_of_dashes_inside_a_value_is_part_of_it() -> None:
    assert of("---\na: |\n  x\n  ---\n  y\n---\n").metadata == {"a": "x\n---\ny\n"}


@pytest.mark.parametrize("size", [10, 5_000, MAX_FRONTMATTER - 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_head_has_the_same_metadata_as_the_whole(tmp_path: Path, size: int, end: str) -> None:
    path = tmp_path / "a.md"
    text = f"---\nname: a\nlong: {'é' * (size // 2)}\n---\n{'body é ' * 3000}".replace("\n", end)
    path.write_bytes(text.encode())
    head, whole = read_head(path), read_document(path)
    assert head.metadata == whole.metadata != {}
    assert head.problem is whole.problem is None
    assert whole.body.startswith(head.body)


def test_a_head_that_ends_inside_a_character_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    emoji = "\U0001f600"
    for shift in range(4):
        path.write_text(f"---\nname: a\n---\n{'x' * shift}{emoji * 5000}", encoding="utf-8")
        assert read_head(path).problem is None


def test_a_long_file_is_cut_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "long.md").write_text("x" * (MAX_BODY + 1))
    document = read_document(tmp_path / "long.md")
    assert len(document.body) == MAX_BODY
    assert "only the beginning" in str(document.problem)
    os.mkfifo(tmp_path / "pipe.md")
    for path in (tmp_path / "pipe.md", tmp_path, tmp_path / "gone.md"):
        with pytest.raises(OSError, match=r".*"):
            read_head(path)


KEYS = st.sampled_from(["a", "name", "x-y", "_b", "T1"])
TEXT = st.text("ab1 :#-'\"[]{},&*!|>%@`\\~.?+=/()é…\u00a0\u3000\u2028\t_", max_size=8) | st.sampled_from(
    [
        "true",
        "null",
        "~",
        "-1",
        "+.5",
        "0x1f",
        "0o7",
        "1e5",
        ".inf",
        "off",
        "<<",
        "=",
        "[a, b]",
        "[]",
        "- a",
        "--- x",
        "|",
        ">-",
    ]
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Text that is mostly YAML of the simple kind, and sometimes just off it."""
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        key, value = draw(KEYS), draw(TEXT)
        form = draw(st.integers(0, 6))
        pad = " " * draw(st.integers(0, 3))
        inner = [f"{pad}{draw(TEXT)}" for _ in range(draw(st.integers(1, 3)))]
        match form:
            case 0 | 1:
                lines.append(f"{key}: {value}")
            case 2:
                lines += [f"{key}: {draw(st.sampled_from(['|', '>', '|-', '>-', '|+', '', 'x']))}", *inner]
            case 3:
                lines += [f"{key}:", *(f"{pad}- {draw(TEXT)}" for _ in inner)]
            case 4:
                lines += [f"{key}:", *(f"{pad}{draw(KEYS)}: {draw(TEXT)}" for _ in inner)]
            case 5:
                quote = draw(st.sampled_from("'\""))
                lines.append(f"{key}: {quote}{value}{quote}{pad}")
            case _:
                lines.append(draw(st.sampled_from(["", "# note", "  ", value])))
    return "\n".join(lines) + "\n"


def full(text: str) -> dict[str, Any] | str:
    try:
        return read_full(text)
    except YamlProblem as error:
        return f"refused: {error}"


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=documents())
@example("a: b\n\n\nc: |\n  x\n\n# y\nd: e\n")
@example("a:\n- b\n- c\nd:\n  e: f\n")
@example("a: >\n  b\n  c\n  \nd: e\n")
@example("a: |\n  # no comment\n  - b\n")
@example("a:\n  # comment\n  b: c\n")
@example("a: b\n  c\n")
@example("a:\n  b: c\n  b: d\n")
@example("a: ..\nb: ...\nc: a b  c\n")
def test_the_quick_reader_never_differs_from_the_real_one(text: str) -> None:
    quick = read_simple(text)
    if quick is not None:
        assert repr(quick) == repr(full(text))


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60) | st.text("-\n: ab[]{}#'\"|>&*!\t", max_size=60).map(str.encode))
def test_nothing_makes_it_raise(data: bytes) -> None:
    document = parse(b"---\n" + data + b"\n---\nbody", FILE)
    assert document.body.endswith("body")


def test_usual_frontmatter_takes_no_yaml_library() -> None:
    usual = (
        "name: pdf\ndescription: >-\n  Reads forms.\n  Use it for PDF.\nlicense: MIT\nallowed-tools: Bash(git:*) Read\n"
        'metadata:\n  author: me\n  version: "1.0"\ntools:\n  - read\n  - grep\nmodels: [a/b, c]\nhidden: false\n'
    )
    code = (
        "import sys; from branchwork.host.yaml_reader import read_mapping; print(len(read_mapping(sys.argv[1])));"
        "print(sorted(name for name in sys.modules if name.startswith('ruamel')))"
    )
    ran = subprocess.run([sys.executable, "-c", code, usual], capture_output=True, text=True, check=True)
    assert ran.stdout == "8\n[]\n"
