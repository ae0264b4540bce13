"""Compaction: when, where it cuts, what it keeps, what happens when it fails."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from branchwork.agent.compaction import (
    CompactionLimits,
    CompactionPolicy,
    carried_over,
    conversation_text,
    plan,
    summary_of,
    with_carried,
)
from branchwork.agent.events import CompactionFinished
from branchwork.agent.hooks import CompactionAnswer, CompactionProposal, LoopHooks
from branchwork.agent.toolset import ToolArgs, ToolContext, ToolOutput, text_output
from branchwork.models.base import ModelRequest
from branchwork.models.scripted import ScriptedModel, Step, calls, ends, fails, says, scripted_info
from branchwork.session.entries import (
    AssistantMessage,
    CompactionEntry,
    CompactionSummaryMessage,
    Message,
    Text,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from branchwork.session.projection import Projected
from branchwork.testing.harness import Harness, check_pairing, make_tool


async def read(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
    return text_output("x" * 4_000)


READ = make_tool("read", read)
SMALL = CompactionPolicy(reserve_tokens=2_000, keep_recent_tokens=800)


def small_model(steps: list[Step], window: int = 8_000) -> ScriptedModel:
    return ScriptedModel(steps, info=scripted_info(context_window=window, max_tokens=1_000))


def assistant(*parts: Text | ToolCall) -> AssistantMessage:
    return AssistantMessage(
        content=parts, api="scripted", provider="scripted", model="m", usage=Usage(), stop_reason="stop", timestamp=0
    )


def result(call_id: str, text: str) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=call_id, tool_name="read", content=(Text(text=text),), is_error=False, timestamp=0
    )


async def test_a_full_window_is_compacted_between_turns_and_the_run_goes_on() -> None:
    steps = [calls("read") + ends(input=7_000, output=10), says("THE NOTES"), says("done")]
    harness = Harness(small_model(steps), tools=[READ], compaction=SMALL)
    await harness.prompt("first " + "y" * 6_000)
    (finished,) = harness.of(CompactionFinished)
    assert finished.success
    assert finished.tokens_after < finished.tokens_before
    asked = harness.model.seen[1]
    assert asked.tools == ()
    last = harness.model.seen[2].messages
    assert isinstance(last[0], CompactionSummaryMessage)
    assert "THE NOTES" in last[0].summary
    assert not any("y" * 6_000 in str(message) for message in last)


async def test_the_compaction_entry_names_what_is_kept_and_what_it_cost() -> None:
    steps = [says("a" * 6_000), says("b"), says("NOTES") + ends(input=50, output=9)]
    harness = Harness(small_model(steps), tools=[READ], compaction=SMALL)
    await harness.prompt("one")
    await harness.prompt("two" + "z" * 6_000)
    assert await harness.agent.compact("mind the tests")
    entry = next(e for e in harness.session.branch().entries() if isinstance(e, CompactionEntry))
    kept = harness.session.entry(entry.first_kept_entry_id)
    assert "two" in str(kept)
    assert entry.usage is not None
    assert entry.usage.output == 9
    assert entry.system_message is not None
    assert "mind the tests" in harness.model.seen[2].system
    assert harness.agent.context_size().tokens < entry.tokens_before


async def test_overflow_compacts_once_and_sends_the_request_again() -> None:
    steps = [says("a" * 9_000), fails("overflow"), says("NOTES"), says("done")]
    harness = Harness(small_model(steps, window=100_000), compaction=SMALL)
    await harness.prompt("one")
    assert (await harness.prompt("two")).end == "done"
    assert [event.reason for event in harness.of(CompactionFinished)] == ["overflow"]


async def test_a_second_overflow_ends_the_run_with_advice() -> None:
    steps = [says("a" * 9_000), fails("overflow"), says("NOTES"), fails("overflow", message="too long")]
    harness = Harness(small_model(steps, window=100_000), compaction=SMALL)
    await harness.prompt("one")
    finished = await harness.prompt("two")
    assert finished.end == "error"
    assert finished.error is not None
    assert "too long" in finished.error
    assert harness.agent.failure is not None
    assert harness.agent.failure.kind == "overflow"


async def test_a_failed_compaction_changes_nothing_and_says_why() -> None:
    steps = [says("a" * 9_000), fails("auth", message="no key"), says("b")]
    harness = Harness(small_model(steps, window=100_000), compaction=SMALL)
    await harness.prompt("one")
    before = len(harness.session)
    assert not await harness.agent.compact()
    (finished,) = harness.of(CompactionFinished)
    assert (finished.success, finished.error) == (False, "no key")
    assert len(harness.session) == before


async def test_a_failing_compaction_is_not_tried_again_at_every_turn() -> None:
    def step(request: ModelRequest) -> Step:
        if not request.tools:
            return says("cut") + ends("length")
        return says("end") if len(request.transcript.messages) > 9 else calls("read") + ends(input=7_000, output=1)

    harness = Harness(small_model([step] * 20), tools=[READ], compaction=SMALL)  # type: ignore[list-item]
    await harness.prompt("first " + "y" * 6_000)
    assert len(harness.of(CompactionFinished)) == 1


def test_notes_that_were_cut_off_or_call_tools_are_not_used() -> None:
    whole = assistant(Text(text=" notes "))
    assert summary_of(whole) == "notes"
    assert summary_of(replace(whole, stop_reason="length")) is None
    assert summary_of(replace(whole, stop_reason="toolUse")) is None
    assert summary_of(assistant(Text(text="  "))) is None


@given(
    st.lists(st.tuples(st.sampled_from(["user", "text", "call"]), st.integers(1, 3_000)), min_size=1, max_size=30),
    st.integers(1, 2_000),
)
def test_a_cut_never_parts_a_call_from_its_result(shape: list[tuple[str, int]], keep: int) -> None:
    messages: list[Message] = []
    for number, (kind, size) in enumerate(shape):
        if kind == "user":
            messages.append(UserMessage(content="u" * size, timestamp=0))
        elif kind == "text":
            messages.append(assistant(Text(text="t" * size)))
        else:
            messages.append(assistant(ToolCall(id=f"c{number}", name="read", arguments={})))
            messages.append(result(f"c{number}", "r" * size))
    items = [Projected(entry_id=f"{number:08x}", message=message) for number, message in enumerate(messages)]
    found = plan(items, keep)
    if found is None:
        return
    cut = next(index for index, item in enumerate(items) if item.entry_id == found.first_kept)
    assert 0 < cut < len(items)
    assert not isinstance(items[cut].message, ToolResultMessage)
    check_pairing(messages[:cut])
    check_pairing(messages[cut:])
    assert found.split is not isinstance(items[cut].message, UserMessage)


def test_nothing_is_planned_when_all_of_it_is_recent() -> None:
    items = [Projected(entry_id="a", message=UserMessage(content="hi", timestamp=0))]
    assert plan(items, 1_000) is None
    assert plan([], 1_000) is None


def test_the_text_to_summarise_is_labelled_and_bounded() -> None:
    text = conversation_text(
        [
            UserMessage(content="please", timestamp=0),
            assistant(Text(text="sure"), ToolCall(id="c", name="read", arguments={"path": "a.py"})),
            result("c", "r" * 5_000),
        ]
    )
    assert "[User]: please" in text
    assert '[Assistant calls]: read(path="a.py")' in text
    assert "(5000 characters)" in text
    assert len(text) < 2_500


def test_file_lists_are_carried_on_and_a_changed_file_is_not_listed_as_read() -> None:
    call = assistant(
        ToolCall(id="1", name="read", arguments={"path": "a"}),
        ToolCall(id="2", name="edit", arguments={"path": "b"}),
        ToolCall(id="3", name="read", arguments={"path": ["odd"]}),
    )
    lists = carried_over([call], {"readFiles": ["b", "c"], "modifiedFiles": ["d"]})
    assert lists == {"userMessages": [], "readFiles": ["c", "a"], "modifiedFiles": ["d", "b"]}


async def test_what_the_person_said_is_carried_over_word_for_word_through_every_compaction() -> None:
    rule = "ALWAYS run make lint before you finish."
    steps = [says("a" * 6_000), says("b" * 6_000), says("NOTES 1"), says("c" * 6_000), says("NOTES 2"), says("end")]
    harness = Harness(small_model(steps, window=100_000), compaction=SMALL)
    await harness.prompt(rule)
    await harness.prompt("second")
    assert await harness.agent.compact()
    await harness.prompt("third")
    assert await harness.agent.compact()
    await harness.prompt("fourth")
    notes = harness.model.seen[-1].messages[0]
    assert isinstance(notes, CompactionSummaryMessage)
    assert "NOTES 2" in notes.summary
    assert notes.summary.count(rule) == 1


def test_long_pastes_and_old_messages_give_way_to_new_words() -> None:
    messages = [UserMessage(content=f"{number} " + "x" * 3_900, timestamp=0) for number in range(20)]
    paste = UserMessage(content="begin " + "y" * 50_000 + " end", timestamp=0)
    said = carried_over([*messages, paste], None)["userMessages"]
    assert said[-1].startswith("begin ")
    assert said[-1].endswith(" end")
    assert len(said[-1]) < 4_100
    assert said[-2].startswith("19 ")
    assert sum(map(len, said)) <= 40_000
    assert "<message>\n19 " in with_carried("S", carried_over([*messages, paste], None))


def test_a_model_may_have_limits_of_its_own() -> None:
    info = scripted_info(context_window=100_000)
    policy = CompactionPolicy(models={info.ref: CompactionLimits(reserve_tokens=50_000, keep_recent_tokens=5)})
    assert policy.due(50_001, info)
    assert policy.keep(info) == 5
    assert not CompactionPolicy().due(50_001, info)


class Answering(LoopHooks):
    def __init__(self, answer: CompactionAnswer) -> None:
        self.answer = answer
        self.seen: list[CompactionProposal] = []
        self.stored: list[CompactionEntry] = []

    async def compacting(self, proposal: CompactionProposal) -> CompactionAnswer | None:
        self.seen.append(proposal)
        return self.answer

    async def compacted(self, entry: CompactionEntry) -> None:
        self.stored.append(entry)


async def test_the_host_may_bring_notes_of_its_own() -> None:
    hooks = Answering(CompactionAnswer(summary="MY NOTES", details={"k": 1}))
    harness = Harness([says("a" * 9_000), says("b")], compaction=SMALL, hooks=hooks)
    await harness.prompt("one")
    await harness.prompt("two")
    assert await harness.agent.compact("briefly")
    assert hooks.seen[0].instructions == "briefly"
    (entry,) = hooks.stored
    assert entry.from_hook
    assert entry.summary.startswith("MY NOTES")
    assert entry.details["extension"] == {"k": 1}
    assert len(harness.model.seen) == 2


async def test_the_host_may_cancel_a_compaction() -> None:
    hooks = Answering(CompactionAnswer(cancel="not now"))
    harness = Harness([says("a" * 9_000), says("b")], compaction=SMALL, hooks=hooks)
    await harness.prompt("one")
    assert not await harness.agent.compact()
    assert harness.of(CompactionFinished)[0].error == "not now"


async def test_notes_that_keep_nothing_before_them_leave_only_themselves() -> None:
    hooks = Answering(CompactionAnswer(summary="ALL ANEW", first_kept=""))
    harness = Harness([says("a" * 9_000), says("b" * 9_000), says("c")], compaction=SMALL, hooks=hooks)
    await harness.prompt("one")
    await harness.prompt("two")
    assert await harness.agent.compact()
    await harness.prompt("three")
    assert [type(message).__name__ for message in harness.model.seen[2].messages] == [
        "CompactionSummaryMessage",
        "UserMessage",
    ]
