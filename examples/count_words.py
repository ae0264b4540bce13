"""A tool: the model can ask how long a text is instead of guessing."""

from typing import Annotated

from msgspec import Meta

from branchwork import Effect, ExtensionAPI, ToolArgs, ToolContext, ToolError, tool


class Args(ToolArgs, frozen=True):
    path: Annotated[str, Meta(description="A text file, relative to the working folder")]
    longest: Annotated[int, Meta(ge=0, le=100, description="List so many of the longest words")] = 0


@tool(effects={Effect.READ}, touches=lambda args: (args.path,))
async def count_words(args: Args, ctx: ToolContext) -> str:
    """Count the lines, words and characters of a text file."""
    try:
        text = (ctx.cwd / args.path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"{args.path} cannot be read as text: {error}") from error
    words = text.split()
    counted = f"{len(text.splitlines())} lines, {len(words)} words, {len(text)} characters"
    longest = sorted(set(words), key=lambda word: (-len(word), word))[: args.longest]
    return "\n".join([counted, *longest])


def extension(api: ExtensionAPI) -> None:
    api.add_tool(count_words)
