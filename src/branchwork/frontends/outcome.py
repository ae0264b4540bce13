"""How a run ended, for the shell: exit code, one line, and the JSON object of `--output json`."""

from typing import Any, assert_never

from msgspec import Struct

from branchwork.agent.agent import SessionAgent
from branchwork.agent.events import AgentEvent, ReplyFinished, RunFinished
from branchwork.session.entries import AssistantMessage

DONE, ERROR, USAGE, MODEL_FAILED, REFUSED, LIMIT, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130


class LastReply:
    """Keeps the last reply of a run; subscribe it to the agent."""

    def __init__(self) -> None:
        self.message: AssistantMessage | None = None

    def __call__(self, event: AgentEvent) -> None:
        if isinstance(event, ReplyFinished):
            self.message = event.message

    @property
    def text(self) -> str:
        return self.message.text.strip() if self.message else ""


class Outcome(Struct, frozen=True):
    """`complaint` is one line for standard error, or None."""

    code: int
    complaint: str | None


def outcome_of(finished: RunFinished, text: str, *, model_failed: bool) -> Outcome:
    """The exit code and what to say. An answer without text is an error, never a silent success."""
    match finished.end:
        case "done":
            if text:
                return Outcome(DONE, None)
            return Outcome(ERROR, "the model gave an empty answer; try again, or rephrase the prompt")
        case "error":
            return Outcome(MODEL_FAILED if model_failed else ERROR, finished.error or "the run failed")
        case "aborted":
            return Outcome(INTERRUPTED, "interrupted; the session is saved, go on with --continue")
        case "refused":
            return Outcome(REFUSED, finished.error or "policy ended the run")
        case "length":
            return Outcome(LIMIT, "the answer was cut at the model's output limit")
        case "max_turns" | "repeating":
            return Outcome(LIMIT, f"{finished.error}; go on with --continue")
        case "time_limit":
            return Outcome(LIMIT, "the time limit was reached; go on with --continue")
        case _:
            assert_never(finished.end)


def result_object(agent: SessionAgent, finished: RunFinished, text: str) -> dict[str, Any]:
    """What `--output json` prints."""
    usage = finished.usage
    path = agent.session.path
    return {
        "result": text,
        "session_id": agent.session.header.id,
        "session_file": str(path) if path else None,
        "model": agent.model.info.ref,
        "stop": finished.end,
        "turns": finished.turns,
        "tool_calls": finished.tool_calls,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "cost": round(usage.cost.total, 8),
            "cost_source": usage.cost.source,
        },
        "duration_ms": finished.duration_ms,
        "error": finished.error,
    }
