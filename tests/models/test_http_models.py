"""Both adapters against a strict server, and against servers that misbehave."""

import asyncio
import contextlib
import gc
import socket
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import pytest

from branchwork.models.adapters.anthropic import AnthropicModel
from branchwork.models.adapters.http import MAX_ERROR_BODY, Timeouts
from branchwork.models.adapters.openai_chat import OpenAIChatModel
from branchwork.models.base import ModelFailure, ModelInfo, ReplyEnd, StreamEvent, TextDelta, Transcript
from branchwork.models.reply import ReplyBuilder
from branchwork.session.entries import AssistantMessage, Message
from branchwork.testing import server as fake
from tests.models.talk import request, result, user

KEY = "sk-secret-0123456789"
HttpModel: TypeAlias = OpenAIChatModel | AnthropicModel
APIS: dict[str, Callable[..., HttpModel]] = {"openai-chat": OpenAIChatModel, "anthropic": AnthropicModel}
both = pytest.mark.parametrize("api", APIS)


def model_at(
    url: str, api: str, key: str | None = KEY, *, timeouts: Timeouts | None = None, **fields: Any
) -> HttpModel:
    info = ModelInfo(provider="fake", id="m", api=api, base_url=f"{url}/v1", thinking=("high",), **fields)
    return APIS[api](info, key, timeouts=timeouts)


@asynccontextmanager
async def closing(model: HttpModel) -> AsyncIterator[HttpModel]:
    try:
        yield model
    finally:
        await model.aclose()


async def events_of(model: HttpModel, messages: list[Message] | Transcript, **fields: Any) -> list[StreamEvent]:
    return [event async for event in model.stream(request(messages, **fields))]


async def ask(model: HttpModel, messages: list[Message] | Transcript, **fields: Any) -> AssistantMessage:
    builder = ReplyBuilder(model.info, "high", 0)
    for event in await events_of(model, messages, **fields):
        builder.feed(event)
    return builder.finish(1)


async def failure_of(model: HttpModel, events: list[StreamEvent] | None = None) -> ModelFailure:
    async with closing(model):
        with pytest.raises(ModelFailure) as caught:
            async for event in model.stream(request([user("hi")])):
                if events is not None:
                    events.append(event)
    message = str(caught.value)
    assert KEY not in message
    assert "\n" not in message
    return caught.value


# ---- a server that keeps the rules -------------------------------------------------------------------------

REPLY = fake.Reply(
    parts=(
        fake.Thinking("Let me see."),
        fake.Text("Two files, in Zürich 😀."),
        fake.Call("read", {"path": "a\n"}),
        fake.Call("ls", {}),
    ),
    usage=fake.Tokens(input=7, output=9, cache_read=100, cache_write=20),
)


@both
async def test_a_conversation_with_calls_is_accepted_and_understood(api: str) -> None:
    with fake.FakeModelServer(fake.replies(REPLY, fake.Reply(parts=(fake.Text("Done."),))), key=KEY) as server:
        async with closing(model_at(server.base_url, api)) as model:
            transcript = Transcript([user("go")])
            first = await ask(model, transcript, thinking="high")
            assert first.text == "Two files, in Zürich 😀."
            assert [(call.name, call.arguments) for call in first.tool_calls] == [("read", {"path": "a\n"}), ("ls", {})]
            assert first.stop_reason == "toolUse"
            usage = first.usage
            assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (7, 9, 100, 20)
            transcript.append(first, *(result(call.id, "x") for call in first.tool_calls))
            assert (await ask(model, transcript, thinking="high")).text == "Done."
        assert [each.error for each in server.requests] == [None, None]
        assert server.connections == 1


FRAMINGS = [
    fake.Framing(crlf=True, noise=True),
    fake.Framing(several_lines=True, tight=True),
    fake.Framing(piece_bytes=1),
    fake.Framing(piece_bytes=3, crlf=True),
]


