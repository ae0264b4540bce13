"""What a tool looks like to the model."""

import asyncio
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from branchwork.agent.toolset import FileLocks, ToolArgs, ToolContext, ToolOutput, text_output
from branchwork.testing.harness import make_tool


class Item(ToolArgs, frozen=True):
    title: Annotated[str, Meta(description="Its title")]


class Args(ToolArgs, frozen=True):
    title: str
    items: list[Item]
    limit: Annotated[int, Meta(description="How many")] | None = None


async def run(args: Args, ctx: ToolContext) -> ToolOutput:
    return text_output("")


def test_the_schema_is_one_plain_object_that_allows_nothing_else() -> None:
    schema = make_tool("t", run, args=Args).spec.parameters
    item = {
        "type": "object",
        "properties": {"title": {"description": "Its title", "type": "string"}},
        "required": ["title"],
        "additionalProperties": False,
    }
    assert schema == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "items": {"type": "array", "items": item},
            "limit": {"description": "How many", "type": "integer"},
        },
        "required": ["title", "items"],
        "additionalProperties": False,
    }


async def test_a_file_lock_is_shared_by_all_names_of_the_file_and_forgotten_after_use(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "a").write_text("")
    (folder / "link").symlink_to(folder / "a")
    (folder / "loop").symlink_to(folder / "loop")
    locks = FileLocks()
    order: list[str] = []

    async def work(name: str) -> None:
        async with locks.hold(folder / name):
            order.append(f"in {name}")
            await asyncio.sleep(0)
            order.append(f"out {name}")

    await asyncio.gather(work("a"), work("link"), work("loop"))
    assert order.index("out a") < order.index("in link")
    assert locks._locks == {}
