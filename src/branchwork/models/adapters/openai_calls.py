"""Puts streamed tool calls together, also where a server leaves out or repeats what should tell them apart."""

import os
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from branchwork.models.base import StreamEvent, ToolCallDelta, ToolCallStart


class FunctionDelta(Struct):
    name: Any = None
    arguments: Any = None


class CallDelta(Struct):
    """One element of `delta.tool_calls`. The types are what the API promises only for OpenAI itself."""

    index: Any = None
    id: Any = None
    function: FunctionDelta | None = None
    extra_content: Any = None
    """Gemini: `{"google": {"thought_signature": …}}`, wanted back with the call."""


def random_call_id() -> str:
    return f"call_{os.urandom(12).hex()}"


class _Call:
    __slots__ = ("given_id", "index", "name", "pieces", "signature", "started")

    def __init__(self, index: int, given_id: str) -> None:
        self.index = index
        self.given_id = given_id
        self.name = ""
        self.signature: str | None = None
        self.started = False
        self.pieces: list[str] = []

    def complete(self) -> bool:
        """Whether the arguments so far are one whole JSON object."""
        text = "".join(self.pieces).strip()
        if not text.endswith("}"):
            return False
        try:
            msgspec.json.decode(text)
        except msgspec.DecodeError:
            return False
        return True


class CallAssembler:
    """Decides for each piece which call it continues, or that it begins another.

    The API's rule is that `index` names the call and that id and name come with its first piece. Beyond that, as
    servers were seen to do: an id seen before names its call whatever the index says; a new id with a name on an
    index in use begins a call (Ollama sends every call with index 0); a named piece after complete arguments
    begins a call; a piece that names nothing continues the last one. A call starts once its name is known; ids
    that are missing or used twice are made up.
    """

    def __init__(self, new_index: Callable[[], int], new_id: Callable[[], str] = random_call_id) -> None:
        self._new_index = new_index
        self._new_id = new_id
        self._calls: list[_Call] = []
        self._by_position: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._used: set[str] = set()

    def feed(self, deltas: list[CallDelta], events: list[StreamEvent]) -> None:
        """The elements of one chunk; what they mean is appended to `events`."""
        before = len(self._calls)
        for delta in deltas:
            function = delta.function
            name = function.name if function is not None and isinstance(function.name, str) else ""
            text = _arguments(function.arguments) if function is not None else ""
            call = self._find(delta, name, text, before)
            if name and not call.name:
                call.name = name
            if text:
                call.pieces.append(text)
            call.signature = call.signature or _signature(delta.extra_content)
            if not call.name:
                continue
            if not call.started:
                self._start(call, events)
            elif text:
                events.append(ToolCallDelta(call.index, text))

    def finish(self, events: list[StreamEvent]) -> None:
        """Calls that never got a name start without one, so that they are answered with an error."""
        for call in self._calls:
            if not call.started and call.pieces:
                self._start(call, events)

    def _start(self, call: _Call, events: list[StreamEvent]) -> None:
        call.started = True
        call_id = call.given_id
        if not call_id or call_id in self._used:
            call_id = self._new_id()
        self._used.add(call_id)
        events.append(ToolCallStart(call.index, call_id, call.name, call.signature))
        if call.pieces:
            events.append(ToolCallDelta(call.index, "".join(call.pieces)))

    def _find(self, delta: CallDelta, name: str, text: str, before: int) -> _Call:
        call_id = str(delta.id) if delta.id not in (None, "") else ""
        position = delta.index if isinstance(delta.index, int) and not isinstance(delta.index, bool) else None
        call = self._candidate(call_id, position, name)
        if call is None or self._begins(call, call_id, name, text, position is None and call in self._calls[before:]):
            call = _Call(self._new_index(), call_id)
            self._calls.append(call)
        elif call_id and not call.given_id and not call.started:
            call.given_id = call_id
        if position is not None:
            self._by_position[position] = call
        if call_id:
            self._by_id[call_id] = call
        return call

    def _candidate(self, call_id: str, position: int | None, name: str) -> _Call | None:
        if call_id in self._by_id:
            return self._by_id[call_id]
        if position in self._by_position:
            return self._by_position[position]
        last = self._calls[-1] if self._calls else None
        if position is None:
            return last
        # An index not seen before: the rest of the last call where nothing else says that one begins.
        return last if last is not None and not call_id and not name and not last.complete() else None

    def _begins(self, call: _Call, call_id: str, name: str, text: str, same_chunk: bool) -> bool:
        if not name:
            return False
        if call_id and call.given_id and call_id != call.given_id:
            return True
        if not call.name:
            return False
        return same_chunk or name != call.name or (bool(text) and call.complete())


def _signature(value: Any) -> str | None:
    match value:
        case {"google": {"thought_signature": str(signature)}}:
            return signature
    return None


def _arguments(value: Any) -> str:
    """The JSON text; some servers send the object itself."""
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()