@both
@pytest.mark.parametrize("framing", FRAMINGS)
async def test_the_framing_of_events_makes_no_difference(api: str, framing: fake.Framing) -> None:
    reply = fake.Reply(parts=REPLY.parts, framing=framing)
    with fake.FakeModelServer(fake.replies(reply, fake.Reply(parts=REPLY.parts))) as server:
        async with closing(model_at(server.base_url, api)) as model:
            odd, plain = await ask(model, [user("go")]), await ask(model, [user("go")])
    assert odd.text == plain.text
    assert [call.arguments for call in odd.tool_calls] == [call.arguments for call in plain.tool_calls]


@both
async def test_a_large_body_arrives_whole(api: str) -> None:
    with fake.FakeModelServer(fake.says("ok")) as server:
        async with closing(model_at(server.base_url, api)) as model:
            await events_of(model, [user("x" * 3_000_000)])
        assert server.requests[0].bytes > 3_000_000
        assert server.requests[0].headers["content-length"] == str(server.requests[0].bytes)


async def test_a_model_without_key_sends_none_and_headers_of_the_model_are_added() -> None:
    with fake.FakeModelServer(fake.says("ok")) as server:
        for api in APIS:
            async with closing(model_at(server.base_url, api, None, headers={"X-Team": "blue"})) as model:
                await events_of(model, [user("hi")])
        for recorded in server.requests:
            assert not {"authorization", "x-api-key"} & recorded.headers.keys()
            assert recorded.headers["x-team"] == "blue"
            assert recorded.headers["user-agent"].startswith("branchwork/")


async def test_each_api_carries_the_key_its_own_way() -> None:
    with fake.FakeModelServer(fake.says("ok")) as server:
        for api in APIS:
            async with closing(model_at(server.base_url, api, f" {KEY}\n")) as model:
                await events_of(model, [user("hi")])
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.requests[1].headers["x-api-key"] == KEY
        assert server.requests[1].headers["anthropic-version"] == "2023-06-01"


@both
async def test_a_closed_model_can_be_used_again(api: str) -> None:
    with fake.FakeModelServer(fake.says("ok")) as server:
        async with closing(model_at(server.base_url, api)) as model:
            await events_of(model, [user("hi")])
            await model.aclose()
            await events_of(model, [user("hi")])
        assert server.connections == 2


@both
def test_a_model_works_in_one_event_loop_after_the_other(api: str) -> None:
    with fake.FakeModelServer(fake.says("ok")) as server:
        model = model_at(server.base_url, api)
        assert asyncio.run(ask(model, [user("hi")])).text == "ok"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the connection of the loop that is gone
            assert asyncio.run(ask_and_close(model)).text == "ok"
            gc.collect()


async def ask_and_close(model: HttpModel) -> AssistantMessage:
    async with closing(model):
        return await ask(model, [user("hi")])


@both
async def test_cancelling_closes_the_connection_at_once(api: str) -> None:
    with fake.FakeModelServer(fake.says("some text that is longer", fault=fake.Hang(after=4))) as server:
        async with closing(model_at(server.base_url, api)) as model:
            seen = asyncio.Event()

            async def consume() -> None:
                async for event in model.stream(request([user("hi")])):
                    if isinstance(event, TextDelta):
                        seen.set()

            task = asyncio.create_task(consume())
            await seen.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(server.requests[0].wait_hung_up)


# ---- refusals --------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        ("rate_limit", "rate_limit"),
        ("quota", "quota"),
        ("server", "server"),
        ("overloaded", "overloaded"),
        ("auth", "auth"),
        ("overflow", "overflow"),
        ("rejected", "rejected"),
    ],
)
async def test_a_refused_request_has_the_kind_of_the_refusal(
    api: str, refusal: fake.RefusalKind, expected: str
) -> None:
    script = fake.always(fake.Reply(fault=fake.Refused(refusal, retry_after=3)))
    with fake.FakeModelServer(script) as server:
        failure = await failure_of(model_at(server.base_url, api))
        assert failure.kind == expected
        assert failure.status == server.requests[0].status
        assert failure.retry_after == (None if expected == "rejected" else 3)
        assert str(failure).startswith("127.0.0.1 ")


@both
async def test_a_page_of_a_proxy_is_not_quoted(api: str) -> None:
    script = fake.always(fake.Reply(fault=fake.Refused("server", status=502, plain="<html>Bad Gateway</html>")))
    with fake.FakeModelServer(script) as server:
        failure = await failure_of(model_at(server.base_url, api))
    assert (failure.kind, failure.status) == ("server", 502)
    assert str(failure) == "127.0.0.1 answered 502: Scripted"


