"""A model server on loopback that answers from a script and judges every request strictly.

It speaks OpenAI's chat completions (`POST /v1/chat/completions`) and Anthropic's Messages (`POST /v1/messages`)
at once, over HTTP/1.1 with keep-alive. Use it in tests as a context manager, or from a shell:

    python -m branchwork.testing.server --port 0 --script calls --count 50 --stop-after 600
"""

import argparse
import itertools
import json
import selectors
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPException, parse_headers
from types import TracebackType
from typing import BinaryIO, Self, assert_never

import msgspec

from branchwork.session.entries import JSONObject
from branchwork.testing.faults import (
    Cut,
    Fault,
    Frame,
    Framing,
    Hang,
    RefusalKind,
    Refused,
    StreamError,
    encode_frame,
    pieces,
)
from branchwork.testing.script import (
    BadRequest,
    Call,
    Exchange,
    Headers,
    Part,
    Reply,
    Script,
    Text,
    Thinking,
    Tokens,
    Wire,
    always,
    calls,
    fails_then,
    replies,
    says,
)
from branchwork.testing.server_anthropic import ANTHROPIC
from branchwork.testing.server_openai import OPENAI

__all__ = [
    "Call",
    "Cut",
    "FakeModelServer",
    "Fault",
    "Frame",
    "Framing",
    "Hang",
    "Part",
    "Recorded",
    "RefusalKind",
    "Refused",
    "Reply",
    "Script",
    "StreamError",
    "Text",
    "Thinking",
    "Tokens",
    "always",
    "calls",
    "fails_then",
    "replies",
    "says",
]

WIRES = {"/v1/chat/completions": OPENAI, "/v1/messages": ANTHROPIC}
MAX_LINE = 65_536


@dataclass(slots=True)
class Recorded:
    """One request and what became of it. Times are seconds of `time.monotonic`."""

    path: str
    headers: Headers
    body: JSONObject | None
    """None when it was no JSON object, or when the server keeps no bodies."""
    bytes: int
    """Size of the body."""
    first_byte: float
    """When the first byte of the request arrived."""
    complete: float
    """When its last byte arrived."""
    status: int | None = None
    error: str | None = None
    """Why the judge rejected it."""
    last_byte: float | None = None
    """When the last byte of the reply was handed to the system; None while it is not complete."""
    _hung_up: threading.Event = field(default_factory=threading.Event)

    @property
    def hung_up(self) -> bool:
        """Whether the client closed the connection before the reply was complete."""
        return self._hung_up.is_set()

    def wait_hung_up(self, timeout: float = 5.0) -> bool:
        """Wait until the client closes the connection; False when it did not within `timeout` seconds."""
        return self._hung_up.wait(timeout)


class _HungUp(Exception):
    """The client closed the connection."""


class _Stopped(Exception):
    """The server stops, or the script cut the connection."""


