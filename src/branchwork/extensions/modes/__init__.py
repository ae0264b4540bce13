"""Workflow modes, plans and the style: what the model is told, what it may touch, and what it works off.

All of it follows the branch. Other extensions use `branchwork.extensions.modes.requests`.
"""

import asyncio
import functools
import threading
import time

from branchwork.agent.events import TurnFinished
from branchwork.extensions.modes import gates
from branchwork.extensions.modes.commands import add_commands
from branchwork.extensions.modes.plans import Workflow
from branchwork.extensions.modes.prompts import MARK
from branchwork.extensions.modes.requests import CurrentMode, CurrentPlan, PlanView, SavePlan, Ticked, TickTask
from branchwork.extensions.modes.state import MODES, Mode, mode_named, states_of
from branchwork.extensions.modes.store import Collected
from branchwork.extensions.modes.tools import plan_tools
from branchwork.host.context import ExtensionContext
from branchwork.host.extension import ExtensionAPI
from branchwork.host.points import (
    SESSION_ENDING,
    SESSION_MOVED,
    SESSION_STARTED,
    SETTLED,
    TOOL_CALL,
    TURN_ENDED,
    Block,
    CallChecked,
    Moved,
    SessionEnding,
    SessionStarted,
    Settled,
)

ASKING_S = 3600.0
"""How long the person may think about a question of the gate, in seconds."""
SHELL_TOOL = "bash"
READING_TOOLS = frozenset(("read", "grep", "find", "ls", SHELL_TOOL))


def extension(api: ExtensionAPI) -> None:
    workflow = Workflow(states_of(api))
    handlers = _Handlers(workflow)
    api.add_flag("mode", help="Begin in a workflow mode: " + ", ".join(MODES), default="")
    api.add_limit(workflow.restriction)
    api.add_context(workflow.prompt)
    for each in plan_tools(workflow):
        api.add_tool(each)
    add_commands(api, workflow)
    api.observe(SESSION_STARTED, handlers.started)
    api.observe(SESSION_MOVED, handlers.moved)
    api.observe(SESSION_ENDING, handlers.ending)
    api.observe(TURN_ENDED, handlers.turn_ended)
    api.observe(SETTLED, handlers.settled)
    api.decide(TOOL_CALL, handlers.tool_call, budget=ASKING_S)
    api.serve(SavePlan, handlers.save_plan)
    api.serve(TickTask, handlers.tick_task)
    api.serve(CurrentPlan, handlers.current_plan)
    api.serve(CurrentMode, handlers.current_mode)


class _Handlers:
    def __init__(self, workflow: Workflow) -> None:
        self._workflow = workflow
        self._stop = threading.Event()
        self._search: asyncio.Future[Collected] | None = None

    # ---- the session ------------------------------------------------------------------------------

    async def started(self, payload: SessionStarted, ctx: ExtensionContext) -> None:
        flag = self._workflow.here(ctx).flag(ctx)
        mode = mode_named(flag)
        if flag and mode is None:
            known = ", ".join(MODES)
            ctx.ui.notify(f"--mode={flag}: there is no such mode; there are {known}", "error")
        wanted = mode is not None and payload.reason == "startup" and mode != self._workflow.recorded(ctx.tree)
        if wanted and mode is not None and ctx.tree.read_only is None:
            self._workflow.set_mode(ctx, mode)
        self._workflow.refresh(ctx)
        self._collect(ctx)

    async def moved(self, payload: Moved, ctx: ExtensionContext) -> None:
        self._workflow.refresh(ctx)

    async def ending(self, payload: SessionEnding, ctx: ExtensionContext) -> None:
        self._stop.set()
        if self._search is not None:
            await self._search

    async def turn_ended(self, payload: TurnFinished, ctx: ExtensionContext) -> None:
        self._workflow.refresh(ctx)

    async def settled(self, payload: Settled, ctx: ExtensionContext) -> None:
        if self._workflow.save_wanted:
            self._workflow.save_wanted = False
            ctx.ui.notify("The model did not save the plan; `/plan save --last` takes its last answer.", "warning")

    def _collect(self, ctx: ExtensionContext) -> None:
        """Delete what nobody needs, beside the session; its end stops the search."""
        store, keep = self._workflow.store(), tuple(self._workflow.plans(ctx.tree).plans)
        now, stop = time.time(), self._stop.is_set
        if store.unused(now, keep):
            search = functools.partial(store.collect, keep=keep, now_s=now, stop=stop)
            self._search = asyncio.get_running_loop().run_in_executor(None, search)

    # ---- the gate ---------------------------------------------------------------------------------

    async def tool_call(self, payload: CallChecked, ctx: ExtensionContext) -> Block | None:
        """What a restriction cannot say: which commands may use the network, and who may widen Design's surface."""
        mode = self._workflow.here(ctx).mode(ctx)
        if mode in ("off", "build"):
            return None
        if payload.call.name == SHELL_TOOL:
            command = payload.arguments.get("command")
            return await self._command(command, ctx) if isinstance(command, str) else None
        if mode == "design" and payload.call.name not in READING_TOOLS:
            return await self._manifest(payload, ctx)
        return None

    async def _command(self, command: str, ctx: ExtensionContext) -> Block | None:
        from branchwork.policy.shell import judge

        mode = self._workflow.mode(ctx)
        judgement = judge(command, cwd=str(ctx.cwd), tmp=None, home=None)
        found = gates.look_at(mode, command, judgement)
        if found is None:
            return None
        if isinstance(found, gates.Publishes):
            if await ctx.ui.confirm("Publish on GitHub?", found.command):
                return None
            found = gates.Objection("It publishes on GitHub, and the person did not agree.")
        return _refused(mode, f"{SHELL_TOOL} was blocked: {found.reason}")

    async def _manifest(self, payload: CallChecked, ctx: ExtensionContext) -> Block | None:
        names = [value for value in payload.arguments.values() if isinstance(value, str) and len(value) < 4096]
        if not any("\n" not in name and "\0" not in name and gates.is_manifest(name, ctx.cwd) for name in names):
            return None
        text = "docs/design/manifest.json says which files Design mode may write. Let the model change it?"
        if await ctx.ui.confirm("Change the design manifest?", text):
            return None
        reason = f"{payload.call.name} was blocked: the manifest says what may be written, so the person must agree."
        return _refused("design", reason)

    # ---- requests of other extensions -------------------------------------------------------------

    async def save_plan(self, request: SavePlan) -> PlanView:
        ctx = self._workflow.ctx
        saved = self._workflow.save(ctx.tree, request.text)
        self._workflow.refresh(ctx)
        return self._workflow.view(saved.plan, request.text)

    async def tick_task(self, request: TickTask) -> Ticked:
        ctx = self._workflow.ctx
        ticked = self._workflow.tick(ctx.tree, request.task_id, request.plan_id)
        self._workflow.refresh(ctx)
        return ticked

    async def current_plan(self, request: CurrentPlan) -> PlanView | None:
        active = self._workflow.active(self._workflow.ctx.tree)
        return self._workflow.view(active.pointer, active.body) if active else None

    async def current_mode(self, request: CurrentMode) -> str:
        return self._workflow.mode(self._workflow.ctx)


def _refused(mode: Mode, fact: str) -> Block:
    label = MODES[mode].label
    return Block(reason=f"{fact} {label} mode was active; the latest `{MARK}` line says which one is.")
