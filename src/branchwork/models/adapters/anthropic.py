"""Models behind Anthropic's Messages API."""

from collections.abc import AsyncIterator

from branchwork.clock import Clock
from branchwork.models.adapters.anthropic_decode import MessagesParser
from branchwork.models.adapters.anthropic_encode import (
    MessagesEncoder,
    messages_head,
    messages_options,
    messages_tail,
)
from branchwork.models.adapters.http import Body, Endpoint, Target, Timeouts
from branchwork.models.base import ModelInfo, ModelRequest, StreamEvent
from branchwork.models.conversation import rules_for
from branchwork.models.wire import Histories, dumps

DEFAULT_BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"


class AnthropicModel:
    """Talks to `{base_url}/v1/messages`; a base_url that ends in `/v1` is taken too.

    Quirks of the server are `info.options`, see `MessagesOptions`. Raises `UserError` when those are wrong.
    """

    def __init__(
        self, info: ModelInfo, key: str | None, *, timeouts: Timeouts | None = None, clock: Clock | None = None
    ) -> None:
        self._info = info
        self._options = messages_options(info)
        self._encoder = MessagesEncoder(self._options)
        self._histories = Histories(rules_for(info), self._encoder)
        key = (key or "").strip() or None
        headers = {"anthropic-version": API_VERSION}
        if key:
            headers["x-api-key"] = key
        headers |= {name.lower(): value for name, value in info.headers.items()}
        target = Target(
            url=messages_url(info.base_url or DEFAULT_BASE_URL), headers=headers, provider=info.provider, key=key
        )
        self._endpoint = Endpoint(target, timeouts, clock)

    @property
    def info(self) -> ModelInfo:
        return self._info

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        return self._endpoint.stream(self.body(request), MessagesParser())

    def body(self, request: ModelRequest) -> Body:
        """The request as it is sent."""
        head = dumps(messages_head(self._info, request, self._encoder.cache_control if request.cache else None))
        tail = dumps(messages_tail(self._options, request))
        history = self._histories.of(request.transcript, keep=request.cache)
        chunks = history.chunks(request.transcript, request.extra, mark=request.cache)
        return Body([head[:-1] + b',"messages":[', *chunks, b"]," + tail[1:]])

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def messages_url(base_url: str) -> str:
    path, mark, query = base_url.partition("?")
    return f"{path.rstrip('/').removesuffix('/v1')}/v1/messages{mark}{query}"