class FakeModelServer:
    """A scripted model server on 127.0.0.1, running in threads of its own between enter and exit.

    With `key`, requests must carry it (status 401 otherwise). `keep_bodies=False` saves the memory of parsed
    bodies in long runs. A request that the judge rejects is recorded with its `error` and does not advance the script.
    """

    def __init__(self, script: Script, *, port: int = 0, key: str | None = None, keep_bodies: bool = True) -> None:
        self.script = script
        self.requests: list[Recorded] = []
        self.connections = 0
        """Connections accepted so far."""
        self._key = key
        self._keep_bodies = keep_bodies
        self._accepted = 0
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self._wake, self._waker = socket.socketpair()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._thread = threading.Thread(target=self._accept, name="fake-model-server")

    @property
    def base_url(self) -> str:
        """Without a path: what Anthropic clients take."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def openai_url(self) -> str:
        return f"{self.base_url}/v1"

    @property
    def rejected(self) -> list[Recorded]:
        """The requests that the judge found wrong."""
        return [request for request in list(self.requests) if request.error is not None]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Release what hangs, close all connections, join all threads. May be called twice."""
        if self._listener.fileno() < 0:
            return
        self._waker.send(b"x")
        self._thread.join()
        self._listener.close()
        with self._changed:
            running = list(self._open.items())
        for connection, _ in running:
            _shut(connection)
        for _, thread in running:
            thread.join()
        self._wake.close()
        self._waker.close()

    def wait_requests(self, count: int, timeout: float = 5.0) -> bool:
        """Wait until `count` requests were recorded; False when there were fewer after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.requests) >= count, timeout)

    def own_times(self) -> list[float]:
        """Seconds from the last byte of each reply to the first byte of the request after it: the client's own time."""
        done = list(self.requests)
        return [
            after.first_byte - before.last_byte
            for before, after in itertools.pairwise(done)
            if before.last_byte is not None
        ]

    def clear(self) -> None:
        """Forget the requests so far; the script goes on."""
        with self._changed:
            self.requests.clear()

    # ---- threads ------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._wake in ready:
                    return
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), name="fake-model-connection")
                with self._changed:
                    self.connections += 1
                    self._open[connection] = thread
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with connection, connection.makefile("rb") as stream:
                while self._serve_one(connection, stream):
                    pass
        except (OSError, HTTPException, _Stopped, _HungUp):
            pass  # the connection is over; what was received of it is recorded
        finally:
            with self._changed:
                del self._open[connection]

    def _serve_one(self, connection: socket.socket, stream: BinaryIO) -> bool:
        """Answer one request; False when the connection is to be closed."""
        first = stream.read(1)
        first_byte = time.monotonic()
        if not first:
            return False
        line = (first + stream.readline(MAX_LINE)).decode("latin-1").split()
        headers = {name.lower(): value for name, value in parse_headers(stream).items()}
        if headers.get("expect", "").lower() == "100-continue":
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        raw = _read_body(stream, headers)
        if len(line) != 3 or raw is None:
            return False
        path = line[1].partition("?")[0]
        recorded = Recorded(path, headers, None, len(raw), first_byte, time.monotonic())
        answer = _Answer(connection, self._wake, recorded)
        wire = WIRES.get(path)
        if wire is None or line[0] != "POST":
            self._record(recorded)
            answer.plain(404, {"error": {"message": f"no such endpoint: {line[0]} {path}", "type": "not_found_error"}})
        else:
            self._answer(wire, raw, answer)
        return headers.get("connection", "").lower() != "close"

    def _record(self, recorded: Recorded) -> None:
        with self._changed:
            self.requests.append(recorded)
            self._changed.notify_all()

    def _answer(self, wire: Wire, raw: bytes, answer: "_Answer") -> None:
        recorded = answer.recorded
        try:
            body = _parse(raw)
            if self._keep_bodies:
                recorded.body = body
            wire.judge(body, recorded.headers)
        except BadRequest as verdict:
            recorded.error = verdict.message
            self._record(recorded)
            refusal = wire.rejection(verdict)
            answer.plain(refusal.status, refusal.body)
            return
        if self._key is not None and wire.key_of(recorded.headers) != self._key:
            self._record(recorded)
            refusal = wire.refusal(Refused("auth"))
            answer.plain(refusal.status, refusal.body)
            return
        with self._changed:
            number = self._accepted
            self._accepted += 1
        reply = self.script(number, body)
        self._record(recorded)
        answer.reply(wire, Exchange(reply, body, number))


