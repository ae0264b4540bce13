"""What extensions ask and show: one dialog at a time, in order, with an end, and never a silent yes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from branchwork.host.dialogs import Dialogs
from branchwork.host.headless_ui import HeadlessScreen
from branchwork.host.ui import (
    UI,
    Answer,
    Confirm,
    Dialog,
    Editor,
    Input,
    Level,
    Lines,
    Option,
    Progress,
    Select,
    Span,
    Table,
    lines,
    plain_text,
)
from branchwork.testing.clock import FakeClock
from branchwork.testing.recording_ui import RecordingScreen, RecordingUI, Stays
from branchwork.testing.ui_contract import UIContract

OPTIONS = (Option("a", "First"), Option("b", "Second"))


class HeldClock(FakeClock):
    """Sleeps until somebody advances the time far enough."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.monotonic() + seconds, woken))
        await woken

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for until, woken in self._sleepers:
            if until <= self.monotonic() and not woken.done():
                woken.set_result(None)


class Desk(RecordingScreen):
    """A person who answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.remaining: list[float | None] = []
        self._reply: asyncio.Future[Answer] | None = None

    async def show(self, dialog: Dialog, remaining: float | None) -> Answer:
        self.dialogs.append(dialog)
        self.visible.append(dialog)
        self.remaining.append(remaining)
        self._reply = asyncio.get_running_loop().create_future()
        try:
            return await self._reply
        finally:
            self.visible.remove(dialog)

    async def reply(self, answer: Answer) -> None:
        await until(lambda: bool(self.visible))
        assert self._reply is not None
        self._reply.set_result(answer)
        await settle()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("it did not happen")


async def settle() -> None:
    """Let everything that can go on go on."""
    for _ in range(20):
        await asyncio.sleep(0)


class Room:
    """A queue before a desk."""

    def __init__(self) -> None:
        self.clock = HeldClock()
        self.desk = Desk()
        self.reports: list[str] = []
        self.dialogs = Dialogs(self.desk, clock=self.clock, report=lambda asker, text: self.reports.append(text))
        self.asked: list[asyncio.Future[Any]] = []

    def ui(self, asker: str = "ext") -> UI:
        return self.dialogs.ui(asker)

    async def ask(self, title: str, *, asker: str = "ext", **options: Any) -> "asyncio.Future[bool]":
        asked = asyncio.ensure_future(self.ui(asker).confirm(title, "", **options))
        await settle()
        return asked

    @property
    def titles(self) -> list[str]:
        return [dialog.title for dialog in self.desk.dialogs]


@pytest.fixture
async def room() -> Room:
    return Room()


class TestRecordingUI(UIContract):
    def make(self) -> UI:
        return RecordingUI()


class TestHeadlessUI(UIContract):
    def make(self) -> UI:
        screen = HeadlessScreen(lambda asker, text, level: None)
        return Dialogs(screen, clock=FakeClock(), report=lambda asker, text: None).ui("ext")


# ---- the queue ----------------------------------------------------------------------------------------


async def test_concurrent_dialogs_are_shown_one_after_the_other_in_the_order_asked(room: Room) -> None:
    asked = [await room.ask(title, asker=title) for title in ("one", "two", "three")]
    assert room.titles == ["one"]
    assert [dialog.title for dialog in room.dialogs.open] == ["one", "two", "three"]
    for answer in (True, False, True):
        assert len(room.desk.visible) == 1
        await room.desk.reply(answer)
    assert [await each for each in asked] == [True, False, True]
    assert room.titles == ["one", "two", "three"]
    assert room.dialogs.open == ()


async def test_every_dialog_names_the_extension_that_asks(room: Room) -> None:
    asked = [await room.ask("Trusted?", asker=asker) for asker in ("mine", "yours")]
    await room.desk.reply(True)
    await room.desk.reply(True)
    await asyncio.gather(*asked)
    assert [dialog.asker for dialog in room.desk.dialogs] == ["mine", "yours"]


async def test_a_cancelled_asker_takes_its_dialog_off_the_screen_and_the_next_is_shown(room: Room) -> None:
    first, second = await room.ask("one"), await room.ask("two")
    first.cancel()
    await settle()
    assert [dialog.title for dialog in room.desk.visible] == ["two"]
    await room.desk.reply(True)
    assert first.cancelled()
    assert await second is True


async def test_a_cancelled_asker_in_the_queue_is_never_shown(room: Room) -> None:
    first, second, third = await room.ask("one"), await room.ask("two"), await room.ask("three")
    second.cancel()
    await settle()
    assert [dialog.title for dialog in room.dialogs.open] == ["one", "three"]
    await room.desk.reply(True)
    await room.desk.reply(True)
    assert await first is True
    assert await third is True
    assert room.titles == ["one", "three"]


@pytest.mark.parametrize("default", [True, False])
async def test_a_dialog_whose_time_is_up_takes_its_default_and_leaves_the_screen(room: Room, default: bool) -> None:
    asked = await room.ask("now?", default=default, timeout=5)
    room.clock.advance(4.9)
    await settle()
    assert not asked.done()
    room.clock.advance(0.1)
    assert await asked is default
    assert room.desk.visible == []


async def test_when_an_asker_goes_on_its_dialog_is_off_the_screen(room: Room) -> None:
    async def ask() -> list[Dialog]:
        await room.ui().confirm("now?", "", timeout=5)
        return list(room.desk.visible)

    asked = asyncio.ensure_future(ask())
    await settle()
    room.clock.advance(5)
    assert await asked == []


async def test_time_runs_from_asking_also_in_the_queue(room: Room) -> None:
    first = await room.ask("one")
    soon, late = await room.ask("soon", timeout=5, default=True), await room.ask("late", timeout=60)
    room.clock.advance(10)
    assert await soon is True
    await room.desk.reply(True)
    assert await first is True
    assert room.titles == ["one", "late"]
    assert room.desk.remaining == [None, 50]
    await room.desk.reply(True)
    assert await late is True


async def test_an_answer_in_time_beats_the_default(room: Room) -> None:
    asked = await room.ask("now?", default=True, timeout=5)
    await room.desk.reply(False)
    assert await asked is False
    room.clock.advance(10)


@pytest.mark.parametrize("default", ["b", None])
async def test_time_up_gives_the_default_option_and_no_text(room: Room, default: str | None) -> None:
    ui = room.ui()
    asking = (
        ui.select("which?", OPTIONS, default=default, timeout=5),
        ui.input("name?", initial="x", timeout=5),
        ui.editor("text?", "y", timeout=5),
    )
    asked = asyncio.gather(*asking)
    await settle()
    room.clock.advance(5)
    assert list(await asked) == [default, None, None]


async def test_a_withdrawn_extension_leaves_no_dialog_and_nothing_on_the_screen(room: Room) -> None:
    mine, queued = await room.ask("mine", asker="a", default=True), await room.ask("queued", asker="a", default=True)
    other = await room.ask("other", asker="b")
    for asker in ("a", "b"):
        room.ui(asker).status("key", asker)
        room.ui(asker).widget("key", lines(asker))
    room.dialogs.withdraw("a")
    assert (await mine, await queued) == (False, False)
    await room.desk.reply(True)
    assert await other is True
    assert room.titles == ["mine", "other"]
    assert list(room.desk.statuses) == [("b", "key")]
    assert list(room.desk.widgets) == [("b", "key")]


async def test_all_dialogs_can_be_closed_at_once(room: Room) -> None:
    asked = [await room.ask(title, default=True) for title in ("one", "two")]
    room.dialogs.dismiss()
    assert [await each for each in asked] == [False, False]
    assert room.dialogs.open == ()


# ---- answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["yes", 1, "True"])
async def test_only_true_is_a_yes(room: Room, wrong: Any) -> None:
    asked = await room.ask("sure?")
    await room.desk.reply(wrong)
    assert await asked is False
    assert len(room.reports) == 1


async def test_an_answer_that_is_no_option_is_none_and_reported(room: Room) -> None:
    asked = asyncio.ensure_future(room.ui().select("which?", OPTIONS))
    await room.desk.reply("c")
    assert await asked is None
    assert "which?" in room.reports[0]


async def test_what_a_person_types_is_in_no_report(room: Room) -> None:
    asked = asyncio.ensure_future(room.ui().input("key?", secret=True))
    await room.desk.reply(b"hunter2")  # type: ignore[arg-type]  # a broken front end
    assert await asked is None
    assert "hunter2" not in room.reports[0]


async def test_a_screen_that_fails_answers_nothing_and_the_next_dialog_is_shown() -> None:
    class Broken(RecordingScreen):
        async def show(self, dialog: Dialog, remaining: float | None) -> Answer:
            if dialog.title == "one":
                raise OSError("no terminal")
            return await super().show(dialog, remaining)

    reports: list[str] = []
    dialogs = Dialogs(Broken(True), clock=FakeClock(), report=lambda asker, text: reports.append(f"{asker}: {text}"))
    ui = dialogs.ui("ext")
    answers = await asyncio.gather(ui.confirm("one", "", default=True), ui.confirm("two", ""))
    assert list(answers) == [False, True]
    assert reports == ["ext: 'one' could not be shown: OSError('no terminal')"]


def test_a_negative_timeout_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot time out"):
        Confirm(asker="x", title="t", message="m", timeout=-1)


# ---- without a person ---------------------------------------------------------------------------------


async def test_headless_a_yes_by_default_stays_a_no_however_many_ask_and_however_soon_time_is_up() -> None:
    screen = HeadlessScreen(lambda asker, text, level: None)
    ui = Dialogs(screen, clock=FakeClock(), report=lambda asker, text: None).ui("ext")
    assert not ui.attended
    asking = (ui.confirm("Sure?", "", default=True, timeout=0) for _ in range(50))
    assert await asyncio.gather(*asking) == [False] * 50
    assert await ui.select("Which?", OPTIONS, default="a", timeout=0) is None


async def test_where_nobody_attends_no_dialog_is_shown() -> None:
    class Unattended(RecordingScreen):
        @property
        def attended(self) -> bool:
            return False

    screen = Unattended(True)
    ui = Dialogs(screen, clock=FakeClock(), report=lambda asker, text: None).ui("ext")
    assert await ui.confirm("Sure?", "", default=True, timeout=0) is False
    assert screen.dialogs == []


async def test_headless_notes_become_diagnostics_and_the_last_of_what_is_shown_can_be_read() -> None:
    told: list[tuple[str, str, Level]] = []
    screen = HeadlessScreen(lambda asker, text, level: told.append((asker, text, level)))
    dialogs = Dialogs(screen, clock=FakeClock(), report=lambda asker, text: None)
    one, two = dialogs.ui("one"), dialogs.ui("two")
    one.notify("careful", "warning")
    one.status("k", "first")
    one.status("k", "last")
    two.status("k", "of two")
    two.status("gone", "x")
    two.status("gone", None)
    one.widget("w", Progress("Indexing", 1, 2), "below")
    assert told == [("one", "careful", "warning")]
    assert screen.statuses == {("one", "k"): "last", ("two", "k"): "of two"}
    assert screen.widgets == {("one", "w"): (Progress("Indexing", 1, 2), "below")}


# ---- the fake -----------------------------------------------------------------------------------------


async def test_prepared_answers_are_given_in_order_and_everything_shown_is_kept() -> None:
    ui = RecordingUI(True, "b", None, "text", asker="mine")
    assert ui.attended
    assert await ui.confirm("one", "message") is True
    assert await ui.select("two", OPTIONS) == "b"
    assert await ui.input("three", "placeholder", secret=True) is None
    assert await ui.editor("four", "old") == "text"
    assert await ui.confirm("nobody prepared this", "", default=True) is False
    assert ui.screen.dialogs[:4] == [
        Confirm(asker="mine", title="one", message="message"),
        Select(asker="mine", title="two", options=OPTIONS),
        Input(asker="mine", title="three", placeholder="placeholder", secret=True),
        Editor(asker="mine", title="four", text="old"),
    ]
    ui.notify("done")
    ui.widget("w", lines("x"))
    assert ui.screen.notices == [("mine", "info", "done")]
    assert ui.screen.widgets == {("mine", "w"): (lines("x"), "above")}


async def test_a_prepared_answer_that_does_not_fit_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="which"):
        await RecordingUI(True).select("which?", OPTIONS)


async def test_a_dialog_can_be_left_standing() -> None:
    ui = RecordingUI(Stays(), True)
    first = asyncio.ensure_future(ui.confirm("one", ""))
    await settle()
    assert [dialog.title for dialog in ui.screen.visible] == ["one"]
    first.cancel()
    assert await ui.confirm("two", "") is True
    assert await RecordingUI(Stays()).confirm("three", "", default=True, timeout=5) is True


# ---- widgets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widget", "expected"),
    [
        (lines("one\n\ntwo", "dim"), ("one", "", "two")),
        (Lines(((Span("a", "strong"), Span("b")), ())), ("ab", "")),
        (Table(("name", "size"), (("long name", "1"), ("b",), ())), ("name       size", "long name  1", "b", "")),
        (Table((), ()), ("",)),
        (Progress("Indexing", 3, 10), ("Indexing 3/10",)),
        (Progress("Waiting", 4), ("Waiting 4",)),
    ],
)
def test_every_widget_can_be_drawn_as_plain_text(widget: Any, expected: tuple[str, ...]) -> None:
    assert plain_text(widget) == expected


def test_a_row_longer_than_the_header_is_refused() -> None:
    with pytest.raises(ValueError, match="more cells"):
        Table(("a",), (("1", "2"),))
