"""Checks on the syntax tree against the text: what the parser misreads must not pass as harmless."""

import re
from typing import TYPE_CHECKING

from branchwork.policy.shell_redirects import delimiter

if TYPE_CHECKING:
    from tree_sitter import Node

_OPENERS = re.compile(rb"`|\$\(|[<>]\(|\$\{\s")
_COMMENT_MAY_FOLLOW = b" \t\n;&|()<>"
_LITERAL = frozenset(("raw_string", "comment", "ansi_c_string"))
_LOOSE = frozenset(("string", "translated_string", "heredoc_body", "heredoc_redirect"))
"""Their text need not belong to a part."""

_TOKENS = frozenset(("`", "$(", "$((", "<(", ">(", "$(("))


def suspicious(root: "Node", source: bytes) -> str | None:
    """The first thing that a shell may read otherwise than the tree says, or None."""
    opened = _OPENERS.search(source) is not None
    pending = [root]
    while pending:
        node = pending.pop()
        kind = node.type
        if kind == "comment":
            if node.start_byte and source[node.start_byte - 1] not in _COMMENT_MAY_FOLLOW:
                return "comment"
            if b"\n" in source[node.start_byte : node.end_byte]:
                return "comment"
        if kind in _LITERAL:
            continue
        children = node.children
        if kind == "heredoc_redirect":
            problem = _document(node, source)
            if problem:
                return problem
            quoted = any(
                child.type == "heredoc_start" and re.search(rb"['\"\\]", source[child.start_byte : child.end_byte])
                for child in children
            )
            pending.extend(child for child in children if not (quoted and child.type == "heredoc_body"))
            continue
        if opened and _gap(node, children, source):
            return "hidden-substitution"
        if children and kind not in _LOOSE and _skipped(node, children, source):
            return "unread-text"
        pending.extend(children)
    return None


def _skipped(node: "Node", children: list["Node"], source: bytes) -> bool:
    """Whether the parser left out text between the parts of a node. It does so with a `-` before a here-document."""
    position = node.start_byte
    for child in children:
        start = child.start_byte
        if start > position and source[position:start].strip(b" \t\n\\;") not in (b"", b"-"):
            return True
        position = max(position, child.end_byte)
    return node.end_byte > position and source[position : node.end_byte].strip(b" \t\n\\;") != b""


def _gap(node: "Node", children: list["Node"], source: bytes) -> bool:
    """Whether text that belongs to no child opens a substitution. Quotes before it change nothing."""
    if not children:
        return node.type not in _TOKENS and _OPENERS.search(source, node.start_byte, node.end_byte) is not None
    position = node.start_byte
    for child in children:
        if child.start_byte > position and _OPENERS.search(source, position, child.start_byte):
            return True
        position = max(position, child.end_byte)
    return node.end_byte > position and _OPENERS.search(source, position, node.end_byte) is not None


def _document(node: "Node", source: bytes) -> str | None:
    """The body must run from the line after the redirect to the first line that is the delimiter."""
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    body = next((child for child in node.children if child.type == "heredoc_body"), None)
    end = next((child for child in node.children if child.type == "heredoc_end"), None)
    if start is None or end is None:
        return "here-document"
    tabs = source[node.start_byte : start.start_byte].rstrip(b" \t").endswith(b"<<-")
    word = delimiter(source[start.start_byte : start.end_byte].decode("utf-8", "surrogateescape"))
    wanted = word.encode("utf-8", "surrogateescape")
    if not wanted or b"\n" in wanted or b"$" in wanted or b"`" in wanted:
        return "here-document"
    line_start = source.rfind(b"\n", 0, end.start_byte) + 1
    line_end = source.find(b"\n", end.start_byte)
    last = source[line_start : len(source) if line_end < 0 else line_end]
    if (last.lstrip(b"\t") if tabs else last) != wanted:
        return "here-document"
    first = source.find(b"\n", start.end_byte) + 1
    begin = body.start_byte if body is not None else line_start
    if body is not None and first and source[first:begin].strip(b"\t "):
        return "here-document"
    for line in source[begin:line_start].split(b"\n")[:-1] if begin < line_start else ():
        if (line.lstrip(b"\t") if tabs else line) == wanted:
            return "here-document"
    return None