@both
async def test_without_a_key_the_message_says_how_to_store_one(api: str) -> None:
    with fake.FakeModelServer(fake.says("ok"), key=KEY) as server:
        failure = await failure_of(model_at(server.base_url, api, None))
    assert failure.kind == "auth"
    assert "branchwork auth set fake" in str(failure)


@both
@pytest.mark.parametrize("kind", ["overloaded", "rate_limit", "server"])
async def test_an_error_in_the_stream_has_its_type_and_keeps_what_came_before(api: str, kind: fake.RefusalKind) -> None:
    script = fake.says("some text that is longer", fault=fake.StreamError(kind, after=4))
    with fake.FakeModelServer(script) as server:
        events: list[StreamEvent] = []
        failure = await failure_of(model_at(server.base_url, api), events)
    assert failure.kind == kind
    assert failure.status is None
    assert any(isinstance(event, TextDelta) for event in events)


@both
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("after", [1, 4])
async def test_a_stream_without_its_end_was_cut(api: str, clean: bool, after: int) -> None:
    script = fake.says("some text that is longer", fault=fake.Cut(after=after, clean=clean))
    with fake.FakeModelServer(script) as server:
        failure = await failure_of(model_at(server.base_url, api))
    assert failure.kind == "connection"
    assert "cut off" in str(failure)


@both
@pytest.mark.parametrize("after", [0, 4])
async def test_silence_is_a_timeout(api: str, after: int) -> None:
    script = fake.says("some text that is longer", fault=fake.Hang(after=after))
    with fake.FakeModelServer(script) as server:
        failure = await failure_of(model_at(server.base_url, api, timeouts=Timeouts(idle=0.1)))
    assert failure.kind == "timeout"
    assert "silent for 0.1 s" in str(failure)


