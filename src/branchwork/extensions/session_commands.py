"""The commands every front end has: sessions, the tree, the model, help."""

from collections.abc import Sequence
from pathlib import Path

from branchwork.errors import UserError
from branchwork.host.context import CommandContext, ExtensionContext
from branchwork.host.extension import ExtensionAPI
from branchwork.host.registry import Completion
from branchwork.models.base import THINKING_LEVELS
from branchwork.models.catalog import Catalog
from branchwork.models.usage import add_usage
from branchwork.session.entries import (
    AssistantMessage,
    BranchSummaryEntry,
    CompactionEntry,
    MessageEntry,
    SessionInfoEntry,
    ThinkingLevel,
    ToolResultMessage,
    Usage,
    UsageEntry,
    UserMessage,
    text_of,
)


def extension(api: ExtensionAPI) -> None:
    api.add_command("new", _new, description="Start a new session")
    api.add_command("resume", _resume, description="Go to another session", arguments="ID|PATH")
    api.add_command("name", _name, description="Show or set the session's name", arguments="[TEXT]")
    api.add_command("session", _session, description="Show file, counts, tokens and cost", while_running=True)
    api.add_command("tree", _tree, description="Show the tree, or go to an entry", arguments="[ENTRY [notes]]")
    api.add_command("label", _label, description="Put a bookmark on an entry", arguments="ENTRY [TEXT]")
    api.add_command("fork", _fork, description="Go on in a copy, from before an entry", arguments="[ENTRY]")
    api.add_command("clone", _clone, description="Go on in a copy of this branch")
    api.add_command("compact", _compact, description="Turn older conversation into notes", arguments="[INSTRUCTIONS]")
    api.add_command("export", _export, description="Write a page, or JSONL by its ending", arguments="[FILE]")
    api.add_command("import", _import, description="Copy a session file here and go to it", arguments="FILE")
    api.add_command(
        "model", _model, description="Show or choose the model", arguments="[PROVIDER/ID[:LEVEL]]", complete=_models,
        while_running=True,
    )  # fmt: skip
    api.add_command(
        "thinking", _thinking, description="Show or choose how much the model thinks", arguments="[LEVEL]",
        complete=_levels, while_running=True,
    )  # fmt: skip
    api.add_command("settings", _settings, description="Show a setting and where it is from", arguments="[KEY]")
    api.add_command("reload", _reload, description="Read settings, resources and extensions anew")
    api.add_command("help", _help, description="List the commands", arguments="[COMMAND]", while_running=True)
    api.add_command("hotkeys", _hotkeys, description="List the keys", while_running=True)
    api.add_command("quit", _quit, description="Leave", while_running=True)


# ---- sessions -------------------------------------------------------------------------------------


async def _new(arguments: str, ctx: CommandContext) -> str | None:
    return await ctx.new_session() or "New session."


async def _resume(arguments: str, ctx: CommandContext) -> str | None:
    if not arguments:
        raise UserError("/resume needs an id or a path; `branchwork sessions list` shows them", exit_code=2)
    return await ctx.resume(arguments.strip()) or "Resumed."


async def _name(arguments: str, ctx: CommandContext) -> str | None:
    name = " ".join(arguments.split())
    if name:
        ctx.agent.store(SessionInfoEntry(name=name))
    return ctx.tree.name or "This session has no name; /name TEXT gives it one."


