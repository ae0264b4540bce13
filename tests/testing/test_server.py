"""What the fake model server promises whatever the wire format."""

import asyncio
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import httpx2
import pytest

from branchwork.session.entries import JSONObject
from branchwork.testing.server import (
    Cut,
    FakeModelServer,
    Framing,
    Hang,
    Refused,
    Reply,
    StreamError,
    Text,
    always,
    calls,
    fails_then,
    replies,
    says,
)
from tests.testing.client import ANTHROPIC, OPENAI, anthropic_body, connect, openai_body, post, send, stream, user

BODIES = {OPENAI: openai_body(), ANTHROPIC: anthropic_body()}
both = pytest.mark.parametrize("path", BODIES)


@both
def test_several_requests_share_a_connection(path: str) -> None:
    with FakeModelServer(says("hi")) as server:
        connection = connect(server)
        for streamed in (True, False, True):
            response = send(connection, path, {**BODIES[path], "stream": streamed})
            assert response.status == 200
            response.read()
        connection.close()
        assert (server.connections, len(server.requests)) == (1, 3)


def test_both_formats_are_served_at_once() -> None:
    with FakeModelServer(says("hi")) as server:
        assert post(server, OPENAI, openai_body())[1]["choices"][0]["message"]["content"] == "hi"
        assert post(server, ANTHROPIC, anthropic_body())[1]["content"] == [{"type": "text", "text": "hi"}]


def test_a_query_does_not_matter() -> None:
    with FakeModelServer(says("hi")) as server:
        assert post(server, ANTHROPIC + "?beta=true", anthropic_body(), {"anthropic-version": "1"})[0] == 200


def test_requests_are_recorded_with_their_body_and_times() -> None:
    before = time.monotonic()
    with FakeModelServer(says("hi")) as server:
        post(server, OPENAI, openai_body(user("What?")), {"X-Test": "yes"})
        (request,) = server.requests
    assert request.body == openai_body(user("What?"))
    assert (request.path, request.headers["x-test"], request.status, request.error) == (OPENAI, "yes", 200, None)
    assert request.last_byte is not None
    assert before <= request.first_byte <= request.complete <= request.last_byte <= time.monotonic()


def test_bodies_are_dropped_on_wish() -> None:
    with FakeModelServer(says("hi"), keep_bodies=False) as server:
        post(server, OPENAI, openai_body())
        assert [(request.body, request.bytes > 0) for request in server.requests] == [(None, True)]


def test_own_times_are_what_the_client_needed_between_two_requests() -> None:
    pause = 0.05
    with FakeModelServer(says("hi", delay_s=0.01)) as server:
        connection = connect(server)
        for _ in range(3):
            send(connection, OPENAI, openai_body(stream=True)).read()
            threading.Event().wait(pause)
        connection.close()
        own = server.own_times()
    assert len(own) == 2
    assert all(pause <= seconds < pause + 0.2 for seconds in own)


def test_requests_can_be_forgotten_while_the_script_goes_on() -> None:
    with FakeModelServer(replies(Reply(parts=(Text("one"),)), Reply(parts=(Text("two"),)))) as server:
        post(server, OPENAI, openai_body())
        server.clear()
        assert (server.requests, server.own_times()) == ([], [])
        assert post(server, OPENAI, openai_body())[1]["choices"][0]["message"]["content"] == "two"


@both
def test_a_rejected_request_does_not_advance_the_script(path: str) -> None:
    with FakeModelServer(fails_then(Refused("server"), says("ok"))) as server:
        assert post(server, path, {**BODIES[path], "messages": []})[0] == 400
        assert [post(server, path, BODIES[path])[0] for _ in range(2)] == [500, 200]
        assert [request.error is not None for request in server.requests] == [True, False, False]
        assert server.rejected == server.requests[:1]


@both
def test_a_body_that_is_no_json_object_is_rejected(path: str) -> None:
    with FakeModelServer(says("hi")) as server:
        found = [post(server, path, raw)[0] for raw in (b"", b"{", b"[1]", b'{"a": "\\ud83c"}', b'{"a": "\xff"}')]
    assert found == [400] * 5


