"""What holds for every file and every edit."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from branchwork.agent.toolset import ToolError
from branchwork.tools.edit_match import Wanted, apply, plan
from tests.tools.workplace import Workplace

WORDS = st.sampled_from(
    ["alpha", "beta", "\u201cquoted\u201d", "caf\u00e9", "e\u0301", "\udce9", "a\u2013b", "x\r", " ", "\t", ""]
)
LINE = st.lists(WORDS, max_size=4).map(" ".join)


def texts(*ends: str) -> st.SearchStrategy[str]:
    lines = st.lists(st.tuples(LINE, st.sampled_from(ends)), min_size=1, max_size=8)
    return lines.map(lambda pairs: "".join(line.rstrip("\r") + end for line, end in pairs))


NEW = st.lists(LINE.map(lambda line: line.rstrip("\r")), max_size=4).map("\n".join)
"""No carriage return before a line feed: the two would become a line end."""


@st.composite
def spans(draw: st.DrawFn, text: str) -> tuple[int, int]:
    start = draw(st.integers(0, len(text) - 1))
    return start, draw(st.integers(start + 1, len(text)))


@given(st.data(), texts("\n", "\r\n"), NEW)
def test_bytes_outside_of_the_passage_never_change(data: st.DataObject, text: str, new: str) -> None:
    assume(text)
    start, end = data.draw(spans(text))
    # A passage never begins or ends within CRLF, which counts as one character.
    assume(text[start - 1 : start + 1] != "\r\n" and text[end - 1 : end + 1] != "\r\n")
    old = text[start:end]
    try:
        found = plan(text, [Wanted(old, new)], "f")
    except ToolError:
        normal = text.replace("\r\n", "\n")
        wanted = old.replace("\r\n", "\n")
        assert normal.find(wanted) != normal.rfind(wanted)  # refused only because there are several
        return
    after = apply(text, found.replacements)
    assert after.startswith(text[:start])
    assert after.endswith(text[end:])
    middle = after[start : len(after) - (len(text) - end)]
    assert middle.replace("\r\n", "\n") == new


@given(st.data(), st.sampled_from(["\n", "\r\n"]), NEW.filter(lambda new: "\r" not in new))
def test_the_reverse_edit_restores_every_byte(data: st.DataObject, line_end: str, new: str) -> None:
    lines = data.draw(st.lists(LINE.filter(lambda line: "\r" not in line), min_size=1, max_size=8))
    numbered = [f"#{number}:{line}{line_end}" for number, line in enumerate(lines)]
    text = "".join(numbered)
    start = sum(map(len, numbered[: data.draw(st.integers(0, len(lines) - 1))]))
    end = data.draw(st.integers(start + 3, len(text)))
    assume(text[end - 1 : end + 1] != "\r\n")
    old, new = text[start:end], f"<{new}>"
    after = apply(text, plan(text, [Wanted(old, new)], "f").replacements)
    assume("\n" in after)  # else nothing in the file tells which line end to restore
    assert apply(after, plan(after, [Wanted(new, old)], "f").replacements) == text


@settings(deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=40), st.sampled_from([b"", b"\xef\xbb\xbf"]))
async def test_any_bytes_around_the_passage_survive(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes, bom: bytes
) -> None:
    before, after = (part.replace(b"\0", b"\n").replace(b"<", b"\r") for part in (before, after))
    assume(not before.startswith((b"\xff\xfe", b"\xfe\xff")) or bom)
    place = Workplace(tmp_path_factory.mktemp("bytes"))
    path = place.file("f", bom + before + b"<old>" + after)
    await place.run("edit", path="f", edits=[{"oldText": "<old>", "newText": "new"}])
    assert path.read_bytes() == bom + before + b"new" + after


def folded_by(change: Callable[[str], str]) -> st.SearchStrategy[tuple[str, str]]:
    return texts("\n", "\r\n").map(lambda text: (text, change(text)))


@given(
    folded_by(
        lambda text: (
            text.replace("\r\n", "\n").translate({0x201C: '"', 0x201D: '"', 0x2013: "-"}).replace("e\u0301", "\u00e9")
        )
    ),
    st.data(),
)
def test_a_fuzzy_match_rewrites_only_lines_that_the_edit_changes(pair: tuple[str, str], data: st.DataObject) -> None:
    text, plain = pair
    lines, old_lines = text.split("\n"), plain.split("\n")
    assume(plain.strip())
    changed = data.draw(st.integers(0, len(lines) - 1))
    new_lines = [*old_lines]
    new_lines[changed] = "something new"
    try:
        found = plan(text, [Wanted(plain, "\n".join(new_lines))], "f")
    except ToolError:
        assume(False)
    after = apply(text, found.replacements).split("\n")
    assert len(after) == len(lines)
    for number, (before_line, after_line) in enumerate(zip(lines, after, strict=True)):
        if number == changed:
            assert after_line.rstrip("\r") == "something new"
        else:
            assert after_line == before_line


@given(st.data(), texts("\n", "\r\n"), st.lists(NEW, min_size=2, max_size=4))
def test_several_edits_together_do_what_each_does_alone(data: st.DataObject, text: str, news: list[str]) -> None:
    assume(len(text) > len(news))
    marks = sorted(data.draw(st.sets(st.integers(0, len(text)), min_size=len(news) + 1, max_size=len(news) + 1)))
    assume(all(text[mark - 1 : mark + 1] != "\r\n" for mark in marks))
    wanted = [Wanted(text[start:end], new) for (start, end), new in zip(pairwise(marks), news, strict=True)]
    shuffled = data.draw(st.permutations(wanted))
    try:
        together = apply(text, plan(text, shuffled, "f").replacements)
    except ToolError:
        assume(False)
    alone = [apply(text, plan(text, [edit], "f").replacements) for edit in wanted]
    pieces = [
        after[start : len(after) - (len(text) - end)]
        for after, (start, end) in zip(alone, pairwise(marks), strict=True)
    ]
    assert together == text[: marks[0]] + "".join(pieces) + text[marks[-1] :]
