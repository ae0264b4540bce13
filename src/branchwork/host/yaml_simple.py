"""The YAML that nearly all frontmatter is made of, read without the YAML library.

Whatever is not plainly one of the forms below is left to the library; a property test holds the two to the same
answer. Forms: `key: text`, `key: "text"`, `key: [a, b]`, `key: >-` or `|` with evenly indented lines, and below a
`key:` one level of evenly indented `key: text` or `- text`.
"""

import re
from typing import Any

_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,99}):(?: +(.*))?")
_ITEM = re.compile(r"- +(.*)")
_QUOTED = re.compile(r"\"[^\"\\]*\"|'[^']*'")
_FLOW = re.compile(r"\[ *(?:[A-Za-z_][A-Za-z0-9_./-]*(?: *, *[A-Za-z_][A-Za-z0-9_./-]*)*)? *\]")
_BLOCK = re.compile(r"[|>]-?")

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]{1,100}")
_OTHER_INT = re.compile(r"0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


def scalar(text: str) -> str | int | float | bool | None:
    """A scalar without quotes, by YAML's core schema."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "-+.0123456789" or len(text) > 200:
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OTHER_INT.fullmatch(text):
        return int(text[2:], 8 if text[1] == "o" else 16)
    if _FLOAT.fullmatch(text):
        lower = text.lower()
        return float(lower.replace(".", "") if "n" in lower else lower)
    return text


class _NotSimple(Exception):
    """The library must read it."""


def read_simple(text: str) -> dict[str, Any] | None:
    """The mapping in `text`, whose line ends are `\\n`, or None when that takes the library."""
    if not text.replace("\n", "").isprintable():
        return None  # tabs, control characters, byte order marks, and what some readers take for line breaks
    lines = text.split("\n")
    found: dict[str, Any] = {}
    at = 0
    try:
        while at < len(lines):
            line = lines[at].rstrip(" ")
            at += 1
            if not line or line.startswith("#"):
                continue
            key, rest = _pair(line)
            if key in found:
                return None
            block = at
            while block < len(lines) and lines[block].startswith((" ", "- ")):
                block += 1
            found[key] = _value(rest, lines[at:block])
            at = block
    except _NotSimple:
        return None
    return found


def _pair(line: str) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise _NotSimple
    return match[1], match[2] or ""


def _value(rest: str, block: list[str]) -> Any:
    if not block:
        return _flow(rest)
    indent = len(block[0]) - len(block[0].lstrip(" "))
    if any(line[:indent].strip(" ") or line[indent : indent + 1] in ("", " ") or line[-1] == " " for line in block):
        raise _NotSimple
    body = [line[indent:] for line in block]
    if not rest:
        return _items(body) if body[0].startswith("- ") else _mapping(body, indent)
    if not indent or not _BLOCK.fullmatch(rest):
        raise _NotSimple
    return (" " if rest[0] == ">" else "\n").join(body) + ("" if rest.endswith("-") else "\n")


def _items(body: list[str]) -> list[Any]:
    matches = [_ITEM.fullmatch(line) for line in body]
    return [_text(match[1]) if match else _fail() for match in matches]


def _mapping(body: list[str], indent: int) -> dict[str, Any]:
    pairs = [_pair(line) for line in body]
    found = {key: _text(rest) if rest else None for key, rest in pairs}
    if not indent or len(found) != len(pairs):
        raise _NotSimple
    return found


def _flow(rest: str) -> Any:
    if _FLOW.fullmatch(rest):
        return [scalar(each) for part in rest[1:-1].split(",") if (each := part.strip(" "))]
    return _text(rest) if rest else None


def _text(text: str) -> Any:
    """One line of text, quoted or not."""
    if _QUOTED.fullmatch(text):
        return text[1:-1]
    first = text[0]
    if not (first.isalnum() or first in "_(./~+$"):
        raise _NotSimple
    if ": " in text or " #" in text or text.endswith(":"):
        raise _NotSimple
    return scalar(text)


def _fail() -> Any:
    raise _NotSimple