async def _session(arguments: str, ctx: CommandContext) -> str | None:
    counts: dict[str, int] = {}
    spent: list[Usage | None] = []
    for entry in ctx.tree.branch().entries():
        match entry:
            case MessageEntry(message=message):
                kind = type(message).__name__
                counts[kind] = counts.get(kind, 0) + 1
                if isinstance(message, AssistantMessage | ToolResultMessage):
                    spent.append(message.usage)
            case UsageEntry() | CompactionEntry() | BranchSummaryEntry():
                spent.append(entry.usage)
            case _:
                pass
    total = add_usage(usage for usage in spent if usage is not None)
    cost = f"${total.cost.total:.4f} ({total.cost.source})" if total.cost.source else "unknown (no prices)"
    return "\n".join(
        [
            f"Name      {ctx.tree.name or '-'}",
            f"Id        {ctx.tree.session_id}",
            f"File      {ctx.tree.path or 'in memory only'}",
            f"Folder    {ctx.cwd}",
            f"Model     {ctx.model.ref}, thinking {ctx.thinking}",
            f"Messages  {counts.get('UserMessage', 0)} of yours, {counts.get('AssistantMessage', 0)} replies, "
            f"{counts.get('ToolResultMessage', 0)} tool results",
            f"Tokens    {total.input:,} in, {total.cache_read:,} from cache, {total.output:,} out",
            f"Cost      {cost}",
            f"Context   {ctx.size.tokens:,} of {ctx.model.context_window:,} tokens",
        ]
    )


async def _tree(arguments: str, ctx: CommandContext) -> str | None:
    target, _, rest = arguments.strip().partition(" ")
    if not target:
        return "\n".join(_tree_lines(ctx)) or "The session is empty."
    notes, _, instructions = rest.strip().partition(" ")
    if notes not in ("", "notes"):
        raise UserError("write /tree ENTRY, or /tree ENTRY notes [INSTRUCTIONS]", exit_code=2)
    entry_id = _entry_id(target, ctx)
    refused = await ctx.move(entry_id, with_notes=bool(notes), instructions=instructions or None)
    return refused or f"Going on from {entry_id}."


def _tree_lines(ctx: CommandContext) -> list[str]:
    """Prompts of the whole session, indented at branch points; `>` marks the current branch."""
    current = {node.id for node in ctx.tree.branch().nodes}
    lines: list[str] = []
    labels = ctx.tree.labels
    for node in ctx.agent.session.nodes():
        if node.role != "user":
            continue
        entry = ctx.tree.entry(node.id)
        message = entry.message if isinstance(entry, MessageEntry) else None
        text = text_of(message.content) if isinstance(message, UserMessage) else ""
        mark = ">" if node.id in current else " "
        label = f"[{labels[node.id]}] " if node.id in labels else ""
        lines.append(f"{mark} {node.id}  {label}{' '.join(text.split())[:80]}")
    return lines


def _entry_id(text: str, ctx: CommandContext) -> str:
    """The one entry whose id begins with `text`. Raises `UserError`."""
    found = [node.id for node in ctx.agent.session.nodes() if node.id.startswith(text)]
    if text in found:
        return text
    if len(found) != 1:
        why = "no entry has" if not found else f"{len(found)} entries have"
        raise UserError(f"{why} an id that begins with {text!r}; /tree shows them", exit_code=2)
    return found[0]


async def _label(arguments: str, ctx: CommandContext) -> str | None:
    target, _, text = arguments.strip().partition(" ")
    if not target:
        return "\n".join(f"{entry_id}  {label}" for entry_id, label in ctx.tree.labels.items()) or "No labels."
    entry_id = _entry_id(target, ctx)
    ctx.tree.label(entry_id, text or None)
    return f"{entry_id} is labelled {text!r}." if text else f"{entry_id} has no label now."


async def _fork(arguments: str, ctx: CommandContext) -> str | None:
    entry = arguments.strip()
    return await ctx.fork(_entry_id(entry, ctx) if entry else None) or "Forked; this is the copy."


async def _clone(arguments: str, ctx: CommandContext) -> str | None:
    return await ctx.clone() or "Cloned; this is the copy."


async def _compact(arguments: str, ctx: CommandContext) -> str | None:
    before = ctx.size.tokens
    if not await ctx.agent.compact(arguments.strip() or None):
        return None  # an event has said why
    return f"Older conversation became notes: about {before:,} → {ctx.size.tokens:,} tokens."


