"""Which lines of a plan are tasks, and what their ids are."""

import re

import pytest

from branchwork.extensions.modes.prompts import template_path
from branchwork.extensions.modes.tasks import MAX_TASKS, Task, cut, parse_tasks


def titles(text: str) -> list[str]:
    return [task.title for task in parse_tasks(text)]


def section(*lines: str) -> str:
    return "\n".join(["## Section 4 — Tasks", *lines])


@pytest.mark.parametrize(
    "heading",
    ["## Section 4", "## Section 4 — Tasks", "## Section 4 - Tasks", "## section  4", "##Section 4",
     "## Section 4 – Tasks", "## Section 4: Tasks", "## Section 4 — Tasks ##"],
)  # fmt: skip
def test_these_headings_open_the_tasks(heading: str) -> None:
    assert titles(f"# Plan\n\n{heading}\n\n- [ ] A\n") == ["A"]


@pytest.mark.parametrize(
    "heading",
    ["### Section 4 — Tasks", "# Section 4", " ## Section 4", "## Section 40", "## Section 4.5", "## Section 4 Tasks",
     "## Tasks", "## Section 3.5 — Context"],
)  # fmt: skip
def test_these_headings_do_not(heading: str) -> None:
    assert titles(f"{heading}\n- [ ] A\n") == []


def test_the_next_heading_of_that_level_ends_the_tasks_and_deeper_ones_do_not() -> None:
    text = section("- [ ] A", "### Backend", "- [ ] B", "## Section 5", "- [ ] C", "## Section 4", "- [ ] D")
    assert titles(text) == ["A", "B"]


@pytest.mark.parametrize(
    "line", ["- [x] done", "- [X] done", "  - [ ] nested", "1. [ ] x", "- [-] x", "- [ ]", "-[ ] x"]
)
def test_these_lines_are_no_tasks(line: str) -> None:
    assert titles(section("- [ ] A", line)) == ["A"]


@pytest.mark.parametrize("line", ["* [ ] A", "+ [ ] A", "-  [ ]  A  "])
def test_other_bullets_are_tasks_too(line: str) -> None:
    assert titles(section(line)) == ["A"]


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("```", "```"), ("~~~", "~~~"), ("````markdown", "````"), ("  ```py", "  ```")],
)
def test_what_is_in_a_code_fence_is_no_task(opening: str, closing: str) -> None:
    assert titles(section("- [ ] A", opening, "- [ ] fenced", "## Section 5", closing, "- [ ] B")) == ["A", "B"]


def test_a_shorter_or_different_fence_does_not_close_a_longer_one() -> None:
    text = section("````", "```", "- [ ] x", "```", "~~~~", "- [ ] y", "````", "- [ ] B")
    assert titles(text) == ["B"]


def test_a_heading_in_a_fence_opens_nothing() -> None:
    assert titles("```\n## Section 4\n- [ ] x\n```\n- [ ] y") == []


def test_line_ends_of_other_systems_are_line_ends() -> None:
    assert titles("## Section 4\r\n- [ ] A\r- [ ] B\r\n") == ["A", "B"]


@pytest.mark.parametrize(
    ("lines", "ids"),
    [
        (["A", "A"], ["task-42b43758f2663b3f", "task-6f03e2290cec5b10"]),
        (["First task"], ["task-a3e4185a81812b83"]),
        (["A   b", "A b"], ["task-b374594e66520580", "task-c69af62caa058448"]),
        (["One", "b1"], ["task-628362dedad7d302", "task-0e63d712d84fb73f"]),
    ],
)
def test_ids_are_those_of_the_npm_package(lines: list[str], ids: list[str]) -> None:
    found = parse_tasks(section(*(f"- [ ] {line}" for line in lines)))
    assert [task.id for task in found] == ids
    assert [task.title for task in found] == lines


ALL_VALUES = {
    "given": "a",
    "when": "b",
    "then": "c",
    "nfrs": "see Section 1",
    "verificationGate": "look",
    "checkpoint": "commit",
}


@pytest.mark.parametrize(
    "lines",
    [
        ["- **Given:** a", "- **When:** b", "- **Then:** c", "- **NFRs:** see Section 1",
         "- **Verification Gate:** look", "- **Checkpoint:** commit"],
        ["- **given**: a **When** b **Then** c", "* **nfrs** see Section 1", "- **VERIFICATION GATE**: look",
         "- **Checkpoint** commit"],
        ["- **Given:** a **When:** b **Then:** c", "- **NFRs:** old", "- **NFRs:** see Section 1", "  goes on",
         "- **Verification Gate:** look", "- **Checkpoint:** commit", "- **Other:** x"],
        ["- **Given:** a", "- **When:** b **Then:** c", "- **NFRs:** see Section 1",
         "- **Verification Gate:** look", "- **Checkpoint:** commit"],
    ],
)  # fmt: skip
def test_the_labels_of_a_task_are_its_metadata(lines: list[str]) -> None:
    (task,) = parse_tasks(section("- [ ] A", *(f"  {line}" for line in lines)))
    assert task.metadata == ALL_VALUES


def test_metadata_below_a_ticked_box_belongs_to_nothing() -> None:
    assert parse_tasks(section("- [ ] A", "- [x] B", "  - **Given:** x"))[0].metadata == {}


def test_there_is_a_largest_number_of_tasks() -> None:
    assert len(parse_tasks(section(*(f"- [ ] {number}" for number in range(1200))))) == MAX_TASKS


def test_long_titles_are_cut_and_their_ids_tell_them_apart() -> None:
    first, second = parse_tasks(section(f"- [ ] {'x' * 900}1", f"- [ ] {'x' * 900}2"))
    assert len(first.title) <= 300
    assert first.title == second.title
    assert first.id != second.id


@pytest.mark.parametrize("text", ["", "\0", "## Section 4", "## Section 4\n- [ ] \ud800", "`" * 10_000, "#" * 10_000])
def test_no_text_raises(text: str) -> None:
    assert isinstance(parse_tasks(text), tuple)


def test_the_template_has_no_tasks_of_its_own() -> None:
    assert parse_tasks(template_path().read_text(encoding="utf-8")) == ()


def test_the_examples_of_the_template_are_tasks_once_they_are_no_examples() -> None:
    text = template_path().read_text(encoding="utf-8")
    first, second = parse_tasks("\n".join(line for line in text.splitlines() if not line.startswith("```")))
    assert set(first.metadata) == set(ALL_VALUES)
    assert set(second.metadata) == set(ALL_VALUES)
    assert "[LOAD-BEARING]" in second.title
    assert "[ADR:new]" in second.title


def test_the_template_names_all_sections_and_tags() -> None:
    text = template_path().read_text(encoding="utf-8")
    headings = re.findall(r"(?m)^## (Section [\d.]+)", text)
    assert headings == ["Section 1", "Section 2", "Section 3", "Section 3.5", "Section 4", "Section 5"]
    for tag in ("architecture", "dev-workflow", "conventions", "invariants", "traps", "decisions"):
        assert f"[DOCS:{tag}]" in text
    for tag in ("new", "update", "supersede"):
        assert f"[ADR:{tag}]" in text
    assert text.split("## Section 5")[1].count("- [ ]") == 11


def test_cutting_says_that_there_was_more() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert Task("i", "t").metadata == {}
