"""Messages in one line each, and strategies for sequences of them that nobody would call orderly."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from branchwork.models.adapters.http import Body
from branchwork.models.base import ModelInfo, ModelRequest, StreamEvent, ToolSpec, Transcript
from branchwork.models.reply import ReplyBuilder
from branchwork.session.entries import (
    AssistantMessage,
    AssistantPart,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Image,
    JSONObject,
    Message,
    StopReason,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)

PNG = Image("aGVsbG8=", "image/png")


def info(api: str = "openai-chat", **fields: Any) -> ModelInfo:
    return ModelInfo(provider="p", id="m", api=api, base_url="http://127.0.0.1:1", **fields)


def user(content: str | tuple[Text | Image, ...]) -> Message:
    return UserMessage(content=content, timestamp=1)


def reply(
    *parts: AssistantPart | str, model: str = "m", api: str = "openai-chat", stop: StopReason = "stop"
) -> Message:
    content = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return AssistantMessage(
        content=content, api=api, provider="p", model=model, usage=Usage(), stop_reason=stop, timestamp=1
    )


def call(call_id: str, name: str = "read", **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def result(call_id: str, *parts: Text | Image | str, error: bool = False) -> Message:
    content = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return ToolResultMessage(tool_call_id=call_id, tool_name="read", content=content, is_error=error, timestamp=1)


def request(messages: list[Message] | Transcript, **fields: Any) -> ModelRequest:
    transcript = messages if isinstance(messages, Transcript) else Transcript(messages)
    defaults: JSONObject = {
        "system": "Be brief.",
        "tools": (ToolSpec("read", "Read a file.", {"type": "object"}), ToolSpec("ls", "", {})),
        "max_tokens": 4096,
    }
    return ModelRequest(transcript=transcript, **{**defaults, **fields})


def parsed(body: Body) -> JSONObject:
    value = msgspec.json.decode(b"".join(body.pieces))
    assert isinstance(value, dict)
    return value


def built(events: list[StreamEvent], model: ModelInfo) -> AssistantMessage:
    builder = ReplyBuilder(model, "off", 0)
    for event in events:
        builder.feed(event)
    return builder.finish(0)


# ---- disorder -----------------------------------------------------------------------------------------

texts = st.sampled_from(["", " \n", "hi", "é😀", "a\ud800b", "```\nx"])
ids = st.sampled_from(["a", "b", "", "functions.read:0", "x" * 60, "\ud83d"])
_parts = st.lists(st.one_of(texts.map(Text), st.just(PNG), st.just(Image("", "image/tiff"))), max_size=3).map(tuple)
_contents = st.one_of(texts, _parts)
_calls = st.builds(
    ToolCall,
    id=ids,
    name=st.sampled_from(["read", "", "a.b", "n" * 80, "\udc00"]),
    arguments=st.sampled_from([{}, {"path": "x"}, {"p\ud800": ["\udfff", 1, None]}]),
)
_thinking = st.builds(
    Thinking, thinking=texts, thinking_signature=st.sampled_from([None, "sig"]), redacted=st.booleans()
)


def replies(api: str) -> st.SearchStrategy[Message]:
    return st.builds(
        lambda parts, model, stop: reply(*parts, model=model, api=api, stop=stop),
        st.lists(st.one_of(texts.map(Text), _calls, _thinking), max_size=4),
        st.sampled_from(["m", "other"]),
        st.sampled_from(["stop", "toolUse", "length", "error", "aborted", "deferred"]),
    )


def histories(api: str) -> st.SearchStrategy[list[Message]]:
    """Any messages in any order."""
    results = st.builds(lambda call_id, parts, error: result(call_id, *parts, error=error), ids, _parts, st.booleans())
    others = st.one_of(
        _contents.map(user),
        st.builds(lambda content: CustomMessage(custom_type="t", content=content, timestamp=1), _contents),
        st.builds(
            lambda text, hidden: BashExecutionMessage(
                command=text, output=text, exclude_from_context=hidden, timestamp=1
            ),
            texts,
            st.booleans(),
        ),
        texts.map(lambda text: BranchSummaryMessage(summary=text, from_id="root", timestamp=1)),
        texts.map(lambda text: CompactionSummaryMessage(summary=text, timestamp=1)),
        st.just(SystemMessage(content="state", timestamp=1)),
    )
    return st.lists(st.one_of(replies(api), results, results, others), min_size=1, max_size=12)