async def _export(arguments: str, ctx: CommandContext) -> str | None:
    from branchwork.clock import SystemClock, iso
    from branchwork.session.export import PageOptions, export_html
    from branchwork.session.operations import export_jsonl

    target = ctx.cwd / Path(arguments.strip() or f"{ctx.tree.session_id}.html").expanduser()
    if target.suffix == ".jsonl":
        export_jsonl(ctx.agent.session, target)
    else:
        export_html(ctx.agent.session, target, PageOptions(exported=iso(SystemClock().now_ms())))
    return f"Written to {target}"


async def _import(arguments: str, ctx: CommandContext) -> str | None:
    from branchwork.session.operations import import_file, session_directory

    if not arguments.strip():
        raise UserError("/import needs a session file", exit_code=2)
    source = ctx.cwd / Path(arguments.strip()).expanduser()
    copied = import_file(source, session_directory(ctx.home, str(ctx.cwd)))
    return await ctx.resume(str(copied)) or f"Imported as {copied}"


# ---- model ----------------------------------------------------------------------------------------


async def _model(arguments: str, ctx: CommandContext) -> str | None:
    if arguments.strip():
        ctx.select_model(arguments.strip())
    return f"{ctx.model.ref}, thinking {ctx.thinking}"


def _models(prefix: str, ctx: ExtensionContext) -> Sequence[Completion]:
    import os

    catalog = Catalog(ctx.home, os.environ)
    return [
        Completion(info.ref, info.name)
        for info in catalog.models()
        if prefix.lower() in info.ref.lower() and catalog.usable(info) is None
    ]


async def _thinking(arguments: str, ctx: CommandContext) -> str | None:
    level = arguments.strip()
    if level:
        ctx.select_model(thinking=_level(level))
    levels = ", ".join(("off", *ctx.model.thinking))
    return f"thinking {ctx.thinking} ({ctx.model.ref} knows {levels})"


def _level(text: str) -> ThinkingLevel:
    for level in THINKING_LEVELS:
        if level == text:
            return level
    raise UserError(f"no thinking level {text!r}; there are {', '.join(THINKING_LEVELS)}", exit_code=2)


def _levels(prefix: str, ctx: ExtensionContext) -> Sequence[Completion]:
    return [Completion(level) for level in ("off", *ctx.model.thinking) if level.startswith(prefix)]


# ---- the program ----------------------------------------------------------------------------------


async def _settings(arguments: str, ctx: CommandContext) -> str | None:
    key = arguments.strip()
    if not key:
        files = [str(layer.path) for layer in ctx.settings.layers] or ["none"]
        problems = [str(problem) for problem in ctx.settings.problems]
        return "\n".join([f"Files: {', '.join(files)}", *problems, "/settings KEY shows a value and its origin."])
    found = ctx.settings.explain(key, ctx.registry.table_types())
    place = f"{found.path}:{found.line}" if found.path else found.layer
    return f"{found.key} = {found.value!r} ({place})"


async def _reload(arguments: str, ctx: CommandContext) -> str | None:
    await ctx.reload()
    return "Settings, resources and extensions are read anew."


async def _help(arguments: str, ctx: CommandContext) -> str | None:
    wanted = arguments.strip().removeprefix("/")
    commands = sorted(ctx.commands(), key=lambda command: command.name)
    rows = [(f"/{each.name} {each.arguments}".strip(), each.description) for each in commands]
    rows += [(f"/{each.name}", each.description) for each in ctx.resources.templates]
    rows += [(f"/skill:{each.name}", each.description) for each in ctx.resources.skills]
    if wanted:
        rows = [row for row in rows if row[0].removeprefix("/").split()[0] == wanted]
        if not rows:
            raise UserError(f"no command /{wanted}; /help lists them", exit_code=2)
    width = max(len(usage) for usage, _ in rows)
    return "\n".join(f"{usage:<{width}}  {description}" for usage, description in rows)


async def _hotkeys(arguments: str, ctx: CommandContext) -> str | None:
    shortcuts = ctx.registry.shortcuts.values()
    return "\n".join(f"{each.key:<20}  {each.description}" for each in shortcuts) or "No keys beyond the editor's own."


async def _quit(arguments: str, ctx: CommandContext) -> str | None:
    ctx.quit()
    return None
