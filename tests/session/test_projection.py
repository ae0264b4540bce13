"""What the model sees: against a plain restatement of the rules, and counted work."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from branchwork.session.entries import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryEntry,
    BranchSummaryMessage,
    CompactionEntry,
    CompactionSummaryMessage,
    ContextEditEntry,
    CustomEntry,
    CustomMessage,
    CustomMessageEntry,
    Entry,
    KnownEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    SystemMessage,
    Text,
    ThinkingLevelChangeEntry,
    ToolResultMessage,
    Usage,
    UsageEntry,
    UserMessage,
)
from branchwork.session.projection import Projection
from branchwork.session.tree import Session
from tests.session.builders import DATA, created, opened, replied, resulted, said


def shown(projection: Projection) -> list[str]:
    """Each item as a short text: its role's letter and what it says."""
    found = []
    for item in projection.items:
        match item.message:
            case UserMessage(content=str(text)):
                found.append(f"u:{text}")
            case AssistantMessage() as reply:
                found.append(f"a:{reply.text}")
            case ToolResultMessage() as result:
                found.append(f"t:{result.text}")
            case CompactionSummaryMessage(summary=text) | BranchSummaryMessage(summary=text):
                found.append(f"s:{text}")
            case CustomMessage(content=text):
                found.append(f"c:{text}")
            case other:
                found.append(repr(other))
    return found


def system(sections: dict[str, str | None] | None = None, **fields: Any) -> MessageEntry:
    return MessageEntry(
        message=SystemMessage(content=fields.pop("content", ""), sections=sections, timestamp=1, **fields)
    )


def tool(name: str, text: str = "") -> dict[str, Any]:
    return {"name": name, "description": text, "parameters": {}}


def compaction(summary: str, kept: str, **fields: Any) -> CompactionEntry:
    return CompactionEntry(summary=summary, first_kept_entry_id=kept, tokens_before=9, **fields)


def test_messages_speak_and_bookkeeping_does_not() -> None:
    session = created(None)
    session.append(
        ModelChangeEntry(provider="p", model_id="m"),
        said("one"),
        replied("two", calls=["c"]),
        resulted("c", "three"),
        CustomEntry(custom_type="x", data=1),
        CustomMessageEntry(custom_type="x", content="four", display=False, details={"never": "sent"}),
        LabelEntry(target_id="00000002", label="l"),
        UsageEntry(kind="k", provider="p", model="m", usage=Usage()),
        BranchSummaryEntry(from_id="root", summary="five"),
        BranchSummaryEntry(from_id="root", summary=""),
        MessageEntry(message=BashExecutionMessage(command="ls", output="", exclude_from_context=True, timestamp=1)),
    )
    projection = Projection(session)
    assert shown(projection) == ["u:one", "a:two", "t:three", "c:four", "s:five"]
    assert [item.entry_id for item in projection.items] == ["00000002", "00000003", "00000004", "00000006", "00000009"]
    assert projection.items[-1].message.timestamp == 1750000000000


def test_the_newest_summary_stands_for_what_is_before_its_kept_range() -> None:
    session = created(None)
    one, two, three = session.append(said("one"), replied("two"), said("three"))
    session.append(compaction("first", two.id), replied("four"), said("five"))
    assert shown(Projection(session)) == ["s:first", "a:two", "u:three", "a:four", "u:five"]
    session.append(compaction("second", three.id))
    assert shown(Projection(session)) == ["s:second", "u:three", "a:four", "u:five"]
    assert one.id not in {item.entry_id for item in Projection(session).items}


@pytest.mark.parametrize("kept", ["", "deadbeef"])
def test_a_summary_that_keeps_nothing_stands_for_everything_before(kept: str) -> None:
    session = created(None)
    session.append(said("one"), replied("two"), compaction("all", kept), said("three"))
    assert shown(Projection(session)) == ["s:all", "u:three"]


def test_the_last_edit_of_an_entry_wins() -> None:
    session = created(None)
    one, two, three, four = session.append(said("one"), replied("two"), resulted("c", "three"), said("four"))
    session.append(
        ContextEditEntry(target_id=one.id, replacement=None),
        ContextEditEntry(target_id=two.id, replacement={"content": "2"}),
        ContextEditEntry(target_id=three.id, replacement={"content": "3"}),
        ContextEditEntry(target_id=four.id, replacement=None),
        ContextEditEntry(target_id=four.id, replacement={"content": "4"}),
    )
    projection = Projection(session)
    assert shown(projection) == ["a:2", "t:3", "u:4"]
    reply = projection.items[0].message
    assert isinstance(reply, AssistantMessage)
    assert reply.content == (Text(text="2"),)


