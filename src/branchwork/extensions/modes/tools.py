"""The tools of plans: keep one, and tick its tasks."""

from collections.abc import Callable
from typing import Annotated, TypeVar

from msgspec import Meta

from branchwork.agent.toolset import Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.errors import UserError
from branchwork.extensions.modes.plans import MAX_TASK_ID, Workflow
from branchwork.extensions.modes.prompts import task_lines
from branchwork.extensions.modes.store import MAX_BYTES
from branchwork.host.tool_decorator import tool

T = TypeVar("T")


class SaveArgs(ToolArgs, frozen=True):
    plan: Annotated[str, Meta(min_length=1, max_length=MAX_BYTES, description="The complete text of the plan.")]


class TickArgs(ToolArgs, frozen=True, rename="camel"):
    task_id: Annotated[str, Meta(min_length=1, max_length=MAX_TASK_ID, description="The id of the task: `task-…`.")]


def plan_tools(workflow: Workflow) -> tuple[Tool, ...]:
    return (_saving(workflow), _ticking(workflow))


def _saving(workflow: Workflow) -> Tool:
    @tool(
        name="workflow_plan_save",
        effects=(),
        sequential=True,
        snippet="Keep the complete plan and make it the active one",
        guidelines=(
            "Call workflow_plan_save once when you are asked to save the plan, with the plan's text only; id, place, "
            "time and task state are not yours to give.",
        ),
    )
    async def save(args: SaveArgs, ctx: ToolContext) -> ToolOutput:
        """Save the complete text of a plan. It becomes the active plan of this session's branch and never changes;
        the unticked boxes of its Section 4 become its tasks, whose ids are in the result."""
        saved = _tried(lambda: workflow.save(ctx.tree, args.plan))
        workflow.save_wanted = False
        plan = saved.plan
        count = len(plan.tasks)
        lines = [f"Saved plan {plan.id} with {count} task{'' if count == 1 else 's'}."]
        if not saved.new:
            lines = [f"This text is the active plan {plan.id} already; its progress stays."]
        if not count:
            lines.append(
                "It has no tasks: those are `- [ ] TITLE` lines at the left margin below `## Section 4 — Tasks`."
            )
        lines += task_lines(plan)
        details = {"planId": plan.id, "path": plan.path, "savedAt": plan.saved_at, "taskCount": count}
        return text_output("\n".join(lines), details=details)

    return save


def _ticking(workflow: Workflow) -> Tool:
    @tool(
        name="workflow_plan_tick",
        effects=(),
        sequential=True,
        snippet="Tick one task of the active plan",
        guidelines=("Call workflow_plan_tick for one task after it is finished and verified, and for no other.",),
    )
    async def tick(args: TickArgs, ctx: ToolContext) -> ToolOutput:
        """Mark one task of the active plan as done. Doing it again changes nothing. Names the next task."""
        ticked = _tried(lambda: workflow.tick(ctx.tree, args.task_id))
        plan, upcoming = ticked.plan, ticked.plan.next_task
        done, total = len(plan.done), len(plan.tasks)
        text = f"{ticked.task.id}: {done}/{total} tasks done{' (already ticked)' if ticked.already else ''}."
        text += f" Next: `{upcoming.id}` {upcoming.title}" if upcoming else " No task is open."
        details = {
            "planId": plan.id,
            "taskId": ticked.task.id,
            "progress": {"done": done, "total": total},
            **({"nextTask": {"id": upcoming.id, "title": upcoming.title}} if upcoming else {}),
            "idempotent": ticked.already,
        }
        return text_output(text, details=details)

    return tick


def _tried(action: Callable[[], T]) -> T:
    """What the model can put right, told to it."""
    try:
        return action()
    except UserError as error:
        raise ToolError(str(error)) from None
