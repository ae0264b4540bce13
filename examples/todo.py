"""Branch-local state: a todo list that is right after going back, forking, resuming and reloading."""

from typing import Annotated, Literal

from msgspec import Meta

from branchwork import CommandContext, ExtensionAPI, ExtensionContext, ToolArgs, ToolContext, ToolError, tool


class Change(ToolArgs, frozen=True):
    """What the tool takes and what is stored: one is the other, so it is a file format."""

    do: Literal["add", "finish"]
    item: Annotated[str, Meta(min_length=1, max_length=200)]


Todos = tuple[str, ...]
NOTHING: Todos = ()


def step(open_items: Todos, change: Change) -> Todos:
    rest = tuple(item for item in open_items if item != change.item)
    return rest if change.do == "finish" else (*rest, change.item)


def extension(api: ExtensionAPI) -> None:
    todos = api.branch_state(NOTHING, Change, step)

    @tool(effects=())
    async def todo(args: Change, ctx: ToolContext) -> str:
        """Keep a short todo list for the current task: add an item, or finish one that is on the list."""
        if args.do == "finish" and args.item not in todos.read(ctx.tree):
            raise ToolError(f"{args.item!r} is not on the list")
        return f"{len(todos.record(ctx.tree, args))} open"

    async def show(arguments: str, ctx: CommandContext) -> str:
        return "\n".join(todos.read(ctx.tree)) or "Nothing to do."

    def remind(ctx: ExtensionContext) -> str | None:
        items = todos.read(ctx.tree)
        return "Open todos: " + "; ".join(items) if items else None

    api.add_tool(todo)
    api.add_command("todo", show, description="Show the todo list of this branch")
    api.add_context(remind)
