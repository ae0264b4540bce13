"""The context grows with what is new; the prompt state is stored once and then patched."""

from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from branchwork.agent.context import Context, message_chars
from branchwork.agent.core import SESSION_VARIABLES
from branchwork.agent.events import Diagnosed
from branchwork.agent.prompt import patch
from branchwork.agent.toolset import ToolArgs, ToolContext, ToolOutput, text_output
from branchwork.models.base import ModelRequest
from branchwork.models.scripted import ScriptedModel, Step, calls, ends, fails, says, scripted_info
from branchwork.session.entries import (
    BranchSummaryMessage,
    Image,
    ModelChangeEntry,
    SystemMessage,
    Text,
    ThinkingLevelChangeEntry,
    ToolResultMessage,
    UserMessage,
)
from branchwork.session.prompt import PromptState
from branchwork.testing.harness import Harness, make_tool


async def read(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
    return text_output("content")


READ = make_tool("read", read, snippet="Read a file", guidelines=("Use read to look.",))
OTHER = make_tool("other", read, snippet="Do the other thing", guidelines=("Use read to look.",))


def system_messages(harness: Harness) -> list[SystemMessage]:
    return [message for message in harness.messages() if isinstance(message, SystemMessage)]


@pytest.mark.parametrize("turns", [20, 40, 80])
async def test_a_turn_visits_only_its_own_entries_however_long_the_history(turns: int) -> None:
    visited: list[int] = []

    def step(request: ModelRequest) -> Step:
        visited.append(harness.agent._core.context.projection.visited)
        number = sum(isinstance(message, ToolResultMessage) for message in request.transcript.messages)
        return says("end") if number == turns else calls("read")

    harness = Harness(step, tools=[READ], repeat_stop=0)
    await harness.prompt()
    growth = [b - a for a, b in pairwise(visited)]
    assert set(growth) == {2}


async def test_the_prompt_state_is_stored_with_the_first_request_only() -> None:
    harness = Harness([calls("read"), says("a"), says("b")], tools=[READ], sections=lambda: {"preamble": "You are."})
    await harness.prompt("one")
    await harness.prompt("two")
    (stored,) = system_messages(harness)
    assert stored.sections is not None
    assert list(stored.sections) == ["preamble", "tools", "rules"]
    assert stored.tools_added is not None
    assert [tool["name"] for tool in stored.tools_added] == ["read"]
    assert harness.model.seen[0].system == harness.model.seen[2].system
    assert harness.model.seen[0].system.startswith("You are.\n\n<tools>\n- read: Read a file\n</tools>")


async def test_a_changed_section_is_stored_as_a_patch() -> None:
    sections = {"preamble": "You are.", "cwd": "/a"}
    harness = Harness([says("a"), says("b")], sections=lambda: sections)
    await harness.prompt("one")
    sections["cwd"] = "/b"
    del sections["preamble"]
    await harness.prompt("two")
    assert system_messages(harness)[1].sections == {"cwd": "/b", "preamble": None}
    assert harness.model.seen[1].system == "/b"


def test_a_patch_turns_the_old_state_into_the_new_one() -> None:
    first = patch(PromptState(), {"a": "1", "b": "2"}, [READ.spec], 0)
    assert first is not None
    state = PromptState().apply(first)
    assert patch(state, {"a": "1", "b": "2"}, [READ.spec], 0) is None
    changed = replace(READ.spec, description="Another text")
    second = patch(state, {"b": "3"}, [changed, OTHER.spec], 0)
    assert second is not None
    state = state.apply(second)
    assert state.sections == {"b": "3"}
    assert state.tools["read"]["description"] == "Another text"
    assert set(state.tools) == {"read", "other"}


def test_fields_that_another_host_added_to_a_declaration_are_no_change() -> None:
    first = patch(PromptState(), {}, [READ.spec], 0)
    assert first is not None
    state = PromptState().apply(first)
    state.tools["read"]["constrainedSampling"] = {"type": "json_schema"}
    assert patch(state, {}, [READ.spec], 0) is None


def test_a_guideline_that_two_tools_share_is_given_once() -> None:
    from branchwork.agent.prompt import tool_sections

    assert tool_sections([READ, OTHER])["rules"].count("Use read to look.") == 1
    assert tool_sections([]) == {}


async def test_the_model_and_thinking_level_are_recorded_when_they_change() -> None:
    harness = Harness([says("a"), says("b")], thinking="high")
    await harness.prompt("one")
    other = ScriptedModel([says("c")], info=scripted_info(id="other", thinking=()), clock=harness.clock)
    harness.agent.select(other, "high")
    await harness.prompt("two")
    entries = list(harness.session.branch().entries())
    models = [entry.model_id for entry in entries if isinstance(entry, ModelChangeEntry)]
    levels = [entry.thinking_level for entry in entries if isinstance(entry, ThinkingLevelChangeEntry)]
    assert (models, levels) == (["demo", "other"], ["high", "off"])


async def test_the_size_is_what_the_server_reported_plus_an_estimate_of_what_followed() -> None:
    harness = Harness([says("hello") + ends(input=1_000, output=50)])
    await harness.prompt()
    assert harness.agent.context_size().tokens == 1_050
    harness.agent._core.store()
    context = Context(harness.session)
    assert (context.size().tokens, context.size().exact) == (1_050, 1_050)


async def test_the_output_limit_leaves_room_for_the_history() -> None:
    model = ScriptedModel(
        [says("x") + ends(input=90_000, output=10), says("y")],
        info=scripted_info(context_window=120_000, max_tokens=32_000),
    )
    harness = Harness(model)
    await harness.prompt("one")
    await harness.prompt("two")
    limits = [request.max_tokens for request in harness.model.seen]
    assert limits[0] == 32_000
    assert 1_024 <= limits[1] < 15_000


def test_images_count_at_a_flat_rate() -> None:
    image = Image(data="A" * 100_000, mime_type="image/png")
    assert message_chars(UserMessage(content=(Text(text="abc"), image), timestamp=0)) == 4_803


async def test_tools_get_the_session_in_their_environment_and_nothing_stale() -> None:
    seen: list[dict[str, str]] = []

    async def look(args: ToolArgs, ctx: ToolContext) -> ToolOutput:
        seen.append(dict(ctx.env))
        return text_output("ok")

    env = {"PATH": "/bin", "BRANCHWORK_SESSION_ID": "of-the-parent", "BRANCHWORK_SESSION_FILE": "/stale"}
    harness = Harness([calls("look"), says("ok")], tools=[make_tool("look", look)], env=env)
    await harness.prompt()
    assert seen[0]["PATH"] == "/bin"
    assert seen[0]["BRANCHWORK_SESSION_ID"] == harness.session.header.id
    assert "BRANCHWORK_SESSION_FILE" not in seen[0]
    assert seen[0]["AI_AGENT"] == "branchwork"
    assert set(SESSION_VARIABLES) - set(seen[0]) == {"BRANCHWORK_SESSION_FILE"}


async def test_navigation_changes_what_the_next_request_carries() -> None:
    harness = Harness([says("a"), says("b"), says("c")])
    await harness.prompt("one")
    first_answer = harness.session.branch().leaf_id
    await harness.prompt("two")
    harness.agent.navigate(first_answer)
    await harness.prompt("three")
    said = [message.content for message in harness.model.seen[2].messages if isinstance(message, UserMessage)]
    assert said == [(Text(text="one"),), (Text(text="three"),)]


def test_the_scratch_directory_is_not_made_before_it_is_needed(tmp_path: Path) -> None:
    harness = Harness([], scratch=tmp_path / "scratch")
    assert harness.agent.activity == "idle"
    assert not (tmp_path / "scratch").exists()


async def test_notes_about_a_branch_that_is_left_are_kept_where_the_work_goes_on() -> None:
    harness = Harness([says("a"), says("tried B"), says("NOTES ON B"), says("c")])
    await harness.prompt("one")
    fork_point = harness.session.branch().leaf_id
    await harness.prompt("two")
    left = harness.session.branch().leaf_id
    assert await harness.agent.navigate_with_notes(fork_point, "mind the files")
    asked = harness.model.seen[2]
    assert "mind the files" in asked.system
    assert "tried B" in str(asked.messages)
    assert "one" not in str(asked.messages)
    await harness.prompt("three")
    notes = harness.model.seen[3].messages[2]
    assert isinstance(notes, BranchSummaryMessage)
    assert (notes.summary, notes.from_id) == ("NOTES ON B", left)


async def test_without_notes_nothing_moves() -> None:
    harness = Harness([says("a"), says("b"), fails("auth", message="no key")])
    await harness.prompt("one")
    fork_point = harness.session.branch().leaf_id
    await harness.prompt("two")
    before = harness.session.leaf_id
    assert not await harness.agent.navigate_with_notes(fork_point)
    assert harness.session.leaf_id == before
    assert "no key" in harness.of(Diagnosed)[0].message


async def test_moving_forward_on_the_same_branch_leaves_nothing_behind_to_describe() -> None:
    harness = Harness([says("a"), says("b")])
    await harness.prompt("one")
    middle = harness.session.branch().leaf_id
    await harness.prompt("two")
    end = harness.session.branch().leaf_id
    harness.agent.navigate(middle)
    assert await harness.agent.navigate_with_notes(end)
    assert len(harness.model.seen) == 2
