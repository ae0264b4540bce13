"""Generated sessions of version 3 that both hosts can resume."""

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from branchwork.clock import iso
from branchwork.session.entries import JSONObject

START_MS = 1_750_000_000_000
STEP_MS = 4_000
READS_PER_PROMPT = 3
RESULT_CHARS = 1_000
KEPT_AFTER_COMPACTION = 40
SESSION_ID = "01977b8c-0400-7000-8000-00000000b00c"
FILE_NAME = f"{iso(START_MS).replace(':', '-').replace('.', '-')}_{SESSION_ID}.jsonl"
TEXT = (
    "the parser reads a line and returns its tokens while every error keeps the position where it was found so that"
    " tests can check both paths and callers decide what to do next with the value"
)
WORDS = TEXT.split()


def write_session(path: Path, cwd: Path, entries: int, *, compacted: bool = False) -> None:
    """A session of `entries` entries: prompts, each with three reads of about 1 KB and a closing answer.

    `compacted` puts a compaction entry before the last turn that keeps the forty entries before it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for line in _lines(cwd, entries, compacted):
            file.write(msgspec.json.encode(line) + b"\n")


def _lines(cwd: Path, entries: int, compacted: bool) -> Iterator[JSONObject]:
    yield {"type": "session", "version": 3, "id": SESSION_ID, "timestamp": iso(START_MS), "cwd": str(cwd)}
    opening: list[JSONObject] = [
        {"type": "model_change", "provider": "fake", "modelId": "m1"},
        {"type": "thinking_level_change", "thinkingLevel": "off"},
    ]
    messages = _messages(random.Random(20_000))
    parent = None
    for number in range(entries):
        now = START_MS + number * STEP_MS
        if number < len(opening):
            entry = opening[number]
        elif compacted and number == entries - 1:
            entry = {
                "type": "compaction",
                "summary": "The parser was read, its errors were fixed, the tests pass.",
                "firstKeptEntryId": f"{_first_kept(number):08x}",
                "tokensBefore": 1_000_000,
            }
        else:
            entry = {"type": "message", "message": {**next(messages), "timestamp": now}}
        entry_id = f"{number:08x}"
        yield {**entry, "id": entry_id, "parentId": parent, "timestamp": iso(now)}
        parent = entry_id


def _first_kept(number: int) -> int:
    """The prompt nearest to forty entries before `number`: a kept range starts with a user message."""
    per_prompt = 2 + 2 * READS_PER_PROMPT
    return 2 + (number - KEPT_AFTER_COMPACTION - 2) // per_prompt * per_prompt


def _messages(rng: random.Random) -> Iterator[JSONObject]:
    call = 0
    while True:
        yield {"role": "user", "content": [{"type": "text", "text": _text(rng, 120)}]}
        for _ in range(READS_PER_PROMPT):
            call += 1
            path = f"src/module_{rng.randrange(400)}.py"
            part = {"type": "toolCall", "id": f"call_{call}", "name": "read", "arguments": {"path": path}}
            yield _assistant([{"type": "text", "text": _text(rng, 150)}, part], "toolUse")
            yield {
                "role": "toolResult",
                "toolCallId": f"call_{call}",
                "toolName": "read",
                "content": [{"type": "text", "text": _text(rng, RESULT_CHARS)}],
                "isError": False,
                "durationMs": rng.randrange(1, 30),
            }
        yield _assistant([{"type": "text", "text": _text(rng, 600)}], "stop")


def _assistant(content: list[JSONObject], stop_reason: str) -> JSONObject:
    cost = {"input": 0.001, "output": 0.002, "cacheRead": 0, "cacheWrite": 0, "total": 0.003}
    return {
        "role": "assistant",
        "content": content,
        "api": "openai-completions",
        "provider": "fake",
        "model": "m1",
        "usage": {"input": 900, "output": 90, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 990, "cost": cost},
        "stopReason": stop_reason,
        "durationMs": 900,
        "thinkingLevel": "off",
    }


def _text(rng: random.Random, chars: int) -> str:
    """Lines of words, about `chars` long."""
    words = rng.choices(WORDS, k=chars // 5)
    return "\n".join(" ".join(words[start : start + 12]) for start in range(0, len(words), 12))