def test_an_unknown_endpoint_is_not_found_and_the_connection_goes_on() -> None:
    with FakeModelServer(says("hi")) as server:
        connection = connect(server)
        response = send(connection, "/v1/responses", {})
        assert (response.status, b"no such endpoint" in response.read()) == (404, True)
        assert send(connection, OPENAI, openai_body()).read()
        connection.close()
        assert [request.status for request in server.requests] == [404, 200]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (OPENAI, {"authorization": "Bearer secret"}),
        (ANTHROPIC, {"x-api-key": "secret", "anthropic-version": "1"}),
        (ANTHROPIC, {"authorization": "Bearer secret", "anthropic-version": "1"}),
    ],
)
def test_a_server_with_a_key_wants_to_see_it(path: str, headers: dict[str, str]) -> None:
    wrong = {name: value.replace("secret", "guess") for name, value in headers.items()}
    with FakeModelServer(says("hi"), key="secret") as server:
        assert post(server, path, BODIES[path], headers)[0] == 200
        assert post(server, path, BODIES[path], wrong)[0] == 401
        assert post(server, path, BODIES[path], {"anthropic-version": "1"})[0] == 401
        assert [request.status for request in server.requests] == [200, 401, 401]


def test_a_chunked_request_is_understood() -> None:
    with FakeModelServer(says("hi")) as server:
        connection = connect(server)
        parts = iter([b'{"model": "m1", ', b'"messages": [{"role": "user", "content": "x"}]}'])
        connection.request("POST", OPENAI, parts, {"transfer-encoding": "chunked"}, encode_chunked=True)
        assert connection.getresponse().status == 200
        connection.close()


# ---- faults ---------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("after", [1, 3])
def test_a_cut_stream_breaks_off_in_the_middle(path: str, after: int) -> None:
    with FakeModelServer(says("a long answer", fault=Cut(after))) as server:
        connection = connect(server)
        response = send(connection, path, {**BODIES[path], "stream": True})
        with pytest.raises(http.client.IncompleteRead) as caught:
            response.read()
        connection.close()
        assert caught.value.partial.count(b"data:") == after
        assert server.requests[0].last_byte is None


@both
def test_a_clean_cut_ends_the_body_but_not_the_answer(path: str) -> None:
    with FakeModelServer(says("a long answer", fault=Cut(3, clean=True))) as server:
        found = stream(server, path, BODIES[path])
    assert len(found) == 3


@both
def test_an_error_may_come_inside_the_stream(path: str) -> None:
    with FakeModelServer(says("a long answer", fault=StreamError("overloaded", after=2))) as server:
        found = stream(server, path, BODIES[path])
    assert len(found) == 3
    assert "error" in found[-1][1]


@both
def test_refusals_carry_the_wait_in_seconds(path: str) -> None:
    with FakeModelServer(always(Reply(fault=Refused("rate_limit", retry_after=1.5)))) as server:
        connection = connect(server)
        response = send(connection, path, BODIES[path])
        assert (response.status, response.headers["retry-after"]) == (429, "1.5")
        connection.close()


@both
def test_a_proxy_answers_with_a_page(path: str) -> None:
    page = Refused("server", status=502, plain="<html>Bad gateway</html>")
    with FakeModelServer(always(Reply(fault=page))) as server:
        connection = connect(server)
        response = send(connection, path, BODIES[path])
        assert (response.status, response.headers["content-type"]) == (502, "text/html")
        assert response.read() == b"<html>Bad gateway</html>"
        connection.close()


def test_stopping_releases_a_request_that_hangs() -> None:
    server = FakeModelServer(always(Reply(fault=Hang())))
    with server:
        connection = connect(server)
        connection.request("POST", OPENAI, b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}')
        assert server.wait_requests(1)
        assert not server.wait_requests(2, timeout=0)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        connection.getresponse()
    connection.close()
    server.stop()
    assert not server.requests[0].hung_up


def test_waiting_for_a_request_ends_when_it_comes() -> None:
    with FakeModelServer(says("hi")) as server:
        waited: list[bool] = []
        waiter = threading.Thread(target=lambda: waited.append(server.wait_requests(1, timeout=60)))
        waiter.start()
        post(server, OPENAI, openai_body())
        waiter.join(10)
        assert waited == [True]


