"""The exported page as a file: complete, inert, atomic. What it does in a browser is tests/web's matter."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.clock import RandomIds, SystemClock
from branchwork.errors import UserError
from branchwork.session.export import PageOptions, export_html, page_pieces
from branchwork.session.tree import NoSuchEntry, Session
from tests.web.samples import HOSTILE, SessionFile, call, long_session, tour

OPTIONS = PageOptions(exported="2026-03-02T10:00:00.000Z")


class Page(HTMLParser):
    """Reads a page as a browser's tokenizer does: scripts and styles are raw text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.bodies: list[tuple[str, dict[str, str | None], str]] = []
        self._open: tuple[str, dict[str, str | None]] | None = None
        self.title = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self._open = (tag, dict(attrs))
        if tag in ("script", "style"):
            self.bodies.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self._open is not None and self._open[0] in ("script", "style"):
            tag, attrs, body = self.bodies[-1]
            self.bodies[-1] = (tag, attrs, body + data)
        if self._open is not None and self._open[0] == "title":
            self.title += data

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def block(self, name: str) -> Any:
        return json.loads(next(body for _, attrs, body in self.bodies if attrs.get("id") == name))


def opened(path: Path) -> Session:
    return Session.open(path, clock=SystemClock(), ids=RandomIds(), read_only=True)


def page_of(file: SessionFile, tmp_path: Path, options: PageOptions = OPTIONS) -> Page:
    out = tmp_path / "page.html"
    with opened(file.write(tmp_path / "s.jsonl")) as session:
        export_html(session, out, options, overwrite=True)
    return Page(out.read_text("utf-8"))


def test_every_entry_is_on_the_page_as_the_file_has_it(tmp_path: Path) -> None:
    file = tour()
    assert page_of(file, tmp_path).block("entries") == [json.loads(line) for line in file.lines[1:]]


def test_each_entry_is_one_line_so_that_the_page_can_parse_one_at_a_time(tmp_path: Path) -> None:
    file = tour()
    page = page_of(file, tmp_path)
    body = next(body for _, attrs, body in page.bodies if attrs.get("id") == "entries")
    lines = body.split("\n")[1:-1]
    assert lines[-1] == "]"
    assert [json.loads(line.removesuffix(",")) for line in lines[:-1]] == [json.loads(line) for line in file.lines[1:]]


def test_content_adds_no_element_and_no_attribute(tmp_path: Path) -> None:
    """A hostile session and an empty one have the same markup."""
    bare = page_of(SessionFile(), tmp_path)
    file = tour()
    file.add("session_info", name=HOSTILE)
    file.add("label", targetId="00000004", label=HOSTILE)
    hostile = page_of(file, tmp_path)
    assert hostile.tags == bare.tags
    assert hostile.attributes == bare.attributes
    assert hostile.title.startswith("</script><script>window.pwned")


@given(text=st.text())
def test_no_text_leaves_its_data_block(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = SessionFile()
    file.user("</script>" + text + "<!--<script>")
    page = page_of(file, tmp_path_factory.mktemp("page"))
    assert page.tags.count("script") == 3
    assert page.block("entries")[0]["message"]["content"] == json.loads(json.dumps("</script>" + text + "<!--<script>"))


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(tmp_path: Path) -> None:
    page = page_of(tour(), tmp_path)
    policy = next(value for name, value in page.attributes if name == "content" and "default-src" in value)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    script = next(body for tag, attrs, body in page.bodies if tag == "script" and "type" not in attrs)
    style = next(body for tag, _, body in page.bodies if tag == "style")
    digest = {
        name: f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
        for name, body in (("script-src", script), ("style-src", style))
    }
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        **digest,
    }


def test_the_page_names_no_outside_resource_and_no_markup_sink(tmp_path: Path) -> None:
    page = page_of(SessionFile(), tmp_path)
    assert not {"link", "img", "iframe", "object", "base", "form"} & set(page.tags)
    assert not [value for name, value in page.attributes if name in ("src", "href", "style") or name.startswith("on")]
    script = next(body for tag, attrs, body in page.bodies if tag == "script" and "type" not in attrs)
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttpRequest"):
        assert sink not in script
    style = next(body for tag, _, body in page.bodies if tag == "style")
    assert "@import" not in style
    assert "url(" not in style