class _Answer:
    """Writes the answer to one request and notes when it was complete, or that nobody waited for it."""

    def __init__(self, connection: socket.socket, wake: socket.socket, recorded: Recorded) -> None:
        self.recorded = recorded
        self._connection = connection
        self._wake = wake

    def plain(self, status: int, body: JSONObject | str, headers: Headers | None = None) -> None:
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        data = text.encode()
        kind = "text/html" if isinstance(body, str) else "application/json"
        head = self._head(status, {"content-type": kind, "content-length": str(len(data)), **(headers or {})})
        self._send_last(head + data)

    def reply(self, wire: Wire, exchange: Exchange) -> None:
        fault = exchange.reply.fault
        match fault:
            case Refused():
                refusal = wire.refusal(fault)
                headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
                self.plain(refusal.status, refusal.body if fault.plain is None else fault.plain, headers)
            case Hang(after=0):
                self._wait(None)
            case None | Hang() | Cut() | StreamError():
                if exchange.body.get("stream"):
                    self._stream(wire, exchange, fault)
                else:
                    self.plain(200, wire.whole(exchange))
            case _:
                assert_never(fault)

    def _stream(self, wire: Wire, exchange: Exchange, fault: Hang | Cut | StreamError | None) -> None:
        reply = exchange.reply
        self._send(self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))
        for count, frame in enumerate(wire.frames(exchange)):
            if fault is not None and count == fault.after:
                self._break(wire, fault, reply.framing)
                return
            if reply.delay_s:
                self._wait(reply.delay_s)
            self._chunk(encode_frame(frame, reply.framing), reply.framing)
        self._end()

    def _break(self, wire: Wire, fault: Hang | Cut | StreamError, framing: Framing) -> None:
        match fault:
            case Cut(clean=True):
                self._end()
            case Cut():
                raise _Stopped
            case StreamError(kind=kind):
                self._chunk(encode_frame(wire.error_frame(Refused(kind)), framing), framing)
                self._end()
            case Hang():
                self._wait(None)
            case _:
                assert_never(fault)

    def _head(self, status: int, headers: Headers) -> bytes:
        self.recorded.status = status
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _chunk(self, data: bytes, framing: Framing) -> None:
        for piece in pieces(data, framing):
            self._send(b"%x\r\n%b\r\n" % (len(piece), piece))

    def _end(self) -> None:
        self._send_last(b"0\r\n\r\n")

    def _send_last(self, data: bytes) -> None:
        # Noted before the client can see the end, so that whoever saw it finds the time recorded.
        self.recorded.last_byte = time.monotonic()
        self._send(data)

    def _send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError as error:
            self.recorded.last_byte = None
            self.recorded._hung_up.set()
            raise _HungUp from error

    def _wait(self, seconds: float | None) -> None:
        """Wait (None: without end); raises when the client hangs up or the server stops meanwhile."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            selector.register(self._connection, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(seconds)]
            if self._wake in ready:
                raise _Stopped
            if self._connection in ready:
                # Clients that wait for a reply send nothing more: readable means closed.
                self.recorded._hung_up.set()
                raise _HungUp


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # closed already


def _read_body(stream: BinaryIO, headers: Headers) -> bytes | None:
    """The whole body; None when the client went away in the middle of it."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _read_chunks(stream)
    length = int(headers.get("content-length", 0))
    raw = stream.read(length)
    return raw if len(raw) == length else None


def _read_chunks(stream: BinaryIO) -> bytes | None:
    parts = []
    while True:
        head = stream.readline(MAX_LINE).partition(b";")[0].strip()
        if not head:
            return None
        size = int(head, 16)
        parts.append(stream.read(size))
        stream.readline(MAX_LINE)
        if size == 0:
            return b"".join(parts)


def _parse(raw: bytes) -> JSONObject:
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"We could not parse the JSON body of your request: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("We could not parse the JSON body of your request: not an object")
    return body


# ---- as a program -------------------------------------------------------------------------------------


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m branchwork.testing.server", description="A scripted model server.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", choices=["hello", "calls", "parallel", "think", "hang", "busy"], default="hello")
    parser.add_argument("--text", default="Hello from the scripted model.", help="the final answer")
    parser.add_argument("--count", type=int, default=3, help="tool calls after each prompt")
    parser.add_argument("--tool", default="read")
    parser.add_argument("--arguments", default='{"path": "README.md"}', help="of the tool, as JSON")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each streamed piece")
    parser.add_argument("--stop-after", type=float, default=None, help="seconds; default: until interrupted")
    return parser.parse_args(argv)


def _script(options: argparse.Namespace) -> Script:
    match options.script:
        case "calls" | "parallel":
            given = json.loads(options.arguments)
            parallel = options.script == "parallel"
            return calls(options.count, tool=options.tool, arguments=given, parallel=parallel, final=options.text)
        case "think":
            parts = (Thinking("Let me see what is asked."), Text(options.text))
            return always(Reply(parts=parts, delay_s=options.delay))
        case "hang":
            return always(Reply(fault=Hang()))
        case "busy":
            return always(Reply(fault=Refused("overloaded", retry_after=1)))
        case _:
            return says(options.text, delay_s=options.delay)


def main(argv: list[str] | None = None) -> int:
    options = _arguments(sys.argv[1:] if argv is None else argv)
    with FakeModelServer(_script(options), port=options.port, keep_bodies=False) as server:
        sys.stdout.write(server.base_url + "\n")
        sys.stdout.flush()
        try:
            threading.Event().wait(options.stop_after)
        except KeyboardInterrupt:
            pass
        for request in server.rejected:
            sys.stderr.write(f"rejected {request.path}: {request.error}\n")
        sys.stderr.write(f"{len(server.requests)} requests\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
