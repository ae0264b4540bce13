"""The prompt state: named sections and declared tools, stored in the session as patches.

Replaying the system messages of a branch gives the prompt and the tools of its next request; there is no
other prompt state (session format, section on prompt state).
"""

from collections.abc import Mapping, Sequence

from branchwork.agent.toolset import Tool
from branchwork.models.base import ToolSpec
from branchwork.session.entries import JSONObject, SystemMessage
from branchwork.session.prompt import PromptState


def tagged(name: str, body: str) -> str:
    """A section as it stands in the prompt."""
    return f"<{name}>\n{body.strip()}\n</{name}>"


def tool_sections(tools: Sequence[Tool]) -> dict[str, str]:
    """The `tools` and `rules` sections of the active tools, in the order given; empty ones are left out."""
    lines = [f"- {tool.name}: {tool.snippet}" for tool in tools if tool.snippet]
    rules = list(dict.fromkeys(rule for tool in tools for rule in tool.guidelines))
    sections: dict[str, str] = {}
    if lines:
        sections["tools"] = tagged("tools", "\n".join(lines))
    if rules:
        sections["rules"] = tagged("rules", "\n".join(f"- {rule}" for rule in rules))
    return sections


def declaration(spec: ToolSpec) -> JSONObject:
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


def patch(
    state: PromptState, sections: Mapping[str, str], tools: Sequence[ToolSpec], now_ms: int
) -> SystemMessage | None:
    """The system message that turns `state` into what is wanted, or None when it already is.

    A tool whose declaration changed is removed and added again.
    """
    changed: dict[str, str | None] = {name: text for name, text in sections.items() if state.sections.get(name) != text}
    changed.update({name: None for name in state.sections if name not in sections})
    wanted = {spec.name: declaration(spec) for spec in tools}
    added = tuple(new for name, new in wanted.items() if not _same(state.tools.get(name), new))
    removed = tuple(name for name, old in state.tools.items() if not _same(old, wanted.get(name)))
    if not changed and not added and not removed:
        return None
    return SystemMessage(
        content="",
        sections=changed or None,
        tools_added=added or None,
        tools_removed=removed or None,
        timestamp=now_ms,
    )


def _same(old: JSONObject | None, new: JSONObject | None) -> bool:
    """Whether two declarations tell the model the same; other hosts add fields of their own."""
    if old is None or new is None:
        return old is new
    return all(old.get(key) == new.get(key) for key in ("name", "description", "parameters"))


def system_text(state: PromptState) -> str:
    """The system prompt of the next request."""
    return "\n\n".join(text for text in (state.text, *state.sections.values()) if text)
