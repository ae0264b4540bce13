"""What an extension may ask of and show to a person, whatever the front end: plain data on both sides.

`UI` is what extensions call. `Screen` is what a front end implements; between the two is the one queue of
`branchwork.host.dialogs`. Without a person there is `branchwork.host.headless_ui`.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, assert_never

from msgspec import Struct

Level: TypeAlias = Literal["info", "warning", "error"]
Placement: TypeAlias = Literal["above", "below"]
"""Where a widget stands in relation to the editor."""
Style: TypeAlias = Literal["plain", "strong", "dim", "accent", "good", "warning", "bad", "code"]
"""What a piece of text means; each front end has its own look for it, and may have none."""


# ---- widgets --------------------------------------------------------------------------------------


class Span(Struct, frozen=True):
    """Text without line breaks."""

    text: str
    style: Style = "plain"


class Lines(Struct, frozen=True, tag="lines", tag_field="kind"):
    lines: tuple[tuple[Span, ...], ...]


class Table(Struct, frozen=True, tag="table", tag_field="kind"):
    """Cells without line breaks. A row may be shorter than the header, and not longer."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) > len(self.header) for row in self.rows):
            raise ValueError(f"a row of the table has more cells than its header {self.header!r}")


class Progress(Struct, frozen=True, tag="progress", tag_field="kind"):
    """`done` of `total` units; without `total` nobody knows how long it takes."""

    label: str
    done: int = 0
    total: int | None = None


Widget: TypeAlias = Lines | Table | Progress
"""Closed: every front end can draw all of them."""


def lines(text: str, style: Style = "plain") -> Lines:
    """A widget of text in one style, one line for each of its lines."""
    return Lines(tuple((Span(line, style),) for line in text.splitlines()))


def plain_text(widget: Widget) -> tuple[str, ...]:
    """A widget as lines of text, for front ends without colours and boxes."""
    match widget:
        case Lines():
            return tuple("".join(span.text for span in line) for line in widget.lines)
        case Table():
            return _columns((widget.header, *widget.rows))
        case Progress(label=label, done=done, total=total):
            return (f"{label} {done}" if total is None else f"{label} {done}/{total}",)
        case _:
            assert_never(widget)


