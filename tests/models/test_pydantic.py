"""Providers behind pydantic-ai keep the contract of every model, and what they need back survives a round trip."""

import http.server
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="extra [providers] is not installed")

from pydantic_ai import exceptions
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from branchwork.models.adapters.pydantic_ai import PydanticAIModel, failure_kind
from branchwork.models.base import ModelFailure, ModelInfo, ModelRequest, ReplyEnd, ToolSpec, Transcript
from branchwork.models.reply import ReplyBuilder
from branchwork.session.entries import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from branchwork.testing.model_contract import HTTP_CHECKS, MODEL_CHECKS, Check, check_name, http_rig
from branchwork.testing.server import FakeModelServer

KEY = "sk-never-to-be-seen"
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})

NOT_OURS = {
    ("openai-chat", "every_legal_framing_reads_the_same"),  # OpenAI's client fails on empty events
    ("anthropic", "usage_that_was_not_reported_is_unknown"),  # Anthropic's client needs the usage
}


def model_for(kind: str, server: FakeModelServer) -> PydanticAIModel:
    name, path = ("claude-sonnet-5-5", "") if kind == "anthropic" else ("fake-model", "/v1")
    base = f"{server.base_url}{path}"
    return PydanticAIModel(
        ModelInfo(provider="fake", id=name, api=f"pydantic-ai:{kind}", base_url=base, images=True), KEY
    )


CASES = [
    pytest.param(kind, check, id=f"{kind}-{check_name(check)}")
    for kind in ("openai-chat", "anthropic")
    for check in (*MODEL_CHECKS, *HTTP_CHECKS)
    if (kind, check_name(check)) not in NOT_OURS
]


@pytest.mark.parametrize(("kind", "check"), CASES)
async def test_the_model_keeps_the_contract(kind: str, check: Check) -> None:
    await check(lambda replies: http_rig(replies, lambda server: model_for(kind, server)))


# ---- without a server -----------------------------------------------------------------------------


def info(**fields: Any) -> ModelInfo:
    return ModelInfo(provider="p", id="m", api="pydantic-ai:test", **fields)


def asked(*messages: Message, thinking: ThinkingLevel = "off", **fields: Any) -> ModelRequest:
    transcript = Transcript(messages or [UserMessage(content="Hi", timestamp=0)])
    return ModelRequest(
        system="Be brief.", transcript=transcript, tools=(READ,), thinking=thinking, max_tokens=2000, **fields
    )


async def built(model: PydanticAIModel, request: ModelRequest) -> AssistantMessage:
    builder = ReplyBuilder(model.info, request.thinking, 0)
    async for event in model.stream(request):
        builder.feed(event)
    return builder.finish(1)


async def test_text_thinking_and_calls_arrive_as_parts() -> None:
    async def script(messages: list[ModelMessage], agent: AgentInfo) -> AsyncIterator[Any]:
        yield {0: DeltaThinkingPart(content="They want ")}
        yield {0: DeltaThinkingPart(content="a file.", signature="sig")}
        yield {1: DeltaToolCall(name="read", json_args='{"pa', tool_call_id="c1")}
        yield {1: DeltaToolCall(json_args='th": "a"}')}
        yield {2: DeltaToolCall(name="read", json_args='{"path": "b"}', tool_call_id="c2")}

    message = await built(PydanticAIModel(info(), None, model=FunctionModel(stream_function=script)), asked())
    thinking, first, second = message.content
    assert isinstance(thinking, Thinking)
    assert (thinking.thinking, thinking.redacted) == ("They want a file.", False)
    assert thinking.thinking_signature is not None
    assert first == ToolCall("c1", "read", {"path": "a"})
    assert second == ToolCall("c2", "read", {"path": "b"})
    assert message.stop_reason == "toolUse"