@contextmanager
def unused_port() -> Iterator[int]:
    """Bound and not listening: connections are refused, and nobody else takes it meanwhile."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@both
async def test_a_server_that_is_not_there_is_named_with_what_to_do(api: str) -> None:
    with unused_port() as port:
        failure = await failure_of(model_at(f"http://127.0.0.1:{port}", api))
    assert failure.kind == "connection"
    assert f"is the server running at http://127.0.0.1:{port}?" in str(failure)
    assert "Connection refused" in str(failure)


@both
@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://127.0.0.1", "http://", "http://[zz]", "http://127.0.0.1:99999"]
)
async def test_an_address_that_is_none_is_rejected(api: str, url: str) -> None:
    assert (await failure_of(model_at(url, api))).kind == "rejected"


@both
@pytest.mark.parametrize("key", ["sk-secret\n0123456789", "sk-ключ-0123456789"])
async def test_a_key_that_no_header_can_hold_is_an_auth_failure_that_does_not_show_it(api: str, key: str) -> None:
    failure = await failure_of(model_at("http://127.0.0.1:1", api, key))
    assert failure.kind == "auth"
    assert "0123456789" not in str(failure)
    assert failure.__cause__ is None


# ---- servers with ideas of their own ---------------------------------------------------------------------------


@asynccontextmanager
async def raw_server(*answers: bytes, hold: bool = False) -> AsyncIterator[str]:
    """Answers each request of a connection with the next of `answers`, then closes, or with `hold` does not."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            for answer in answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(answer)
                await writer.drain()
            if hold:
                await reader.read()
        except OSError:
            pass  # the client went first
        finally:
            writer.transport.abort() if hold else writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer(body: bytes, kind: str = "text/event-stream", status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def endless(body: bytes) -> bytes:
    """Part of a body whose length is not announced and whose end does not come."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + (
        b"%x\r\n%b\r\n" % (len(body), body)
    )


CHAT = b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\n'
MESSAGES = (
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ok"}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
)
complete = pytest.mark.parametrize(("api", "stream"), [("openai-chat", CHAT), ("anthropic", MESSAGES)], ids=APIS)


@complete
async def test_a_complete_reply_does_not_need_a_terminal_event(api: str, stream: bytes) -> None:
    async with raw_server(answer(stream)) as url, closing(model_at(url, api)) as model:
        assert (await ask(model, [user("hi")])).text == "ok"


@complete
async def test_a_complete_reply_whose_body_stays_open_ends_all_the_same(api: str, stream: bytes) -> None:
    limits = Timeouts(grace=0.05)
    async with raw_server(endless(stream), hold=True) as url, closing(model_at(url, api, timeouts=limits)) as model:
        assert (await ask(model, [user("hi")])).text == "ok"


@complete
async def test_a_connection_lost_after_a_complete_reply_does_no_harm(api: str, stream: bytes) -> None:
    async with raw_server(endless(stream)) as url, closing(model_at(url, api)) as model:
        assert isinstance((await events_of(model, [user("hi")]))[-1], ReplyEnd)


@both
async def test_the_last_event_may_lack_its_blank_line(api: str) -> None:
    stream = (CHAT if api == "openai-chat" else MESSAGES).rstrip(b"\n")
    async with raw_server(answer(stream)) as url, closing(model_at(url, api)) as model:
        assert (await ask(model, [user("hi")])).text == "ok"


async def test_a_server_that_does_not_stream_is_understood() -> None:
    body = b'{"choices":[{"message":{"content":"ok"},"finish_reason":"stop"}]}'
    async with raw_server(answer(body, "application/json")) as url, closing(model_at(url, "openai-chat")) as model:
        assert (await ask(model, [user("hi")])).text == "ok"


@both
@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"data: {broken\n\n", "text/event-stream"), (b'{"hello":1}', "application/json"), (b"{", "application/json")],
)
async def test_what_cannot_be_read_is_a_protocol_failure(api: str, body: bytes, kind: str) -> None:
    async with raw_server(answer(body, kind)) as url:
        failure = await failure_of(model_at(url, api))
    assert failure.kind == "protocol"
    assert "is base_url right?" in str(failure)


@both
async def test_a_page_instead_of_a_stream_is_no_reply(api: str) -> None:
    async with raw_server(answer(b"<html>Welcome</html>", "text/html")) as url:
        failure = await failure_of(model_at(url, api))
    assert (failure.kind, str(failure)) == ("protocol", "127.0.0.1 answered with a web page; is base_url right?")


@both
async def test_a_proxy_of_the_environment_is_used(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = CHAT if api == "openai-chat" else MESSAGES
    async with raw_server(answer(stream)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        async with closing(model_at("http://models.invalid", api)) as model:
            assert (await ask(model, [user("hi")])).text == "ok"


@both
async def test_redirects_are_not_followed(api: str) -> None:
    with fake.FakeModelServer(fake.says("ok")) as other:
        moved = answer(b"", "text/plain", "308 Permanent Redirect", f"location: {other.base_url}/v1/chat/completions")
        async with raw_server(moved) as url:
            failure = await failure_of(model_at(url, api))
        assert failure.kind == "rejected"
        assert other.base_url in str(failure)
        assert other.requests == []


@both
async def test_an_endless_error_body_is_read_up_to_a_limit(api: str) -> None:
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 999999999\r\n\r\n"
    async with raw_server(head + b"x" * (2 * MAX_ERROR_BODY), hold=True) as url:
        failure = await failure_of(model_at(url, api))
    assert failure.kind == "rejected"
    assert len(str(failure)) < 1000


@both
async def test_a_key_that_the_server_repeats_is_not_passed_on(api: str) -> None:
    body = f'{{"error":{{"message":"bad key {KEY}\\nreally"}}}}'.encode()
    async with raw_server(answer(body, "application/json", "401 Unauthorized")) as url:
        failure = await failure_of(model_at(url, api))
    assert str(failure) == "127.0.0.1 refused the key of fake (401: bad key … really)"


def test_the_adapters_import_no_http_library_before_it_is_needed() -> None:
    import subprocess

    code = (
        "import sys; import branchwork.models.adapters.openai_chat, branchwork.models.adapters.anthropic;"
        "print(sorted({'httpx2', 'asyncio', 'ssl', 'hashlib', 'email'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
