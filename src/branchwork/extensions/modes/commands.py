"""`/mode`, `/style` and `/plan`."""

import time
from collections.abc import Sequence

from branchwork import data
from branchwork.errors import UserError
from branchwork.extensions.modes.plans import Workflow
from branchwork.extensions.modes.state import MODES, Mode, PlanPointer, mode_named
from branchwork.host.context import CommandContext, ExtensionContext
from branchwork.host.extension import ExtensionAPI
from branchwork.host.registry import Completion
from branchwork.host.ui import Option
from branchwork.session.entries import AssistantMessage, MessageEntry

PLAN_ACTIONS = {
    "save": "Have the model save the plan; `save --last` takes its last answer as it is",
    "select": "Make another plan of this branch the active one",
    "view": "Show the active plan and its progress",
    "list": "List the plans of this branch",
    "clear": "Take the active plan off this branch; its text stays",
    "collect": "Delete texts of plans that no session refers to and that are old",
}
_ALIASES = {
    **{action: action for action in PLAN_ACTIONS},
    "activate": "select", "switch": "select", "show": "view", "tasks": "view", "set": "save",
    "delete": "clear", "remove": "clear", "gc": "collect",
}  # fmt: skip
_STYLES = {"terse": True, "on": True, "normal": False, "off": False}


def add_commands(api: ExtensionAPI, workflow: Workflow) -> None:
    commands = _Commands(workflow)
    api.add_command(
        "mode", commands.mode, description="Show or set the workflow mode", arguments="[NAME]",
        complete=_complete_mode, while_running=True,
    )  # fmt: skip
    api.add_command(
        "style", commands.style, description="Terse or normal answers while a mode is active",
        arguments="[terse|normal]", complete=_complete_style, while_running=True,
    )  # fmt: skip
    api.add_command(
        "plan", commands.plan, description="Save, choose, show or clear the plan", arguments="[ACTION [ID]]",
        complete=commands.complete_plan, while_running=True,
    )  # fmt: skip