def test_the_summary_has_places_kinds_labels_and_totals(tmp_path: Path) -> None:
    file = tour()
    meta = page_of(file, tmp_path).block("meta")
    assert meta["session"] == {
        "id": "019a0000-0000-7000-8000-000000000001",
        "name": "Fix the last line <b>bug</b>",
        "cwd": "/home/ada/project",
        "started": "2026-03-01T09:00:00.000Z",
    }
    assert len(meta["parents"]) == len(meta["kinds"]) == len(file.lines) - 1
    assert meta["parents"][:4] == [-1, 0, 1, 2]
    assert meta["kinds"] == "ymnuarralucrauauekpd?busa"
    assert meta["leaf"] == len(meta["parents"]) - 1
    assert meta["labels"] == {"7": "diagnosis"}
    assert meta["problems"] == []
    everything = meta["totals"]["all"]
    assert (everything["requests"], everything["priced"], everything["source"]) == (7, 6, "models.toml")
    assert everything["cost"] == pytest.approx(0.0125 * 5 + 0.5)
    assert meta["totals"]["branches"] == 3


def test_costs_name_their_source_and_say_when_none_was_recorded(tmp_path: Path) -> None:
    file = SessionFile()
    usage = {"input": 10, "output": 5, "totalTokens": 15, "cost": {"total": 0.25}}
    file.reply("x", usage=usage)
    file.result("c", "spawn", "done", usage={"input": 7, "output": 1, "totalTokens": 8, "cost": {}})
    file.add("usage", kind="cache_warm", provider="acme", model="small", usage=usage)
    file.add("compaction", summary="s", firstKeptEntryId="1", tokensBefore=9, usage=usage)
    totals = page_of(file, tmp_path).block("meta")["totals"]
    assert {spent["name"] for spent in totals["models"]} == {
        "acme/large-1",
        "inside tool spawn",
        "acme/small (cache_warm)",
        "compaction summaries",
    }
    assert totals["all"]["source"] == "source not recorded"
    assert (totals["all"]["requests"], totals["all"]["priced"]) == (4, 3)


def test_one_branch_can_be_exported_alone(tmp_path: Path) -> None:
    page = page_of(tour(), tmp_path, PageOptions(exported="", branch="0000000d"))
    entries = page.block("entries")
    assert [entry["id"] for entry in entries][-3:] == ["0000000b", "0000000c", "0000000d"]
    assert not [entry for entry in entries if entry["id"] == "0000000e"]
    meta = page.block("meta")
    assert meta["parents"] == list(range(-1, len(entries) - 1))
    assert meta["leaf"] == -1


def test_a_branch_that_is_not_there_writes_nothing(tmp_path: Path) -> None:
    with opened(tour().write(tmp_path / "s.jsonl")) as session, pytest.raises(NoSuchEntry):
        export_html(session, tmp_path / "page.html", PageOptions(exported="", branch="nope"))
    assert not (tmp_path / "page.html").exists()


def test_the_page_opens_where_navigation_went(tmp_path: Path) -> None:
    path = tour().write(tmp_path / "s.jsonl")
    with Session.open(path, clock=SystemClock(), ids=RandomIds()) as session:
        session.navigate("0000000d")
    out = tmp_path / "page.html"
    with opened(path) as session:
        export_html(session, out, OPTIONS)
    page = Page(out.read_text("utf-8"))
    assert page.block("entries")[page.block("meta")["leaf"]]["id"] == "0000000d"


