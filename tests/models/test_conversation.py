import msgspec
import pytest
from hypothesis import given

from branchwork.models.conversation import (
    CONTINUE,
    NO_OUTPUT,
    NO_RESULT,
    AssistantTurn,
    Group,
    Grouper,
    Rules,
    UserTurn,
    clean,
    clean_json,
    groups_of,
    rules_for,
)
from branchwork.session.entries import (
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Image,
    Message,
    StopReason,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
)
from tests.models.talk import PNG, call, histories, info, reply, result, user

RULES = rules_for(info())


def texts(group: Group) -> list[str]:
    return [part.text for part in group.content if isinstance(part, Text)]


def only_reply(messages: list[Message], rules: Rules = RULES) -> AssistantTurn:
    found = [group for group in groups_of(messages, rules) if isinstance(group, AssistantTurn)]
    assert len(found) == 1
    return found[0]


def answers(group: AssistantTurn) -> list[tuple[str, str, bool]]:
    return [(each.call_id, "".join(part.text for part in each.content if isinstance(part, Text)), each.is_error)
            for each in group.results]  # fmt: skip


# ---- replies and results -------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_a_reply_that_failed_is_not_replayed_and_neither_are_its_results(stop: StopReason) -> None:
    messages = [user("hi"), reply("oops", call("a"), stop=stop), result("a", "late"), user("again")]
    assert [texts(group) for group in groups_of(messages, RULES)] == [["hi"], ["again"]]


def test_a_result_of_a_failed_reply_does_not_answer_an_older_call_with_its_id() -> None:
    messages = [user("hi"), reply(call("a")), reply(call("a"), stop="aborted"), result("a", "of the aborted one")]
    assert answers(only_reply(messages)) == [("a", NO_RESULT, True)]


def test_a_call_without_result_is_answered_with_an_error() -> None:
    assert answers(only_reply([user("hi"), reply(call("a"), call("b")), result("b", "B")])) == [
        ("a", NO_RESULT, True),
        ("b", "B", False),
    ]


def test_a_result_without_call_is_left_out() -> None:
    assert groups_of([user("hi"), result("zzz", "lost")], RULES) == groups_of([user("hi")], RULES)


def test_a_late_result_is_pulled_to_its_call_past_other_messages() -> None:
    messages = [user("hi"), reply(call("a")), user("meanwhile"), reply("and"), result("a", "late")]
    groups = groups_of(messages, RULES)
    assert isinstance(groups[1], AssistantTurn)
    assert answers(groups[1]) == [("a", "late", False)]
    assert texts(groups[2]) == ["meanwhile"]


def test_of_two_results_the_first_wins() -> None:
    messages = [user("hi"), reply(call("a")), result("a", "first"), result("a", "second")]
    assert answers(only_reply(messages)) == [("a", "first", False)]


def test_results_stand_in_the_order_of_the_calls() -> None:
    messages = [user("hi"), reply(call("a"), call("b")), result("b", "B"), result("a", "A")]
    assert [text for _, text, _ in answers(only_reply(messages))] == ["A", "B"]


def test_an_id_used_again_is_replaced_and_its_result_follows_it() -> None:
    turn = [reply(call("call_0")), result("call_0", "x")]
    groups = groups_of([user("hi"), *turn, *turn, *turn], RULES)
    ids = [each.call_id for group in groups if isinstance(group, AssistantTurn) for each in group.results]
    assert ids[0] == "call_0"
    assert len(set(ids)) == 3
    assert groups == groups_of([user("hi"), *turn, *turn, *turn], RULES)


def test_two_calls_of_one_reply_with_one_id_get_a_result_each() -> None:
    group = only_reply([user("hi"), reply(call("a"), call("a")), result("a", "1"), result("a", "2")])
    assert [text for _, text, _ in answers(group)] == ["1", "2"]
    assert len({each.call_id for each in group.results}) == 2


def test_ids_and_names_that_servers_refuse_are_replaced() -> None:
    group = only_reply([user("hi"), reply(call("functions.read:0", "a.b c")), result("functions.read:0", "x")])
    made = group.content[0]
    assert isinstance(made, ToolCall)
    assert made.id.replace("_", "").isalnum()
    assert made.name == "a_b_c"
    assert answers(group) == [(made.id, "x", False)]


def test_ids_of_a_fixed_length_are_made_where_the_server_wants_them() -> None:
    rules = rules_for(info(), id_length=9)
    group = only_reply([user("hi"), reply(call("call_1234567890"), call("Ab3456789"))], rules)
    ids = [each.call_id for each in group.results]
    assert len(ids[0]) == 9 and ids[0].isalnum()
    assert ids[1] == "Ab3456789"


def test_a_blank_result_says_so() -> None:
    assert answers(only_reply([user("hi"), reply(call("a")), result("a", " ")])) == [("a", NO_OUTPUT, False)]