def test_an_edit_before_the_kept_range_or_of_another_branch_changes_nothing() -> None:
    session = created(None)
    one, two = session.append(said("one"), replied("two"))
    session.append(ContextEditEntry(target_id=two.id, replacement=None))
    session.navigate(two.id)
    session.append(said("three"), ContextEditEntry(target_id="deadbeef", replacement=None))
    assert shown(Projection(session)) == ["u:one", "a:two", "u:three"]
    assert one.id == Projection(session).items[0].entry_id


def test_content_that_fits_no_message_leaves_it_alone() -> None:
    session = created(None)
    (one,) = session.append(said("one"))
    session.append(ContextEditEntry(target_id=one.id, replacement={"content": [{"type": "oracle"}]}))
    (item,) = Projection(session).items
    assert isinstance(item.message, UserMessage)
    assert "oracle" in item.message.content[0].text  # type: ignore[union-attr]


def test_the_prompt_is_the_replay_of_the_system_messages() -> None:
    session = created(None)
    session.append(
        system({"role": "a", "rules": "b"}, tools_added=(tool("read"), tool("bash")), content="Base."),
        said("one"),
        system({"role": "c", "rules": None, "mode": "d"}, tools_added=(tool("read", "new"),), tools_removed=("bash",)),
        system(content="More."),
    )
    prompt = Projection(session).prompt
    assert list(prompt.sections.items()) == [("role", "c"), ("mode", "d")]
    assert prompt.tools == {"read": tool("read", "new")}
    assert prompt.text == "Base.\n\nMore."
    assert shown(Projection(session)) == ["u:one"]


def test_a_checkpoint_replaces_the_prompt_of_what_it_summarizes() -> None:
    session = created(None)
    checkpoint = {
        "role": "system",
        "content": "",
        "sections": {"role": "z"},
        "toolsAdded": [tool("grep")],
        "timestamp": 1,
    }
    session.append(system({"role": "a", "old": "b"}, tools_added=(tool("read"),)), said("one"))
    session.append(compaction("sum", "", system_message=checkpoint), system({"mode": "d"}))
    prompt = Projection(session).prompt
    assert list(prompt.sections.items()) == [("role", "z"), ("mode", "d")]
    assert list(prompt.tools) == ["grep"]
    session.append(compaction("no checkpoint", ""))
    assert Projection(session).prompt.sections == {"role": "a", "old": "b", "mode": "d"}


def test_model_and_level_come_from_the_whole_path() -> None:
    session = created(None)
    session.append(ModelChangeEntry(provider="p", model_id="m1"), ThinkingLevelChangeEntry(thinking_level="high"))
    session.append(said("one"), compaction("sum", ""))
    projection = Projection(session)
    assert (projection.model, projection.thinking) == (("p", "m1"), "high")
    for entry in session.append(replied("two")):
        projection.append(entry)
    assert (projection.model, projection.thinking) == (("p", "m"), "high")
    assert Projection(session, None).model is None


def failed(text: str) -> MessageEntry:
    entry = replied(text)
    assert isinstance(entry.message, AssistantMessage)
    return structs.replace(entry, message=structs.replace(entry.message, stop_reason="error"))


def test_usage_is_trusted_only_after_the_last_summary_or_edit() -> None:
    session = created(None)
    projection = Projection(session)

    def step(*entries: KnownEntry) -> int | None:
        for entry in session.append(*entries):
            projection.append(entry)
        assert Projection(session).usage_mark == projection.usage_mark
        return projection.usage_mark

    assert step(said("one")) is None
    assert step(replied("two"), said("three")) == 1
    assert step(replied("no usage", tokens=0)) == 1
    assert step(failed("cut")) == 1
    assert step(replied("four")) == 5
    assert step(ContextEditEntry(target_id="00000001", replacement=None)) is None
    assert step(replied("five")) == 5
    assert step(compaction("sum", "00000007")) is None
    assert step(said("six"), replied("seven")) == 3