def test_damage_is_named_and_what_can_be_read_is_shown(tmp_path: Path) -> None:
    file = SessionFile()
    file.user("kept")
    file.lines.append("garbage {")
    file.user("also kept")
    file.user("orphan", parent="nowhere")
    path = file.write(tmp_path / "s.jsonl")
    path.write_bytes(path.read_bytes() + b'{"type":"mess')
    out = tmp_path / "page.html"
    with opened(path) as session:
        export_html(session, out, OPTIONS)
    page = Page(out.read_text("utf-8"))
    kinds = {problem["kind"] for problem in page.block("meta")["problems"]}
    assert {"not-json", "orphan", "torn-tail"} <= kinds
    assert [entry["message"]["content"] for entry in page.block("entries")] == ["kept", "also kept", "orphan"]


def test_bytes_that_are_not_json_for_a_browser_are_written_anew(tmp_path: Path) -> None:
    file = SessionFile()
    file.user("PLACEHOLDER")
    path = tmp_path / "s.jsonl"
    path.write_bytes(file.bytes().replace(b"PLACEHOLDER", b"\\ud800 \xff </b>").replace(b"\n", b"\r\n"))
    out = tmp_path / "page.html"
    with opened(path) as session:
        export_html(session, out, OPTIONS)
    assert Page(out.read_text("utf-8")).block("entries")[0]["message"]["content"] == "\ufffd \ufffd </b>"


def test_an_old_version_is_shown_as_the_present_one(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    lines = [
        {"type": "session", "id": "old", "timestamp": "2025-01-01T00:00:00.000Z", "cwd": "/x"},
        {"type": "message", "timestamp": "t", "message": {"role": "user", "content": "one", "timestamp": 1}},
        {"type": "message", "timestamp": "t", "message": {"role": "hookMessage", "customType": "h", "content": "two"}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "page.html"
    with opened(path) as session:
        export_html(session, out, OPTIONS)
    first, second = Page(out.read_text("utf-8")).block("entries")
    assert second["parentId"] == first["id"]
    assert second["message"]["role"] == "custom"


def test_an_existing_file_is_replaced_only_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("mine")
    with opened(tour().write(tmp_path / "s.jsonl")) as session:
        with pytest.raises(UserError, match="exists"):
            export_html(session, out, OPTIONS)
        assert out.read_text() == "mine"
        report = export_html(session, out, OPTIONS, overwrite=True)
    assert out.stat().st_size == report.size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "s.jsonl"]


def test_a_folder_that_is_not_there_is_an_error_of_one_line(tmp_path: Path) -> None:
    with opened(tour().write(tmp_path / "s.jsonl")) as session, pytest.raises(UserError) as error:
        export_html(session, tmp_path / "none" / "page.html", OPTIONS)
    assert "\n" not in str(error.value)


def test_the_page_adds_little_to_the_entries(tmp_path: Path) -> None:
    file = long_session(2000)
    out = tmp_path / "page.html"
    with opened(file.write(tmp_path / "s.jsonl")) as session:
        size = export_html(session, out, OPTIONS).size
    assert size - len(file.bytes()) < 75_000 + 12 * 2000


def test_entries_are_written_as_they_are_read(tmp_path: Path) -> None:
    """The page comes in pieces no larger than an entry or the template, and nothing is read ahead."""
    file = SessionFile()
    for number in range(50):
        file.user(str(number))
        file.reply(call(f"c{number}", "read", path="x" * 2000))
    with opened(file.write(tmp_path / "s.jsonl")) as session:
        pieces = page_pieces(session, session.nodes(), OPTIONS)
        next(pieces)
        assert session.decoded == 0
        next(pieces)
        assert session.decoded == 1


def test_the_template_keeps_text_that_looks_like_a_placeholder(tmp_path: Path) -> None:
    file = SessionFile()
    file.add("session_info", name="{{script}} {{style}}")
    file.user("{{meta}} {{entries}}")
    page = page_of(file, tmp_path)
    assert page.title == "{{script}} {{style}}"
    assert page.block("entries")[1]["message"]["content"] == "{{meta}} {{entries}}"
    assert re.findall(r"{{\w+}}", json.dumps(page.block("meta"))) == ["{{script}}", "{{style}}"]
