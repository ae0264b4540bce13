"""What every front end promises to extensions, as tests.

Subclass `UIContract` in a test module as a class whose name begins with `Test` and implement `make`.
"""

import asyncio

import pytest

from branchwork.host.ui import UI, Lines, Option, Progress, Span, Table, Widget, lines

OPTIONS = (Option("a", "First"), Option("b", description="the other one"))
WIDGETS: tuple[Widget, ...] = (
    lines("one\ntwo", "dim"),
    Lines(((Span("strong", "strong"), Span(" and plain")), ())),
    Table(("name", "size"), (("a", "1"), ("b",))),
    Progress("Indexing", 3, 10),
    Progress("Waiting"),
)


class UIContract:
    """Each test gets a fresh UI of a front end where nobody answers: dialogs are closed at once, or not shown."""

    def make(self) -> UI:
        """Called inside a running event loop."""
        raise NotImplementedError

    @pytest.fixture
    async def ui(self) -> UI:
        return self.make()

    async def test_nobody_never_says_yes(self, ui: UI) -> None:
        assert await ui.confirm("Delete?", "All of it.") is False
        assert await ui.confirm("Delete?", "All of it.", default=True) is False

    async def test_nobody_chooses_and_writes_nothing(self, ui: UI) -> None:
        assert await ui.select("Which?", OPTIONS, default="a") is None
        assert await ui.input("Name?", "a placeholder", "an initial value") is None
        assert await ui.input("Key?", secret=True) is None
        assert await ui.editor("Text?", "prefilled") is None

    async def test_concurrent_dialogs_are_all_answered(self, ui: UI) -> None:
        questions = (ui.confirm(f"Question {number}", "?") for number in range(20))
        assert await asyncio.gather(*questions) == [False] * 20

    async def test_a_dialog_with_a_timeout_ends(self, ui: UI) -> None:
        assert await ui.confirm("Now?", "", timeout=5) is False
        assert await ui.select("Now?", OPTIONS, timeout=0) is None

    async def test_a_cancelled_asker_does_not_block_the_next(self, ui: UI) -> None:
        first = asyncio.ensure_future(ui.confirm("First", ""))
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        assert await ui.confirm("Second", "") is False

    @pytest.mark.parametrize("bad", [(), (Option("same"), Option("same"))])
    async def test_options_that_cannot_be_told_apart_are_refused(self, ui: UI, bad: tuple[Option, ...]) -> None:
        with pytest.raises(ValueError, match="Which"):
            await ui.select("Which?", bad)

    async def test_a_default_must_be_one_of_the_options(self, ui: UI) -> None:
        with pytest.raises(ValueError, match="none of its options"):
            await ui.select("Which?", OPTIONS, default="c")

    async def test_notes_of_every_level_are_taken(self, ui: UI) -> None:
        ui.notify("as information")
        ui.notify("as a warning", "warning")
        ui.notify("as an error\nof two lines", "error")

    async def test_status_lines_come_change_and_go(self, ui: UI) -> None:
        for text in ("one", "two", "", None, None):
            ui.status("key", text)

    @pytest.mark.parametrize("widget", WIDGETS)
    async def test_every_widget_comes_changes_and_goes(self, ui: UI, widget: Widget) -> None:
        ui.widget("key", widget)
        ui.widget("key", widget, "below")
        ui.widget("key", None)
        ui.widget("key", None, "below")
