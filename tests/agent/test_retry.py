"""What is sent again, when, and what is not."""

import pytest

from branchwork.agent.events import RetryFinished, RetryScheduled
from branchwork.agent.request import RetryPolicy
from branchwork.models.base import FailureKind
from branchwork.models.scripted import ends, fails, says
from branchwork.session.entries import AssistantMessage
from branchwork.testing.harness import Harness


@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "server", "connection", "timeout"])
async def test_a_passing_failure_is_retried_with_doubling_pauses(kind: FailureKind) -> None:
    harness = Harness([fails(kind), fails(kind), says("here")])
    assert (await harness.prompt()).end == "done"
    assert harness.clock.sleeps == [2.0, 4.0]
    assert [event.delay_s for event in harness.of(RetryScheduled)] == [2.0, 4.0]
    assert harness.of(RetryFinished) == [harness.of(RetryFinished)[0]]
    assert harness.of(RetryFinished)[0].success


@pytest.mark.parametrize("kind", ["auth", "quota", "rejected", "protocol"])
async def test_a_lasting_failure_ends_the_run_at_once(kind: FailureKind) -> None:
    harness = Harness([fails(kind, message="no such key")])
    finished = await harness.prompt()
    assert (finished.end, finished.error) == ("error", "no such key")
    assert harness.clock.sleeps == []
    assert harness.agent.failure is not None
    assert harness.agent.failure.kind == kind


async def test_retries_end_and_the_failure_is_recorded() -> None:
    harness = Harness([fails("server")] * 4, retry=RetryPolicy(max_retries=3))
    finished = await harness.prompt()
    assert finished.end == "error"
    assert harness.clock.sleeps == [2.0, 4.0, 8.0]
    last = harness.messages()[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.stop_reason, last.error_message) == ("error", "scripted failure")
    assert not harness.of(RetryFinished)[-1].success


async def test_nothing_is_sent_again_after_the_first_part_arrived() -> None:
    harness = Harness([fails("connection", after=2), says("never")])
    finished = await harness.prompt()
    assert finished.end == "error"
    assert len(harness.model.seen) == 1
    last = harness.messages()[-1]
    assert isinstance(last, AssistantMessage)
    assert last.text == "part 1 part 2 "


async def test_the_pause_that_the_server_asks_for_is_kept() -> None:
    harness = Harness([fails("rate_limit", retry_after=7.5), says("here")])
    await harness.prompt()
    assert harness.clock.sleeps == [7.5]


async def test_a_server_that_asks_for_too_long_is_not_waited_for() -> None:
    harness = Harness([fails("rate_limit", retry_after=3600.0), says("never")])
    assert (await harness.prompt()).end == "error"
    assert harness.clock.sleeps == []


async def test_a_failed_reply_is_not_part_of_the_next_request() -> None:
    harness = Harness([fails("auth"), says("ok")])
    await harness.prompt("one")
    await harness.prompt("two")
    assert [type(message).__name__ for message in harness.model.seen[1].messages][-1] == "UserMessage"


async def test_a_reply_that_its_server_refused_is_an_error_with_a_reason() -> None:
    harness = Harness([says("I cannot") + ends("error")])
    finished = await harness.prompt()
    assert finished.end == "error"
    assert finished.error is not None
    assert "gave no answer" in finished.error
    assert harness.agent.failure is not None
