"""What other extensions may ask of the workflow modes, and what they are told."""

from msgspec import Struct

from branchwork.extensions.modes.state import Mode
from branchwork.extensions.modes.tasks import Task
from branchwork.host.bus import Note, Request


class PlanView(Struct, frozen=True, kw_only=True):
    """A plan of the branch with its progress."""

    id: str
    path: str
    saved_at: str
    """ISO 8601, UTC."""
    tasks: tuple[Task, ...]
    done: tuple[str, ...]
    """Ids of ticked tasks, in the plan's order."""
    next_task: Task | None
    body: str | None = None
    """None when the text cannot be read."""


class Ticked(Struct, frozen=True, kw_only=True):
    plan: PlanView
    task: Task
    already: bool
    """Whether it was ticked before; then nothing was recorded."""


class SavePlan(Request[PlanView], frozen=True):
    """Keep a text as a plan and make it the active one. Fails for blank and for too long texts."""

    text: str


class TickTask(Request[Ticked], frozen=True):
    """Mark a task of the active plan as done. `plan_id`, when given, must be that of the active plan."""

    task_id: str
    plan_id: str | None = None


class CurrentPlan(Request[PlanView | None], frozen=True):
    """The active plan of the branch."""


class CurrentMode(Request[str], frozen=True):
    """The mode in force, one of `branchwork.extensions.modes.state.MODES`."""


class WorkflowChanged(Note, frozen=True, kw_only=True):
    """The mode, the style, or the plan and its progress are not what they were."""

    mode: Mode
    terse: bool
    plan_id: str | None
    done: int
    total: int
