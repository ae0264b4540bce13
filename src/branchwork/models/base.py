"""The port between the agent and any model: one request in, a stream of parts out.

An adapter turns `ModelRequest` into its provider's wire format and yields `StreamEvent`s; it never builds
the final message, `branchwork.models.reply.ReplyBuilder` does that once for all of them.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

from branchwork.session.entries import JSONObject, Message, StopReason, ThinkingLevel

THINKING_LEVELS: tuple[ThinkingLevel, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


class ToolSpec(Struct, frozen=True):
    """A tool as the model is told about it. `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: JSONObject


class Price(Struct, frozen=True):
    """US dollars per million tokens, and where the figures came from (`models.toml`, `genai-prices 0.2.3`)."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    source: str


class ModelInfo(Struct, frozen=True, kw_only=True):
    """What the catalogue knows of one model."""

    provider: str
    id: str
    api: str
    """`openai-chat`, `anthropic`, `scripted`, `local` or `pydantic-ai:PROVIDER`."""
    name: str = ""
    base_url: str | None = None
    context_window: int = 128_000
    max_tokens: int = 16_384
    thinking: tuple[ThinkingLevel, ...] = ()
    """Levels beside `off` that the model supports; empty means that it cannot think aloud."""
    images: bool = False
    price: Price | None = None
    headers: dict[str, str] = field(default_factory=dict)
    options: JSONObject = field(default_factory=dict)
    """Quirks of the endpoint, as `models.toml` gives them (see docs/models.md)."""
    known: bool = True
    """False when the id was taken on trust and the limits are cautious defaults."""

    @property
    def ref(self) -> str:
        return f"{self.provider}/{self.id}"


class Transcript:
    """The messages of one conversation, growing at the end.

    `messages` may be read by adapters and must not be changed by them. Appending keeps `generation`;
    anything that changes or removes an earlier message starts a new one, and with it every cache that an
    adapter derived from the old messages is void.
    """

    __slots__ = ("generation", "messages")

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.generation = 0
        self.messages: list[Message] = list(messages)

    def append(self, *messages: Message) -> None:
        self.messages.extend(messages)

    def replace(self, messages: Sequence[Message]) -> None:
        self.messages = list(messages)
        self.generation += 1


class ModelRequest(Struct, frozen=True, kw_only=True):
    system: str
    transcript: Transcript
    tools: tuple[ToolSpec, ...] = ()
    thinking: ThinkingLevel = "off"
    """Already clamped to the model."""
    max_tokens: int
    session_id: str | None = None
    """A stable key for the provider's cache routing."""
    extra: tuple[Message, ...] = ()
    """Messages for this request only, after the transcript; never cached or stored."""
    cache: bool = True
    """False for one-off requests (summaries): no cache writes."""


# ---- stream events --------------------------------------------------------------------------------


class TextDelta(Struct, frozen=True, tag="text"):
    index: int
    """Position of the content part that this belongs to; parts may interleave."""
    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking"):
    index: int
    text: str


class ThinkingSignature(Struct, frozen=True, tag="signature"):
    """Opaque data that closes a thinking part; `redacted` parts have no text."""

    index: int
    signature: str
    redacted: bool = False


class ToolCallStart(Struct, frozen=True, tag="call"):
    index: int
    id: str
    name: str
    signature: str | None = None


class ToolCallDelta(Struct, frozen=True, tag="arguments"):
    """A piece of the arguments' JSON text."""

    index: int
    text: str


class ReplyEnd(Struct, frozen=True, kw_only=True, tag="end"):
    """The server said that it is done. A stream that stops without it was cut."""

    stop_reason: StopReason
    raw_stop_reason: str | None = None
    input: int | None = None
    """Tokens, excluding cache reads and writes; None when the server reported no usage."""
    output: int | None = None
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    cost: float | None = None
    """US dollars, when the provider itself reports the price of the request."""
    response_id: str | None = None
    response_model: str | None = None


StreamEvent: TypeAlias = TextDelta | ThinkingDelta | ThinkingSignature | ToolCallStart | ToolCallDelta | ReplyEnd

FailureKind: TypeAlias = Literal[
    "rate_limit", "overloaded", "server", "connection", "timeout", "overflow", "auth", "quota", "rejected", "protocol"
]
RETRYABLE: frozenset[FailureKind] = frozenset({"rate_limit", "overloaded", "server", "connection", "timeout"})


class ModelFailure(Exception):
    """The model server, or the way to it, failed. Raised by `Model.stream` only.

    `kind` is decided from the HTTP status and the provider's typed error, never from prose where a type
    exists. `retry_after` is in seconds, as the server asked.
    """

    def __init__(
        self, kind: FailureKind, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after

    @property
    def retryable(self) -> bool:
        return self.kind in RETRYABLE


class Model(Protocol):
    """One usable model. `stream` may be called again after it ended, failed or was cancelled."""

    @property
    def info(self) -> ModelInfo: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Yield the reply's parts as they come and `ReplyEnd` last.

        Raises `ModelFailure`; cancelling the consuming task closes the connection at once.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; the model can be used again afterwards."""
        ...
