"""A person with prepared answers, who notes everything that is shown to them."""

import asyncio
from collections import deque
from typing import TypeAlias

from branchwork.clock import Clock
from branchwork.host.dialogs import Dialogs, ScreenUI
from branchwork.host.headless_ui import HeadlessScreen
from branchwork.host.ui import Answer, Dialog, Level, unanswered
from branchwork.testing.clock import FakeClock


class Stays:
    """An answer that never comes: the dialog stays until it times out, is dismissed or its asker cancelled."""


Prepared: TypeAlias = Answer | Stays


class RecordingScreen(HeadlessScreen):
    """Implements `branchwork.host.ui.Screen`; keeps status lines and widgets as `HeadlessScreen` does."""

    def __init__(self, *answers: Prepared) -> None:
        super().__init__(self._note)
        self.answers: deque[Prepared] = deque(answers)
        """What is still to be answered, in order. With none left, dialogs are closed unanswered."""
        self.dialogs: list[Dialog] = []
        """Every dialog that was shown, in order."""
        self.visible: list[Dialog] = []
        """Those that are on the screen now: never more than one."""
        self.notices: list[tuple[str, Level, str]] = []
        """What was notified: the extension, the level, the text."""

    @property
    def attended(self) -> bool:
        return True

    async def show(self, dialog: Dialog, remaining: float | None) -> Answer:
        self.dialogs.append(dialog)
        self.visible.append(dialog)
        try:
            answer = self.answers.popleft() if self.answers else None
            if isinstance(answer, Stays):
                await asyncio.get_running_loop().create_future()
            return unanswered(dialog) if answer is None or isinstance(answer, Stays) else answer
        finally:
            self.visible.remove(dialog)

    def _note(self, asker: str, text: str, level: Level) -> None:
        self.notices.append((asker, level, text))


class RecordingUI(ScreenUI):
    """Implements `branchwork.host.ui.UI` for tests of extensions: `ui = RecordingUI(True, "second", None)`.

    Answers are taken in order, None being a dialog that is closed. One that does not fit its dialog fails the
    test with AssertionError. What was shown is on `screen`.
    """

    def __init__(self, *answers: Prepared, asker: str = "test", clock: Clock | None = None) -> None:
        self.screen = RecordingScreen(*answers)
        self.queue = Dialogs(self.screen, clock=clock or FakeClock(), report=_fail)
        super().__init__(asker, self.queue)


def _fail(asker: str, problem: str) -> None:
    raise AssertionError(f"{asker}: {problem}")
