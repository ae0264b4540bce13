from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.models.adapters.anthropic import AnthropicModel
from branchwork.models.adapters.anthropic_encode import MessagesEncoder, MessagesOptions
from branchwork.models.adapters.openai_chat import OpenAIChatModel
from branchwork.models.adapters.openai_encode import ChatEncoder, ChatOptions
from branchwork.models.base import Transcript
from branchwork.models.conversation import Group, rules_for
from branchwork.models.wire import KEPT_TRANSCRIPTS, SEGMENT_BYTES, STEP, Histories, MessageEncoder, WireHistory, dumps
from branchwork.session.entries import JSONObject, Message
from branchwork.testing.script import Wire
from branchwork.testing.server_anthropic import ANTHROPIC
from branchwork.testing.server_openai import OPENAI
from tests.models.talk import call, histories, info, parsed, reply, request, result, user

CONTROL = b',"cache_control":{"type":"ephemeral"}'

chat = pytest.param("openai-chat", ChatEncoder(ChatOptions()), id="openai-chat")
messages_api = pytest.param("anthropic", MessagesEncoder(MessagesOptions()), id="anthropic")
both = pytest.mark.parametrize(("api", "encoder"), [chat, messages_api])


def turn(number: int, text: str = "result") -> list[Message]:
    call_id = f"call_{number:08}"
    return [reply("look", call(call_id)), result(call_id, text)]


def joined(chunks: Sequence[bytes]) -> list[JSONObject]:
    return msgspec.json.decode(b"[" + b"".join(chunks) + b"]", type=list[JSONObject])


# ---- work ----------------------------------------------------------------------------------------------


def work_of_last_requests(api: str, encoder: MessageEncoder, turns: int) -> tuple[int, int]:
    """Groups and bytes encoded by ten requests at the end of a conversation of `turns` turns."""
    history = WireHistory(rules_for(info(api)), encoder)
    transcript = Transcript([user("go")])
    for number in range(turns):
        transcript.append(*turn(number))
        history.chunks(transcript, mark=True)
    before = history.groups_encoded, history.bytes_encoded
    for number in range(turns, turns + 10):
        transcript.append(*turn(10**6 + number))
        history.chunks(transcript, mark=True)
    return history.groups_encoded - before[0], history.bytes_encoded - before[1]


@both
def test_the_work_of_a_request_does_not_grow_with_the_conversation(api: str, encoder: MessageEncoder) -> None:
    small, twice, four_times = (work_of_last_requests(api, encoder, n) for n in (50, 100, 200))
    assert small == twice == four_times
    assert small[0] <= 2 * 10  # each group once while it is open, once when it is closed


