"""The tasks of a plan: the unticked boxes at the left margin of its Section 4.

The grammar, and how ids are made, are those of the workflow modes of the npm host, so that ticks of either program
mean the same task. More ways to write the heading, the boxes and the labels are understood.
"""

import re
from collections.abc import Iterator
from hashlib import sha256

from msgspec import Struct

MAX_TASKS = 1000
TITLE_KEPT = 300
"""Characters of a title that are kept; the id is made of all of it."""
VALUE_KEPT = 2000
"""Characters of one value of a task's metadata that are kept."""

_HEADING = re.compile(r"##(?!#)\s*(.*?)\s*#*\s*\Z")
_SECTION_4 = re.compile(r"section\s+4\s*(?:[-–—:].*)?\Z", re.IGNORECASE)
_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)\Z")
_BOX = re.compile(r"[-*+][ \t]+\[([ xX])\](?:[ \t]+(.*))?\Z")
_LABEL = re.compile(
    r"\s+[-*+]\s+\*\*(Given|When|Then|NFRs|Verification Gate|Checkpoint)\s*(?::\s*\*\*|\*\*\s*:?)\s*(.*)\Z",
    re.IGNORECASE,
)
_INLINE = re.compile(r"\*\*(When|Then)\s*(?::\s*\*\*|\*\*\s*:?)\s*", re.IGNORECASE)
_KEYS = {
    "given": "given",
    "when": "when",
    "then": "then",
    "nfrs": "nfrs",
    "verification gate": "verificationGate",
    "checkpoint": "checkpoint",
}


class Task(Struct, frozen=True):
    id: str
    title: str
    metadata: dict[str, str] = {}
    """Of `given`, `when`, `then`, `nfrs`, `verificationGate` and `checkpoint` those that the plan gives."""


def parse_tasks(text: str) -> tuple[Task, ...]:
    """The first `MAX_TASKS` tasks of a plan, in order. Nothing in `text` raises."""
    tasks: list[Task] = []
    seen: dict[str, int] = {}
    current: dict[str, str] | None = None
    for line in _section_4(text):
        box = _BOX.match(line)
        if box is not None:
            current = None
            title = (box.group(2) or "").strip()
            if box.group(1) == " " and title and len(tasks) < MAX_TASKS:
                current = {}
                tasks.append(Task(_task_id(title, seen), cut(title, TITLE_KEPT), current))
        elif current is not None and (label := _LABEL.match(line)) is not None:
            _add_values(current, label.group(1), label.group(2))
    return tuple(tasks)


def cut(text: str, limit: int) -> str:
    """`text` with at most `limit` characters; an ellipsis says that there was more."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _section_4(text: str) -> Iterator[str]:
    """Its lines, without those in code fences."""
    inside = False
    fence = ""
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark.group(1).startswith(fence) and not mark.group(2).strip():
                fence = ""
            continue
        if mark and not ("`" in mark.group(2) and mark.group(1)[0] == "`"):
            fence = mark.group(1)
            continue
        heading = _HEADING.match(line)
        if heading is not None:
            if inside:
                return
            inside = _SECTION_4.match(heading.group(1)) is not None
        elif inside:
            yield line


def _task_id(title: str, seen: dict[str, int]) -> str:
    plain = " ".join(title.split())
    index = seen.get(plain, 0)
    seen[plain] = index + 1
    return "task-" + sha256(f"{plain}\0{index}".encode("utf-8", "replace")).hexdigest()[:16]


def _add_values(metadata: dict[str, str], label: str, value: str) -> None:
    """`value` may go on with the labels that follow in a Given-When-Then line."""
    pieces = _INLINE.split(value) if label.lower() in ("given", "when") else [value]
    names = [label, *pieces[1::2]]
    for name, piece in zip(names, pieces[::2], strict=True):
        if piece.strip():
            metadata[_KEYS[name.lower()]] = cut(piece.strip(), VALUE_KEPT)
