"""YAML 1.2 for frontmatter: one mapping of plain data, and nothing that could surprise.

Scalars follow the core schema (YAML 1.2.2, section 10.3): `off`, `yes` and `no` are strings, and so are dates.
Anchors, aliases and tags are refused, so nothing can grow, loop or build objects. Keys are strings as written.
"""

from collections.abc import Iterator
from typing import Any

from branchwork.host.yaml_simple import read_simple, scalar

MAX_DEPTH = 24
MAX_NODES = 4_000


class YamlProblem(Exception):
    """What is wrong, in words for the person who wrote it."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        """1-based, within the text."""


def read_mapping(text: str) -> dict[str, Any]:
    """The mapping in `text`, whose line ends are `\\n`; empty for an empty text. Raises `YamlProblem`."""
    simple = read_simple(text)
    return read_full(text) if simple is None else simple


def read_full(text: str) -> dict[str, Any]:
    """As `read_mapping`, always with the real parser (0.1 s to import, 1 ms and more a text)."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return _Builder(iter(YAML(typ="safe", pure=True).parse(text))).document()
    except MarkedYAMLError as error:
        raise _explained(error) from None
    except YAMLError as error:
        raise YamlProblem(str(error).strip().split("\n")[0] or "it cannot be read") from None
    except YamlProblem:
        raise
    except Exception as error:  # noqa: BLE001 - boundary: a third-party parser on text from anywhere
        raise YamlProblem(f"it cannot be read ({type(error).__name__})") from None


def _explained(error: Any) -> YamlProblem:
    """The library's message in one line. What does not end is placed where it begins."""
    what = error.problem or "it cannot be read"
    if "mapping values are not allowed" in what:
        what = "a `: ` inside a value; put the value in quotes"
    elif error.context:
        what = f"{error.context}, {what}"
    mark = error.context_mark if "end" in what and error.context_mark else error.problem_mark
    return YamlProblem(" ".join(what.split()), mark.line + 1 if mark else None)


class _Builder:
    """Turns the parser's events into plain data."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._nodes = 0

    def document(self) -> dict[str, Any]:
        first = self._next_of("StreamStartEvent", "DocumentStartEvent")
        if type(first).__name__ == "StreamEndEvent":
            return {}
        value = self._node(first, 0)
        if type(self._next_of("DocumentEndEvent")).__name__ != "StreamEndEvent":
            raise YamlProblem("it holds more than one document")
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise YamlProblem("it is not a mapping; write lines like `name: value`", first.start_mark.line + 1)
        return value

    def _next_of(self, *skipped: str) -> Any:
        """The next event that is none of `skipped`."""
        event = next(self._events)
        while type(event).__name__ in skipped:
            event = next(self._events)
        return event

    def _node(self, event: Any, depth: int) -> Any:
        line = event.start_mark.line + 1
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise YamlProblem(f"it holds more than {MAX_NODES} values", line)
        if depth > MAX_DEPTH:
            raise YamlProblem(f"it is nested more than {MAX_DEPTH} deep", line)
        kind = type(event).__name__
        if kind == "AliasEvent" or event.anchor:
            raise YamlProblem("anchors and aliases are not supported; write the value out, or quote it", line)
        if event.tag:
            raise YamlProblem("tags (`!name`) are not supported; quote the value if it is text", line)
        if kind == "ScalarEvent":
            return scalar(event.value) if event.implicit[0] else event.value
        if kind == "SequenceStartEvent":
            return list(self._items("SequenceEndEvent", depth))
        return self._mapping(depth)

    def _items(self, end: str, depth: int) -> Iterator[Any]:
        while type(event := next(self._events)).__name__ != end:
            yield self._node(event, depth + 1)

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while type(event := next(self._events)).__name__ != "MappingEndEvent":
            line = event.start_mark.line + 1
            if type(event).__name__ != "ScalarEvent" or event.anchor or event.tag:
                self._node(event, depth + 1)
                raise YamlProblem("a key is not plain text", line)
            if event.value in found:
                raise YamlProblem(f"the key `{event.value}` stands twice", line)
            found[event.value] = self._node(next(self._events), depth + 1)
        return found
