"""Tells a run on a plain terminal as it happens, without a screen of its own."""

import shutil
from collections.abc import Callable

from branchwork.agent.events import (
    AgentEvent,
    CompactionFinished,
    Diagnosed,
    ReplyFinished,
    RetryScheduled,
    TextStreamed,
    ToolFinished,
    ToolRefused,
    ToolStarted,
)
from branchwork.frontends.console import Console
from branchwork.session.entries import JSONObject

RESULT_LINES = 12


def narrator(console: Console) -> Callable[[AgentEvent], None]:
    """A subscriber that writes text as it streams, each tool call, and the beginning of each result."""
    width = min(shutil.get_terminal_size().columns, 110)
    at_line_start = True

    def write(text: str) -> None:
        nonlocal at_line_start
        if text:
            console.out.write(text)
            console.out.flush()
            at_line_start = text.endswith("\n")

    def line(text: str = "") -> None:
        write(("" if at_line_start else "\n") + text + "\n")

    def show(event: AgentEvent) -> None:
        match event:
            case TextStreamed(text=text):
                write(text)
            case ReplyFinished():
                line()
            case ToolStarted(tool=tool, arguments=arguments):
                line(_cut(f"▸ {tool} {_brief(arguments)}", width))
            case ToolFinished(result=result):
                lines = result.text.rstrip().splitlines()
                for text in lines[:RESULT_LINES]:
                    line(_cut(f"  │ {text}", width))
                if len(lines) > RESULT_LINES:
                    line(f"  │ … {len(lines) - RESULT_LINES} more lines")
                line("  └ failed" if result.is_error else "  └ ok")
                line()
            case ToolRefused(tool=tool, reason=reason):
                line(f"▸ {tool} refused: {reason}")
            case RetryScheduled(error=error, delay_s=delay):
                line(f"! {error}; trying again in {delay:g} s")
            case CompactionFinished(success=True, tokens_before=before, tokens_after=after):
                line(f"! older conversation became notes: {before:,} → {after:,} tokens")
            case Diagnosed(level=level, message=message) if level != "info":
                line(f"! {message}")
            case _:
                pass

    return show


def _brief(arguments: JSONObject) -> str:
    """The arguments on one line: the path or command first, texts by their size."""
    for key in ("command", "path", "pattern"):
        value = arguments.get(key)
        if isinstance(value, str):
            rest = [name for name in arguments if name != key]
            return " ".join(value.split()) + (f"  ({', '.join(rest)})" if rest else "")
    return ", ".join(arguments)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
