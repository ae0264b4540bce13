"""Models behind OpenAI's chat completions API, OpenAI's own and compatible ones."""

from collections.abc import AsyncIterator, Callable

from branchwork.clock import Clock
from branchwork.models.adapters.http import Body, Endpoint, Target, Timeouts
from branchwork.models.adapters.openai_calls import random_call_id
from branchwork.models.adapters.openai_decode import ChatParser
from branchwork.models.adapters.openai_encode import OFFICIAL_HOST, ChatEncoder, chat_head, chat_options, chat_tail
from branchwork.models.base import ModelInfo, ModelRequest, StreamEvent
from branchwork.models.conversation import rules_for
from branchwork.models.wire import Histories, dumps

DEFAULT_BASE_URL = "https://api.openai.com/v1"


class OpenAIChatModel:
    """Talks to `{base_url}/chat/completions`. Without a key no Authorization header is sent.

    Quirks of the server are `info.options`, see `ChatOptions`. Raises `UserError` when those are wrong.
    """

    def __init__(
        self,
        info: ModelInfo,
        key: str | None,
        *,
        timeouts: Timeouts | None = None,
        clock: Clock | None = None,
        new_call_id: Callable[[], str] = random_call_id,
    ) -> None:
        self._info = info
        self._options = chat_options(info)
        self._new_call_id = new_call_id
        encoder = ChatEncoder(self._options)
        self._histories = Histories(rules_for(info, self._options.call_id_length), encoder)
        key = (key or "").strip() or None
        headers = {"authorization": f"Bearer {key}"} if key else {}
        headers |= {name.lower(): value for name, value in info.headers.items()}
        url = completions_url(info.base_url or DEFAULT_BASE_URL)
        target = Target(url=url, headers=headers, provider=info.provider, key=key)
        self._endpoint = Endpoint(target, timeouts, clock)
        self._official = self._endpoint.host == OFFICIAL_HOST

    @property
    def info(self) -> ModelInfo:
        return self._info

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        return self._endpoint.stream(self.body(request), ChatParser(self._new_call_id))

    def body(self, request: ModelRequest) -> Body:
        """The request as it is sent."""
        head = dumps(chat_head(self._info, self._options, request))
        tail = dumps(chat_tail(self._info, self._options, request, official=self._official))
        history = self._histories.of(request.transcript, keep=request.cache)
        chunks = history.chunks(request.transcript, request.extra)
        system = b""
        if request.system.strip():
            system = dumps({"role": self._options.system_role, "content": request.system})
        comma = b"," if system and chunks else b""
        return Body([head[:-1] + b',"messages":[' + system + comma, *chunks, b"]," + tail[1:]])

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def completions_url(base_url: str) -> str:
    """The endpoint below `base_url`; a query (Azure's `?api-version=`) stays at the end."""
    path, mark, query = base_url.partition("?")
    return f"{path.rstrip('/')}/chat/completions{mark}{query}"
