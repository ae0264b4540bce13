"""One HTTP endpoint that answers with a stream: connections, timeouts, and failures with their types."""

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from branchwork import __version__
from branchwork.clock import Clock, SystemClock
from branchwork.models.adapters.failures import ReportedError, kind_of, one_line, parse_error, retry_after
from branchwork.models.adapters.sse import EventDecoder
from branchwork.models.base import FailureKind, ModelFailure, StreamEvent

if TYPE_CHECKING:
    import asyncio
    import ssl

    import httpx2

MAX_ERROR_BODY = 64 * 1024
MAX_WHOLE_REPLY = 32 * 1024 * 1024
JOINED_BYTES = 256 * 1024
"""Bodies up to this size are sent as one piece."""
KEEP_ALIVE_S = 120.0
_LOCAL = ("localhost", "127.0.0.1", "::1")


class Timeouts(Struct, frozen=True):
    """Seconds. There is no limit on the whole request: a reply may take as long as pieces of it keep coming."""

    connect: float = 15.0
    idle: float = 300.0
    """Longest silence, before the first byte and between pieces."""
    grace: float = 2.0
    """How long a complete reply waits for the end of its body; only after that can the connection be used again."""


class Target(Struct, frozen=True, kw_only=True):
    """Where requests go, as whom. `key` is only here to be kept out of messages; it is sent in `headers`."""

    url: str
    headers: dict[str, str]
    """Names in lower case."""
    provider: str
    key: str | None


class ReplyParser(Protocol):
    """Turns the data of server-sent events into stream events, for one reply."""

    @property
    def ended(self) -> bool:
        """Whether the server said that the reply is complete."""
        ...

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Raises `msgspec.DecodeError` for what is no event, `ReportedError` for an error of the server."""
        ...

    def finish(self) -> list[StreamEvent]:
        """What is left to say once `ended`; its last event is `ReplyEnd`."""
        ...


class Body:
    """A request body in pieces of any size, which are sent without being joined."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = pieces
        self.length = sum(map(len, pieces))

    def content(self) -> "bytes | Body":
        return b"".join(self.pieces) if self.length <= JOINED_BYTES else self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