def test_a_client_may_ask_before_it_sends_the_body() -> None:
    raw = json.dumps(openai_body()).encode()
    head = f"POST {OPENAI} HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: {len(raw)}\r\n\r\n"
    with FakeModelServer(says("hi")) as server:
        address = urlsplit(server.base_url)
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            connection.sendall(head.encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 100")
            connection.sendall(raw)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_stopping_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with FakeModelServer(says("hi")) as server:
        idle, busy = connect(server), connect(server)
        send(idle, OPENAI, openai_body()).read()
        idle.sock.settimeout(5)
        busy.connect()
    assert threading.active_count() == before
    assert idle.sock.recv(1) == b""
    idle.close()
    busy.close()


@pytest.mark.parametrize("fault", [Hang(), Hang(2)])
def test_a_client_that_hangs_up_is_noticed(fault: Hang) -> None:
    with FakeModelServer(says("some text", fault=fault)) as server:
        connection = connect(server)
        connection.request("POST", OPENAI, b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}')
        assert server.wait_requests(1)
        assert not server.requests[0].hung_up
        connection.close()
        assert server.requests[0].wait_hung_up()


def test_a_client_that_hangs_up_during_a_slow_answer_is_noticed() -> None:
    with FakeModelServer(says("some text" * 1000, delay_s=0.05)) as server:
        connection = connect(server)
        response = send(connection, OPENAI, openai_body(stream=True))
        response.read(20)
        response.close()
        connection.close()
        assert server.requests[0].wait_hung_up()
        assert server.requests[0].last_byte is None


def test_a_slow_answer_comes_piece_by_piece() -> None:
    with FakeModelServer(says("abcdef", delta_chars=2, delay_s=0.02)) as server:
        connection = connect(server)
        response = send(connection, OPENAI, openai_body(stream=True))
        times = []
        while line := response.readline():
            if line.startswith(b"data:"):
                times.append(time.monotonic())
        connection.close()
    assert len(times) == 6
    assert times[-1] - times[0] >= 0.08


def test_pieces_may_split_a_character() -> None:
    with (
        FakeModelServer(says("日本", framing=Framing(piece_bytes=1))) as server,
        httpx2.stream("POST", server.base_url + OPENAI, json=openai_body(stream=True)) as response,
    ):
        pieces = list(response.iter_raw())
    assert any(piece in ("日".encode()[:1], "日".encode()[1:2]) for piece in pieces)
    assert "日本" in b"".join(pieces).decode()


async def test_parallel_clients_are_served_in_parallel() -> None:
    with FakeModelServer(says("hi", delay_s=0.02)) as server:
        async with httpx2.AsyncClient() as client:
            started = time.monotonic()
            answers = await asyncio.gather(
                *(client.post(server.base_url + OPENAI, json=openai_body(stream=True)) for _ in range(10))
            )
        assert time.monotonic() - started < 10 * 4 * 0.02
        assert {answer.status_code for answer in answers} == {200}


# ---- scripts --------------------------------------------------------------------------------------------


def test_calls_follow_the_conversation_so_that_a_server_can_serve_many_runs() -> None:
    script = calls(2, arguments=lambda number: {"path": f"{number}.txt"})

    def turn(*done: str) -> str:
        messages = [user("go")]
        for name in done:
            call = {"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}}
            messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
            messages += [{"role": "tool", "tool_call_id": name, "content": "x"}]
        message = post(server, OPENAI, openai_body(*messages))[1]["choices"][0]["message"]
        return str(message["content"] or message["tool_calls"][0]["function"]["arguments"])

    with FakeModelServer(script) as server:
        for _ in range(2):
            assert [turn(), turn("a"), turn("a", "b")] == ['{"path":"0.txt"}', '{"path":"1.txt"}', "All done."]


def test_parallel_calls_come_in_one_reply() -> None:
    with FakeModelServer(calls(3, parallel=True, say="Look.")) as server:
        content = post(server, ANTHROPIC, anthropic_body())[1]["content"]
    assert [block["type"] for block in content] == ["text", "tool_use", "tool_use", "tool_use"]
    assert len({block["id"] for block in content[1:]}) == 3


def test_calls_follow_an_anthropic_conversation_too() -> None:
    use = [{"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}} for number in range(4)]
    results = [{"type": "tool_result", "tool_use_id": f"t{number}", "content": "x"} for number in range(4)]
    messages: list[JSONObject] = [user("go")]
    for pair in (slice(0, 2), slice(2, 4)):
        messages += [{"role": "assistant", "content": use[pair]}, {"role": "user", "content": results[pair]}]
    with FakeModelServer(calls(4)) as server:
        for length, kind in ((1, "tool_use"), (3, "tool_use"), (5, "text")):
            assert post(server, ANTHROPIC, anthropic_body(*messages[:length]))[1]["content"][0]["type"] == kind


def test_the_last_reply_of_a_list_is_repeated() -> None:
    with FakeModelServer(replies(Reply(parts=(Text("one"),)), Reply(parts=(Text("two"),)))) as server:
        texts = [post(server, ANTHROPIC, anthropic_body())[1]["content"][0]["text"] for _ in range(3)]
    assert texts == ["one", "two", "two"]


def test_a_script_without_replies_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one reply"):
        replies()


# ---- as a program ---------------------------------------------------------------------------------------


def test_the_program_prints_its_address_first_and_ends_by_itself() -> None:
    command = [sys.executable, "-m", "branchwork.testing.server", "--script", "think", "--stop-after", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+\n", done.stdout)
    assert done.stderr == "0 requests\n"
