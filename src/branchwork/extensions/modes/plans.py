"""What the mode and the plans of a branch are, and every way to change them; commands, tools and requests come here."""

import contextlib
from pathlib import Path

from msgspec import Struct

from branchwork.clock import SystemClock, iso
from branchwork.errors import UserError
from branchwork.extensions.modes import gates
from branchwork.extensions.modes.prompts import ActivePlan, compose, transition
from branchwork.extensions.modes.requests import PlanView, Ticked, WorkflowChanged
from branchwork.extensions.modes.state import (
    MODES,
    TRANSITION_TYPE,
    Mode,
    ModeSet,
    PlanChange,
    PlanPointer,
    PlanState,
    States,
    StyleSet,
    mode_named,
)
from branchwork.extensions.modes.store import PlanStore, PlanUnavailable
from branchwork.extensions.modes.tasks import Task, parse_tasks
from branchwork.host.context import ExtensionContext
from branchwork.policy.posture import Restriction
from branchwork.session.handle import Tree

MAX_TASK_ID = 128
STATUS = "workflow"


class Saved(Struct, frozen=True, kw_only=True):
    plan: PlanPointer
    new: bool
    """False: the very same text is the active plan already; its progress stays."""


class Workflow:
    """One loading of the extension. The context that it was last given serves calls that come without one."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._ctx: ExtensionContext | None = None
        self._told: WorkflowChanged | None = None
        self._warned: set[str] = set()
        self.save_wanted = False
        """`/plan save` asked the model for the plan, and it did not save it yet."""

    # ---- where we are -----------------------------------------------------------------------------

    def here(self, ctx: ExtensionContext) -> "Workflow":
        """Remember the context; the extension lives no longer than the session it is for."""
        self._ctx = ctx
        return self

    @property
    def ctx(self) -> ExtensionContext:
        """Raises UserError before the session has started."""
        if self._ctx is None:
            raise UserError("the session has not started yet")
        return self._ctx

    def store(self) -> PlanStore:
        return PlanStore(self.ctx.home, [Path.home() / ".pi" / "agent" / "plans"])

    # ---- mode and style ---------------------------------------------------------------------------

    def mode(self, ctx: ExtensionContext) -> Mode:
        """What the branch says, else `--mode`, else off."""
        return self._states.mode.read(ctx.tree) or mode_named(self.flag(ctx)) or "off"

    def recorded(self, tree: Tree) -> Mode | None:
        """What the branch says; None when it says nothing."""
        return self._states.mode.read(tree)

    def flag(self, ctx: ExtensionContext) -> str:
        """The value of `--mode`; empty without one."""
        value = ctx.flag("mode")
        return value if isinstance(value, str) else ""

    def unknown_flag(self, ctx: ExtensionContext) -> str | None:
        """The value of `--mode` when it names no mode and the branch does not say another."""
        value = self.flag(ctx)
        wrong = value and mode_named(value) is None and self._states.mode.read(ctx.tree) is None
        return value if wrong else None

    def set_mode(self, ctx: ExtensionContext, mode: Mode) -> None:
        """Record the mode; leaving an active one is said to the model, once. In force from the next call on.

        Raises what recording raises; the mode is then what it was.
        """
        before = self.mode(ctx)
        self._states.mode.record(ctx.tree, ModeSet(mode=mode, at=_now()))
        if mode == "off" and before != "off":
            try:
                ctx.tree.say(TRANSITION_TYPE, transition(mode), display=False)
            except UserError:
                self._states.mode.record(ctx.tree, ModeSet(mode=before, at=_now()))
                raise
        self.refresh(ctx)

    def terse(self, tree: Tree) -> bool:
        return self._states.terse.read(tree)

    def set_terse(self, ctx: ExtensionContext, terse: bool) -> None:
        self._states.terse.record(ctx.tree, StyleSet(enabled=terse, at=_now()))
        self.refresh(ctx)

    def restriction(self, ctx: ExtensionContext) -> Restriction | None:
        wrong = self.here(ctx).unknown_flag(ctx)
        return gates.unknown_mode(wrong) if wrong is not None else gates.restriction(self.mode(ctx), ctx.cwd)

    def prompt(self, ctx: ExtensionContext) -> str | None:
        """The text for the next request."""
        mode = self.here(ctx).mode(ctx)
        if mode == "off":
            return None
        design = Path(ctx.cwd, *gates.MANIFEST).is_file()
        return compose(mode, terse=self.terse(ctx.tree), plan=self.active(ctx.tree), design_system=design)

    # ---- plans ------------------------------------------------------------------------------------

    def plans(self, tree: Tree) -> PlanState:
        return self._states.plans.read(tree)

    def active(self, tree: Tree) -> ActivePlan | None:
        """The active plan with its text; a text that cannot be read is reported once."""
        pointer = self.plans(tree).active
        if pointer is None:
            return None
        body: str | None = None
        try:
            body = self.store().read(pointer.id, pointer.path)
            self._warned.discard(pointer.id)
        except PlanUnavailable as problem:
            if pointer.id not in self._warned:
                self._warned.add(pointer.id)
                self.ctx.ui.notify(str(problem), "warning")
        return ActivePlan(pointer=pointer, tasks=pointer.tasks, body=body)

    def save(self, tree: Tree, text: str) -> Saved:
        """Keep `text` as a plan, with the tasks of its Section 4, and make it the active one. Raises `UserError`."""
        if tree.read_only is not None:
            raise UserError(tree.read_only)
        store = self.store()
        stored = store.save(text, pinned=not _collected(tree, store))
        state = self.plans(tree)
        present = state.plans.get(stored.id)
        if present is not None and state.active is present:
            return Saved(plan=present, new=False)
        if present is None:
            self._record_set(tree, stored.id, str(stored.path), iso(_now()), parse_tasks(text))
        self._record(tree, "activate", stored.id)
        return Saved(plan=self.plans(tree).plans[stored.id], new=True)

    def select(self, tree: Tree, plan_id: str) -> PlanPointer:
        """Make a plan of the branch the active one. Raises `UserError`."""
        found = self.plans(tree).plans.get(plan_id)
        if found is None:
            raise UserError(f"no plan {plan_id!r} on this branch; /plan list shows them")
        self._record(tree, "activate", plan_id)
        return found

    def clear(self, tree: Tree, plan_id: str) -> None:
        """Take a plan off the branch; its text stays."""
        self._record(tree, "clear", plan_id)

    def tick(self, tree: Tree, task_id: str, plan_id: str | None = None) -> Ticked:
        """Mark a task of the active plan as done; a second time nothing is recorded. Raises `UserError`."""
        wanted = task_id.strip()
        if not wanted or len(task_id) > MAX_TASK_ID:
            raise UserError(f"a task id has 1 to {MAX_TASK_ID} characters")
        plan = self.plans(tree).active
        if plan is None:
            raise UserError("there is no active plan")
        if plan_id is not None and plan_id != plan.id:
            raise UserError(f"the active plan is {plan.id}, not {plan_id}")
        if not plan.seeded:
            plan = self._seed(tree, plan)
        task = next((task for task in plan.tasks if task.id == wanted), None)
        if task is None:
            still = [task.id for task in plan.tasks if task.id not in plan.done][:10]
            raise UserError(f"plan {plan.id} has no task {wanted!r}; open: {', '.join(still) or 'none'}")
        already = wanted in plan.done
        if not already:
            self._states.plans.record(tree, PlanChange(event="tick", plan_id=plan.id, task_id=wanted, at=_now()))
        return Ticked(plan=self.view(self.plans(tree).plans[plan.id]), task=task, already=already)

    def view(self, pointer: PlanPointer, body: str | None = None) -> PlanView:
        done = tuple(task.id for task in pointer.tasks if task.id in pointer.done)
        return PlanView(
            id=pointer.id, path=pointer.path, saved_at=pointer.saved_at, tasks=pointer.tasks, done=done,
            next_task=pointer.next_task, body=body,
        )  # fmt: skip

    def _seed(self, tree: Tree, plan: PlanPointer) -> PlanPointer:
        """Give a plan that another program saved without tasks those of its text."""
        tasks = parse_tasks(self.store().read(plan.id, plan.path))
        self._record_set(tree, plan.id, plan.path, plan.saved_at, tasks)
        self._record(tree, "activate", plan.id)
        return self.plans(tree).plans[plan.id]

    def _record_set(self, tree: Tree, plan_id: str, path: str, saved_at: str, tasks: tuple[Task, ...]) -> None:
        rows = [{"id": task.id, "title": task.title, "metadata": task.metadata} for task in tasks]
        change = PlanChange(event="set", plan_id=plan_id, path=path, saved_at=saved_at, tasks=rows, at=_now())
        self._states.plans.record(tree, change)

    def _record(self, tree: Tree, event: str, plan_id: str) -> None:
        self._states.plans.record(tree, PlanChange(event=event, plan_id=plan_id, at=_now()))

    # ---- showing ----------------------------------------------------------------------------------

    def refresh(self, ctx: ExtensionContext) -> None:
        """Bring the status line up to date, and tell other extensions when something is different."""
        self.here(ctx)
        mode, terse, plan = self.mode(ctx), self.terse(ctx.tree), self.plans(ctx.tree).active
        done, total = plan.progress if plan else (0, 0)
        now = WorkflowChanged(mode=mode, terse=terse, plan_id=plan.id if plan else None, done=done, total=total)
        ctx.ui.status(STATUS, status_text(now))
        if now != self._told:
            self._told = now
            ctx.bus.publish(now)


def status_text(now: WorkflowChanged) -> str:
    plan = f"{now.plan_id} {now.done}/{now.total}" if now.plan_id else "none"
    style = "terse" if now.terse else "normal"
    inactive = " (inactive)" if now.mode == "off" else ""
    return f"Mode: {MODES[now.mode].label} · Plan: {plan} · Style: {style}{inactive}"


def _collected(tree: Tree, store: PlanStore) -> bool:
    """Whether a collection of texts will look at this session."""
    if tree.path is None:
        return True
    with contextlib.suppress(OSError):
        return tree.path.resolve().is_relative_to(store.sessions.resolve())
    return False


def _now() -> int:
    return SystemClock().now_ms()