async def test_the_request_has_the_system_prompt_the_tools_and_the_whole_conversation() -> None:
    seen: list[ModelMessage] = []
    tools: list[str] = []

    async def script(messages: list[ModelMessage], agent: AgentInfo) -> AsyncIterator[str]:
        seen.extend(messages)
        tools.extend(tool.name for tool in agent.function_tools)
        yield "ok"

    png = Image("aGk=", "image/png")
    request = asked(
        UserMessage(content=(Text("Look"), png), timestamp=0),
        AssistantMessage(
            content=(Text("I will."), ToolCall("c1", "read", {"path": "a"})),
            api="other",
            provider="p",
            model="m",
            usage=Usage(),
            stop_reason="toolUse",
            timestamp=0,
        ),
        ToolResultMessage(tool_call_id="c1", tool_name="read", content=(Text("no"), png), is_error=True, timestamp=0),
        UserMessage(content="And?", timestamp=0),
    )
    await built(PydanticAIModel(info(images=True), None, model=FunctionModel(stream_function=script)), request)
    assert tools == ["read"]
    first, reply, last = seen
    assert [part.part_kind for part in first.parts] == ["system-prompt", "user-prompt"]
    assert [part.part_kind for part in reply.parts] == ["text", "tool-call"]
    assert [part.part_kind for part in last.parts] == ["tool-return", "user-prompt"]
    assert getattr(last.parts[0], "outcome", None) == "failed"
    prompt = first.parts[1]
    assert isinstance(prompt, UserPromptPart)
    assert [getattr(piece, "data", piece) for piece in prompt.content] == ["Look", b"hi"]


async def test_pydantic_ais_own_test_model_works() -> None:
    model = PydanticAIModel(info(), None, model=TestModel(call_tools=["read"]))
    message = await built(model, asked())
    (call,) = message.tool_calls
    assert call.name == "read"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ModelRateLimitError("m", "slow down"), "rate_limit"),
        (exceptions.ModelQuotaExceededError("m", "no money"), "quota"),
        (exceptions.ModelOverloadedError("m", "busy"), "overloaded"),
        (exceptions.ModelServerError("m", "oops"), "server"),
        (exceptions.ModelConnectionError("m", "refused"), "connection"),
        (exceptions.ModelTimeoutError("m", "late"), "timeout"),
        (exceptions.ModelContextWindowExceededError("m", "long"), "overflow"),
        (exceptions.ModelAuthenticationError("m", "who"), "auth"),
        (exceptions.ModelRequestRejectedError("m", "bad"), "rejected"),
        (exceptions.ModelRequestRejectedError("m", "prompt is too long: 9 tokens > 8"), "overflow"),
        (exceptions.ModelHTTPError(503, "m"), "server"),
        (exceptions.ModelHTTPError(418, "m"), "rejected"),
        (exceptions.UserError("wrong"), "rejected"),
        (KeyError("surprise"), "protocol"),
    ],
)
def test_errors_are_told_apart_by_type_and_status(error: Exception, kind: str) -> None:
    assert failure_kind(error) == kind


async def test_the_key_is_in_no_error() -> None:
    async def script(messages: list[ModelMessage], agent: AgentInfo) -> AsyncIterator[str]:
        yield ""
        raise exceptions.ModelRequestRejectedError("m", f"bad header Bearer {KEY}\nand more {'x' * 2000}")

    model = PydanticAIModel(info(), KEY, model=FunctionModel(stream_function=script))
    with pytest.raises(ModelFailure) as raised:
        await built(model, asked())
    assert KEY not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 700


ABSENT = next(
    (kind for kind, client in (("groq", "groq"), ("cohere", "cohere")) if find_spec(client) is None), "nonsense"
)
"""A kind whose client is not installed here."""


@pytest.mark.parametrize("kind", ["nonsense", ABSENT])
async def test_a_kind_that_cannot_be_set_up_is_a_clear_failure(kind: str) -> None:
    model = PydanticAIModel(ModelInfo(provider="p", id="m", api=f"pydantic-ai:{kind}"), KEY)
    with pytest.raises(ModelFailure) as raised:
        await built(model, asked())
    assert (raised.value.kind, raised.value.retryable) == ("rejected", False)
    assert kind in str(raised.value)
    assert KEY not in str(raised.value)
    if kind != "nonsense":
        assert f"pip install 'pydantic-ai-slim[{kind}]'" in str(raised.value)


