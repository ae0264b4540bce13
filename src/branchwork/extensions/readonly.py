"""The read-only toggle: `/readonly`, ctrl+shift+r, `--readonly`, and `readonly:` of skills and prompt templates.

It follows the branch. The entries are those of the read-only mode of the npm host, so that its sessions read the same
here. Other extensions use the `ReadOnly` request and the `ReadOnlyChanged` note.
"""

import re
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from branchwork.errors import UserError
from branchwork.host.branch_state import BranchState
from branchwork.host.bus import Note, Request
from branchwork.host.context import CommandContext, ExtensionContext
from branchwork.host.extension import ExtensionAPI
from branchwork.host.points import (
    INPUT,
    RUN_ENDED,
    RUN_STARTING,
    SESSION_MOVED,
    SESSION_STARTED,
    Handled,
    Input,
    InputContext,
    Moved,
    RunStarting,
    SessionStarted,
)
from branchwork.host.registry import Completion
from branchwork.policy.posture import Restriction
from branchwork.session.entries import AssistantMessage, Entry, MessageEntry

TOGGLE_TYPE = "agenticoding-readonly"
ISSUE_TYPE = "agenticoding-readonly-frontmatter-issue"
STATUS = "readonly"
SUGGEST_AT = 30
"""Percent of the window from which a note about the end of read-only says how full it is."""

Toggle: TypeAlias = dict[str, Any] | None
"""Entry `agenticoding-readonly`: `{"enabled": bool}`. Whatever is not exactly true switches it off."""

_INVOKED = re.compile(r"/(?:(skill):)?([^\s/]+)(?:\s|\Z)")


class ReadOnly(Request[bool], frozen=True):
    """Whether the read-only toggle is on."""


class ReadOnlyChanged(Note, frozen=True):
    enabled: bool


class _Wish(Struct, frozen=True):
    """What the frontmatter of something that the person invoked says."""

    enabled: bool
    source: str
    """As it was typed: `/skill:NAME` or `/NAME`."""


def extension(api: ExtensionAPI) -> None:
    nothing: bool | None = None
    state = api.branch_state(nothing, Toggle, _step, name=TOGGLE_TYPE)
    switch = _Switch(state)
    api.add_flag("readonly", help="Begin read-only: nothing of the project is changed")
    api.add_limit(switch.restriction)
    api.add_context(switch.nudge)
    api.add_command(
        "readonly", switch.command, description="Change nothing of the project, or allow it again",
        arguments="[on|off]", complete=_complete, while_running=True,
    )  # fmt: skip
    api.add_shortcut("ctrl+shift+r", switch.shortcut, description="Read-only on or off")
    api.observe(SESSION_STARTED, switch.started)
    api.observe(SESSION_MOVED, switch.moved)
    api.observe(RUN_ENDED, switch.run_ended)
    api.transform(RUN_STARTING, switch.run_starting)
    api.transform(INPUT, switch.input)
    api.serve(ReadOnly, switch.asked)


def _step(state: bool | None, change: Toggle) -> bool | None:
    return change is not None and change.get("enabled") is True


