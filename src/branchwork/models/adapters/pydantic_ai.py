"""Every provider that pydantic-ai speaks to, behind our `Model` protocol (extra `[providers]`).

Importing pydantic-ai and a vendor's client takes one to three seconds, so both happen in a thread when the first
request is made.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from branchwork.models.base import FailureKind, ModelFailure, ModelInfo, ModelRequest, StreamEvent
from branchwork.models.catalog import PIP_PROVIDERS
from branchwork.models.conversation import groups_of, rules_for

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel

TIMEOUT_S = 600.0
"""Silence after which a request counts as failed; thinking models may say nothing for minutes."""

MESSAGE_CHARS = 500


class PydanticAIModel:
    """`info.api` is `pydantic-ai:KIND`, where KIND is a provider name of pydantic-ai (`google`, `bedrock`, …).

    `model` replaces the one that would be built from `info` and the key. pydantic-ai's and the client's own
    retries are off: the agent's loop retries.
    """

    def __init__(self, info: ModelInfo, key: str | None, *, model: "PydanticModel[Any] | None" = None) -> None:
        self._info = info
        self._key = key
        self._model = model
        self._open = False
        self._building = asyncio.Lock()

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        model = await self._ready()
        from pydantic_ai.direct import model_request_stream
        from pydantic_ai.models import ModelRequestParameters

        from branchwork.models.adapters.pydantic_convert import EventMapper, reply_end, to_messages, tool_definitions

        groups = groups_of((*request.transcript.messages, *request.extra), rules_for(self._info))
        messages = to_messages(request.system, groups, self._info.id)
        parameters = ModelRequestParameters(function_tools=tool_definitions(request.tools))
        mapper = EventMapper()
        try:
            async with model_request_stream(
                model, messages, model_settings=self._settings(request), model_request_parameters=parameters
            ) as reply:
                async for event in reply:
                    for ours in mapper.feed(event):
                        yield ours
            end = reply_end(reply.get())
        except Exception as error:  # boundary: pydantic-ai and three vendor clients below it
            raise self._failure(error) from error
        if end is None:
            raise ModelFailure("connection", f"{self._info.ref}: the reply was cut off before its end")
        yield end

    async def aclose(self) -> None:
        if self._open and self._model is not None:
            self._open = False
            await self._model.__aexit__(None, None, None)

    async def _ready(self) -> "PydanticModel[Any]":
        async with self._building:
            if self._model is None:
                self._model = await asyncio.to_thread(self._build)
            if not self._open:
                await self._model.__aenter__()
                self._open = True
            return self._model

    def _build(self) -> "PydanticModel[Any]":
        import warnings

        kind = self._info.api.partition(":")[2]
        try:
            from pydantic_ai.exceptions import UnsupportedSettingWarning
            from pydantic_ai.models import infer_model
            from pydantic_ai.providers import infer_provider_class

            # A setting that a provider lacks (thinking, caching) is left out by pydantic-ai, which is what is wanted.
            warnings.filterwarnings("ignore", category=UnsupportedSettingWarning)
            arguments = {"api_key": self._key, "base_url": self._info.base_url}
            given = {name: value for name, value in arguments.items() if value is not None}
            return infer_model(f"{kind}:{self._info.id}", lambda name: infer_provider_class(name)(**given))
        except ImportError:
            raise ModelFailure(
                "rejected",
                f"{self._info.ref}: the client for {kind!r} is not installed; run {PIP_PROVIDERS} "
                f"or pip install 'pydantic-ai-slim[{kind.partition('-')[0]}]'",
            ) from None
        except (TypeError, ValueError, RuntimeError) as error:
            raise ModelFailure(
                "rejected", f"{self._info.ref}: pydantic-ai cannot set up {kind!r}: {self._plain(error)}"
            ) from None

    def _settings(self, request: ModelRequest) -> Any:
        """`ModelSettings`, with `extra_body` and the headers of models.toml."""
        settings: dict[str, Any] = {"max_tokens": request.max_tokens, "timeout": TIMEOUT_S, "max_retries": 0}
        if request.cache:
            settings["cache"] = True
        if self._info.thinking:
            settings["thinking"] = False if request.thinking == "off" else request.thinking
        if self._info.headers:
            settings["extra_headers"] = dict(self._info.headers)
        if "extra_body" in self._info.options:
            settings["extra_body"] = self._info.options["extra_body"]
        return settings

    def _failure(self, error: Exception) -> ModelFailure:
        if isinstance(error, ModelFailure):
            return error
        kind = failure_kind(error)
        if kind == "auth":
            text = f"the server refused the key; store another with `branchwork auth set {self._info.provider}`"
        else:
            text = self._plain(error)
        return ModelFailure(
            kind,
            f"{self._info.ref}: {text}",
            status=getattr(error, "status_code", None),
            retry_after=getattr(error, "retry_after", None),
        )

    def _plain(self, error: Exception) -> str:
        """The error in one line of limited length, without the key."""
        text = " ".join(str(error).split()) or type(error).__name__
        if self._key:
            text = text.replace(self._key, "…")
        return text if len(text) <= MESSAGE_CHARS else f"{text[:MESSAGE_CHARS]}…"


def failure_kind(error: Exception) -> FailureKind:
    """By pydantic-ai's error types, then by the HTTP status."""
    from pydantic_ai import exceptions

    table: tuple[tuple[type[Exception], FailureKind], ...] = (
        (exceptions.ModelRateLimitError, "rate_limit"),
        (exceptions.ModelQuotaExceededError, "quota"),
        (exceptions.ModelOverloadedError, "overloaded"),
        (exceptions.ModelContextWindowExceededError, "overflow"),
        (exceptions.ModelAuthenticationError, "auth"),
        (exceptions.ModelRequestTimeout, "timeout"),
        (exceptions.ModelTimeoutError, "timeout"),
        (exceptions.ModelConnectionError, "connection"),
        (exceptions.ModelUnavailableError, "server"),
        (exceptions.ModelServerError, "server"),
        (exceptions.ModelRequestRejectedError, "rejected"),
        (exceptions.ContentFilterError, "rejected"),
        (exceptions.UserError, "rejected"),
    )
    for kind, name in table:
        if isinstance(error, kind):
            return "overflow" if name == "rejected" and _too_long(error) else name
    if isinstance(error, exceptions.ModelHTTPError):
        return "server" if error.status_code >= 500 else "rejected"
    return "protocol"


def _too_long(error: Exception) -> bool:
    """Anthropic has no error type of its own for an overlong prompt, only this sentence and status 400 or 413."""
    return getattr(error, "status_code", None) == 413 or "prompt is too long" in str(error).lower()