def test_arguments_that_were_no_json_object_are_replayed_as_an_empty_one() -> None:
    broken = ToolCall(id="a", name="read", arguments={}, arguments_text='{"path":')
    made = only_reply([user("hi"), reply(broken)]).content[0]
    assert isinstance(made, ToolCall) and made.arguments == {}


# ---- thinking ----------------------------------------------------------------------------------------


def test_thinking_of_the_same_model_is_kept_signed_or_not_and_signed_even_without_text() -> None:
    signed, plain = Thinking("", "sig", redacted=True), Thinking("because")
    assert only_reply([user("hi"), reply(signed, plain, "so")]).content == (signed, plain, Text("so"))


@pytest.mark.parametrize(("model", "api"), [("other", "openai-chat"), ("m", "anthropic")])
def test_thinking_and_signatures_of_another_model_are_dropped(model: str, api: str) -> None:
    parts = (
        Thinking("secret", "sig"),
        Text("so", "sig"),
        ToolCall(id="a", name="read", arguments={}, thought_signature="s"),
    )
    group = only_reply([user("hi"), reply(*parts, model=model, api=api)])
    assert group.content == (Text("so"), ToolCall(id="a", name="read", arguments={}))


def test_a_reply_of_nothing_but_thinking_is_left_out() -> None:
    assert groups_of([user("hi"), reply(Thinking("hm", "sig"), " ")], RULES) == groups_of([user("hi")], RULES)


# ---- the user's side ---------------------------------------------------------------------------------


def test_between_two_replies_and_after_the_last_one_the_user_says_something() -> None:
    groups = groups_of([reply("one"), reply("two")], RULES)
    assert [type(group) for group in groups] == [UserTurn, AssistantTurn, UserTurn, AssistantTurn, UserTurn]
    assert texts(groups[2]) == [CONTINUE]


def test_nothing_said_gives_nothing() -> None:
    assert groups_of([user(" "), SystemMessage(content="x", timestamp=1)], RULES) == []


def test_images_become_a_note_for_a_model_without_eyes() -> None:
    blind, seeing = rules_for(info()), rules_for(info(images=True))
    messages: list[Message] = [user((Text("look"), PNG, Image("eA==", "image/tiff")))]
    assert texts(groups_of(messages, blind)[0]) == ["look", *["[image left out: this model takes no images]"] * 2]
    assert groups_of(messages, seeing)[0].content[1] == PNG
    assert texts(groups_of(messages, seeing)[0])[1] == "[image left out: no support for image/tiff]"


def test_a_command_of_the_person_is_quoted_with_its_output_unless_excluded() -> None:
    shown = BashExecutionMessage(command="ls `pwd`", output="a\n```\nb\n", exit_code=2, timestamp=1)
    hidden = msgspec.structs.replace(shown, exclude_from_context=True)
    assert [texts(group) for group in groups_of([shown, hidden], RULES)] == [
        ["Ran `` ls `pwd` ``\n````\na\n```\nb\n````\nExit code 2."]
    ]


def test_summaries_come_in_a_tag_with_a_lead_in_and_details_never_leave() -> None:
    messages: list[Message] = [
        CompactionSummaryMessage(summary="we did x", timestamp=1),
        BranchSummaryMessage(summary="we tried y", from_id="root", timestamp=1),
        CustomMessage(custom_type="t", content="note", details={"secret": 1}, timestamp=1),
    ]
    first, second, third = (texts(group)[0] for group in groups_of(messages, RULES))
    assert first.endswith(":\n\n<summary>\nwe did x\n</summary>")
    assert "branch" in second and "<summary>\nwe tried y\n" in second
    assert third == "note"


# ---- strings -------------------------------------------------------------------------------------------


def test_lone_surrogates_go_and_pairs_become_their_character() -> None:
    assert clean("a\ud800b\udc00 \ud83d\ude00é") == "ab 😀é"
    assert clean_json({"k\ud800": ["v\udfff", 1]}) == {"k": ["v", 1]}


def test_clean_data_is_passed_on_as_it_is() -> None:
    value = {"a": ["é", {"b": 1.5}]}
    assert clean_json(value) is value


# ---- bit by bit ------------------------------------------------------------------------------------------


@given(histories("openai-chat"))
def test_groups_taken_bit_by_bit_are_those_of_the_whole_unless_the_grouper_says_otherwise(
    messages: list[Message],
) -> None:
    grouper, taken = Grouper(RULES), []
    for message in messages:
        grouper.add(message)
        taken += grouper.take_closed()
    if not grouper.stale:
        assert taken + grouper.open() == groups_of(messages, RULES)


def test_a_result_that_comes_after_its_call_was_given_up_makes_the_grouper_stale() -> None:
    grouper = Grouper(RULES)
    for message in (user("hi"), reply(call("a")), user("on"), reply("ok")):
        grouper.add(message)
    grouper.take_closed()
    grouper.add(result("zzz", "nobody's"))
    assert not grouper.stale
    grouper.add(result("a", "late"))
    assert grouper.stale