class Endpoint:
    """Keeps one client with its connections, made at the first request.

    Redirects are not followed: they would carry the key to another place. Proxies come from the environment.
    """

    def __init__(self, target: Target, timeouts: Timeouts | None = None, clock: Clock | None = None) -> None:
        self._target = target
        self._timeouts = timeouts or Timeouts()
        self._clock = clock or SystemClock()
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.host, self.origin = _place(target.url)

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def stream(self, body: Body, parser: ReplyParser) -> AsyncIterator[StreamEvent]:
        """POST `body` and yield the parser's events, `ReplyEnd` last. Raises `ModelFailure`."""
        client = self._open()
        import httpx2

        try:
            async with client.stream(
                "POST", self._target.url, content=body.content(), headers={"content-length": str(body.length)}
            ) as response:
                if not response.is_success:
                    raise await self._refused(response)
                kind = response.headers.get("content-type", "")
                if kind.startswith("text/html"):
                    raise self._failure("protocol", f"{self.host} answered with a web page; is base_url right?")
                if kind.startswith("application/json"):
                    for event in await self._whole(response, parser):
                        yield event
                    return
                decoder = EventDecoder()
                chunks = response.aiter_bytes()
                async for chunk in chunks:
                    for event in _fed(decoder.feed(chunk), parser):
                        yield event
                    if parser.ended:
                        break
                for event in await self._rest(chunks, decoder, parser):
                    yield event
        except ReportedError as error:
            reported = error.reported
            raise self._failure(kind_of(reported, None), f"{self.host} broke off: {reported.message}") from None
        except msgspec.DecodeError as error:
            text = f"{self.host} sent an event that cannot be read ({one_line(str(error))}); is base_url right?"
            raise self._failure("protocol", text) from None
        except (httpx2.TransportError, httpx2.DecodingError, httpx2.InvalidURL) as error:
            raise self._transport_failure(error) from error

    # ---- the end of a reply -------------------------------------------------------------------------

    async def _rest(
        self, chunks: AsyncIterator[bytes], decoder: EventDecoder, parser: ReplyParser
    ) -> list[StreamEvent]:
        """What still comes after the reply proper (usage, the end of the body)."""
        events: list[StreamEvent] = []
        if parser.ended:
            await self._drain(chunks, decoder, parser, events)
        else:
            try:
                events += _fed(decoder.flush(), parser)
            except msgspec.DecodeError:
                pass  # an event torn by the cut that is reported below
        if not parser.ended:
            raise self._cut()
        return events + parser.finish()

    async def _drain(
        self, chunks: AsyncIterator[bytes], decoder: EventDecoder, parser: ReplyParser, events: list[StreamEvent]
    ) -> None:
        import asyncio

        import httpx2

        try:
            async with asyncio.timeout(self._timeouts.grace):
                async for chunk in chunks:
                    events += _fed(decoder.feed(chunk), parser)
                events += _fed(decoder.flush(), parser)
        except (TimeoutError, httpx2.TransportError, msgspec.DecodeError, ReportedError):
            pass  # the reply is complete without it; the connection is not used again

    async def _whole(self, response: "httpx2.Response", parser: ReplyParser) -> list[StreamEvent]:
        """A server that ignores `stream` answers with one JSON object."""
        events = parser.feed(await self._read(response, MAX_WHOLE_REPLY))
        if not parser.ended:
            raise self._failure("protocol", f"{self.host} answered with JSON that is no reply; is base_url right?")
        return events + parser.finish()

    async def _read(self, response: "httpx2.Response", limit: int) -> bytes:
        pieces: list[bytes] = []
        left = limit
        async for chunk in response.aiter_bytes():
            pieces.append(chunk[:left])
            left -= len(pieces[-1])
            if left <= 0:
                break
        return b"".join(pieces)

    # ---- failures -----------------------------------------------------------------------------------

    async def _refused(self, response: "httpx2.Response") -> ModelFailure:
        status = response.status_code
        if 300 <= status < 400:
            place = one_line(response.headers.get("location", "elsewhere"))
            text = f"{self.host} answered {status}, a redirect to {place}; set base_url to the final address"
            return self._failure("rejected", text, status)
        reported = parse_error(await self._error_body(response))
        kind = kind_of(reported, status)
        said = reported.message or response.reason_phrase or "without a reason"
        provider = self._target.provider
        if kind == "auth" and self._target.key is None:
            text = f"{self.host} wants a key ({status}: {said}); store one with `branchwork auth set {provider}`"
        elif kind == "auth":
            text = f"{self.host} refused the key of {provider} ({status}: {said})"
        else:
            text = f"{self.host} answered {status}: {said}"
        wait = retry_after(response.headers, self._clock.now_ms()) if kind != "rejected" else None
        return self._failure(kind, text, status, wait)

    async def _error_body(self, response: "httpx2.Response") -> bytes:
        import asyncio

        import httpx2

        try:
            async with asyncio.timeout(self._timeouts.grace):
                return await self._read(response, MAX_ERROR_BODY)
        except (TimeoutError, httpx2.TransportError, httpx2.DecodingError):
            return b""  # the status alone decides then

    def _transport_failure(self, error: Exception) -> ModelFailure:
        import httpx2

        limit = self._timeouts
        match error:
            case httpx2.ConnectTimeout():
                return self._failure("connection", self._unreachable(f"no answer within {limit.connect:g} s"))
            case httpx2.TimeoutException():
                return self._failure("timeout", f"{self.host} was silent for {limit.idle:g} s")
            case httpx2.ConnectError():
                return self._failure("connection", self._unreachable(_reason(error)))
            case httpx2.ProxyError():
                text = f"the proxy to {self.host} failed: {_reason(error)}; check HTTPS_PROXY and NO_PROXY"
                return self._failure("connection", text)
            case httpx2.UnsupportedProtocol() | httpx2.InvalidURL():
                return self._no_address()
            case _:
                return self._cut(error)

    def _no_address(self) -> ModelFailure:
        text = f"base_url {self.origin} is no web address: http:// or https://, a host, perhaps a port below 65536"
        return self._failure("rejected", text)

    def _unreachable(self, reason: str) -> str:
        local = self.host in _LOCAL
        hint = f"is the server running at {self.origin}?" if local else "check the network, the proxy and base_url"
        return f"cannot connect to {self.origin}: {reason}; {hint}"

    def _cut(self, error: Exception | None = None) -> ModelFailure:
        reason = f" ({_reason(error)})" if error is not None else ""
        return self._failure("connection", f"{self.host} cut off the reply before its end{reason}")

    def _failure(
        self, kind: FailureKind, message: str, status: int | None = None, retry_after: float | None = None
    ) -> ModelFailure:
        """The failure with no secret in it: servers like to quote what they were sent."""
        secrets = [self._target.key, *self._target.headers.values()]
        for secret in secrets:
            if secret and len(secret) >= 8:
                message = message.replace(secret, "…")
        return ModelFailure(kind, message, status=status, retry_after=retry_after)

    # ---- the client ---------------------------------------------------------------------------------

    def _open(self) -> "httpx2.AsyncClient":
        import asyncio

        loop = asyncio.get_running_loop()
        if self._client is not None and self._loop is loop:
            return self._client
        import httpx2

        self._check_address()
        self._check_headers()
        limits = self._timeouts
        self._loop = loop  # connections belong to the loop in which they were made
        self._client = httpx2.AsyncClient(
            headers={
                "user-agent": f"branchwork/{__version__}",
                "accept": "text/event-stream, application/json",
                "accept-encoding": "identity",  # compression would hold pieces back
                "content-type": "application/json",
                **self._target.headers,
            },
            timeout=httpx2.Timeout(limits.idle, connect=limits.connect, pool=None),
            limits=httpx2.Limits(max_keepalive_connections=8, keepalive_expiry=KEEP_ALIVE_S),
            follow_redirects=False,
            verify=_trust(self._target.url),
        )
        return self._client

    def _check_address(self) -> None:
        try:
            _ = urlsplit(self._target.url).port  # raises for numbers at which the HTTP library fails without a type
        except ValueError:
            raise self._no_address() from None

    def _check_headers(self) -> None:
        """Here, since the HTTP library's own complaint would show the value."""
        for name, value in self._target.headers.items():
            if not (name.isascii() and value.isascii() and value.isprintable()):
                text = f"header {name!r} for {self._target.provider} holds line breaks or characters beyond ASCII"
                raise self._failure("auth" if self._target.key and self._target.key in value else "rejected", text)


def _fed(events: Iterable[bytes], parser: ReplyParser) -> Iterator[StreamEvent]:
    """One by one, so that what came before an error in the same chunk is not lost."""
    for data in events:
        yield from parser.feed(data)


def _place(url: str) -> tuple[str, str]:
    """Host and origin, without user and password; for what is no address, the text itself."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url, url
    return parts.hostname or url, f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _trust(url: str) -> "ssl.SSLContext | bool":
    if not url.startswith("http://"):
        return True
    import ssl

    # Reading the certificate authorities takes 75 ms. This context trusts nobody and is never used for plain HTTP.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _reason(error: BaseException) -> str:
    """The system's words for it, where the chain of causes ends in an OSError."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            # asyncio puts words of its own into strerror; failed look-ups have negative numbers.
            return os.strerror(seen.errno) if seen.errno and seen.errno > 0 else seen.strerror
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
            continue
        seen = seen.__cause__ or seen.__context__
    return one_line(str(error)) or type(error).__name__
