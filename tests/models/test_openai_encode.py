from typing import Any

import pytest

from branchwork.errors import UserError
from branchwork.models.adapters.openai_chat import OpenAIChatModel, completions_url
from branchwork.models.base import ModelInfo
from branchwork.session.entries import JSONObject, Message, Text, Thinking, ToolCall
from tests.models.talk import PNG, call, info, parsed, reply, request, result, user


def sent(messages: list[Message], model: ModelInfo | None = None, **fields: Any) -> JSONObject:
    return parsed(OpenAIChatModel(model or info(), "k").body(request(messages, **fields)))


def official(**options: Any) -> ModelInfo:
    return ModelInfo(provider="openai", id="m", api="openai-chat", thinking=("low", "high", "max"), options=options)


def test_the_system_message_comes_first_and_tools_are_functions() -> None:
    body = sent([user("hi")])
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert body["tools"][0] == {
        "type": "function",
        "function": {"name": "read", "description": "Read a file.", "parameters": {"type": "object"}},
    }
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert body["max_tokens"] == 4096


def test_a_request_without_system_tools_or_conversation_is_still_json() -> None:
    assert sent([], system=" ", tools=())["messages"] == []
    assert [each["role"] for each in sent([], tools=())["messages"]] == ["system"]
    assert "tools" not in sent([user("hi")], tools=())


def test_calls_and_results_are_paired_by_id_and_results_follow_at_once() -> None:
    body = sent([user("hi"), reply("look", call("a", path="x"), call("b")), user("meanwhile"), result("b", "B")])
    assert body["messages"][2:] == [
        {
            "role": "assistant",
            "content": "look",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path":"x"}'}},
                {"id": "b", "type": "function", "function": {"name": "read", "arguments": "{}"}},
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": "No result: the call was interrupted before it finished.",
        },
        {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "user", "content": "meanwhile"},
    ]


def test_images_of_the_user_are_data_urls() -> None:
    body = sent([user((Text("look"), PNG))], info(images=True))
    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
    ]


def test_images_of_tools_follow_all_tool_messages_in_a_user_message() -> None:
    calls = reply(call("a"), call("b"))
    body = sent([user("hi"), calls, result("a", PNG), result("b", "B")], info(images=True))
    assert [each["role"] for each in body["messages"][2:]] == ["assistant", "tool", "tool", "user"]
    assert body["messages"][2]["content"] is None
    assert body["messages"][3]["content"] == "[image: see the next message]"
    assert [part["type"] for part in body["messages"][5]["content"]] == ["text", "image_url"]


def test_thinking_is_sent_back_only_in_the_field_that_options_name() -> None:
    messages: list[Message] = [user("hi"), reply(Thinking("because"), "so"), user("on")]
    assert sent(messages)["messages"][2] == {"role": "assistant", "content": "so"}
    model = info(options={"thinking_field": "reasoning_content"})
    assert sent(messages, model)["messages"][2]["reasoning_content"] == "because"


def test_a_signature_of_a_call_goes_back_where_it_came_from() -> None:
    signed = ToolCall(id="a", name="read", arguments={}, thought_signature="s")
    sent_call = sent([user("hi"), reply(signed)])["messages"][2]["tool_calls"][0]
    assert sent_call["extra_content"] == {"google": {"thought_signature": "s"}}


def test_openai_itself_gets_its_own_field_for_the_limit_and_the_session_as_cache_key() -> None:
    body = sent([user("hi")], official(), session_id="s1")
    assert body["max_completion_tokens"] == 4096
    assert "max_tokens" not in body
    assert body["prompt_cache_key"] == "s1"
    assert "prompt_cache_key" not in sent([user("hi")], session_id="s1")
    assert "prompt_cache_key" not in sent([user("hi")], official(cache_key=False), session_id="s1")
    assert sent([user("hi")], info(options={"cache_key": True}), session_id="s1")["prompt_cache_key"] == "s1"


@pytest.mark.parametrize(
    ("option", "level", "value"),
    [
        (None, "high", "high"),
        (None, "max", "xhigh"),
        (None, "off", None),
        (True, "low", "low"),
        (False, "high", None),
        ({"high": "on", "off": "none"}, "high", "on"),
        ({"high": "on", "off": "none"}, "off", "none"),
        ({"high": "on"}, "low", None),
    ],
)
def test_the_thinking_level_is_sent_as_options_say(option: Any, level: str, value: str | None) -> None:
    options = {} if option is None else {"reasoning_effort": option}
    assert sent([user("hi")], official(**options), thinking=level).get("reasoning_effort") == value


def test_a_server_without_known_levels_gets_no_effort() -> None:
    assert "reasoning_effort" not in sent([user("hi")], info(), thinking="high")


def test_the_other_quirks_are_honoured() -> None:
    options = {
        "max_tokens_field": "max_completion_tokens",
        "system_role": "developer",
        "strict_tools": True,
        "include_usage": False,
        "parallel_tool_calls": False,
        "extra_body": {"top_p": 0.5, "max_completion_tokens": 7},
    }
    body = sent([user("hi")], info(options=options))
    assert body["messages"][0]["role"] == "developer"
    assert body["tools"][0]["function"]["strict"] is True
    assert "stream_options" not in body
    assert body["parallel_tool_calls"] is False
    assert (body["top_p"], body["max_completion_tokens"]) == (0.5, 7)
    assert "parallel_tool_calls" not in sent([user("hi")], info(options=options), tools=())


@pytest.mark.parametrize(
    ("options", "words"),
    [({"strict_tools": "yes"}, "strict_tools"), ({"extra_body": {"model": "x"}}, "extra_body cannot set model")],
)
def test_wrong_options_are_the_persons_to_repair(options: JSONObject, words: str) -> None:
    with pytest.raises(UserError, match=words):
        OpenAIChatModel(info(options=options), None)


def test_a_query_in_the_address_stays_behind_the_path() -> None:
    assert completions_url("http://h/v1/") == "http://h/v1/chat/completions"
    assert completions_url("https://h/d?api-version=1") == "https://h/d/chat/completions?api-version=1"