# ---- OpenAI's Responses API -----------------------------------------------------------------------

REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "enc-1",
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "read",
    "arguments": '{"path":"a"}',
    "status": "completed",
}
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 7},
    "total_tokens": 120,
}


def responses_events() -> Iterator[dict[str, Any]]:
    """One reply: a reasoning item with a summary, then one call. Format: OpenAI's API reference, streaming events."""
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-6.1-sol", "tools": [], "output": []}
    head |= {"parallel_tool_calls": True, "tool_choice": "auto"}
    yield {"type": "response.created", "response": {**head, "status": "in_progress"}}
    bare = {**REASONING, "summary": []}
    del bare["encrypted_content"]
    yield {"type": "response.output_item.added", "output_index": 0, "item": bare}
    part = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
    empty = {"type": "summary_text", "text": ""}
    yield {"type": "response.reasoning_summary_part.added", **part, "part": empty}
    yield {"type": "response.reasoning_summary_text.delta", **part, "delta": "Hm."}
    yield {"type": "response.output_item.done", "output_index": 0, "item": REASONING}
    started = {**CALL, "arguments": "", "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": 1, "item": started}
    for piece in ('{"path"', ':"a"}'):
        yield {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 1, "delta": piece}
    yield {"type": "response.output_item.done", "output_index": 1, "item": CALL}
    done = {**head, "status": "completed", "output": [REASONING, CALL], "usage": USAGE}
    yield {"type": "response.completed", "response": done}


class ResponsesServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: ResponsesServer

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        lines = [
            f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
            for number, event in enumerate(responses_events())
        ]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(lines).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def responses_server() -> Iterator[ResponsesServer]:
    server = ResponsesServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_reasoning_of_the_responses_api_goes_back_with_its_call() -> None:
    with responses_server() as server:
        base = f"http://127.0.0.1:{server.server_address[1]}/v1"
        known = ModelInfo(
            provider="openai",
            id="gpt-6.1-sol",
            api="pydantic-ai:openai-responses",
            base_url=base,
            thinking=("low", "high"),
        )
        model = PydanticAIModel(known, KEY)
        question = UserMessage(content="Read a", timestamp=0)
        reply = await built(model, asked(question, thinking="high"))
        result = ToolResultMessage(
            tool_call_id="call_1", tool_name="read", content=(Text("contents"),), is_error=False, timestamp=0
        )
        await built(model, asked(question, reply, result, thinking="high"))
        await model.aclose()
    thinking, call = reply.content
    assert isinstance(thinking, Thinking)
    assert thinking.thinking == "Hm."
    assert isinstance(call, ToolCall)
    assert (call.id, call.name, call.arguments) == ("call_1", "read", {"path": "a"})
    assert (reply.usage.input, reply.usage.cache_read, reply.usage.output, reply.usage.reasoning) == (60, 40, 20, 7)
    assert (reply.stop_reason, reply.response_id) == ("toolUse", "resp_1")
    first, second = server.bodies
    assert first["reasoning"]["effort"] == "high"
    assert first["max_output_tokens"] == 2000
    assert [tool["name"] for tool in first["tools"]] == ["read"]
    replayed = {item.get("type"): item for item in second["input"]}
    assert replayed["reasoning"]["encrypted_content"] == "enc-1"
    assert replayed["function_call"]["call_id"] == "call_1"
    assert replayed["function_call_output"]["output"] == "contents"


async def test_a_reply_without_a_server_ends_with_its_end() -> None:
    model = PydanticAIModel(info(), None, model=TestModel(call_tools=[], custom_output_text="Hello there"))
    events = [event async for event in model.stream(asked())]
    assert isinstance(events[-1], ReplyEnd)
    assert sum(isinstance(event, ReplyEnd) for event in events) == 1
