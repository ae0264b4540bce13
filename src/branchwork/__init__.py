"""Branchwork: a terminal coding agent whose sessions are trees and whose limits are enforced.

Importing this package does no work: no file, socket or heavy library is touched. The names below are the
public API for programs and extensions; each is imported when it is first used.
"""

TYPE_CHECKING = False  # what `typing.TYPE_CHECKING` is at run time, without importing typing

if TYPE_CHECKING:
    from branchwork.agent.gate import Refusal
    from branchwork.agent.run import Limits
    from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
    from branchwork.errors import UserError
    from branchwork.host import points
    from branchwork.host.assembly import AgentRequest
    from branchwork.host.bus import Note, Request
    from branchwork.host.context import CommandContext, ExtensionContext
    from branchwork.host.extension import ExtensionAPI
    from branchwork.host.registry import Completion
    from branchwork.host.tool_decorator import tool
    from branchwork.library import Agent, RunFailed, World
    from branchwork.session.handle import Tree
    from branchwork.session.tree import Session

__version__ = "0.1.0"

_HOME = {
    "Agent": "branchwork.library",
    "AgentRequest": "branchwork.host.assembly",
    "CommandContext": "branchwork.host.context",
    "Completion": "branchwork.host.registry",
    "Effect": "branchwork.agent.toolset",
    "ExtensionAPI": "branchwork.host.extension",
    "ExtensionContext": "branchwork.host.context",
    "Limits": "branchwork.agent.run",
    "Note": "branchwork.host.bus",
    "Refusal": "branchwork.agent.gate",
    "Request": "branchwork.host.bus",
    "RunFailed": "branchwork.library",
    "Session": "branchwork.session.tree",
    "Tool": "branchwork.agent.toolset",
    "ToolArgs": "branchwork.agent.toolset",
    "ToolContext": "branchwork.agent.toolset",
    "ToolError": "branchwork.agent.toolset",
    "ToolOutput": "branchwork.agent.toolset",
    "Tree": "branchwork.session.handle",
    "UserError": "branchwork.errors",
    "World": "branchwork.library",
    "points": "branchwork.host.points",
    "text_output": "branchwork.agent.toolset",
    "tool": "branchwork.host.tool_decorator",
}

__all__ = [
    "Agent",
    "AgentRequest",
    "CommandContext",
    "Completion",
    "Effect",
    "ExtensionAPI",
    "ExtensionContext",
    "Limits",
    "Note",
    "Refusal",
    "Request",
    "RunFailed",
    "Session",
    "Tool",
    "ToolArgs",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "Tree",
    "UserError",
    "World",
    "__version__",
    "points",
    "text_output",
    "tool",
]


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'branchwork' has no attribute {name!r}")
    from importlib import import_module

    found = import_module(module)
    return found if module.endswith(f".{name}") else getattr(found, name)
