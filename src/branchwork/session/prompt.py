"""The prompt as the transcript states it: a replay of the branch's system messages."""

from msgspec import Struct, field

from branchwork.session.entries import JSONObject, SystemMessage, text_of


class PromptState(Struct, frozen=True):
    """Values are not changed in place: each system message gives a new state."""

    text: str = ""
    """Plain prompt text of the system messages, in order, separated by blank lines; empty in most sessions."""
    sections: dict[str, str] = field(default_factory=dict)
    """By name, in the order in which they first came."""
    tools: dict[str, JSONObject] = field(default_factory=dict)
    """Declarations by name, in the order in which they first came."""

    def apply(self, message: SystemMessage) -> "PromptState":
        added = text_of(message.content)
        sections = dict(self.sections)
        for name, text in (message.sections or {}).items():
            if text is None:
                sections.pop(name, None)
            else:
                sections[name] = text
        tools = dict(self.tools)
        for name in message.tools_removed or ():
            tools.pop(name, None)
        for tool in message.tools_added or ():
            if isinstance(tool.get("name"), str):
                tools[tool["name"]] = tool
        text = "\n\n".join(part for part in (self.text, added) if part)
        return PromptState(text=text, sections=sections, tools=tools)
