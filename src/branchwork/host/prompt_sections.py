"""The sections of the system prompt that do not come from tools."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from branchwork import data
from branchwork.agent.prompt import tagged
from branchwork.host.context_files import ContextFile
from branchwork.host.skills import Skill, escaped, skill_prompt


class PromptOptions(Struct, frozen=True, kw_only=True):
    replace: str | None = None
    """Instead of the built-in preamble."""
    append: tuple[str, ...] = ()


def prompt_sections(
    options: PromptOptions, files: Sequence[ContextFile], cwd: Path, *, skills: Sequence[Skill] = ()
) -> dict[str, str]:
    """Name -> text, in prompt order. No date and no time: a prompt that changes cannot be cached.

    Give `skills` only when the agent has a tool that reads files.
    """
    sections = {"preamble": (options.replace or data.text("prompts/preamble.md")).strip()}
    if options.append:
        sections["addendum"] = tagged("addendum", "\n\n".join(options.append))
    if files:
        blocks = [f'<file path="{escaped(str(file.path))}">\n{file.text}\n</file>' for file in files]
        sections["project_context"] = tagged("project_context", "\n\n".join(blocks))
    listed = skill_prompt(skills)
    if listed:
        sections["skills"] = listed
    sections["cwd"] = tagged("cwd", str(cwd))
    return sections