class _Switch:
    def __init__(self, state: BranchState[bool | None, Toggle]) -> None:
        self._state = state
        self._ctx: ExtensionContext | None = None
        self._shown = False
        """What was in force when the status was shown last."""
        self._untold = False
        """The model has to be told of the present state with its next request."""
        self._told_at: str | UnsetType | None = UNSET
        """The leaf when it was told (None: before the first entry), as long as no reply to that is known."""
        self._running = False
        self._wishes: list[_Wish] = []
        """Wishes to allow changes again that wait for the next run."""

    # ---- what is in force -------------------------------------------------------------------------

    def enabled(self, ctx: ExtensionContext) -> bool:
        """What the branch says, else `--readonly`."""
        self._ctx = ctx
        recorded = self._state.read(ctx.tree)
        return ctx.flag("readonly") is True if recorded is None else recorded

    def restriction(self, ctx: ExtensionContext) -> Restriction | None:
        if not self.enabled(ctx):
            return None
        return Restriction(
            contributor="Readonly mode",
            reason=(
                "Readonly mode: nothing of the project may be changed. Do not try another way of writing; go on "
                "reading, or say what you would change. The person ends it."
            ),
            write=(),
            shell="read-only",
            delegate="readers",
        )

    def set(self, ctx: ExtensionContext, enabled: bool) -> None:
        """Record it. In force from the next call on; the model is told with its next request."""
        self._state.record(ctx.tree, {"enabled": enabled})
        self._untold = True
        self._show(ctx)

    def _show(self, ctx: ExtensionContext) -> None:
        enabled = self.enabled(ctx)
        ctx.ui.status(STATUS, "🔒 readonly" if enabled else None)
        if enabled != self._shown:
            self._shown = enabled
            ctx.bus.publish(ReadOnlyChanged(enabled))

    # ---- what the model is told -------------------------------------------------------------------

    def nudge(self, ctx: ExtensionContext) -> str | None:
        """Said until a reply to it was stored, so that a request that fails does not lose it."""
        if self._untold:
            self._untold, self._told_at = False, ctx.tree.leaf_id
        elif self._told_at is UNSET or self._answered(ctx):
            self._told_at = UNSET
            return None
        return nudge_text(self.enabled(ctx), _percent(ctx), can_hand_off="handoff" in ctx.tools)

    def _answered(self, ctx: ExtensionContext) -> bool:
        for node in ctx.tree.branch().upwards():
            if node.id == self._told_at:
                return False
            if node.role == "assistant" and _stays(ctx.tree.entry(node.id)):
                return True
        return False

    # ---- commands and keys ------------------------------------------------------------------------

    async def command(self, arguments: str, ctx: CommandContext) -> str | None:
        word = arguments.strip().lower()
        now = self.enabled(ctx)
        if word not in ("", "on", "off"):
            raise UserError(f"/readonly takes on or off, not {word!r}", exit_code=2)
        if not word and not ctx.ui.attended:
            return f"Read-only is {'on' if now else 'off'}; `/readonly on` or `/readonly off` changes it."
        wanted = word == "on" if word else not now
        if wanted != now:
            self.set(ctx, wanted)
        return _said(wanted)

    async def shortcut(self, ctx: ExtensionContext) -> None:
        if not ctx.ui.attended:
            return
        if self._running:
            ctx.ui.notify("The key works between runs; /readonly works at any time.", "warning")
            return
        wanted = not self.enabled(ctx)
        self.set(ctx, wanted)
        ctx.ui.notify(_said(wanted))

    # ---- the session ------------------------------------------------------------------------------

    async def started(self, payload: SessionStarted, ctx: ExtensionContext) -> None:
        if self.enabled(ctx):
            self._untold = True
        elif ctx.flag("readonly") is True and payload.reason == "startup":
            ctx.ui.notify("--readonly has no effect: this branch says off; `/readonly on` switches it on.", "warning")
        self._show(ctx)

    async def moved(self, payload: Moved, ctx: ExtensionContext) -> None:
        self._untold, self._told_at = self.enabled(ctx) != self._shown, UNSET
        self._show(ctx)

    async def run_starting(self, payload: RunStarting, value: Any, ctx: ExtensionContext) -> None:
        self._running = True
        if self._wishes:
            self._follow(self._wishes.pop(0), ctx)

    async def run_ended(self, payload: Any, ctx: ExtensionContext) -> None:
        self._running = False

    async def asked(self, request: ReadOnly) -> bool:
        if self._ctx is None:
            raise UserError("the session has not started yet")
        return self.enabled(self._ctx)

    # ---- frontmatter ------------------------------------------------------------------------------

    async def input(self, payload: InputContext, value: Input | Handled, ctx: ExtensionContext) -> None:
        """A skill or template that says `readonly: true` narrows at once. `readonly: false` counts for a person
        only, and waits for the end of a run."""
        wish = self._wish(value.text, ctx) if isinstance(value, Input) and payload.source != "extension" else None
        if wish is None or (not wish.enabled and not ctx.ui.attended):
            return
        if payload.running and not wish.enabled:
            self._wishes.append(wish)
        else:
            self._follow(wish, ctx)

    def _follow(self, wish: _Wish, ctx: ExtensionContext) -> None:
        if wish.enabled != self.enabled(ctx):
            self.set(ctx, wish.enabled)
            ctx.ui.notify(f"{_said(wish.enabled)} {wish.source} asks for it.")

    def _wish(self, text: str, ctx: ExtensionContext) -> _Wish | None:
        match = _INVOKED.match(text.strip())
        if match is None:
            return None
        kind: Literal["skill", "command"] = "skill" if match.group(1) else "command"
        name = match.group(2)
        found = ctx.resources.skill(name) if kind == "skill" else ctx.resources.template(name)
        if found is None or "readonly" not in found.metadata:
            return None
        source = f"/skill:{name}" if kind == "skill" else f"/{name}"
        enabled = found.metadata["readonly"]
        if isinstance(enabled, bool):
            return _Wish(enabled, source)
        self._complain(ctx, kind, name, found.path)
        ctx.ui.notify(f"{source}: `readonly` in {found.path} should be true or false; it is ignored.", "warning")
        return None

    def _complain(self, ctx: ExtensionContext, kind: str, name: str, path: Path) -> None:
        issue = {"kind": "invalid-readonly-value", "filePath": str(path)}
        ctx.tree.record(ISSUE_TYPE, {"name": name, "type": kind, "issue": issue})


def _stays(entry: Entry) -> bool:
    """Whether a reply is part of later requests; one that failed or was aborted is not."""
    message = entry.message if isinstance(entry, MessageEntry) else None
    return isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted")


def nudge_text(enabled: bool, percent: int | None, *, can_hand_off: bool) -> str:
    """What the model is told once after a change. `percent` is how full the window is."""
    if enabled:
        return (
            "[readonly] Readonly mode is on: reading, searching and commands that only read; the tools that write, and "
            "commands that change the project, are refused. Do not look for another way of writing."
        )
    text = "[readonly] Readonly mode is off: the project may be changed again, within what was asked for."
    if percent is not None and percent >= SUGGEST_AT:
        text += f" Context at {percent}%."
        if can_hand_off:
            text += " If research is over and other work begins, a handoff first gives it a fresh context."
    return text


def _percent(ctx: ExtensionContext) -> int | None:
    window = ctx.model.context_window
    return int(ctx.size.tokens * 100 / window + 0.5) if window > 0 else None


def _said(enabled: bool) -> str:
    return "Read-only: nothing of the project is changed." if enabled else "Read-only is off: changes are possible."


def _complete(prefix: str, ctx: ExtensionContext) -> list[Completion]:
    about = {"on": "Change nothing of the project", "off": "Allow changes again"}
    return [Completion(word, text) for word, text in about.items() if word.startswith(prefix.strip().lower())]
