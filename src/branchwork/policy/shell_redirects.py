"""Redirects: which files they write, and what the syntax tree hides among them."""

import re
from typing import TYPE_CHECKING

from branchwork.policy.shell_state import Pipe, State, Unknown
from branchwork.policy.shell_words import ansi

if TYPE_CHECKING:
    from tree_sitter import Node

    from branchwork.policy.shell_walk import Walker

WRITING = frozenset((">", ">>", ">|", "&>", "&>>", ">&", "<>"))
_DESCRIPTOR = re.compile(r"\d+-?\Z|-\Z")


def redirect(walker: "Walker", node: "Node", state: State) -> tuple[list[str], str | None, list["Node"]]:
    """Judge one redirect. Returns extra words of the command, its standard input when known, and later statements."""
    if node.type == "heredoc_redirect":
        return _here_document(walker, node, state)
    if node.type == "herestring_redirect":
        words = [walker.words.one(child, state) for child in node.children if child.is_named]
        fed = words[0] if words and not isinstance(words[0], Unknown) else Unknown("<<<")
        return words[1:], fed, []
    operator = next((child.type for child in node.children if child.type[-1] in "<>&|-" and not child.is_named), "")
    targets = node.children_by_field_name("destination")
    words = [word for target in targets[1:] for word in walker.words.of(target, state)]
    if not targets:
        return words, None, []
    if operator not in WRITING:
        walker.words.one(targets[0], state)
        return words, Unknown("<") if operator == "<" else None, []
    target = walker.words.one(targets[0], state)
    if operator == ">&" and not isinstance(target, Unknown) and _DESCRIPTOR.match(target):
        return words, None, []
    if isinstance(target, Pipe):
        return words, None, []
    walker.judge.write(target, state, "redirect-writes", "A redirect")
    return words, None, []


def _here_document(walker: "Walker", node: "Node", state: State) -> tuple[list[str], str | None, list["Node"]]:
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    literal = start is not None and any(char in walker.text(start) for char in "'\"\\$")
    words: list[str] = []
    rest: list[Node] = []
    fed: str = ""
    for child in node.children:
        kind = child.type
        if kind in ("heredoc_body",):
            text = walker.text(child)
            if literal:
                fed = text
            else:
                walker.visit(child, state)
                fed = Unknown("<<") if "$" in text or "`" in text or "\\" in text else text
        elif kind in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
            more, _, later = redirect(walker, child, state)
            words.extend(more)
            rest.extend(later)
        elif kind in ("heredoc_start", "heredoc_end", "file_descriptor", "comment"):
            continue
        elif child.is_named:
            if node.field_name_for_child(node.children.index(child)) == "argument":
                words.extend(walker.words.of(child, state))
            else:
                rest.append(child)
    return words, fed, rest


def delimiter(text: str) -> str:
    """The word that ends a here-document, without its quotes."""
    text = re.sub(r"\$'((?:[^'\\]|\\.)*)'", lambda match: ansi(match[1]), text)
    return re.sub(r"\\(.)|['\"]", lambda match: match[1] or "", text)
