"""The one queue between extensions that ask and the front end that shows."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, assert_never

from branchwork.clock import Clock
from branchwork.host.ui import (
    UI,
    Answer,
    Confirm,
    Dialog,
    Editor,
    Input,
    Level,
    Option,
    Placement,
    Screen,
    Select,
    Widget,
    timed_out,
    unanswered,
)

Report: TypeAlias = Callable[[str, str], None]
"""Told of failures of the front end: the extension whose dialog it was, and what, as one line."""


class _Asked:
    """A dialog in the queue."""

    __slots__ = ("deadline", "dialog", "dismissed")

    def __init__(self, dialog: Dialog, deadline: float | None) -> None:
        self.dialog = dialog
        self.deadline = deadline
        self.dismissed: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Dialogs:
    """Shows the dialogs of all extensions on one screen, one at a time, first come first served.

    One for a front end. All methods belong to its event loop.
    """

    def __init__(self, screen: Screen, *, clock: Clock, report: Report) -> None:
        self._screen = screen
        self._clock = clock
        self._report = report
        self._turn = asyncio.Lock()  # serves those who wait in their order, and lets the cancelled go
        self._asked: list[_Asked] = []

    @property
    def screen(self) -> Screen:
        return self._screen

    @property
    def open(self) -> tuple[Dialog, ...]:
        """The dialogs that have no answer yet, the one being shown first."""
        return tuple(asked.dialog for asked in self._asked)

    def ui(self, asker: str) -> UI:
        """The UI of one extension."""
        return ScreenUI(asker, self)

    async def ask(self, dialog: Dialog) -> Answer:
        """The answer; `unanswered(dialog)` at once on a screen that nobody attends.

        Always a bool for `Confirm`, one of the options or None for `Select`, text or None else.

        When `dialog.timeout` is over, `timed_out(dialog)`, whether it was shown by then or not. When the
        screen fails, or answers with something else, that is reported and counts as `unanswered(dialog)`.
        When the call returns or is cancelled, the dialog is off the screen.
        """
        if not self._screen.attended:  # here, so that no default and no timeout can become a silent yes
            return unanswered(dialog)
        deadline = None if dialog.timeout is None else self._clock.monotonic() + dialog.timeout
        asked = _Asked(dialog, deadline)
        self._asked.append(asked)
        answer = asyncio.ensure_future(self._in_turn(asked))
        racing: list[asyncio.Future[Any]] = [answer, asked.dismissed]
        if dialog.timeout is not None:
            racing.append(asyncio.ensure_future(self._clock.sleep(dialog.timeout)))
        try:
            await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            return unanswered(dialog) if asked.dismissed.done() else timed_out(dialog)
        finally:
            self._asked.remove(asked)
            for each in racing:
                each.cancel()
            await asyncio.wait(racing)

    def dismiss(self, asker: str | None = None) -> None:
        """Close the dialogs of one extension, or all, as if the person had closed them."""
        for asked in self._asked:
            if asker in (None, asked.dialog.asker) and not asked.dismissed.done():
                asked.dismissed.set_result(None)

    def withdraw(self, asker: str) -> None:
        """Close the dialogs of an extension and remove all it shows."""
        self.dismiss(asker)
        self._screen.clear(asker)

    async def _in_turn(self, asked: _Asked) -> Answer:
        dialog = asked.dialog
        async with self._turn:
            remaining = None if asked.deadline is None else max(0.0, asked.deadline - self._clock.monotonic())
            try:
                answer = await self._screen.show(dialog, remaining)
            except Exception as error:  # noqa: BLE001 - boundary: a broken screen must not answer, nor end a run
                self._report(dialog.asker, f"{dialog.title!r} could not be shown: {error!r}")
                return unanswered(dialog)
        if answer is None:
            return unanswered(dialog)
        if not _answers(answer, dialog):
            self._report(dialog.asker, f"{dialog.title!r} got an answer of the wrong kind ({type(answer).__name__})")
            return unanswered(dialog)
        return answer


class ScreenUI:
    """The UI of one extension, over the queue and the screen that all share. See `UI` for the methods."""

    def __init__(self, asker: str, dialogs: Dialogs) -> None:
        self._asker = asker
        self._dialogs = dialogs

    @property
    def attended(self) -> bool:
        return self._dialogs.screen.attended

    async def confirm(self, title: str, message: str, *, default: bool = False, timeout: float | None = None) -> bool:
        dialog = Confirm(asker=self._asker, title=title, message=message, default=default, timeout=timeout)
        return await self._dialogs.ask(dialog) is True

    async def select(
        self, title: str, options: Sequence[Option], *, default: str | None = None, timeout: float | None = None
    ) -> str | None:
        dialog = Select(asker=self._asker, title=title, options=tuple(options), default=default, timeout=timeout)
        return await _text(self._dialogs.ask(dialog))

    async def input(
        self,
        title: str,
        placeholder: str = "",
        initial: str = "",
        secret: bool = False,
        *,
        timeout: float | None = None,
    ) -> str | None:
        dialog = Input(
            asker=self._asker, title=title, placeholder=placeholder, initial=initial, secret=secret, timeout=timeout
        )
        return await _text(self._dialogs.ask(dialog))

    async def editor(self, title: str, text: str = "", *, timeout: float | None = None) -> str | None:
        return await _text(self._dialogs.ask(Editor(asker=self._asker, title=title, text=text, timeout=timeout)))

    def notify(self, text: str, level: Level = "info") -> None:
        self._dialogs.screen.notify(self._asker, text, level)

    def status(self, key: str, text: str | None) -> None:
        self._dialogs.screen.status(self._asker, key, text)

    def widget(self, key: str, widget: Widget | None, placement: Placement = "above") -> None:
        self._dialogs.screen.widget(self._asker, key, widget, placement)


async def _text(answer: Awaitable[Answer]) -> str | None:
    found = await answer
    return found if isinstance(found, str) else None


def _answers(answer: object, dialog: Dialog) -> bool:
    match dialog:
        case Confirm():
            return isinstance(answer, bool)
        case Select(options=options):
            return any(answer == option.value for option in options)
        case Input() | Editor():
            return isinstance(answer, str)
        case _:
            assert_never(dialog)
