"""A session as one HTML page that needs nothing else: no network, no server, no second file.

The page holds the entries as JSON, one a line, and the program that draws them. Nothing of a session is
ever markup: it is data between script tags, with `<` escaped, under a content security policy that lets
only the page's own script and style run. Entries are written one by one, so memory does not grow with the
session.
"""

import base64
import hashlib
import html
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from branchwork import data
from branchwork.errors import UserError
from branchwork.session.codec import decode_object, encode_object
from branchwork.session.export_data import PageMeta, PageSession, Tally, kind_of
from branchwork.session.files import write_new, write_over
from branchwork.session.index import Node
from branchwork.session.tree import Session

SCRIPTS = ("dom.js", "markdown.js", "store.js", "message.js", "branch.js", "tree.js", "app.js")
"""In the order in which they need each other."""


class PageOptions(Struct, frozen=True, kw_only=True):
    """`exported` is the time of the export (ISO 8601); `branch` limits the page to the path to that entry."""

    exported: str
    branch: str | None = None


class Exported(Struct, frozen=True):
    path: Path
    entries: int
    size: int
    """Bytes."""


def export_html(session: Session, target: Path, options: PageOptions, *, overwrite: bool = False) -> Exported:
    """Write the page to `target`, whole or not at all; its folder must exist.

    Raises UserError when `target` exists and `overwrite` is false or the file cannot be written, NoSuchEntry when
    `options.branch` is none.
    """
    nodes = _nodes(session, options.branch)
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for piece in page_pieces(session, nodes, options):
            size += len(piece)
            yield piece

    try:
        if overwrite and target.exists():
            os.close(write_over(target, counted()))
        elif target.exists():
            raise FileExistsError
        else:
            write_new(target, counted())
    except FileExistsError as error:
        raise UserError(f"{target} exists; give another name or --force") from error
    except OSError as error:
        raise UserError(f"{target} could not be written: {error.strerror or error}") from error
    return Exported(target, len(nodes), size)


def write_html(session: Session, out: IO[bytes], options: PageOptions) -> int:
    """Write the page to a stream; returns the number of bytes."""
    nodes = _nodes(session, options.branch)
    return sum(out.write(piece) for piece in page_pieces(session, nodes, options))


def _nodes(session: Session, branch: str | None) -> Sequence[Node]:
    return session.nodes() if branch is None else session.branch(branch).nodes


def page_pieces(session: Session, nodes: Sequence[Node], options: PageOptions) -> Iterator[bytes]:
    """The page in pieces: the template up to the data, each entry, the summary of what was seen, the rest."""
    template = data.text("export/page.html")
    script, style = _script(), data.text("export/page.css")
    fixed = {
        "script_hash": _hash(script),
        "style_hash": _hash(style),
        "style": style,
        "title": html.escape(_title(session)),
        "script": script,
    }
    before, rest = template.split("{{entries}}")
    between, after = rest.split("{{meta}}")
    yield _fill(before, fixed)
    tally, kinds = Tally(), []
    for index, node in enumerate(nodes):
        entry = session.entry(node.id)
        tally.add(entry)
        kinds.append(kind_of(entry))
        yield (b"[\n" if index == 0 else b",\n") + _safe(_json(session, node))
    yield b"\n]\n" if nodes else b"[\n]\n"
    yield _fill(between, fixed)
    yield _safe(msgspec.json.encode(_meta(session, nodes, "".join(kinds), tally, options)))
    yield _fill(after, fixed)


def _json(session: Session, node: Node) -> bytes:
    """The entry as the file has it when that is one line of sound JSON that says where it stands, else anew."""
    line = session.line(node.id)
    try:
        found = msgspec.json.decode(line)
        sound = b"\n" not in line and b"\r" not in line
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = decode_object(line) or {}
        sound = False
    if sound and found.get("id") == node.id and found.get("parentId") == node.parent_id:
        return line.strip()
    return encode_object({**found, "id": node.id, "parentId": node.parent_id})


def _safe(text: bytes) -> bytes:
    """JSON that cannot end the script element it stands in; `<` occurs in strings only."""
    return text.replace(b"<", b"\\u003c")


def _meta(session: Session, nodes: Sequence[Node], kinds: str, tally: Tally, options: PageOptions) -> PageMeta:
    number = {node.id: index for index, node in enumerate(nodes)}
    leaf = session.branch().anchor_id
    parents = [number.get(node.parent_id, -1) if node.parent_id is not None else -1 for node in nodes]
    header = session.header
    about = {
        "Exported": options.exported,
        "Entries": "one branch only" if options.branch is not None else "all branches",
        "Session file": str(session.path or ""),
        "Format": f"session version {header.version}",
        "Parent session": header.parent_session or "",
    }
    return PageMeta(
        session=PageSession(header.id, session.name, header.cwd, header.timestamp),
        leaf=number.get(leaf, -1) if leaf is not None else -1,
        parents=parents,
        kinds=kinds,
        labels={number[target]: text for target, text in session.labels.items() if target in number},
        totals=tally.totals(len(nodes) - len({parent for parent in parents if parent >= 0})),
        problems=tuple(session.problems),
        about=about,
    )


def _title(session: Session) -> str:
    text = session.name or f"Session {session.header.id}"
    return "".join(char if char.isprintable() else " " for char in text)


def _fill(text: str, values: dict[str, str]) -> bytes:
    """Placeholders replaced in one pass, so that a value that looks like one stays as it is."""
    out, rest = [], text
    while "{{" in rest:
        head, _, rest = rest.partition("{{")
        name, closed, tail = rest.partition("}}")
        if closed and name in values:
            out += [head, values[name]]
            rest = tail
        else:
            out += [head, "{{"]
    return "".join([*out, rest]).encode()


@cache
def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(data.text(f"export/{name}") for name in SCRIPTS) + "})();\n"


def _hash(text: str) -> str:
    """A source expression of a content security policy (CSP level 3, section 2.3.1)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
