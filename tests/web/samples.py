"""Session files for tests of listings and exported pages, written as plain JSON lines."""

import json
from pathlib import Path
from typing import Any

SESSION_ID = "019a0000-0000-7000-8000-000000000001"
STARTED = "2026-03-01T09:00:00.000Z"
HOSTILE = (
    "</script><script>window.pwned = 1</script> <img src=x onerror='window.pwned=2'> <!-- \u2028 \u2029 "
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \u202egnp.exe {{meta}} {{script}} & &lt;b&gt;"
)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG of one pixel, base64."""
ANSWER = """## What I found

The parser drops the **last line** when the file does not end in a newline. Two places matter:

1. `read_lines` in *loader.py*
2. the `flush` in `writer.py`, see [the notes](https://docs.example.org/io "title")

| Case | Before | After |
|---|:-:|--:|
| no newline | lost | kept |
| empty file | ok | ok |

```python
def read_lines(stream):
    yield from (line.rstrip("\\n") for line in stream)
```

> A file is a sequence of lines *and perhaps a rest*.

- [x] a failing test first
- [ ] then the fix
"""


class SessionFile:
    """Builds a version-3 session line by line. `add` returns the id of the entry, which becomes the leaf."""

    def __init__(self, cwd: str = "/home/ada/project", session_id: str = SESSION_ID) -> None:
        header = {"type": "session", "version": 3, "id": session_id, "timestamp": STARTED, "cwd": cwd}
        self.lines = [json.dumps(header)]
        self.leaf: str | None = None
        self._count = 0

    def add(self, type_: str, *, parent: str | None = "", entry_id: str = "", **fields: Any) -> str:
        self._count += 1
        entry_id = entry_id or f"{self._count:08x}"
        minute, second = divmod(self._count, 60)
        stamp = f"2026-03-01T{9 + minute // 60:02d}:{minute % 60:02d}:{second:02d}.000Z"
        above = self.leaf if parent == "" else parent
        entry = {"type": type_, "id": entry_id, "parentId": above, "timestamp": stamp, **fields}
        self.lines.append(json.dumps(entry, ensure_ascii=False))
        self.leaf = entry_id
        return entry_id

    def message(self, role: str, content: Any, *, parent: str | None = "", **fields: Any) -> str:
        message = {"role": role, "content": content, "timestamp": 1772355600000 + self._count * 1000, **fields}
        return self.add("message", parent=parent, message=message)

    def user(self, content: Any, *, parent: str | None = "") -> str:
        return self.message("user", content, parent=parent)

    def reply(self, *parts: Any, parent: str | None = "", cost: float = 0.0125, **fields: Any) -> str:
        content = [text(part) if isinstance(part, str) else part for part in parts]
        price: dict[str, Any] = {"input": 0, "output": 0, "total": cost, "source": "models.toml"}
        if not cost:
            price = {"input": 0, "output": 0, "total": 0}
        usage: dict[str, Any] = {
            "input": 1200,
            "output": 340,
            "cacheRead": 20000,
            "cacheWrite": 800,
            "totalTokens": 22340,
        }
        usage |= {"cost": price}
        given = {"api": "scripted", "provider": "acme", "model": "large-1", "stopReason": "stop", "usage": usage}
        return self.message("assistant", content, parent=parent, **{**given, **fields})

    def result(self, call: str, tool: str, text: str, *, error: bool = False, **fields: Any) -> str:
        content = [{"type": "text", "text": text}]
        return self.message("toolResult", content, toolCallId=call, toolName=tool, isError=error, **fields)

    def bytes(self) -> bytes:
        return "".join(line + "\n" for line in self.lines).encode()

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.bytes())
        return path


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(mime: str, data: str) -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": mime}


def thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "thinkingSignature": "b3BhcXVl"}


def tour() -> SessionFile:
    """One of everything: branches, calls, images, summaries, labels, damage-free unknowns, hostile text."""
    s = SessionFile()
    s.message("system", "You are a careful engineer.", sections={"Tools": "read, bash"}, toolsAdded=[{"name": "read"}])
    s.add("model_change", provider="acme", modelId="large-1")
    s.add("session_info", name="Fix the last line <b>bug</b>")
    s.user("The loader loses the last line of a file. Find out why, with a test first.")
    first = s.reply(
        thinking("Where are lines read? " * 12),
        "Let me look at the loader.",
        call("c1", "read", path="src/loader.py"),
        call("c2", "bash", command="pytest -q tests/test_loader.py"),
        stopReason="toolUse",
        durationMs=2310,
    )
    s.result("c1", "read", "\n".join(f"{n:3}  line of code number {n}" for n in range(1, 61)), durationMs=3)
    failure = "FAILED tests/test_loader.py::test_rest\n1 failed, 3 passed"
    tests = s.result("c2", "bash", failure, error=True, durationMs=1850)
    answer = s.reply(ANSWER)
    s.add("label", targetId=answer, label="diagnosis")
    s.user("Good. Fix it the simple way.")
    s.reply(call("c3", "edit", path="src/loader.py", old="a\nb", new="a\nb\nc"), stopReason="toolUse")
    s.result("c3", "edit", "edited 1 place")
    s.reply("Done: the rest of the file is now yielded as a line of its own.")
    s.user([text("What about this screenshot?"), image("image/png", PIXEL)], parent=answer)
    s.reply(HOSTILE)
    s.user([image("image/svg+xml", "PHN2Zz4="), text(HOSTILE)])
    s.reply("", stopReason="error", errorMessage="503 overloaded", cost=0)
    s.add("compaction", summary="**Goal**: keep the last line.", firstKeptEntryId=answer, tokensBefore=182000)
    s.add("custom", customType="workflow-mode-set", data={"mode": "build"})
    s.add("custom_message", customType="notebook", content="Page *one* saved.", display=True)
    s.add("from_the_future", payload={"x": [1, 2, HOSTILE]})
    s.message("bashExecution", "", command="git status", output="clean", exitCode=0)
    s.user("And a third way, from the tests?", parent=tests)
    s.add("branch_summary", fromId=first, summary="Tried to patch `flush`; it was not the cause.")
    s.reply("I would rather [click](javascript:alert(1)) or [trust](https://good.example) **nobody**.", cost=0.5)
    return s


def long_session(entries: int, *, size: int = 400) -> SessionFile:
    """A chat of `entries` entries, tool calls included, that parts at every thousandth."""
    s = SessionFile()
    parting = None
    while len(s.lines) <= entries:
        turn = len(s.lines)
        asked = s.user(f"Question {turn}: what next?", parent=parting if parting and turn % 1000 < 8 else "")
        parting = asked if turn % 1000 >= 992 else None
        s.reply("Looking.", call(f"c{turn}", "read", path=f"src/file{turn}.py"), stopReason="toolUse")
        s.result(f"c{turn}", "read", f"needle-{turn} " + "x" * size)
        s.reply(f"Answer {turn}. " + "word " * (size // 5))
    return s
