"""Writes `docs/events.md` from the event types, so that the page cannot drift.

`python -m branchwork.agent.events_doc` prints the page; a test compares it with the file.
"""

import ast
import inspect
from typing import Any, get_args

import msgspec

from branchwork.agent import events

HEAD = """# Events

Generated from `branchwork.agent.events` by `python -m branchwork.agent.events_doc`; do not edit.

`branchwork -p PROMPT --output stream-json` writes every event of the run to standard output: one JSON object
a line, lines end in LF only (a string may hold U+2028), encoded as UTF-8. `kind` tells which event it is and
`seq` numbers them from 1 without gaps. The first is `session_opened`, the last of a run is `run_finished`.
A consumer should ignore kinds and fields that it does not know: new ones may come, existing ones keep their
meaning. A reader that stops reading stops the agent.

Fields of events are in snake_case. Messages and entries inside them have the shape of the session file
(camelCase, see [sessions.md](sessions.md)). Fields marked *optional* have a default and may be missing.
"""


def render() -> str:
    """The whole page, Markdown."""
    kinds = get_args(events.AgentEvent)
    index = "\n".join(f"- [`{_kind(kind)}`](#{_kind(kind)}): {_summary(kind)}" for kind in kinds)
    return "\n".join([HEAD, "## Overview\n", index, "", *(_section(kind) for kind in kinds)]).rstrip() + "\n"


def _section(kind: type[msgspec.Struct]) -> str:
    notes = _field_notes(kind)
    lines = [f"## {_kind(kind)}", "", inspect.cleandoc(kind.__doc__ or ""), ""]
    fields = [info for info in msgspec.structs.fields(kind) if info.name != "seq"]
    if fields:
        lines += ["| field | type | |", "|---|---|---|"]
        for info in fields:
            optional = "" if info.required else "*optional* "
            lines.append(f"| `{info.encode_name}` | {_type_name(info.type)} | {optional}{notes.get(info.name, '')} |")
        lines.append("")
    return "\n".join(lines)


def _kind(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


def _summary(kind: type[msgspec.Struct]) -> str:
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
    return text if text else "see its fields."


def _field_notes(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The string that follows a field in the source is its documentation."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    notes: dict[str, str] = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            notes[before.target.id] = " ".join(str(after.value.value).split()).replace("None", "null")
    return notes


def _type_name(annotation: Any) -> str:
    arguments = get_args(annotation)
    if annotation is type(None):
        return "null"
    if annotation is Any:
        return "any JSON"
    if str(annotation).startswith("typing.Literal"):
        return ", ".join(f"`{value}`" for value in arguments)
    if str(getattr(annotation, "__origin__", "")) == "<class 'tuple'>":
        return f"list of {_type_name(arguments[0])}"
    if str(getattr(annotation, "__origin__", "")) == "<class 'dict'>":
        return "object"
    if arguments:
        names = [_type_name(argument) for argument in arguments]
        if sum(name.endswith(" entry") for name in names) > 3:
            return "entry of the session file"
        if sum(name.endswith(" message") for name in names) > 3:
            return "message of the session file"
        return " or ".join(dict.fromkeys(names))
    return _simple_name(annotation)


def _simple_name(annotation: Any) -> str:
    plain = {str: "string", int: "integer", float: "number", bool: "boolean"}
    if annotation in plain:
        return plain[annotation]
    name = str(annotation.__name__)
    for suffix in ("Entry", "Message"):
        if name.endswith(suffix):
            return f"{name.removesuffix(suffix).lower() or suffix.lower()} {suffix.lower()}"
    return name.lower()


if __name__ == "__main__":
    import sys

    sys.stdout.write(render())
