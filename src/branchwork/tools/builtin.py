"""The tools that are always there."""

from branchwork.agent.toolset import Tool
from branchwork.tools.bash import DEFAULT_SETTINGS, BashSettings, bash_tool
from branchwork.tools.edit import edit_tool
from branchwork.tools.find import find_tool
from branchwork.tools.grep import grep_tool
from branchwork.tools.ls import ls_tool
from branchwork.tools.read import read_tool
from branchwork.tools.write import write_tool

BUILTIN_NAMES = ("read", "bash", "edit", "write", "grep", "find", "ls")
"""In the order in which models see them; a changed order costs every prompt cache."""

DEFAULT_ACTIVE = BUILTIN_NAMES
"""All of them, unlike the host of origin, which starts with the first four: without the other three, models
search through the shell, where a read-only mode has to judge commands instead of tools."""


def builtin_tools(bash: BashSettings = DEFAULT_SETTINGS) -> tuple[Tool, ...]:
    """Every built-in tool, in the order of `BUILTIN_NAMES`."""
    return (read_tool(), bash_tool(bash), edit_tool(), write_tool(), grep_tool(), find_tool(), ls_tool())
