"""A folder to run tools in, called the way the agent calls them."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from branchwork.agent.coerce import arguments_for
from branchwork.agent.toolset import FileLocks, Tool, ToolContext, ToolError, ToolOutput
from branchwork.session.entries import Text, ToolCall
from branchwork.testing.harness import memory_tree
from branchwork.tools.builtin import builtin_tools


def _modes_do_not_count() -> bool:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).chmod(0)
        return os.access(file.name, os.R_OK)


needs_permissions = pytest.mark.skipif(_modes_do_not_count(), reason="root may read and write everything")


class Workplace:
    def __init__(self, root: Path) -> None:
        self.cwd = root / "work"
        self.home = root / "home"
        self.cwd.mkdir()
        self.home.mkdir()
        self.images = True
        self.locks = FileLocks()
        self.tools: dict[str, Tool] = {tool.name: tool for tool in builtin_tools()}

    def file(self, name: str, content: str | bytes = "") -> Path:
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def context(self) -> ToolContext:
        return ToolContext(
            call_id="c1",
            cwd=self.cwd,
            home=self.home,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            scratch=self.cwd.parent / "scratch",
            locks=self.locks,
            progress=lambda output: None,
            images=self.images,
            tree=memory_tree(),
        )

    async def run(self, tool: str, /, **arguments: Any) -> ToolOutput:
        one = self.tools[tool]
        args = arguments_for(one, ToolCall(id="c1", name=tool, arguments=arguments))
        output = await one.run(args, self.context())
        msgspec.json.encode(output)  # whatever a tool returns must fit into a session file
        return output

    async def text(self, tool: str, /, **arguments: Any) -> str:
        return text_of(await self.run(tool, **arguments))

    async def error(self, tool: str, /, **arguments: Any) -> str:
        with pytest.raises(ToolError) as caught:
            await self.run(tool, **arguments)
        message = str(caught.value)
        msgspec.json.encode(message)
        return message


def text_of(output: ToolOutput) -> str:
    return "".join(part.text for part in output.content if isinstance(part, Text))


def printed_by(command: str) -> bytes:
    return subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
