"""Turns almost-right entry objects into right ones, so that a typed decode can accept them.

Works on plain JSON data and never on files: what is repaired here is repaired for the reader only. Each rule
answers something that real files hold: null or missing content, blocks and roles of other programs, numbers
as strings, optional fields as null.
"""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, get_args

from branchwork.session.entries import JSONObject, StopReason, ThinkingLevel

_BLOCKS: dict[str, frozenset[str]] = {
    "system": frozenset({"text"}),
    "user": frozenset({"text", "image"}),
    "assistant": frozenset({"text", "thinking", "toolCall"}),
    "toolResult": frozenset({"text", "image"}),
    "custom": frozenset({"text", "image"}),
}
_REQUIRED: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "thinking": ("thinking",),
    "toolCall": ("id", "name"),
}
_TEXT_CONTENT = frozenset({"system", "user", "custom"})
"""Roles whose content may be a plain string."""


def epoch_ms(timestamp: str) -> int:
    """Unix milliseconds of an ISO 8601 time; 0 when it is none."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def clean(value: Any) -> Any:
    """`value` with what JSON in UTF-8 cannot hold replaced: lone surrogates by U+FFFD, NaN and infinities by None."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def repair_entry(data: JSONObject) -> JSONObject:
    """An entry object that a typed decode has a better chance with; `data` is left as it is."""
    fixed = _present(data, keep=("parentId", "replacement", "data", "details"))
    for key in ("id", "parentId", "timestamp", "targetId", "fromId", "firstKeptEntryId"):
        if key in fixed and isinstance(fixed[key], int | float):
            fixed[key] = str(fixed[key])
    repair = _ENTRY_REPAIRS.get(str(fixed.get("type")))
    if repair is not None:
        repair(fixed)
    if "usage" in fixed:
        fixed["usage"] = _usage(fixed["usage"])
    return fixed


def _message_entry(fixed: JSONObject) -> None:
    message = fixed.get("message")
    if isinstance(message, dict):
        fixed["message"] = repair_message(message, timestamp=str(fixed.get("timestamp", "")))


def _custom_message_entry(fixed: JSONObject) -> None:
    fixed["content"] = _content(fixed.get("content"), "custom")
    fixed.setdefault("display", True)


def _compaction_entry(fixed: JSONObject) -> None:
    fixed.setdefault("summary", "")
    fixed.setdefault("firstKeptEntryId", "")
    fixed.setdefault("tokensBefore", 0)
    if not isinstance(fixed.get("systemMessage"), dict):
        fixed.pop("systemMessage", None)


def _branch_summary_entry(fixed: JSONObject) -> None:
    fixed.setdefault("summary", "")
    fixed.setdefault("fromId", "root")


def _session_info_entry(fixed: JSONObject) -> None:
    fixed.setdefault("name", "")


def _context_edit_entry(fixed: JSONObject) -> None:
    if isinstance(fixed.get("replacement"), str):
        fixed["replacement"] = {"content": fixed["replacement"]}


_ENTRY_REPAIRS: dict[str, Callable[[JSONObject], None]] = {
    "message": _message_entry,
    "custom_message": _custom_message_entry,
    "compaction": _compaction_entry,
    "branch_summary": _branch_summary_entry,
    "session_info": _session_info_entry,
    "context_edit": _context_edit_entry,
}


def repair_message(data: JSONObject, *, timestamp: str = "") -> JSONObject:
    """The same for a message. `timestamp` (ISO 8601) stands in when the message has none."""
    fixed = _present(data, keep=("details",))
    role = str(fixed.get("role"))
    if not isinstance(fixed.get("timestamp"), int | float | str):
        fixed["timestamp"] = epoch_ms(timestamp)
    elif isinstance(fixed["timestamp"], str) and not fixed["timestamp"].replace(".", "", 1).isdigit():
        fixed["timestamp"] = epoch_ms(fixed["timestamp"])
    if role in _BLOCKS:
        fixed["content"] = _content(fixed.get("content"), role)
    match role:
        case "assistant":
            _repair_assistant(fixed)
        case "toolResult":
            for key in ("toolCallId", "toolName"):
                fixed.setdefault(key, "")
            fixed.setdefault("isError", False)
        case "system":
            _repair_system(fixed)
        case "bashExecution":
            for key in ("command", "output"):
                fixed.setdefault(key, "")
    if "usage" in fixed:
        fixed["usage"] = _usage(fixed["usage"])
    return fixed


def _repair_assistant(fixed: JSONObject) -> None:
    for key in ("api", "provider", "model"):
        fixed.setdefault(key, "")
    fixed.setdefault("usage", {})
    stop = fixed.get("stopReason")
    if stop not in get_args(StopReason):
        # "pending" marks a reply that was still streaming when its program ended.
        fixed["stopReason"] = "aborted" if stop == "pending" else "stop"
        if stop is not None:
            fixed.setdefault("rawStopReason", str(stop))
    if fixed.get("thinkingLevel") not in get_args(ThinkingLevel):
        fixed.pop("thinkingLevel", None)


def _repair_system(fixed: JSONObject) -> None:
    removed = fixed.get("toolsRemoved")
    if isinstance(removed, list):
        names = (tool.get("name") if isinstance(tool, dict) else tool for tool in removed)
        fixed["toolsRemoved"] = [name for name in names if isinstance(name, str)]
    sections = fixed.get("sections")
    if isinstance(sections, dict):
        fixed["sections"] = {name: text for name, text in sections.items() if text is None or isinstance(text, str)}


def _present(data: JSONObject, keep: tuple[str, ...]) -> JSONObject:
    """A copy without the nulls: an optional field that is null is a field that is absent."""
    return {key: value for key, value in data.items() if value is not None or key in keep}


def _content(content: Any, role: str) -> Any:
    if role in _TEXT_CONTENT and isinstance(content, str):
        return content
    if content is None:
        return "" if role in _TEXT_CONTENT else []
    blocks = content if isinstance(content, list) else [content]
    return [_block(block, role) for block in blocks]


def _block(block: Any, role: str) -> JSONObject:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if not isinstance(block, dict):
        return _placeholder(type(block).__name__)
    fixed = _present(block, keep=())
    kind = str(fixed.get("type"))
    if kind == "text":
        fixed["text"] = str(fixed.get("text", ""))
    elif kind == "thinking":
        fixed["thinking"] = str(fixed.get("thinking", ""))
    elif kind == "toolCall":
        _repair_arguments(fixed)
    if kind not in _BLOCKS[role] or any(not isinstance(fixed.get(key), str) for key in _REQUIRED[kind]):
        return _placeholder(kind)
    return fixed


def _repair_arguments(call: JSONObject) -> None:
    arguments = call.get("arguments")
    if isinstance(arguments, dict):
        return
    call["arguments"] = {}
    if arguments is not None:
        call.setdefault("argumentsText", str(arguments))


def _placeholder(kind: str) -> JSONObject:
    return {"type": "text", "text": f"[{kind[:40]} content that this program cannot read]"}


def _usage(usage: Any) -> JSONObject:
    if not isinstance(usage, dict):
        return {}
    fixed = {key: value for key, value in usage.items() if value is not None}
    for key, value in fixed.items():
        if isinstance(value, float):
            fixed[key] = round(value) if math.isfinite(value) else 0
    cost = fixed.get("cost")
    if "cost" in fixed:
        fixed["cost"] = (
            {key: value for key, value in cost.items() if value is not None} if isinstance(cost, dict) else {}
        )
    return fixed
