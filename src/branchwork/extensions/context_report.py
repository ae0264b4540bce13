"""`/context`: what fills the window, by whom, in tokens and in money."""

import msgspec

from branchwork.agent.context import CHARS_PER_TOKEN, message_chars
from branchwork.host.context import CommandContext
from branchwork.host.extension import ExtensionAPI
from branchwork.models.usage import PER
from branchwork.session.entries import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Message,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)

BAR = 24


def extension(api: ExtensionAPI) -> None:
    api.add_command("context", _context, description="Show what fills the window, by contributor", while_running=True)


async def _context(arguments: str, ctx: CommandContext) -> str | None:
    rows = [(name, chars // CHARS_PER_TOKEN) for name, chars in contributions(ctx).items() if chars]
    total = sum(tokens for _, tokens in rows) or 1
    size, window, price = ctx.size, ctx.model.context_window, ctx.model.price
    lines = []
    for name, tokens in sorted(rows, key=lambda row: -row[1]):
        cost = f"  ${tokens * price.input / PER:.4f}" if price else ""
        bar = "█" * max(1, round(BAR * tokens / total))
        lines.append(f"{name:<28} {tokens:>9,} {tokens * 100 / total:>5.1f} %{cost}  {bar}")
    known = "reported by the server" if size.exact else "estimated"
    share = f"{size.tokens * 100 / window:.1f} %, {known}"
    lines.append(f"{'next request':<28} {size.tokens:>9,} of {window:,} tokens ({share})")
    lines.append(
        f"Prices are those without cache, from {price.source}." if price else "No price is known for this model."
    )
    lines.append(f"Single rows are estimates at {CHARS_PER_TOKEN} characters a token.")
    return "\n".join(lines)


def contributions(ctx: CommandContext) -> dict[str, int]:
    """Characters by contributor: prompt sections (with the extension they come from), tools, messages by kind."""
    found: dict[str, int] = {}

    def add(name: str, chars: int) -> None:
        found[name] = found.get(name, 0) + chars

    projection = ctx.agent.context.projection
    for name, text in projection.prompt.sections.items():
        owner = ctx.registry.sections.owner(name)
        add(f"section {name}" + (f" ({owner})" if owner else ""), len(text))
    for name, declared in projection.prompt.tools.items():
        owner = ctx.registry.tools.owner(name)
        label = "tools" if owner in (None, "Branchwork") else f"tools ({owner})"
        add(label, len(msgspec.json.encode(declared)))
    for item in projection.items:
        add(_kind(item.message), message_chars(item.message))
    return found


def _kind(message: Message) -> str:
    match message:
        case UserMessage() | BashExecutionMessage():
            return "your messages"
        case AssistantMessage():
            return "replies and calls"
        case ToolResultMessage(tool_name=name):
            return f"results of {name}"
        case CustomMessage(custom_type=name):
            return f"extension {name}"
        case CompactionSummaryMessage():
            return "notes of compaction"
        case BranchSummaryMessage():
            return "notes of branches"
        case SystemMessage():
            return "prompt text"
