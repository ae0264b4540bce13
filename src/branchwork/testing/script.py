"""What the fake model server answers: replies made of parts, and ready-made scripts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from branchwork.session.entries import JSONObject
from branchwork.testing.faults import Fault, Frame, Framing, Refused

Headers: TypeAlias = dict[str, str]
"""Names in lower case."""


class Text(Struct, frozen=True):
    text: str


class Thinking(Struct, frozen=True):
    """Anthropic sends the signature as a delta of its own; OpenAI chat has none. `redacted` has no text."""

    text: str
    signature: str = "sig-1"
    redacted: bool = False


class Call(Struct, frozen=True):
    """`arguments` given as text are sent as they are, valid JSON or not. Without `id` one is made up."""

    tool: str
    arguments: JSONObject | str = field(default_factory=dict)
    id: str | None = None

    @property
    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()


Part: TypeAlias = Text | Thinking | Call


class Tokens(Struct, frozen=True):
    """Usage to report. `input` excludes cache reads and writes, `reasoning` is part of `output`."""

    input: int = 10
    output: int = 5
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """Part of `cache_write`; Anthropic only."""
    reasoning: int = 0
    """OpenAI only."""
    cost: float | None = None
    """US dollars; OpenAI only, as OpenRouter reports it."""


class Reply(Struct, frozen=True, kw_only=True):
    """One answer. Without `stop` the reason follows from the parts: calls, or a plain stop."""

    parts: tuple[Part, ...] = ()
    stop: Literal["stop", "length", "calls", "refusal"] | None = None
    usage: Tokens | None = Tokens()
    fault: Fault | None = None
    delta_chars: int = 8
    """Characters of text, thinking or arguments per frame."""
    interleave: bool = False
    """OpenAI only: the arguments of parallel calls come in turns."""
    reasoning_field: Literal["reasoning_content", "reasoning", "reasoning_text"] = "reasoning_content"
    """OpenAI only: the field that carries thinking; servers differ."""
    delay_s: float = 0.0
    """Real seconds before each frame."""
    framing: Framing = Framing()

    @property
    def stop_reason(self) -> Literal["stop", "length", "calls", "refusal"]:
        if self.stop is not None:
            return self.stop
        return "calls" if any(isinstance(part, Call) for part in self.parts) else "stop"

    def deltas(self, text: str) -> Iterator[str]:
        """`text` in the pieces in which it is streamed."""
        for start in range(0, len(text), self.delta_chars):
            yield text[start : start + self.delta_chars]


Script: TypeAlias = Callable[[int, JSONObject], Reply]
"""(Number of the accepted request, from 0; its parsed body) → the answer. Called from the server's threads."""


class BadRequest(Exception):
    """The judge's verdict on a request that the real provider would answer with status 400."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


def demand(condition: object, message: str, *, param: str | None = None) -> None:
    """Raises `BadRequest` unless `condition` holds."""
    if not condition:
        raise BadRequest(message, param=param)


class Refusal(Struct, frozen=True):
    """An error answer, ready to send."""

    status: int
    body: JSONObject


class Exchange(Struct, frozen=True):
    """What a wire format needs to write one answer."""

    reply: Reply
    body: JSONObject
    number: int

    def call_id(self, prefix: str, index: int) -> str:
        """Unique within a conversation, also when several servers take part in it."""
        return f"{prefix}{len(self.body['messages'])}_{self.number}_{index}"


class Wire(Struct, frozen=True):
    """A wire format: the judge of requests, the writer of answers."""

    judge: Callable[[JSONObject, Headers], None]
    """Raises `BadRequest`."""
    frames: Callable[[Exchange], Iterator[Frame]]
    whole: Callable[[Exchange], JSONObject]
    refusal: Callable[[Refused], Refusal]
    rejection: Callable[[BadRequest], Refusal]
    error_frame: Callable[[Refused], Frame]
    key_of: Callable[[Headers], str | None]


# ---- ready-made scripts -----------------------------------------------------------------------------


def says(text: str, **options: Any) -> Script:
    """The same text, always. `options` are fields of `Reply`."""
    reply = Reply(parts=(Text(text),), **options)
    return lambda number, body: reply


def always(reply: Reply) -> Script:
    return lambda number, body: reply


def replies(*given: Reply) -> Script:
    """One after the other; the last one again and again."""
    if not given:
        raise ValueError("a script needs at least one reply")
    return lambda number, body: given[min(number, len(given) - 1)]


def fails_then(fault: Fault, script: Script, times: int = 1) -> Script:
    """The first `times` requests fail, then `script` answers, counting from 0."""
    failing = Reply(parts=(Text("partial answer"),), fault=fault)
    return lambda number, body: failing if number < times else script(number - times, body)


def calls(
    n: int,
    *,
    tool: str = "read",
    arguments: JSONObject | Callable[[int], JSONObject] | None = None,
    parallel: bool = False,
    final: str = "All done.",
    say: str = "",
) -> Script:
    """`n` calls of `tool` after each prompt, one a reply or (`parallel`) all in one, then the text `final`.

    The position is read off the conversation (results since the last user message), so one server can serve
    many runs. `arguments` may be a function of the call's number; `say` is text before each call.
    """

    def one(index: int) -> Call:
        given = arguments(index) if callable(arguments) else arguments
        return Call(tool, given or {})

    def script(number: int, body: JSONObject) -> Reply:
        done = results_since_prompt(body["messages"])
        if done >= n:
            return Reply(parts=(Text(final),))
        lead: tuple[Part, ...] = (Text(say),) if say else ()
        if parallel:
            return Reply(parts=lead + tuple(one(index) for index in range(n)), delta_chars=40)
        return Reply(parts=(*lead, one(done)), delta_chars=40)

    return script


def results_since_prompt(messages: Sequence[JSONObject]) -> int:
    """Tool results after the last message that a person (or a program in their place) wrote; both formats."""
    count = 0
    for message in reversed(messages):
        if message["role"] == "tool":
            count += 1
        elif message["role"] == "user":
            content = message["content"]
            results = [part for part in content if _is_result(part)] if isinstance(content, list) else []
            if not results or len(results) != len(content):
                return count + len(results)
            count += len(results)
    return count


def _is_result(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result"
