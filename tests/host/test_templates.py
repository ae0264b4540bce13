"""Prompt templates: finding them, splitting arguments, filling placeholders."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.errors import UserError
from branchwork.host.places import Place
from branchwork.host.templates import expand_template, find_templates, split_arguments, substitute


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  \n\t", []),
        ("a  b\nc", ["a", "b", "c"]),
        ('"a b" c', ["a b", "c"]),
        ("'a \"b\"' c", ['a "b"', "c"]),
        ("it's don't", ["it's", "don't"]),
        ('a"b c"', ['a"b', 'c"']),
        (r'"a \" b"', ['a " b']),
        (r'"a \n \' b"', [r"a \n \' b"]),
        ('"a b', ['"a', "b"]),
        ('x "a b', ["x", '"a', "b"]),
        ("\"\" x ''", ["", "x", ""]),
        ('"a b"c d', ["a bc", "d"]),
        ('"', ['"']),
        ("\"a' b", ["\"a'", "b"]),
        ("'\"", ["'\""]),
    ],
)
def test_arguments_are_split_as_documented(text: str, words: list[str]) -> None:
    assert split_arguments(text) == words


@pytest.mark.parametrize(
    ("body", "filled"),
    [
        ("$1|$2|$3|$4", "one|two words|3|"),
        ("$1x ${1}0 $10 $01", "onex one0  $01"),
        ("$@", "one two words 3"),
        ("$ARGUMENTS $ARGUMENTSX $ARGUMENTS_ $ARGUMENTS.", "one two words 3 $ARGUMENTSX $ARGUMENTS_ one two words 3."),
        ("${2:-x} ${9:-no such} ${9:-} ${9}", "two words no such  "),
        ("${@:-x} ${ARGUMENTS:-x} ${@}", "one two words 3 one two words 3 one two words 3"),
        ("${@:2}|${@:9}|${@:0}", "two words 3||one two words 3"),
        ("${@:2:1}|${@:1:2}|${@:2:0}|${@:2:99}", "two words|one two words||two words 3"),
        ("$1 $$1 $0 $x ${x} ${1 $ {1}", "one $one $0 $x ${x} ${1 $ {1}"),
        ("${9:-$1}", "$1"),
    ],
)
def test_placeholders_are_filled(body: str, filled: str) -> None:
    assert substitute(body, "one 'two words' 3") == filled


def test_without_arguments_defaults_hold() -> None:
    assert substitute("${1:-a b} ${@:-all} [$@] [$1]", "") == "a b all [] []"
    assert substitute("${1:-empty}", "''") == "empty"


def test_arguments_are_not_lost_when_there_is_no_place_for_them() -> None:
    assert substitute("Review.", " the 'new' code ") == "Review.\n\nthe 'new' code"
    assert substitute("Costs 5 $.", "") == "Costs 5 $."


def test_what_is_filled_in_is_not_looked_at_again() -> None:
    assert substitute("$1 $2", "$2 ${@:-x}") == "$2 ${@:-x}"


@given(body=st.text("$@{}:-0123ARGUMENTS a'\"", max_size=40), args=st.text("$@{}:-12 '\"\\a\n", max_size=30))
def test_filling_never_raises_and_is_a_single_pass(body: str, args: str) -> None:
    filled = substitute(body, args)
    hidden = args.replace("$", "\0")
    assert substitute(body, hidden).replace("\0", "$") == filled


@given(words=st.lists(st.text(min_size=0, max_size=6).filter(lambda word: "\\" not in word and '"' not in word)))
def test_quoted_words_come_back_as_they_were(words: list[str]) -> None:
    assert split_arguments(" ".join(f'"{word}"' for word in words)) == words


@given(text=st.text(max_size=40))
def test_words_without_quotes_are_those_of_white_space(text: str) -> None:
    plain = text.replace('"', "").replace("'", "")
    assert split_arguments(plain) == plain.split()


def test_templates_are_found_by_file_name(tmp_path: Path) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    (first / "inner").mkdir(parents=True)
    second.mkdir()
    (first / "review.md").write_text("---\ndescription: Look\nargument-hint: [file]\nmodel: x\n---\nReview $1")
    (first / "plain.md").write_text("# Make a plan\n\nFor $@")
    (first / "note.txt").write_text("no template")
    (first / ".hidden.md").write_text("no template")
    (first / "two words.md").write_text("x")
    (first / "inner" / "deep.md").write_text("not searched")
    (second / "review.md").write_text("another")
    (second / "linked.md").symlink_to(first / "plain.md")
    (second / "gone.md").symlink_to(tmp_path / "nowhere")
    places = [Place(first, "user"), Place(second, "project"), Place(tmp_path / "missing", "given")]
    templates, problems = find_templates(places)
    assert [each.name for each in templates] == ["plain", "review"]
    plain, review = templates
    assert (plain.description, plain.argument_hint, plain.source) == ("Make a plan", "", "user")
    assert (review.description, review.argument_hint) == ("Look", "[file]")
    assert review.metadata["model"] == "x"
    assert expand_template(review, "a.py") == "Review a.py"
    told = "\n".join(map(str, problems))
    assert f"{second}/review.md: the prompt template `review` is not used: {first}/review.md comes first" in told
    assert "two words.md" in told
    assert f"{second}/gone.md: cannot be read" in told
    assert f"{tmp_path}/missing: there is no such" in told
    assert len(problems) == 4


def test_the_body_is_read_when_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("before")
    ((template,), _) = find_templates([Place(path, "given")])
    path.write_text("after")
    assert expand_template(template) == "after"
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        expand_template(template)
