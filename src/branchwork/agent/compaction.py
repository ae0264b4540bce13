"""Compaction: older conversation becomes notes, recent conversation stays as it is.

This module is pure: where to cut, what the summarising model reads, what is kept of its answer. The agent
sends the request and stores the entry.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

import msgspec
from msgspec import Struct, field

from branchwork import data
from branchwork.agent.context import message_chars
from branchwork.models.base import ModelInfo, ModelRequest, Transcript
from branchwork.session.entries import (
    AssistantMessage,
    AssistantPart,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    JSONObject,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    text_of,
)
from branchwork.session.projection import Projected

RESULT_CHARS = 2_000
"""A tool result is cut to this length in the text that is summarised."""
SUMMARY_TOKENS = 4_096


class CompactionLimits(Struct, frozen=True, kw_only=True):
    """What one model does differently; None leaves the common value."""

    reserve_tokens: int | None = None
    keep_recent_tokens: int | None = None


NO_LIMITS = CompactionLimits()


class CompactionPolicy(Struct, frozen=True, kw_only=True):
    enabled: bool = True
    reserve_tokens: int = 16_384
    """Compaction is due when less than this is left of the context window."""
    keep_recent_tokens: int = 20_000

    models: dict[str, CompactionLimits] = field(default_factory=dict)
    """Other limits for single models, by `PROVIDER/ID`."""

    def due(self, tokens: int, info: ModelInfo) -> bool:
        limits = self.models.get(info.ref, NO_LIMITS)
        reserve = self.reserve_tokens if limits.reserve_tokens is None else limits.reserve_tokens
        return self.enabled and tokens > info.context_window - min(reserve, info.context_window // 2)

    def keep(self, info: ModelInfo) -> int:
        """Tokens of recent conversation that stay as they are."""
        limits = self.models.get(info.ref, NO_LIMITS)
        return self.keep_recent_tokens if limits.keep_recent_tokens is None else limits.keep_recent_tokens


class Plan(Struct, frozen=True, kw_only=True):
    """What a compaction will do."""

    summarised: tuple[Message, ...]
    previous: str | None
    """Notes of the compaction before, which the new ones replace."""
    first_kept: str
    """Entry id of the first message that stays."""
    split: bool
    """Whether the cut lies inside the work on one request of the person."""


def plan(items: Sequence[Projected], keep_tokens: int) -> Plan | None:
    """Where to cut the projected branch; None when there is nothing to summarise.

    At least `keep_tokens` (estimated at four characters a token) stay, or nearly so: a tool result always stays
    with its call, so the cut moves on to the next message that is none, or back to the call if there is none.
    """
    start = 1 if items and isinstance(items[0].message, CompactionSummaryMessage) else 0
    wanted = _walk_back(items, start, keep_tokens * 4)
    onwards = (*range(wanted, len(items)), *range(wanted - 1, start, -1))
    cut = next((at for at in onwards if not isinstance(items[at].message, ToolResultMessage)), start)
    if cut <= start:
        return None
    first = items[0].message
    previous = first.summary if isinstance(first, CompactionSummaryMessage) else None
    return Plan(
        summarised=tuple(item.message for item in items[start:cut]),
        previous=previous,
        first_kept=items[cut].entry_id,
        split=not isinstance(items[cut].message, UserMessage),
    )


def _walk_back(items: Sequence[Projected], start: int, keep_chars: int) -> int:
    kept = 0
    for index in range(len(items) - 1, start - 1, -1):
        kept += message_chars(items[index].message)
        if kept >= keep_chars:
            return index
    return start


def request_for(found: Plan, *, window: int, instructions: str | None, session_id: str | None) -> ModelRequest:
    """The request that asks for the notes: no tools, no thinking, no cache writes, within `window` tokens."""
    texts = [data.text("prompts/compaction.md")]
    if found.previous is not None:
        texts.append(data.text("prompts/compaction_update.md"))
    if found.split:
        texts.append("The conversation ends in the middle of the work on the last request; say where it stood.")
    if instructions:
        texts.append(f"The person adds: {instructions}")
    body = bounded(conversation_text(found.summarised), window)
    previous = f"<previous-notes>\n{found.previous}\n</previous-notes>\n\n" if found.previous else ""
    return summary_request("\n\n".join(texts), f"{previous}<conversation>\n{body}\n</conversation>", session_id)


def summary_request(system: str, body: str, session_id: str | None) -> ModelRequest:
    question = UserMessage(content=body, timestamp=0)
    return ModelRequest(
        system=system,
        transcript=Transcript([question]),
        max_tokens=SUMMARY_TOKENS,
        session_id=session_id,
        cache=False,
    )


def summary_of(reply: AssistantMessage) -> str | None:
    """The notes in a reply, or None when it cannot be used: cut off, failed, empty, or calling tools."""
    text = reply.text.strip()
    return text if reply.stop_reason == "stop" and text else None


def bounded(text: str, window: int) -> str:
    """`text` with its middle left out if it would not fit, beside prompt and answer, into `window` tokens.

    Three characters a token: dense material (code, numbers) must fit too.
    """
    limit = max((window - SUMMARY_TOKENS) * 3 - 8_000, 4_000)
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


# ---- conversation as text -------------------------------------------------------------------------


def conversation_text(messages: Iterable[Message]) -> str:
    return "\n\n".join(filter(None, map(_message_text, messages)))


def _message_text(message: Message) -> str | None:
    match message:
        case SystemMessage():
            return None
        case UserMessage(content=content) | CustomMessage(content=content):
            return f"[User]: {text_of(content)}"
        case AssistantMessage(content=parts):
            return "\n".join(filter(None, map(_part_text, parts))) or None
        case ToolResultMessage(tool_name=name, is_error=is_error):
            label = "Tool error" if is_error else "Tool result"
            return f"[{label} of {name}]: {_bounded_result(message.text)}"
        case BashExecutionMessage(exclude_from_context=True):
            return None
        case BashExecutionMessage(command=command, output=output):
            return f"[User ran]: {command}\n{_bounded_result(output)}"
        case BranchSummaryMessage(summary=summary):
            return f"[Notes of another branch]: {summary}"
        case CompactionSummaryMessage(summary=summary):
            return f"[Earlier notes]: {summary}"
        case _:
            assert_never(message)


def _part_text(part: AssistantPart) -> str | None:
    match part:
        case Text(text=text):
            return f"[Assistant]: {text}"
        case Thinking():
            return None
        case ToolCall(name=name, arguments=arguments):
            shown = ", ".join(
                f"{key}={_bounded_result(msgspec.json.encode(value).decode())}" for key, value in arguments.items()
            )
            return f"[Assistant calls]: {name}({shown})"
        case _:
            assert_never(part)


def _bounded_result(text: str) -> str:
    return text if len(text) <= RESULT_CHARS else f"{text[:RESULT_CHARS]}… ({len(text)} characters)"


# ---- what is carried over word for word -----------------------------------------------------------

CARRIED_CHARS = 40_000
"""Of what the person said, this much is kept word for word, the newest first."""
LONG_CHARS = 4_000
"""A single message longer than this (a pasted log, a file) is cut in its middle."""


def carried_over(messages: Iterable[Message], before: JSONObject | None) -> dict[str, list[str]]:
    """What no summary may lose, from the summarised span and the compaction before it.

    `userMessages`: the person's own words, since a standing instruction may be in any of them; `readFiles` and
    `modifiedFiles`: paths, each once.
    """
    earlier = before or {}
    said = _names(earlier.get("userMessages"))
    read = dict.fromkeys(_names(earlier.get("readFiles")))
    modified = dict.fromkeys(_names(earlier.get("modifiedFiles")))
    for message in messages:
        if isinstance(message, UserMessage):
            said.append(_cut_middle(text_of(message.content).strip()))
        elif isinstance(message, AssistantMessage):
            for name, path in _paths(message):
                if name == "read":
                    read[path] = None
                else:
                    modified[path] = None
    return {
        "userMessages": _newest(said),
        "readFiles": [path for path in read if path not in modified],
        "modifiedFiles": list(modified),
    }


def _paths(message: AssistantMessage) -> Iterator[tuple[str, str]]:
    for call in message.tool_calls:
        path = call.arguments.get("path")
        if isinstance(path, str) and call.name in ("read", "edit", "write"):
            yield call.name, path


def _newest(said: Sequence[str]) -> list[str]:
    kept: list[str] = []
    room = CARRIED_CHARS
    for text in reversed(said):
        room -= len(text)
        if room < 0:
            break
        if text:
            kept.append(text)
    return kept[::-1]


def _cut_middle(text: str) -> str:
    if len(text) <= LONG_CHARS:
        return text
    half = LONG_CHARS // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def _names(value: object) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def with_carried(summary: str, carried: dict[str, list[str]]) -> str:
    """The notes as the model will read them, with what is carried over."""
    blocks = [summary]
    said = "\n".join(f"<message>\n{text}\n</message>" for text in carried["userMessages"])
    read, modified = ("\n".join(carried[key]) for key in ("readFiles", "modifiedFiles"))
    for tag, body in (("user-messages", said), ("read-files", read), ("modified-files", modified)):
        if body:
            blocks.append(f"<{tag}>\n{body}\n</{tag}>")
    return "\n\n".join(blocks)