def _columns(rows: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    count = len(rows[0])
    widths = [max(len(row[column]) if column < len(row) else 0 for row in rows) for column in range(count)]
    return tuple("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


# ---- dialogs --------------------------------------------------------------------------------------


class Option(Struct, frozen=True):
    """One of the answers to choose from."""

    value: str
    """What `select` returns; different for each option of a dialog."""
    label: str = ""
    """What is shown; the value when empty."""
    description: str = ""


class _Dialog(Struct, frozen=True, kw_only=True, tag_field="kind"):
    asker: str
    """The extension that asks. The front end shows it apart from the title, which the extension chose."""
    title: str
    timeout: float | None = None
    """Seconds from asking until the default is taken; None waits for the person."""

    def __post_init__(self) -> None:
        if self.timeout is not None and self.timeout < 0:
            raise ValueError(f"a dialog cannot time out after {self.timeout!r} seconds")


class Confirm(_Dialog, frozen=True, kw_only=True, tag="confirm"):
    """Yes or no."""

    message: str
    default: bool = False
    """What is selected at first, and the answer when time is up."""


class Select(_Dialog, frozen=True, kw_only=True, tag="select"):
    """One of several options."""

    options: tuple[Option, ...]
    default: str | None = None
    """What is selected at first, and the answer when time is up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        values = [option.value for option in self.options]
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{self.title!r} needs options with different values, not {values!r}")
        if self.default is not None and self.default not in values:
            raise ValueError(f"the default {self.default!r} of {self.title!r} is none of its options {values!r}")


class Input(_Dialog, frozen=True, kw_only=True, tag="input"):
    """One line of text."""

    placeholder: str = ""
    """Shown while nothing was typed; never an answer."""
    initial: str = ""
    secret: bool = False
    """Do not show, log or store what is typed."""


class Editor(_Dialog, frozen=True, kw_only=True, tag="editor"):
    """Several lines of text."""

    text: str = ""


Dialog: TypeAlias = Confirm | Select | Input | Editor
Answer: TypeAlias = bool | str | None
"""A bool for `Confirm`, a string for the others; None when the person closed the dialog without answering."""


def unanswered(dialog: Dialog) -> Answer:
    """What a closed dialog, or one that nobody can see, counts as: no, or nothing. Never yes."""
    return False if isinstance(dialog, Confirm) else None


def timed_out(dialog: Dialog) -> Answer:
    """What a dialog counts as when its time is up."""
    match dialog:
        case Confirm(default=default):
            return default
        case Select(default=chosen):
            return chosen
        case Input() | Editor():
            return None
        case _:
            assert_never(dialog)


# ---- the two sides --------------------------------------------------------------------------------


class UI(Protocol):
    """The person, as one extension sees them. Works in every front end; where nobody is there, the answers
    are no and nothing (see each method), at once.

    Dialogs of all extensions are shown one after the other, in the order in which they were asked. Cancelling
    the call closes its dialog. `timeout` counts seconds from asking, also while another dialog is shown.
    """

    @property
    def attended(self) -> bool:
        """Whether there may be a person. For choosing what to offer; no dialog needs this check before it."""
        ...

    async def confirm(self, title: str, message: str, *, default: bool = False, timeout: float | None = None) -> bool:
        """True only if a person said yes, or did not answer in time while `default` was True.

        False when they said no or closed the dialog, and always when nobody is there, whatever `default` is.
        """
        ...

    async def select(
        self, title: str, options: Sequence[Option], *, default: str | None = None, timeout: float | None = None
    ) -> str | None:
        """The `value` of the chosen option; `default` when time is up; None when closed or nobody is there.

        Raises ValueError when there are no options, two have one value, or `default` is none of them.
        """
        ...

    async def input(
        self,
        title: str,
        placeholder: str = "",
        initial: str = "",
        secret: bool = False,
        *,
        timeout: float | None = None,
    ) -> str | None:
        """One line of text, possibly empty; None when closed, when time is up, or when nobody is there.

        What is typed into a `secret` one is neither shown nor kept.
        """
        ...

    async def editor(self, title: str, text: str = "", *, timeout: float | None = None) -> str | None:
        """`text` as the person changed it; None when closed, when time is up, or when nobody is there."""
        ...

    def notify(self, text: str, level: Level = "info") -> None:
        """Tell the person something that needs no answer. Without a person it becomes a diagnostic."""
        ...

    def status(self, key: str, text: str | None) -> None:
        """Show one short line under `key` until it is replaced, or removed with None.

        Keys belong to the extension: those of others are never touched.
        """
        ...

    def widget(self, key: str, widget: Widget | None, placement: Placement = "above") -> None:
        """Show a widget under `key` until it is replaced, or removed with None. Keys are as for `status`."""
        ...


class Screen(Protocol):
    """What a front end implements. `asker` is the extension that each thing belongs to.

    Only `show` may wait. `branchwork.testing.ui_contract` checks implementations.
    """

    @property
    def attended(self) -> bool:
        """Whether there may be a person. Without one `show` is not called: all dialogs count as closed."""
        ...

    async def show(self, dialog: Dialog, remaining: float | None) -> Answer:
        """Show one dialog until it is answered or closed. Called for one dialog at a time.

        `remaining` is the number of seconds until the dialog is taken away, for a countdown; None for ever.
        Being cancelled means: take it away. `unanswered(dialog)` is the answer of a person who closed it.
        """
        ...

    def notify(self, asker: str, text: str, level: Level) -> None: ...

    def status(self, asker: str, key: str, text: str | None) -> None:
        """Replace or (None) remove; removing what is not there does nothing."""
        ...

    def widget(self, asker: str, key: str, widget: Widget | None, placement: Placement) -> None:
        """Replace or (None) remove; removing what is not there does nothing."""
        ...

    def clear(self, asker: str) -> None:
        """Remove all status lines and widgets of an extension."""
        ...