class _Commands:
    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow

    async def mode(self, arguments: str, ctx: CommandContext) -> str | None:
        name = arguments.strip()
        if not name and ctx.ui.attended:
            now = self._workflow.mode(ctx)
            chosen = await ctx.ui.select("Workflow mode", [_mode_option(mode, now) for mode in MODES], default=now)
            if chosen is None:
                return None
            name = chosen
        if not name:
            now = self._workflow.mode(ctx)
            rows = [f"{'*' if mode == now else ' '} {mode:<8} {info.description}" for mode, info in MODES.items()]
            return "\n".join([*rows, "/mode NAME sets it."])
        mode = mode_named(name)
        if mode is None:
            raise UserError(f"no mode {name!r}; there are {', '.join(MODES)}", exit_code=2)
        self._workflow.set_mode(ctx, mode)
        later = " It counts from the next call on." if ctx.agent.activity != "idle" else ""
        return f"Mode: {MODES[mode].label}. {MODES[mode].description}.{later}"

    async def style(self, arguments: str, ctx: CommandContext) -> str | None:
        word = arguments.strip().lower()
        terse = not self._workflow.terse(ctx.tree) if not word else _STYLES.get(word)
        if terse is None:
            raise UserError(f"no style {word!r}; there are terse and normal", exit_code=2)
        self._workflow.set_terse(ctx, terse)
        inactive = " (inactive until a mode is set)" if self._workflow.mode(ctx) == "off" else ""
        return f"Style: {'terse' if terse else 'normal'}{inactive}"

    # ---- plans ------------------------------------------------------------------------------------

    async def plan(self, arguments: str, ctx: CommandContext) -> str | None:
        self._workflow.here(ctx)
        words = arguments.split()
        if not words and ctx.ui.attended:
            options = [Option(action, description=text) for action, text in PLAN_ACTIONS.items()]
            chosen = await ctx.ui.select("Plan", options)
            if chosen is None:
                return None
            words = [chosen]
        if not words:
            return f"{self._list(ctx)}\n/plan {'|'.join(PLAN_ACTIONS)}"
        action = _ALIASES.get(words[0].lower())
        if action == "save":
            return self._save(words[1:], ctx)
        if action == "select":
            return await self._select(words[1:], ctx)
        if action == "clear":
            return await self._clear(ctx)
        if action == "view":
            return self._view(ctx)
        if action == "list":
            return self._list(ctx)
        if action == "collect":
            return self._collect(ctx)
        raise UserError(f"/plan does not know {words[0]!r}; it knows {', '.join(PLAN_ACTIONS)}", exit_code=2)

    def complete_plan(self, prefix: str, ctx: ExtensionContext) -> Sequence[Completion]:
        word, space, rest = prefix.lstrip().partition(" ")
        if not space:
            return [
                Completion(action, text) for action, text in PLAN_ACTIONS.items() if action.startswith(word.lower())
            ]
        if _ALIASES.get(word) == "save":
            return [Completion(f"{word} --last", "Take the last answer as it is")]
        if _ALIASES.get(word) != "select":
            return []
        plans = self._workflow.plans(ctx.tree).plans.values()
        return [Completion(f"{word} {plan.id}", _about(plan)) for plan in plans if plan.id.startswith(rest.strip())]

    def _save(self, words: list[str], ctx: CommandContext) -> str:
        if [word.lower() for word in words] == ["--last"]:
            text = _last_answer(ctx)
            saved = self._workflow.save(ctx.tree, text)
            self._workflow.refresh(ctx)
            count = len(saved.plan.tasks)
            hint = "" if count else " It has no Section 4 with unticked boxes: is it a plan?"
            return f"Saved plan {saved.plan.id} ({count} tasks).{hint}"
        if words:
            raise UserError("/plan save takes nothing, or --last", exit_code=2)
        self._workflow.save_wanted = True
        ctx.send(data.text("prompts/modes/save_directive.md").strip())
        return "The model is asked to save the plan."

    async def _select(self, words: list[str], ctx: CommandContext) -> str | None:
        state = self._workflow.plans(ctx.tree)
        if not state.plans:
            return "This branch has no plan."
        wanted: str | None = words[0] if words else None
        if wanted is None and ctx.ui.attended:
            options = [Option(plan.id, _label(plan, state.active), _about(plan)) for plan in state.plans.values()]
            wanted = await ctx.ui.select("Active plan", options, default=state.active.id if state.active else None)
            if wanted is None:
                return None
        if wanted is None:
            return f"{self._list(ctx)}\n/plan select ID"
        plan = self._workflow.select(ctx.tree, wanted)
        self._workflow.refresh(ctx)
        return f"Active plan: {plan.id}, {_about(plan)}"

    async def _clear(self, ctx: CommandContext) -> str | None:
        plan = self._workflow.plans(ctx.tree).active
        if plan is None:
            return "There is no active plan."
        question = f"Take {plan.id} ({_about(plan)}) off this branch? Its text stays."
        if ctx.ui.attended and not await ctx.ui.confirm("Clear the plan", question):
            return None
        self._workflow.clear(ctx.tree, plan.id)
        self._workflow.refresh(ctx)
        left = self._workflow.plans(ctx.tree).active
        return f"Plan {plan.id} is off this branch." + (f" Active now: {left.id}." if left else "")

    def _view(self, ctx: CommandContext) -> str:
        active = self._workflow.active(ctx.tree)
        if active is None:
            return "This branch has no active plan."
        plan = active.pointer
        rows = [f"{'✓' if task.id in plan.done else '·'} {task.id}  {task.title}" for task in plan.tasks]
        body = active.body or f"Its text cannot be read: {plan.path}"
        return "\n".join([f"{plan.id}, {_about(plan)}", *rows, "", body.rstrip()])

    def _list(self, ctx: CommandContext) -> str:
        state = self._workflow.plans(ctx.tree)
        rows = [f"{_label(plan, state.active)} — {_about(plan)} — {plan.path}" for plan in state.plans.values()]
        return "\n".join(rows) or "This branch has no plan."

    def _collect(self, ctx: CommandContext) -> str:
        done = self._workflow.store().collect(keep=self._workflow.plans(ctx.tree).plans, now_s=time.time())
        if done.stopped:
            return f"Nothing was deleted: {done.stopped}."
        return f"{len(done.deleted)} unused plans were deleted."


def _last_answer(ctx: CommandContext) -> str:
    """The newest reply on the branch that has text."""
    for node in ctx.tree.branch().upwards():
        if node.role != "assistant":
            continue
        entry = ctx.tree.entry(node.id)
        if (
            isinstance(entry, MessageEntry)
            and isinstance(entry.message, AssistantMessage)
            and entry.message.text.strip()
        ):
            return entry.message.text.strip()
    raise UserError("there is no answer on this branch that could be saved")


def _label(plan: PlanPointer, active: PlanPointer | None) -> str:
    return f"{plan.id} (active)" if active is not None and plan.id == active.id else plan.id


def _about(plan: PlanPointer) -> str:
    done, total = plan.progress
    return f"{done}/{total} tasks, saved {plan.saved_at}"


def _mode_option(mode: Mode, now: Mode) -> Option:
    info = MODES[mode]
    return Option(mode, f"{info.label} (now)" if mode == now else info.label, info.description)


def _complete_mode(prefix: str, ctx: ExtensionContext) -> Sequence[Completion]:
    start = prefix.strip().lower()
    return [Completion(mode, info.description) for mode, info in MODES.items() if mode.startswith(start)]


def _complete_style(prefix: str, ctx: ExtensionContext) -> Sequence[Completion]:
    about = {"terse": "Short sentences, no filler", "normal": "The model's own style"}
    return [Completion(name, text) for name, text in about.items() if name.startswith(prefix.strip().lower())]
