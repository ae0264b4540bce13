"""What follows the branch: the mode, the style, and which plans there are, which one is active, what is ticked.

The entries are those of the workflow modes of the npm host, so that its sessions read the same here.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from branchwork.extensions.modes.tasks import MAX_TASKS, Task
from branchwork.host.branch_state import BranchState
from branchwork.host.extension import ExtensionAPI

Mode: TypeAlias = Literal["off", "discuss", "plan", "build", "review", "design"]

MODE_TYPE = "workflow-mode-set"
STYLE_TYPE = "caveman-mode-state"
PLAN_TYPE = "workflow-plan"
TRANSITION_TYPE = "workflow-mode-transition"
"""The hidden message that says once that a mode was left."""


class ModeInfo(Struct, frozen=True):
    label: str
    aliases: tuple[str, ...]
    description: str


MODES: dict[Mode, ModeInfo] = {
    "off": ModeInfo("OFF", ("none",), "No mode: nothing is added and nothing is restricted"),
    "discuss": ModeInfo("Discuss", ("discussion",), "Shape the question; read only"),
    "plan": ModeInfo("Plan", ("planning",), "Investigate and write a plan; reads, tests and builds"),
    "build": ModeInfo("Build", ("building",), "Carry out the plan, one confirmed task at a time"),
    "review": ModeInfo("Review", ("reviewing",), "Review a pull request; read only, with network for gh"),
    "design": ModeInfo("Design", ("designing",), "Work on docs/design and its token files only"),
}
assert tuple(MODES) == get_args(Mode)


def mode_named(text: str) -> Mode | None:
    """The mode that a name or an alias stands for, whatever its case."""
    wanted = text.strip().lower()
    return next((mode for mode, info in MODES.items() if wanted == mode or wanted in info.aliases), None)


# ---- mode and style -------------------------------------------------------------------------------


class ModeSet(Struct, frozen=True, omit_defaults=True):
    """Entry `workflow-mode-set`. `at` is Unix milliseconds."""

    mode: str
    at: Any = None


class StyleSet(Struct, frozen=True, omit_defaults=True):
    """Entry `caveman-mode-state`: whether answers are terse."""

    enabled: bool
    at: Any = None


def _mode_step(state: Mode | None, change: ModeSet) -> Mode | None:
    return mode_named(change.mode) or state


# ---- plans ----------------------------------------------------------------------------------------


class PlanChange(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Entry `workflow-plan`. Which fields count depends on `event`: `set`, `activate`, `clear` or `tick`."""

    event: str
    plan_id: str
    path: Any = None
    saved_at: Any = None
    """Of `set`: ISO 8601, or Unix milliseconds."""
    tasks: Any = None
    """Of `set`: objects with `id`, `title` and `metadata`."""
    task_id: Any = None
    at: Any = None


class PlanPointer(Struct, frozen=True, kw_only=True):
    """One plan of the branch. Its text is in the store."""

    id: str
    path: str
    saved_at: str
    tasks: tuple[Task, ...] = ()
    seeded: bool = False
    """Whether the branch says which tasks there are."""
    done: frozenset[str] = frozenset()

    @property
    def next_task(self) -> Task | None:
        return next((task for task in self.tasks if task.id not in self.done), None)

    @property
    def progress(self) -> tuple[int, int]:
        """Tasks done, tasks in all."""
        return len(self.done), len(self.tasks)


class PlanState(Struct, frozen=True):
    """The plans that the branch shows. Orders are from old to new."""

    plans: dict[str, PlanPointer] = {}
    saved: tuple[str, ...] = ()
    """Ids by when they were saved last."""
    activated: tuple[str, ...] = ()
    """Ids by when they were chosen last, without those saved anew since."""

    @property
    def active(self) -> PlanPointer | None:
        """The one chosen last, else the one saved last."""
        order = self.activated or self.saved
        return self.plans[order[-1]] if order else None


def plan_step(state: PlanState, change: PlanChange) -> PlanState:
    """The state after one entry; an entry that makes no sense changes nothing."""
    plan = state.plans.get(change.plan_id)
    match change.event:
        case "set":
            return _set(state, change, plan)
        case "activate" if plan is not None:
            return replace(state, activated=(*_without(state.activated, plan.id), plan.id))
        case "clear" if plan is not None:
            return PlanState(
                plans={key: value for key, value in state.plans.items() if key != plan.id},
                saved=_without(state.saved, plan.id),
                activated=_without(state.activated, plan.id),
            )
        case "tick" if plan is not None and plan.seeded and change.task_id not in plan.done:
            if all(task.id != change.task_id for task in plan.tasks):
                return state
            ticked = replace(plan, done=plan.done | {change.task_id})
            return replace(state, plans={**state.plans, plan.id: ticked})
        case _:
            return state


def _set(state: PlanState, change: PlanChange, old: PlanPointer | None) -> PlanState:
    saved_at = _time(change.saved_at)
    if not change.plan_id.strip() or not isinstance(change.path, str) or not change.path.strip() or saved_at is None:
        return state
    new = PlanPointer(id=change.plan_id, path=change.path, saved_at=saved_at)
    if isinstance(change.tasks, list):
        new = replace(new, tasks=_tasks(change.tasks), seeded=True)
    elif old is not None:
        new = replace(new, tasks=old.tasks, seeded=old.seeded, done=old.done)
    return PlanState(
        plans={**state.plans, new.id: new},
        saved=(*_without(state.saved, new.id), new.id),
        activated=_without(state.activated, new.id),
    )


def _tasks(rows: list[Any]) -> tuple[Task, ...]:
    found = []
    for row in rows[:MAX_TASKS]:
        try:
            task = msgspec.convert(row, Task)
        except msgspec.ValidationError:
            continue
        if task.id.strip() and task.title.strip() and isinstance(row.get("metadata"), dict):
            found.append(task)
    return tuple(found)


def _time(value: Any) -> str | None:
    """ISO 8601 of what a program wrote as a date; None when it is none."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return None
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        else:
            moment = datetime.fromtimestamp(value / 1000, UTC)
        return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def _without(ids: tuple[str, ...], gone: str) -> tuple[str, ...]:
    return tuple(each for each in ids if each != gone) if gone in ids else ids


# ---- all of it ------------------------------------------------------------------------------------


class States(Struct, frozen=True):
    """The three states of one loading of the extension."""

    mode: BranchState[Mode | None, ModeSet]
    """None: the branch says nothing."""
    terse: BranchState[bool, StyleSet]
    plans: BranchState[PlanState, PlanChange]


def states_of(api: ExtensionAPI) -> States:
    nothing: Mode | None = None
    step: Callable[[bool, StyleSet], bool] = lambda _, change: change.enabled  # noqa: E731 - a function of one line
    return States(
        mode=api.branch_state(nothing, ModeSet, _mode_step, name=MODE_TYPE),
        terse=api.branch_state(True, StyleSet, step, name=STYLE_TYPE),
        plans=api.branch_state(PlanState(), PlanChange, plan_step, name=PLAN_TYPE),
    )