def test_the_golden_session_projects_as_its_rules_say(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes((DATA / "v3.jsonl").read_bytes())
    with opened(path) as session:
        projection = Projection(session)
        assert shown(projection) == ["u:first", "a:one", "c:remember", "u:second", "s:tried two", "u:third"]
        assert list(projection.prompt.sections.items()) == [("role", "You help."), ("mode", "plan")]
        assert list(projection.prompt.tools) == ["read"]
        assert (projection.model, projection.thinking) == (("p", "m"), "high")
        assert shown(Projection(session, "c6"))[-1] == "a:shorter"


def expected(path: list[Entry]) -> list[tuple[str, object]]:
    """The rules of the format, restated without any regard to cost."""
    newest = max((n for n, entry in enumerate(path) if isinstance(entry, CompactionEntry)), default=None)
    context = path
    if newest is not None:
        summary = path[newest]
        assert isinstance(summary, CompactionEntry)
        ids = [entry.id for entry in path[:newest]]
        start = ids.index(summary.first_kept_entry_id) if summary.first_kept_entry_id in ids else newest
        context = [summary, *path[start:newest], *path[newest + 1 :]]
    edits = {entry.target_id: entry.replacement for entry in context if isinstance(entry, ContextEditEntry)}
    found: list[tuple[str, object]] = []
    for place, entry in enumerate(context):
        if isinstance(entry, CompactionEntry) and place == 0 and newest is not None:
            found.append((entry.id, entry.summary))
        elif isinstance(entry, MessageEntry) and not isinstance(entry.message, SystemMessage):
            edit = edits.get(entry.id, {})
            if edit is not None:
                assert isinstance(entry.message, UserMessage)
                found.append((entry.id, edit.get("content", entry.message.content)))
    return [pair for pair in found if edits.get(pair[0], {}) is not None]


def seen(projection: Projection) -> list[tuple[str, object]]:
    return [
        (item.entry_id, getattr(item.message, "summary", None) or getattr(item.message, "content", None))
        for item in projection.items
    ]


@settings(max_examples=150)
@given(st.data())
def test_following_a_session_step_by_step_gives_what_a_fresh_look_gives(data: st.DataObject) -> None:
    session = created(None)
    projection = Projection(session)
    for step in range(data.draw(st.integers(1, 14))):
        ids = [node.id for node in session.nodes()]
        place = st.sampled_from(ids) if ids else st.just("deadbeef")
        kind = data.draw(st.sampled_from(["say", "say", "say", "system", "hide", "replace", "compact", "go", "note"]))
        before = list(projection.items)
        entries: list[KnownEntry] = []
        match kind:
            case "say":
                entries = [said(f"text {step}")]
            case "system":
                entries = [system({f"s{step % 3}": f"text {step}"})]
            case "hide":
                entries = [ContextEditEntry(target_id=data.draw(place), replacement=None)]
            case "replace":
                entries = [ContextEditEntry(target_id=data.draw(place), replacement={"content": f"new {step}"})]
            case "compact":
                entries = [compaction(f"sum {step}", data.draw(place | st.just("")))]
            case "note":
                entries = [CustomEntry(custom_type="x")]
            case _ if ids:
                session.navigate(data.draw(place))
                entries = []
        grown = [projection.append(entry) for entry in session.append(*entries)]
        if kind == "go" and session.leaf_id is not None:
            grown = [projection.append(session.entry(session.leaf_id))]
        path = list(session.branch().entries())
        fresh = Projection(session)
        assert seen(projection) == seen(fresh) == expected(path)
        assert projection.prompt == fresh.prompt
        assert projection.usage_mark == fresh.usage_mark
        assert projection.leaf_id == session.leaf_id
        if all(grown):
            assert projection.items[: len(before)] == before


def long_session(count: int) -> Session:
    session = created(None)
    session.append(*(said(f"text {n}") for n in range(count)))
    return session


@pytest.mark.parametrize("count", [10, 1_000, 20_000])
def test_an_append_looks_at_one_entry_however_long_the_session_is(count: int) -> None:
    session = long_session(count)
    projection = Projection(session)
    for entry in (said("x"), replied("y"), system({"a": "b"}), CustomEntry(custom_type="x")):
        before = projection.visited
        (stored,) = session.append(entry)
        assert projection.append(stored) is True
        assert projection.visited == before + 1


def test_an_edit_of_a_recent_message_looks_at_few_entries() -> None:
    session = long_session(5_000)
    projection = Projection(session)
    before = projection.visited
    for n in range(10):
        (stored,) = session.append(ContextEditEntry(target_id=f"{4_990 + n:08x}", replacement={"content": "short"}))
        assert projection.append(stored) is False
    assert projection.visited - before < 200
    assert seen(projection) == seen(Projection(session))


def test_a_compacted_session_decodes_only_what_is_kept(tmp_path: Path) -> None:
    with created(tmp_path) as session:
        session.append(system({"a": "b"}), ThinkingLevelChangeEntry(thinking_level="low"))
        added = session.append(*(said(f"text {n}") for n in range(2_000)))
        session.append(*(ContextEditEntry(target_id=each.id, replacement=None) for each in added[:50]))
        added = session.append(*(said(f"text {n}") for n in range(10)))
        checkpoint = {"role": "system", "content": "", "sections": {"a": "b"}, "timestamp": 1}
        session.append(compaction("sum", added[-5].id, system_message=checkpoint), said("next"), replied("done"))
        path = session.path
    assert path is not None
    with opened(path) as session:
        projection = Projection(session)
        assert len(projection.items) == 8
        assert projection.thinking == "low"
        assert session.decoded <= 9
