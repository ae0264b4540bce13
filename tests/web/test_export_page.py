"""The exported page in a real browser: real clicks, real keys, opened from a file without a network."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from branchwork.clock import RandomIds, SystemClock
from branchwork.session.export import PageOptions, export_html
from branchwork.session.tree import Session
from tests.web.samples import SessionFile, call, long_session, tour
from tests.web.webdriver import Browser, browser

pytestmark = pytest.mark.needs("chromium", "chromedriver")

ROWS = "return [...document.querySelectorAll('#rows .row .text')].map((node) => node.textContent)"
SELECTED = "return document.querySelector('#messages .selected')?.dataset.node"
CONTRAST = """
const luminance = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const background = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const color = getComputedStyle(at).backgroundColor;
    if (!/, 0\\)$|transparent|color\\(/.test(color)) return color;
  }
  return 'rgb(255, 255, 255)';
};
const found = [];
for (const node of document.querySelectorAll('body *')) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  if (!own || node.closest('script, style, noscript, .sr, option, [hidden], .anchor')) continue;
  const [a, b] = [luminance(getComputedStyle(node).color), luminance(background(node))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) found.push([node.className, node.textContent.slice(0, 40), ratio]);
}
return found;
"""
"""Texts below the 4.5:1 of WCAG 2.2, success criterion 1.4.3."""


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def export(file: SessionFile, folder: Path) -> Path:
    path = file.write(folder / "s.jsonl")
    out = folder / "page.html"
    with Session.open(path, clock=SystemClock(), ids=RandomIds(), read_only=True) as session:
        export_html(session, out, PageOptions(exported="2026-03-02T10:00:00.000Z"), overwrite=True)
    return out


@pytest.fixture
def page(chrome: Browser, tmp_path: Path) -> Iterator[Browser]:
    """The tour, opened wide and light; whatever the page complains about fails the test."""
    chrome.size(1280, 900)
    chrome.scheme("light")
    chrome.open(export(tour(), tmp_path))
    chrome.log()
    yield chrome
    assert chrome.log() == []


def row(text: str) -> str:
    """A selector of the tree row that shows `text`, after tagging it."""
    return f"#rows .row[data-wanted='{text}']"


def click_row(page: Browser, text: str, inside: str = "") -> None:
    found = page.js(
        "const row = [...document.querySelectorAll('#rows .row')].find((r) => r.textContent.includes(arguments[0]));"
        "if (row) row.dataset.wanted = arguments[0]; return Boolean(row)",
        text,
    )
    assert found, f"no row with {text!r}"
    page.click(f"{row(text)} {inside}".strip())


def test_the_header_names_the_session_its_totals_and_where_prices_came_from(page: Browser) -> None:
    assert page.text("#name") == "Fix the last line <b>bug</b>"
    assert "12 messages · 3 branches" in page.text("#facts")
    assert "$0.563" in page.text("#facts")
    assert page.text("#place") == "019a0000-0000-7000-8000-000000000001 in /home/ada/project"
    page.click("#drawers details summary")
    assert "models.toml" in page.text("#drawers table")
    assert "leaves out 1 request without a price" in page.text("#drawers")


def test_the_current_branch_is_shown_and_its_leaf_marked_in_words(page: Browser) -> None:
    assert "the current leaf" in page.text("#where")
    assert page.texts("#rows .mark") == ["current"]
    assert page.text(".entry .mark") == "current leaf"
    texts = page.texts("#messages article.user .plain")
    assert texts == [
        "The loader loses the last line of a file. Find out why, with a test first.",
        "And a third way, from the tests?",
    ]


def test_clicking_a_node_shows_its_branch(page: Browser) -> None:
    click_row(page, "Good. Fix it the simple way.")
    assert "Branch to 0000000d" in page.text("#where")
    assert "Good. Fix it the simple way." in page.texts("#messages article.user .plain")
    assert "And a third way, from the tests?" not in page.texts("#messages article.user .plain")
    assert page.js("return document.querySelector('#messages .selected .plain').textContent").startswith("Good.")
    page.click("#to-leaf")
    assert "the current leaf" in page.text("#where")


def test_an_entry_stays_in_sight_while_what_is_above_it_is_drawn(chrome: Browser, tmp_path: Path) -> None:
    file = long_session(400)
    for number in range(12):
        file.reply(f"tall {number}\n\n" + "paragraph\n\n" * 30)
    chrome.size(1280, 900)
    chrome.open(export(file, tmp_path))
    chrome.click("#to-end")
    chrome.js("document.getElementById('tree').focus()")
    chrome.press("ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp")
    chrome.until("return document.querySelectorAll('#messages article').length > 20")
    assert "tall 7" in chrome.text("#messages .selected")
    pane = chrome.js("return document.getElementById('branch').getBoundingClientRect().top")
    assert 0 <= chrome.js("return document.querySelector('.selected').getBoundingClientRect().top") - pane < 80


def test_rows_indent_only_where_the_tree_parts(page: Browser) -> None:
    levels = page.js(
        "return [...document.querySelectorAll('#rows .row')].map((row) => Number(row.getAttribute('aria-level')))"
    )
    assert levels == [1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2]


def test_a_branch_can_be_folded_by_mouse_and_by_key(page: Browser) -> None:
    everything = page.count("#rows .row")
    click_row(page, "What I found", ".fold")
    assert page.count("#rows .row") == everything - 12
    assert page.js("return document.querySelectorAll('#rows [aria-expanded=false]').length") == 1
    click_row(page, "What I found")
    page.js("document.getElementById('tree').focus()")
    page.press("ArrowRight")
    assert page.count("#rows .row") == everything
    page.press("ArrowLeft")
    assert page.count("#rows .row") == everything - 12


def test_filters_choose_what_the_tree_shows(page: Browser) -> None:
    def choose(value: str) -> list[str]:
        page.js(
            "const box = document.getElementById('filter'); box.value = arguments[0];"
            "box.dispatchEvent(new Event('change', {bubbles: true}))",
            value,
        )
        return [str(text) for text in page.js(ROWS)]

    labelled = choose("labelled")
    assert len(labelled) == 1
    assert labelled[0].startswith("What I found")
    assert len(choose("user")) == 6
    assert not [text for text in choose("no-tools") if "pytest" in text or "edit" in text.split()]
    assert len(choose("all")) == 25
    assert page.text("#count") == "25 entries"


def test_j_k_and_arrows_move_and_enter_shows(page: Browser) -> None:
    page.press("j", "j", "k")
    assert page.js("return document.querySelector('#rows .active .text').textContent") == "Let me look at the loader."
    assert page.js(SELECTED) == "4"
    page.js("document.getElementById('tree').focus()")
    page.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown")
    assert "Good. Fix it" in page.js("return document.querySelector('#rows .active .text').textContent")
    assert "the current leaf" in page.text("#where")
    page.press("Enter")
    assert "Branch to 0000000d" in page.text("#where")
    active = page.js("return document.getElementById('tree').getAttribute('aria-activedescendant')")
    assert page.js("return document.getElementById(arguments[0]).getAttribute('aria-selected')", active) == "true"


def test_slash_searches_everything_that_was_said(page: Browser) -> None:
    page.press("/")
    page.press("code number 57")
    page.until("return document.getElementById('count').textContent === '1 entry found'")
    assert "read" in page.js(ROWS)[0]
    page.press("Enter")
    assert page.js("return document.querySelector('#messages .selected').matches('details.call[open]')")
    page.press("/", "Escape")
    page.until("return document.getElementById('count').textContent.startsWith('20 of')")


def test_tool_calls_and_thinking_are_closed_until_asked_for(page: Browser) -> None:
    assert page.count("#messages details.call") == 2
    assert page.count("#messages details.call[open]") == 0
    assert page.texts("details.call .state") == ["✓ done · 3 ms", "✗ failed · 1.9 s"]
    page.click("details.call > summary")
    shown = page.text("details.call[open] > .output")
    assert "code number 12" in shown
    assert "code number 13" not in shown
    page.click("details.call[open] > .more")
    assert "code number 60" in page.text("details.call[open] > .output")
    page.click("details.thinking > summary")
    assert "Where are lines read?" in page.text("details.thinking .plain")


def test_markdown_becomes_elements(page: Browser) -> None:
    click_row(page, "What I found")
    prose = "document.querySelectorAll('#messages .prose')[1]"
    assert page.js(f"return {prose}.querySelector('h4.h2').textContent") == "What I found"
    assert page.js(f"return [...{prose}.querySelectorAll('ol > li')].map((n) => n.textContent)") == [
        "read_lines in loader.py",
        "the flush in writer.py, see the notes (docs.example.org)",
    ]
    assert page.js(f"return {prose}.querySelector('pre code').textContent").startswith("def read_lines(stream):\n")
    assert page.js(f"return {prose}.querySelectorAll('table tbody tr').length") == 2
    assert page.js(f"return {prose}.querySelector('td.right').textContent") == "kept"
    assert page.js(f"return [...{prose}.querySelectorAll('ul > li')].map((n) => n.textContent)") == [
        "☑ a failing test first",
        "☐ then the fix",
    ]
    assert page.js(f"return {prose}.querySelector('a').rel") == "noopener noreferrer nofollow"


def test_only_web_and_mail_addresses_become_links(page: Browser) -> None:
    assert page.js("return [...document.querySelectorAll('#messages .prose a')].map((a) => a.href)") == [
        "https://good.example/"
    ]
    assert "click (javascript:alert(1))" in page.js(
        "return [...document.querySelectorAll('.prose')].at(-1).textContent"
    )


def test_hostile_content_is_text(page: Browser) -> None:
    click_row(page, "What about this screenshot?")
    prose = page.js("return [...document.querySelectorAll('#messages .prose')].at(2).textContent")
    assert "</script><script>window.pwned = 1</script> <img src=x onerror='window.pwned=2'>" in prose
    assert "red link" in prose
    assert "[U+202E]gnp.exe" in prose
    assert page.js("return window.pwned") is None
    assert page.count("#messages img") == 1
    assert page.js("return document.querySelector('#messages img').naturalWidth") == 1
    assert "[image of type image/svg+xml not shown]" in page.texts("#messages .missing")
    assert page.count("script") == 3


def test_the_policy_stops_scripts_and_requests_that_got_in_anyway(chrome: Browser, tmp_path: Path) -> None:
    """The second line of defence: what would happen if content reached the page as markup."""
    chrome.open(export(tour(), tmp_path))
    chrome.log()
    chrome.js(
        "const box = document.createElement('div'); document.body.append(box);"
        "box.innerHTML = '<img src=x onerror=\"window.pwned=1\">';"
        "const s = document.createElement('script'); s.textContent = 'window.pwned=2'; box.append(s);"
    )
    refused = chrome.until("return document.querySelectorAll('body > div > script').length") and chrome.log()
    assert len([line for line in refused if "Content Security Policy" in line]) >= 2
    assert chrome.js("return window.pwned") is None


def test_summaries_unknown_entries_and_errors_have_their_own_blocks(page: Browser) -> None:
    assert page.text("article.summary .role") == "Branch summary"
    click_row(page, "503 overloaded")
    assert page.text("article .ended") == "Ended: error. 503 overloaded"
    assert [text for text in page.texts("article.summary .role") if text == "Compaction"]
    assert "182k tokens before" in page.text("article.summary .model")
    assert page.text("article.unknown .role") == "Unknown entry: from_the_future"
    assert '"type": "from_the_future"' in page.text("article.unknown pre")
    assert page.text("article.shell .command") == "$ git status"
    assert "diagnosis" in page.texts("article .chip")


def test_an_address_with_an_entry_id_opens_there(chrome: Browser, tmp_path: Path) -> None:
    chrome.open(export(tour(), tmp_path), "#0000000b")
    assert "Branch to 0000000d" in chrome.text("#where")
    assert chrome.js("return document.querySelector('#messages .selected .tool').textContent") == "edit"


def test_a_node_of_the_current_branch_opens_that_branch_and_not_a_newer_one(chrome: Browser, tmp_path: Path) -> None:
    file = tour()
    file.add("custom", parent="0000000d", customType="branchwork:leaf")
    chrome.open(export(file, tmp_path), "#00000008")
    assert "the current leaf" in chrome.text("#where")
    assert "Good. Fix it the simple way." in chrome.texts("#messages article.user .plain")


@pytest.mark.parametrize(
    "text",
    [
        "*" * 60_000,
        "**a " * 15_000,
        "_a" * 49_000,
        "`a` " * 24_000,
        "[" * 60_000,
        "[a](" * 15_000,
        "".join("`" * (number % 50 + 1) + "x" for number in range(2000)),
        "> " * 30_000,
        "- " * 30_000,
        "- a\n  " * 8_000,
        "|" * 30_000 + "\n" + "|-" * 15_000,
        "a|b\n" * 15_000,
        "#" * 60_000,
        "# " + "#" * 30_000 + " x",
        "http://" * 8_000,
        "\x1b[" + "0;" * 30_000,
        "\x1b[0" * 15_000,
        " " * 60_000 + "x",
        "\n" * 60_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_no_text_makes_markdown_slow(chrome: Browser, tmp_path: Path, text: str) -> None:
    file = SessionFile()
    file.reply(text)
    start = time.perf_counter()
    chrome.open(export(file, tmp_path))
    assert chrome.count("#messages article") == 1
    assert time.perf_counter() - start < 8


def test_damage_is_told_in_the_header(chrome: Browser, tmp_path: Path) -> None:
    file = SessionFile()
    file.user("kept")
    file.lines.append("garbage </b>")
    chrome.open(export(file, tmp_path))
    chrome.click("#drawers .damaged summary")
    assert "Line 3" in chrome.text("#drawers .problems")
    assert "garbage </b>" in chrome.text("#drawers .problems")


def test_entries_of_any_shape_are_drawn(chrome: Browser, tmp_path: Path) -> None:
    odd: list[object] = [None, 5, "text", [], {}, [None, 3, {"type": 7}], {"type": "text"}, {"cost": "much"}]
    file = SessionFile()
    for value in odd:
        for role in ("user", "assistant", "toolResult", "system", "bashExecution", "custom", "alien", value):
            fields: dict[str, Any] = {
                "usage": value,
                "toolCallId": value,
                "sections": value,
                "toolsAdded": value,
                "command": value,
            }
            file.add("message", message={"role": role, "content": value, **fields})
        file.add("message", message=value)
        names = ("summary", "usage", "content", "customType", "name", "label", "targetId", "provider", "replacement")
        for kind in ("compaction", "branch_summary", "custom_message", "custom", "label", "usage", "session_info", "x"):
            given: dict[str, Any] = dict.fromkeys(names, value)
            file.add(kind, **given)
    chrome.open(export(file, tmp_path))
    chrome.js("document.getElementById('filter').value = 'all';")
    chrome.js("document.getElementById('filter').dispatchEvent(new Event('change'))")
    chrome.click("#to-end")
    chrome.until("document.getElementById('branch').scrollTop = 0; return document.querySelector('#n0') !== null")
    assert chrome.count("#messages article") > 100
    assert "Entry that cannot be drawn" not in chrome.texts("#messages .role")
    chrome.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    chrome.until("return [...document.querySelectorAll('details[open]')].every((each) => each.childElementCount > 1)")
    assert chrome.log() == []


def test_an_empty_session_opens(chrome: Browser, tmp_path: Path) -> None:
    chrome.open(export(SessionFile(), tmp_path))
    assert chrome.text("#messages") == "This session has no entries yet."
    assert chrome.log() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(page: Browser, scheme: str) -> None:
    page.scheme(scheme)
    page.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    click_row(page, "503 overloaded")
    page.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.until("return [...document.querySelectorAll('details[open]')].every((each) => each.childElementCount > 1)")
    assert page.js(CONTRAST) == []


def test_a_narrow_screen_has_the_tree_above_and_nothing_to_scroll_sideways(page: Browser) -> None:
    page.size(400, 800)
    page.js("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.js("return document.documentElement.scrollWidth") == 400
    tree, branch = page.js(
        "return ['side', 'branch'].map((id) => document.getElementById(id).getBoundingClientRect().toJSON())"
    )
    assert tree["bottom"] <= branch["top"]
    assert tree["width"] == branch["width"] == 400
    click_row(page, "Good. Fix it the simple way.")
    assert page.until("return document.querySelector('#messages .selected').getBoundingClientRect().top < 400")


def test_the_focus_is_visible(page: Browser) -> None:
    page.js("document.getElementById('search').focus()")
    page.press("Tab", "Tab")
    assert page.js("return document.activeElement.id") == "tree"
    assert page.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_on_paper_the_branch_is_whole_and_the_tools_are_gone(page: Browser) -> None:
    page.devtools("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        shown = "return getComputedStyle(document.getElementById(arguments[0])).display"
        assert page.js(shown, "side") == "none"
        assert page.js(shown, "bar") == "none"
        assert page.js("return getComputedStyle(document.getElementById('branch')).overflowY") == "visible"
    finally:
        page.devtools("Emulation.setEmulatedMedia", {"media": ""})


def test_a_result_finds_its_call_and_stands_alone_without_one(chrome: Browser, tmp_path: Path) -> None:
    file = SessionFile()
    file.reply(call("a", "one"), call("b", "two"), stopReason="toolUse")
    file.result("b", "two", "second")
    file.result("a", "one", "first")
    file.result("x", "lost", "nobody asked")
    chrome.open(export(file, tmp_path))
    assert chrome.texts("details.call .state") == ["✓ done", "✓ done"]
    assert chrome.text("article.tool .output") == "nobody asked"


@pytest.mark.slow
def test_twenty_thousand_entries_open_scroll_and_search_without_freezing(chrome: Browser, tmp_path: Path) -> None:
    chrome.size(1280, 900)
    path = export(long_session(20_000, size=1200), tmp_path)
    start = time.perf_counter()
    chrome.open(path)
    assert time.perf_counter() - start < 5
    assert chrome.text("#count") == "20,000 entries"
    assert chrome.count("*") < 3000
    chrome.js(
        "window.longest = 0; new PerformanceObserver((list) => { for (const each of list.getEntries())"
        " window.longest = Math.max(window.longest, each.duration); }).observe({type: 'longtask'})"
    )
    chrome.click("#to-end")
    assert "Answer 19997" in chrome.js("return document.querySelector('#messages .selected').textContent")
    chrome.js("document.getElementById('tree').scrollTop = 280000")
    chrome.until("return document.querySelector('#rows .row').textContent.length > 0")
    chrome.js("document.getElementById('branch').scrollTop = 0")
    chrome.until("return document.querySelectorAll('#messages article').length > 40")
    chrome.click("#search")
    chrome.press("needle-9001")
    chrome.until("return document.getElementById('count').textContent === '1 entry found'")
    assert chrome.js("return window.longest") < 500
