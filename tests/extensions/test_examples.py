"""The examples of the documentation, run as user extensions."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from branchwork.models.scripted import calls, says
from branchwork.session.entries import CustomEntry
from tests.host.workshop import Workshop, say, texts

ROOT = Path(__file__).parents[2]


@pytest_asyncio.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    await made.close()


def install(workshop: Workshop, name: str) -> None:
    shutil.copy(ROOT / "examples" / f"{name}.py", workshop.extensions)


async def test_the_tool_counts_and_tells_the_model_what_is_wrong(workshop: Workshop) -> None:
    install(workshop, "count_words")
    (workshop.project / "a.txt").write_text("one three\ntwo\n")
    script = [calls("count_words", path="a.txt", longest=1) + calls("count_words", path="b.txt"), says("x")]
    host = await workshop.open(script)
    await host.submit("go")
    assert texts(host)[0] == "2 lines, 3 words, 14 characters\nthree"
    assert texts(host)[1].startswith("b.txt cannot be read as text")


async def test_the_guard_keeps_the_named_files_and_lets_the_rest_be_written(workshop: Workshop) -> None:
    install(workshop, "keep_out")
    (workshop.home / "settings.toml").write_text('[keep-out]\nnames = ["*.lock"]\n')
    script = [calls("write", path="x/a.lock", content="1") + calls("write", path="b.txt", content="2"), says("x")]
    host = await workshop.open(script)
    await host.submit("go")
    assert texts(host)[0] == "a.lock is the person's own (*.lock). Ask them to change it."
    assert not (workshop.project / "x").exists()
    assert (workshop.project / "b.txt").read_text() == "2"


async def test_the_todo_list_follows_the_branch_over_tree_fork_resume_and_reload(workshop: Workshop) -> None:
    install(workshop, "todo")
    host = await workshop.open(
        [
            calls("todo", do="add", item="sew"), says("1"),
            calls("todo", do="add", item="wash") + calls("todo", do="finish", item="fly"), says("2"),
            calls("todo", do="finish", item="sew"), says("3"),
        ]
    )  # fmt: skip
    assert await say(host, "/todo") == "Nothing to do."
    await host.submit("first")
    first = host.tree.leaf_id
    await host.submit("second")
    assert "Open todos: sew" in workshop.asked(2)
    assert texts(host)[1:] == ["2 open", "'fly' is not on the list"]
    assert await say(host, "/todo") == "sew\nwash"
    await say(host, f"/tree {first}")
    assert await say(host, "/todo") == "sew"
    await say(host, "/fork")
    await host.submit("third")
    assert await say(host, "/todo") == "Nothing to do."
    forked = host.agent.session.path
    for command in ("/reload", "/clone"):
        await say(host, command)
        assert await say(host, "/todo") == "Nothing to do."
    await say(host, "/new")
    assert await say(host, "/todo") == "Nothing to do."
    await say(host, f"/resume {forked}")
    assert await say(host, "/todo") == "Nothing to do."
    assert "Open todos" not in workshop.asked()


async def test_the_entries_of_the_todo_list_are_a_file_format(workshop: Workshop) -> None:
    """The golden line: what it looks like on disk must not change by a slip."""
    install(workshop, "todo")
    host = await workshop.open([calls("todo", do="add", item="sew"), says("1")])
    await host.submit("first")
    (entry,) = (each for each in host.tree.branch().entries() if isinstance(each, CustomEntry))
    assert (entry.custom_type, entry.data) == ("todo", {"do": "add", "item": "sew"})
    host.tree.record("todo", {"do": "burn", "item": "x"})
    assert await say(host, "/todo") == "sew"
    assert "It was skipped" in workshop.told("todo")[0]


PYDANTIC = '''
from dataclasses import dataclass
from typing import Literal
from pydantic import BaseModel, Field
from branchwork import ExtensionAPI, ExtensionContext, ToolContext, ToolError, tool

class Change(BaseModel, extra="forbid"):
    """Add an item, or finish one that is on the list."""
    do: Literal["add", "finish"]
    item: str = Field(min_length=1, max_length=200)

@dataclass(frozen=True, slots=True)
class Todos:
    open: tuple[str, ...] = ()

    def apply(self, change: Change) -> "Todos":
        rest = tuple(i for i in self.open if i != change.item)
        return Todos(open=rest if change.do == "finish" else (*rest, change.item))

def extension(api: ExtensionAPI) -> None:
    todos = api.branch_state(initial=Todos(), change=Change, step=Todos.apply)

    @tool(effects=())
    async def todo(args: Change, ctx: ToolContext) -> str:
        """Keep a short todo list for the current task."""
        if args.do == "finish" and args.item not in todos.read(ctx.tree).open:
            raise ToolError(f"{args.item!r} is not on the list")
        return f"{len(todos.record(ctx.tree, args).open)} open"

    def remind(ctx: ExtensionContext) -> str | None:
        items = todos.read(ctx.tree).open
        return "Open todos: " + "; ".join(items) if items else None

    api.add_tool(todo)
    api.add_context(remind)
'''


async def test_pydantic_models_serve_as_arguments_and_as_stored_changes(workshop: Workshop) -> None:
    workshop.write("todo", PYDANTIC)
    host = await workshop.open(
        [
            calls("todo", do="add", item="sew"), says("1"),
            calls("todo", do="add", item="") + calls("todo", do="add", item="wash", when="now"), says("2"),
        ]
    )  # fmt: skip
    await host.submit("first")
    assert texts(host) == ["1 open"]
    (declared,) = (spec for spec in workshop.model.seen[0].tools if spec.name == "todo")
    assert declared.parameters["properties"]["do"]["enum"] == ["add", "finish"]
    await say(host, "/reload")
    await host.submit("second")
    assert "Open todos: sew" in workshop.asked()
    assert all(text.startswith("Invalid arguments for todo") for text in texts(host)[1:])
