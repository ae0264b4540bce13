"""A client without opinions: raw requests to the fake model server, and a reader of event streams."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from branchwork.session.entries import JSONObject
from branchwork.testing.server import FakeModelServer

OPENAI = "/v1/chat/completions"
ANTHROPIC = "/v1/messages"
VERSION = {"anthropic-version": "2023-06-01"}


def user(text: str) -> JSONObject:
    return {"role": "user", "content": text}


def openai_body(*messages: JSONObject, **fields: Any) -> JSONObject:
    return {"model": "m1", "messages": list(messages or [user("hi")]), **fields}


def anthropic_body(*messages: JSONObject, **fields: Any) -> JSONObject:
    return {"model": "m1", "max_tokens": 100, "messages": list(messages or [user("hi")]), **fields}


def connect(server: FakeModelServer) -> http.client.HTTPConnection:
    address = urlsplit(server.base_url)
    assert address.hostname is not None
    return http.client.HTTPConnection(address.hostname, address.port, timeout=10)


def send(
    connection: http.client.HTTPConnection, path: str, body: JSONObject | bytes, headers: dict[str, str] | None = None
) -> http.client.HTTPResponse:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    extra = VERSION if path == ANTHROPIC and headers is None else headers or {}
    connection.request("POST", path, data, {"content-type": "application/json", **extra})
    return connection.getresponse()


def post(
    server: FakeModelServer, path: str, body: JSONObject | bytes, headers: dict[str, str] | None = None
) -> tuple[int, JSONObject]:
    """Status and JSON body."""
    connection = connect(server)
    try:
        response = send(connection, path, body, headers)
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def stream(server: FakeModelServer, path: str, body: JSONObject) -> list[tuple[str, Any]]:
    """The events of a streamed answer: their names and decoded data."""
    connection = connect(server)
    try:
        response = send(connection, path, {**body, "stream": True})
        assert response.status == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream"
        return [(name, data if data == "[DONE]" else json.loads(data)) for name, data in events(response.read())]
    finally:
        connection.close()


def events(raw: bytes) -> Iterator[tuple[str, str]]:
    """Events as the HTML standard's section on server-sent events reads them."""
    name = "message"
    data: list[str] = []
    text = raw.decode().replace("\r\n", "\n").replace("\r", "\n")
    for line in text.split("\n"):
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
