"""The screen of a run that nobody watches: print, JSON, pipes, children."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from branchwork.host.ui import Answer, Dialog, Level, Placement, Widget, unanswered

V = TypeVar("V")

Notify: TypeAlias = Callable[[str, str, Level], None]
"""Gets what an extension wanted a person to know: the extension, the text, how bad it is."""
Key: TypeAlias = tuple[str, str]
"""The extension and its own key."""


class HeadlessScreen:
    """Every dialog counts as closed at once: `confirm` is False (also where its default is True, and whatever
    its timeout), the others are None. Notes become diagnostics. Status lines and widgets are drawn nowhere;
    the last value of each can be read.
    """

    @property
    def attended(self) -> bool:
        return False

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._statuses: dict[Key, str] = {}
        self._widgets: dict[Key, tuple[Widget, Placement]] = {}

    @property
    def statuses(self) -> Mapping[Key, str]:
        """A view of what would be shown now."""
        return MappingProxyType(self._statuses)

    @property
    def widgets(self) -> Mapping[Key, tuple[Widget, Placement]]:
        """A view of what would be shown now."""
        return MappingProxyType(self._widgets)

    async def show(self, dialog: Dialog, remaining: float | None) -> Answer:
        return unanswered(dialog)

    def notify(self, asker: str, text: str, level: Level) -> None:
        self._notify(asker, text, level)

    def status(self, asker: str, key: str, text: str | None) -> None:
        _put(self._statuses, (asker, key), text)

    def widget(self, asker: str, key: str, widget: Widget | None, placement: Placement) -> None:
        _put(self._widgets, (asker, key), None if widget is None else (widget, placement))

    def clear(self, asker: str) -> None:
        _clear(self._statuses, asker)
        _clear(self._widgets, asker)


def _clear(shown: dict[Key, V], asker: str) -> None:
    for key in [each for each in shown if each[0] == asker]:
        del shown[key]


def _put(shown: dict[Key, V], key: Key, value: V | None) -> None:
    if value is None:
        shown.pop(key, None)
    else:
        shown[key] = value
