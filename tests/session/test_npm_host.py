"""Sessions written by the npm host open here with the branch and the context that it sees itself.

The samples were made by running version 1.6.0 of that program (print and RPC modes, and its session manager for
the branches) on a fake model server; texts of its prompt are replaced. The `.expected.json` files are what its own
session manager says of them.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from branchwork.session.entries import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomEntry,
    Message,
    MessageEntry,
    UserMessage,
    text_of,
)
from branchwork.session.operations import check, clone
from branchwork.session.projection import Projection
from branchwork.session.tree import Session
from branchwork.testing.clock import FakeClock, SequentialIds

DATA = Path(__file__).parent / "data"
SAMPLES = ["npm_compacted", "npm_branched"]


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    path = tmp_path / "session.jsonl"
    shutil.copy(DATA / f"{request.param}.jsonl", path)
    return path, json.loads((DATA / f"{request.param}.expected.json").read_text())


def open_(path: Path) -> Session:
    return Session.open(path, clock=FakeClock(), ids=SequentialIds())


def shown(message: Message) -> str:
    match message:
        case BashExecutionMessage(output=output):
            return output
        case BranchSummaryMessage(summary=summary) | CompactionSummaryMessage(summary=summary):
            return summary
        case AssistantMessage():
            return message.text
        case _:
            return text_of(message.content)


def test_the_branch_and_the_context_are_the_ones_of_the_host(sample: tuple[Path, dict[str, Any]]) -> None:
    path, expected = sample
    with open_(path) as session:
        assert session.problems == ()
        assert [node.id for node in session.branch().nodes] == expected["branch"]
        assert (session.leaf_id, len(session)) == (expected["leaf"], expected["entries"])
        projection = Projection(session)
        found = [
            {"role": str(type(i.message).__struct_config__.tag), "text": shown(i.message)} for i in projection.items
        ]
        assert found == expected["messages"]
        assert projection.model == (expected["model"]["provider"], expected["model"]["modelId"])
        assert projection.thinking == expected["thinking"]
        assert set(projection.prompt.tools) == {"read", "bash", "edit", "write", "ls"}


def test_the_host_finds_our_navigation_where_it_looks_for_the_leaf(sample: tuple[Path, dict[str, Any]]) -> None:
    path, expected = sample
    target = expected["branch"][3]
    with open_(path) as session:
        session.navigate(target)
    last = json.loads(path.read_bytes().splitlines()[-1])
    assert (last["type"], last["parentId"]) == ("custom", target)
    with open_(path) as session:
        assert session.branch().nodes[-2].id == target
        assert isinstance(session.entry(session.leaf_id or ""), CustomEntry)


def test_a_clone_copies_the_lines_byte_for_byte(sample: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, expected = sample
    lines = {json.loads(line)["id"]: line for line in path.read_bytes().splitlines()[1:]}
    with open_(path) as session:
        copy = clone(session, directory=tmp_path / "copies", clock=FakeClock(), ids=SequentialIds())
        assert copy.path is not None
        copied = copy.path.read_bytes().splitlines()[1:]
        copy.close()
    assert copied[: len(expected["branch"])] == [lines[entry_id] for entry_id in expected["branch"]]


def test_the_samples_are_sound(sample: tuple[Path, dict[str, Any]]) -> None:
    report = check(sample[0])
    assert report.problems == ()
    assert report.entries == sample[1]["entries"]


def test_an_entry_added_here_goes_on_where_the_host_stopped(sample: tuple[Path, dict[str, Any]]) -> None:
    path, expected = sample
    before = path.read_bytes()
    with open_(path) as session:
        (entry,) = session.append(MessageEntry(message=UserMessage(content="from here", timestamp=1)))
        assert entry.parent_id == expected["leaf"]
    assert path.read_bytes().startswith(before)
