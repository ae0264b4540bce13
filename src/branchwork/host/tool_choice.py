"""Which tools are active: what was asked for at the start, narrowed by what an extension chose on this branch."""

from collections.abc import Callable

from msgspec import Struct

from branchwork.agent.agent import SessionAgent
from branchwork.agent.toolset import Tool
from branchwork.host.branch_state import branch_state
from branchwork.session.handle import Tree

NAME = "active-tools"
"""Custom type of the entries."""


class Choice(Struct, frozen=True, kw_only=True):
    owner: str
    tools: tuple[str, ...]


class ToolChoice:
    """`allowed` are the tools that the start and the settings admit, in their order. `loaded` tells whether an
    extension is there: what one chose that is gone no longer counts, since nothing could take it back."""

    def __init__(
        self, agent: SessionAgent, tree: Tree, allowed: tuple[Tool, ...], *, loaded: Callable[[str], bool],
        report: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._agent = agent
        self._tree = tree
        self._allowed = allowed
        self._loaded = loaded
        self._report = report
        self._state = branch_state(
            NAME, initial=None, change=Choice, step=lambda _, choice: choice,
            diagnose=lambda text: report("tools", text),
        )  # fmt: skip

    def choose(self, owner: str, names: tuple[str, ...]) -> None:
        """From the next request on. Raises what `Tree.record` raises."""
        active = tuple(tool for tool in self._allowed if tool.name in names)
        choice = Choice(owner=owner, tools=tuple(tool.name for tool in active))
        if self._tree.read_only is None and choice != self._state.read(self._tree):
            self._state.record(self._tree, choice)
        self._agent.choose_tools(active)

    def restore(self) -> None:
        """What the branch says, after it was opened or has changed."""
        choice: Choice | None = self._state.read(self._tree)
        if choice is not None and not self._loaded(choice.owner):
            self._report("tools", f"{choice.owner} is not loaded, so the tools that it chose here are not in force")
            choice = None
        if choice is not None:
            known = {tool.name for tool in self._allowed}
            gone = ", ".join(name for name in choice.tools if name not in known)
            if gone:
                self._report("tools", f"chosen in this session and not available now: {gone}")
        self._agent.choose_tools(
            self._allowed if choice is None else tuple(tool for tool in self._allowed if tool.name in choice.tools)
        )
