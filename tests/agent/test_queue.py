"""Two queues, each delivered one at a time or all at once."""

from branchwork.agent.queue import InputQueue
from branchwork.session.entries import UserMessage


def said(text: str) -> UserMessage:
    return UserMessage(content=text, timestamp=0)


def test_by_default_one_message_is_delivered_at_a_time() -> None:
    queue = InputQueue()
    queue.steer(said("a"))
    queue.steer(said("b"))
    assert queue.take_steering() == (said("a"),)
    assert queue.texts() == (("b",), ())
    assert queue.take_follow_up() == ()


def test_each_queue_has_a_mode_of_its_own() -> None:
    queue = InputQueue(follow_up="all")
    for text in ("a", "b"):
        queue.steer(said(text))
        queue.follow_up(said(text))
    assert queue.take_steering() == (said("a"),)
    assert queue.take_follow_up() == (said("a"), said("b"))
    assert queue
    assert queue.take_back() == (said("b"),)
    assert not queue