@both
def test_a_long_history_is_sent_in_few_pieces_that_are_not_made_again(api: str, encoder: MessageEncoder) -> None:
    history = WireHistory(rules_for(info(api)), encoder)
    transcript = Transcript([user("go")])
    for number in range(64):
        transcript.append(*turn(number, "x" * (SEGMENT_BYTES // 8)))
    first = history.chunks(transcript)
    assert 64 // 8 - 1 <= len(first) <= 64 // 8 + 1
    transcript.append(*turn(64))
    second = history.chunks(transcript)
    assert all(new is old for new, old in zip(second[:-1], first[:-1], strict=False))
    assert len(joined(second)) == len(joined(first)) + 2


def test_an_unanswered_call_that_gets_its_result_late_costs_one_new_start() -> None:
    history = WireHistory(rules_for(info()), ChatEncoder(ChatOptions()))
    transcript = Transcript([user("go"), reply(call("a")), user("on"), reply("ok")])
    assert "interrupted" in joined(history.chunks(transcript))[2]["content"]
    transcript.append(result("a", "late"))
    assert joined(history.chunks(transcript))[2]["content"] == "late"


class Watched:
    """An encoder that notes how many groups it is given at a time."""

    def __init__(self, inner: MessageEncoder) -> None:
        self.inner = inner
        self.sizes: list[int] = []

    def encode(self, groups: Sequence[Group]) -> list[bytes]:
        self.sizes.append(len(groups))
        return self.inner.encode(groups)

    def mark(self, message: bytes, own: bytes | None = None) -> bytes:
        return self.inner.mark(message, own)


@both
def test_a_long_history_is_encoded_in_steps_and_each_group_once(api: str, encoder: MessageEncoder) -> None:
    watched = Watched(encoder)
    history = WireHistory(rules_for(info(api)), watched)
    transcript = Transcript([user("go"), *(message for number in range(3 * STEP) for message in turn(number))])
    assert len(joined(history.chunks(transcript))) == len(transcript.messages)
    assert max(watched.sizes) <= STEP
    assert history.groups_encoded == 1 + 3 * STEP


@both
def test_a_result_that_comes_steps_after_its_call_costs_one_new_start(api: str, encoder: MessageEncoder) -> None:
    history = WireHistory(rules_for(info(api)), encoder)
    turns = [message for number in range(2 * STEP) for message in turn(number)]
    transcript = Transcript([user("go"), reply(call("late")), *turns, result("late", "at last")])
    assert b"at last" in b"".join(history.chunks(transcript))
    assert history.groups_encoded <= 2 * (2 + 2 * STEP)
    transcript.append(*turn(3 * STEP))
    before = history.groups_encoded
    assert b"at last" in b"".join(history.chunks(transcript))
    assert history.groups_encoded - before <= 2


# ---- validity --------------------------------------------------------------------------------------------


@both
@given(data=st.data())
def test_the_history_in_steps_is_that_in_one_go(api: str, encoder: MessageEncoder, data: st.DataObject) -> None:
    given_messages = data.draw(histories(api))
    rules = rules_for(info(api, images=True))
    history = WireHistory(rules, encoder)
    transcript = Transcript()
    for message in given_messages:
        transcript.append(message)
        whole = WireHistory(rules, encoder).chunks(transcript)
        assert b"".join(history.chunks(transcript)) == b"".join(whole)


def judge(wire: Wire, body: JSONObject) -> None:
    wire.judge(body, {"anthropic-version": "2023-06-01"})


@given(histories("openai-chat"), histories("openai-chat"), st.booleans())
def test_a_strict_openai_server_takes_whatever_was_recorded(
    recorded: list[Message], extra: list[Message], images: bool
) -> None:
    body = parsed(OpenAIChatModel(info(images=images), None).body(request(recorded, extra=tuple(extra))))
    judge(OPENAI, body)


@given(histories("anthropic"), histories("anthropic"), st.booleans(), st.booleans())
def test_a_strict_anthropic_server_takes_whatever_was_recorded(
    recorded: list[Message], extra: list[Message], images: bool, cache: bool
) -> None:
    asked = request([user("hi"), *recorded], extra=tuple(extra), cache=cache)
    body = AnthropicModel(info("anthropic", images=images), None).body(asked)
    judge(ANTHROPIC, parsed(body))
    if not cache:
        assert CONTROL not in b"".join(body.pieces)


# ---- prefixes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [OpenAIChatModel(info(), None), AnthropicModel(info("anthropic"), None)])
def test_each_request_begins_with_the_bytes_of_the_one_before_it(model: OpenAIChatModel | AnthropicModel) -> None:
    transcript = Transcript([user("go")])
    before = b""
    for number in range(12):
        # The limit changes from request to request, and must not come before the messages.
        asked = request(transcript, max_tokens=4096 - number, session_id="s")
        sent = b"".join(model.body(asked).pieces).replace(CONTROL, b"")
        conversation = sent[: sent.rindex(b"],")]
        assert conversation.startswith(before.removesuffix(b"}").removesuffix(b"]"))
        before = conversation
        transcript.append(*turn(number))
        if number % 3 == 0:
            transcript.append(user("steer"))


@given(st.data())
def test_what_anthropic_cached_is_found_again(data: st.DataObject) -> None:
    model = AnthropicModel(info("anthropic"), None)
    transcript = Transcript([user("go")])
    marked: set[bytes] = set()
    for number in range(data.draw(st.integers(2, 5))):
        extra = (user("one-off"),) if data.draw(st.booleans()) else ()
        pieces = b"".join(model.body(request(transcript, extra=extra)).pieces).split(CONTROL)
        prefixes = {b"".join(pieces[: count + 1]) for count in range(len(pieces) - 1)}
        assert len(prefixes) <= 4
        assert not any(b"one-off" in prefix for prefix in prefixes)
        assert number == 0 or max(marked, key=len) in prefixes
        marked = prefixes
        transcript.append(*turn(number))


# ---- when the cache is void --------------------------------------------------------------------------------


def test_a_replaced_transcript_is_encoded_anew() -> None:
    history = WireHistory(rules_for(info()), ChatEncoder(ChatOptions()))
    transcript = Transcript([user("old"), *turn(1), *turn(2)])
    history.chunks(transcript)
    transcript.replace([user("new"), *turn(1), *turn(2)])
    assert joined(history.chunks(transcript))[0]["content"] == "new"


def test_another_transcript_is_encoded_anew() -> None:
    history = WireHistory(rules_for(info()), ChatEncoder(ChatOptions()))
    history.chunks(Transcript([user("old"), *turn(1)]))
    assert joined(history.chunks(Transcript([user("new"), *turn(1)])))[0]["content"] == "new"


def test_extra_messages_are_sent_once_and_leave_no_trace() -> None:
    history = WireHistory(rules_for(info()), ChatEncoder(ChatOptions()))
    transcript = Transcript([user("go"), *turn(1)])
    plain = history.chunks(transcript)
    for extra in ([user("once")], [reply("ok", call("e")), result("e", "once")]):
        with_extra = joined(history.chunks(transcript, extra))
        assert with_extra[: len(joined(plain))] == joined(plain)
        assert "once" in with_extra[-1]["content"]
        assert history.chunks(transcript) == plain


def test_a_model_keeps_the_histories_of_a_few_transcripts() -> None:
    kept = Histories(rules_for(info()), ChatEncoder(ChatOptions()))
    main = Transcript([user("main")])
    first = kept.of(main)
    for _ in range(KEPT_TRANSCRIPTS - 1):
        kept.of(Transcript())
    assert kept.of(main) is first
    for _ in range(KEPT_TRANSCRIPTS):
        kept.of(Transcript())
    assert kept.of(main) is not first


def test_a_one_off_transcript_pushes_no_other_out() -> None:
    kept = Histories(rules_for(info()), ChatEncoder(ChatOptions()))
    main = Transcript([user("main")])
    first = kept.of(main)
    for _ in range(2 * KEPT_TRANSCRIPTS):
        kept.of(Transcript(), keep=False)
    assert kept.of(main) is first


def test_json_is_compact_utf8_without_lone_surrogates() -> None:
    assert dumps({"é": "a\ud800", "b": [1, None]}) == '{"é":"a","b":[1,null]}'.encode()
