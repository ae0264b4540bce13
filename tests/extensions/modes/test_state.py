"""The state of a branch is the fold of its entries, whichever program wrote them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.extensions.modes.state import (
    MODE_TYPE,
    MODES,
    PLAN_TYPE,
    STYLE_TYPE,
    PlanChange,
    PlanPointer,
    PlanState,
    mode_named,
    plan_step,
    states_of,
)
from branchwork.host.bus import Bus
from branchwork.host.extension import ExtensionAPI, Services
from branchwork.host.hooks import Hooks
from branchwork.host.registry import Registry
from branchwork.host.settings import Settings
from branchwork.session.handle import Tree
from branchwork.testing.harness import memory_tree

TASKS = [{"id": f"t{number}", "title": f"Task {number}", "metadata": {}} for number in range(3)]


class Kit:
    """The states on a session in memory, and what they complained of."""

    def __init__(self) -> None:
        self.told: list[str] = []
        services = Services(
            registry=Registry(),
            hooks=Hooks(lambda failure: None, lambda owner: None),
            bus=Bus(lambda owner, text: None),
            settings=Settings(),
            report=lambda owner, text: self.told.append(text),
        )
        self.states = states_of(ExtensionAPI("modes", services))
        self.tree: Tree = memory_tree()

    def plan(self, event: str, plan_id: str, **data: Any) -> PlanState:
        if event == "set":
            data = {"path": f"/p/{plan_id}.md", "savedAt": "2026-01-02T03:04:05.000Z", "tasks": TASKS, **data}
        self.tree.record(PLAN_TYPE, {"event": event, "planId": plan_id, "at": 1, **data})
        return self.states.plans.read(self.tree)

    def active(self) -> PlanPointer:
        found = self.states.plans.read(self.tree).active
        assert found is not None
        return found


@pytest.fixture
def kit() -> Kit:
    return Kit()


# ---- mode and style -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mode"),
    [("plan", "plan"), (" Planning ", "plan"), ("NONE", "off"), ("discussion", "discuss"), ("designing", "design"),
     ("reviewing", "review"), ("building", "build"), ("bogus", None), ("", None)],
)  # fmt: skip
def test_modes_have_names_and_aliases(text: str, mode: str | None) -> None:
    assert mode_named(text) == mode


def test_the_modes_are_six_and_described() -> None:
    assert list(MODES) == ["off", "discuss", "plan", "build", "review", "design"]
    assert all(info.description for info in MODES.values())


def test_the_last_known_mode_wins(kit: Kit) -> None:
    assert kit.states.mode.read(kit.tree) is None
    for mode in ("build", "bogus", "design", "alien"):
        kit.tree.record(MODE_TYPE, {"mode": mode, "at": 1_700_000_000_000})
    assert kit.states.mode.read(kit.tree) == "design"


def test_entries_that_make_no_sense_are_skipped(kit: Kit) -> None:
    kit.tree.record(MODE_TYPE, {"mode": "Planning"})
    for data in (None, 3, "plan", {}, {"mode": 7}, {"mode": None}, ["plan"]):
        kit.tree.record(MODE_TYPE, data)
        kit.tree.record(STYLE_TYPE, data)
        kit.tree.record(PLAN_TYPE, data)
    assert kit.states.mode.read(kit.tree) == "plan"
    assert kit.states.terse.read(kit.tree) is True
    assert kit.states.plans.read(kit.tree) == PlanState()
    assert kit.told


def test_the_style_is_terse_until_an_entry_says_otherwise(kit: Kit) -> None:
    assert kit.states.terse.read(kit.tree) is True
    kit.tree.record(STYLE_TYPE, {"enabled": False})
    kit.tree.record(STYLE_TYPE, {"enabled": "on"})
    assert kit.states.terse.read(kit.tree) is False


# ---- plans ----------------------------------------------------------------------------------------


def test_the_plan_chosen_last_is_active_and_clearing_falls_back(kit: Kit) -> None:
    kit.plan("set", "A")
    kit.plan("set", "B")
    assert kit.active().id == "B"
    kit.plan("activate", "A")
    assert kit.active().id == "A"
    kit.plan("clear", "A")
    assert kit.active().id == "B"
    kit.plan("activate", "A")
    assert kit.active().id == "B"
    assert kit.plan("clear", "B").active is None


def test_a_choice_outranks_a_plan_that_is_saved_later(kit: Kit) -> None:
    kit.plan("set", "A")
    kit.plan("activate", "A")
    kit.plan("set", "B")
    assert kit.active().id == "A"


def test_saving_an_id_anew_ends_its_earlier_choice_and_its_ticks(kit: Kit) -> None:
    kit.plan("set", "A")
    kit.plan("activate", "A")
    kit.plan("tick", "A", taskId="t0")
    assert kit.active().progress == (1, 3)
    kit.plan("set", "A")
    assert kit.active().progress == (0, 3)
    kit.plan("set", "B")
    assert kit.active().id == "B"


def test_a_set_without_tasks_leaves_those_that_were_there(kit: Kit) -> None:
    kit.plan("set", "A")
    kit.plan("tick", "A", taskId="t0")
    kit.plan("set", "A", tasks=None)
    assert kit.active().progress == (1, 3)
    assert kit.plan("set", "C", tasks=None).plans["C"].seeded is False


def test_ticks_count_once_and_only_for_known_tasks(kit: Kit) -> None:
    kit.plan("set", "A")
    for task in ("t1", "t1", "nope", None, 4):
        kit.plan("tick", "A", taskId=task)
    kit.plan("tick", "B", taskId="t0")
    plan = kit.active()
    assert plan.progress == (1, 3)
    assert plan.next_task is not None
    assert plan.next_task.id == "t0"


@pytest.mark.parametrize(
    "data",
    [{"path": ""}, {"path": 4}, {"savedAt": "someday"}, {"savedAt": None}, {"savedAt": True}, {"savedAt": 1e300}],
)
def test_a_set_without_place_or_time_is_ignored(kit: Kit, data: dict[str, Any]) -> None:
    assert kit.plan("set", "A", **data) == PlanState()


def test_a_time_may_be_a_number_and_is_kept_as_iso(kit: Kit) -> None:
    assert kit.plan("set", "A", savedAt=0).plans["A"].saved_at == "1970-01-01T00:00:00.000Z"
    assert kit.plan("set", "A", savedAt="2026-01-02T03:04:05+01:00").plans["A"].saved_at == "2026-01-02T02:04:05.000Z"


def test_tasks_that_are_none_are_dropped(kit: Kit) -> None:
    odd: list[Any] = [None, 3, {}, {"id": " ", "title": "x", "metadata": {}}, {"id": "a", "title": "x"}, TASKS[0]]
    assert [task.id for task in kit.plan("set", "A", tasks=odd).plans["A"].tasks] == ["t0"]


def test_a_branch_from_before_a_tick_does_not_have_it(kit: Kit) -> None:
    kit.plan("set", "A")
    before = kit.tree.leaf_id
    kit.plan("tick", "A", taskId="t0")
    old = kit.states.plans.read(kit.tree, before).active
    assert old is not None
    assert old.progress == (0, 3)
    assert kit.active().progress == (1, 3)


def test_what_is_recorded_is_what_the_npm_package_writes(kit: Kit) -> None:
    change = PlanChange(event="tick", plan_id="A", task_id="t0", at=5)
    kit.states.plans.record(kit.tree, change)
    assert kit.tree.leaf_id is not None
    entry: Any = kit.tree.entry(kit.tree.leaf_id)
    assert entry.custom_type == "workflow-plan"
    assert entry.data == {"event": "tick", "planId": "A", "taskId": "t0", "at": 5}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["set", "activate", "clear", "tick", "other"]),
        st.sampled_from("AB"),
        st.sampled_from(["t0", "t1", "x"]),
    ),
    max_size=30,
)


def model(events: list[tuple[str, str, str]]) -> tuple[str | None, dict[str, set[str]]]:
    """The rules told plainly: histories with generations, the latest that is still current counts."""
    generation: dict[str, int] = {}
    done: dict[str, set[str]] = {}
    sets: list[tuple[str, int]] = []
    chosen: list[tuple[str, int]] = []
    for event, plan, task in events:
        if event == "set":
            generation[plan] = generation.get(plan, 0) + 1
            done[plan] = set()
            sets.append((plan, generation[plan]))
        elif event == "activate" and plan in done:
            chosen.append((plan, generation[plan]))
        elif event == "clear" and plan in done:
            del done[plan]
        elif event == "tick" and plan in done and task != "x":
            done[plan].add(task)
    for history in (chosen, sets):
        for plan, number in reversed(history):
            if plan in done and generation[plan] == number:
                return plan, done
    return None, done


@given(EVENTS)
def test_the_fold_follows_the_rules_of_generations(events: list[tuple[str, str, str]]) -> None:
    state = PlanState()
    for event, plan, task in events:
        before = repr(state)
        change = PlanChange(event=event, plan_id=plan, path="/p", saved_at=1, tasks=TASKS, task_id=task)
        after = plan_step(state, change)
        assert repr(state) == before
        state = after
    active, done = model(events)
    assert (state.active.id if state.active else None) == active
    assert {plan: set(pointer.done) for plan, pointer in state.plans.items()} == done


def test_ten_thousand_entries_are_read_in_linear_time(kit: Kit) -> None:
    rows = [{"id": f"t{number}", "title": "x", "metadata": {}} for number in range(1000)]
    kit.plan("set", "A", tasks=rows)
    for number in range(3000):
        kit.tree.record(PLAN_TYPE, {"event": "tick", "planId": "A", "taskId": f"t{number % 1000}"})
    before = kit.states.plans.visited
    assert kit.states.plans.read(kit.tree).plans["A"].progress == (1000, 1000)
    assert kit.states.plans.visited - before <= 3001
