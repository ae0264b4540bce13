"""Fills the generated parts of docs/: between `<!-- NAME -->` and `<!-- /NAME -->`. `--check` only compares.

`hooks` is the table of hook points, `commands` that of commands, and `examples/FILE` the text of that file.
"""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from branchwork.extensions import BUILTIN
from branchwork.host import points
from branchwork.host.bus import Bus
from branchwork.host.extension import Services
from branchwork.host.hooks import Hooks
from branchwork.host.loader import Search, candidates, load_all
from branchwork.host.registry import Registry
from branchwork.host.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("docs/extensions.md", "docs/commands.md")

WHEN = {
    "session_started": "a session is in force: at the start, after going to another one, after a reload",
    "session_ending": "it is left or reloaded, or the program ends; it can still be written to",
    "session_moved": "the person went to another point of the tree",
    "turn_ended": "a reply and the results of its calls are stored; the next turn waits",
    "run_ended": "a run is over, also when it was aborted",
    "settled": "nothing runs and nothing is queued",
    "compacted": "older conversation has become notes",
    "compaction_failed": "that did not work",
    "model_chosen": "another model was chosen (not when a session brings its own)",
    "thinking_chosen": "another thinking level was chosen",
    "input": "something was submitted that is no command; before skills and templates are expanded",
    "run_starting": "before the first request of a run: messages to store after the prompt",
    "request_starting": "before each request: messages that go with it and are not stored",
    "tool_result": "a tool has answered, and the result is about to be stored",
    "discovering": "resources are read: more folders to look into",
    "compacting": "before a compaction: notes of one's own, or why not",
    "tool_call": "a call has valid arguments and is about to run; policy judges after this",
    "moving": "before going to another point of the tree",
    "forking": "before a fork or clone",
    "switching": "before a new session or a resume",
}


def hooks() -> str:
    rows = ["| Point | Kind | When | Given | May return |", "|---|---|---|---|---|"]
    for point in points.ALL:
        kind = type(point).__name__.lower()
        given = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(point.payload) if field.name != "seq")
        rows.append(f"| `{point.name.upper()}` | {kind} | {WHEN[point.name]} | {given} | {returns(point)} |")
    return "\n".join(rows)


def returns(point: Any) -> str:
    if isinstance(point, points.Observe):
        return ""
    items = getattr(point, "items", None)
    return f"several `{items.__name__}`" if items else " or ".join(f"`{kind.__name__}`" for kind in point.returns)


def commands() -> str:
    registry = Registry()
    found = candidates(Search(home=None, project=None, installed=False), BUILTIN)
    services = Services(
        registry=registry,
        hooks=Hooks(lambda failure: None, lambda owner: None),
        bus=Bus(lambda owner, text: None),
        settings=Settings(),
        report=lambda owner, text: sys.exit(f"{owner}: {text}"),
    )
    asyncio.run(load_all(found, services, disabled=lambda candidate: False))
    rows = ["| Command | Does | During a run | From |", "|---|---|---|---|"]
    for owned in sorted(registry.commands.owned(), key=lambda owned: owned.value.name):
        command = owned.value
        usage = f"/{command.name} {command.arguments}".strip().replace("|", "\\|")
        during = "yes" if command.while_running else ""
        rows.append(f"| `{usage}` | {command.description} | {during} | `{owned.owner}` |")
    return "\n".join(rows)


def part(name: str) -> str:
    if name == "hooks":
        return hooks()
    if name == "commands":
        return commands()
    return f"```python\n{(ROOT / name).read_text(encoding='utf-8').strip()}\n```"


def filled(page: str) -> str:
    def fill(found: "re.Match[str]") -> str:
        name = found.group(1)
        return f"<!-- {name} -->\n{part(name)}\n<!-- /{name} -->"

    return re.sub(r"<!-- ([\w/.]+) -->\n.*?<!-- /\1 -->", fill, page, flags=re.DOTALL)


def main(check: bool) -> int:
    stale = []
    for name in PAGES:
        path = ROOT / name
        page = path.read_text(encoding="utf-8")
        if filled(page) != page:
            stale.append(name)
            if not check:
                path.write_text(filled(page), encoding="utf-8")
    if check and stale:
        sys.stderr.write(f"run `python scripts/docs.py`: it would change {', '.join(stale)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
