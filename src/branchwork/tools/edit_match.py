"""Finding the passages of an edit, and replacing them without touching anything else.

Texts are decoded without loss. Line ends are compared as `\\n`; positions are then mapped back, so that a
replacement covers exactly the characters of the file that it replaces.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice, pairwise

from msgspec import Struct

from branchwork.agent.toolset import ToolError
from branchwork.tools.diff import compare, sendable, split
from branchwork.tools.paths import ODD_SPACES
from branchwork.tools.truncate import cut_line

FUZZY_LIMIT = 8 << 20
"""Characters; larger texts are matched exactly only, because folding needs several copies of them."""
MAX_NAMED_LINES = 10
MAX_HINT_LINES = 10
MAX_HINTS = 3
MAX_COUNTED = 1_000
"""Places of an ambiguous passage that are counted; of one letter there may be millions."""
_SCANNED_LINES = 5_000
"""How many lines of a file are looked at, at most, to find a line like one that is not there."""

_FOLDED = {
    **ODD_SPACES,
    **dict.fromkeys(range(0x2018, 0x201C), "'"),
    **dict.fromkeys(range(0x201C, 0x2020), '"'),
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212), "-"),
}


class Wanted(Struct, frozen=True):
    """One edit as asked for."""

    old: str
    new: str


class Replacement(Struct, frozen=True, kw_only=True):
    """Characters `start` to `end` of the raw text become `text`."""

    start: int
    end: int
    text: str


class Plan(Struct, frozen=True, kw_only=True):
    replacements: tuple[Replacement, ...]
    """In order of position; they do not overlap."""
    fuzzy: tuple[int, ...]
    """Indexes of the edits that matched only after folding."""


def plan(raw: str, edits: Sequence[Wanted], name: str) -> Plan:
    """Where each edit applies. Raises `ToolError`, naming every edit that does not apply and why."""
    source = _Source(raw)
    found: list[_Match] = []
    problems: list[str] = []
    for index, edit in enumerate(edits):
        try:
            found.append(source.match(index, edit))
        except _NoMatch as problem:
            hint = source.closest(edit.old) if problem.hint and len(problems) < MAX_HINTS else ""
            problems.append(f"edits[{index}].oldText {problem}{hint}")
    found.sort(key=lambda match: (match.start, match.end))
    for first, second in pairwise(found):
        if second.start < first.end:
            pair = sorted((first.index, second.index))
            problems.append(f"edits[{pair[0]}] and edits[{pair[1]}] overlap; merge them into one.")
    if problems:
        raise ToolError(f"Nothing was changed in {name}. " + "\n".join(problems))
    replacements = [part for match in found for part in source.replace(match, edits[match.index])]
    return Plan(
        replacements=tuple(replacements),
        fuzzy=tuple(sorted(match.index for match in found if match.fuzzy)),
    )


def apply(raw: str, replacements: Sequence[Replacement]) -> str:
    parts: list[str] = []
    end = 0
    for replacement in replacements:
        parts += (raw[end : replacement.start], replacement.text)
        end = replacement.end
    parts.append(raw[end:])
    return "".join(parts)


class _Match(Struct, frozen=True, kw_only=True):
    """Where an edit applies, in the text with `\\n` line ends."""

    index: int
    start: int
    end: int
    fuzzy: bool


class _NoMatch(Exception):
    def __init__(self, problem: str, *, hint: bool = False) -> None:
        super().__init__(problem)
        self.hint = hint


class _Source:
    def __init__(self, raw: str) -> None:
        pieces = raw.split("\r\n")
        self.text = "\n".join(pieces)
        self._crlf = [end + number for number, end in enumerate(accumulate(map(len, pieces[:-1])))]
        """Positions in `text` of the line ends that have a carriage return in the file."""
        self._mixed = 0 < len(self._crlf) < self.text.count("\n")

    @cached_property
    def _folded(self) -> "_Folded":
        return _Folded(self.text)

    def match(self, index: int, edit: Wanted) -> _Match:
        old = _unix(edit.old)
        if not old:
            raise _NoMatch("is empty. To fill an empty file, use write.")
        start = self.text.find(old)
        if start >= 0:
            if self.text.find(old, start + 1) >= 0:
                self._refuse_several(_occurrences(self.text, old))
            return _Match(index=index, start=start, end=start + len(old), fuzzy=False)
        if len(self.text) > FUZZY_LIMIT:
            raise _NoMatch("was not found (the file is large, so only exact matches count).")
        spans = self._folded.find(old)
        if not spans:
            raise _NoMatch("was not found.", hint=True)
        if len(spans) > 1:
            self._refuse_several(iter([start for start, _ in spans]))
        return _Match(index=index, start=spans[0][0], end=spans[0][1], fuzzy=True)

    def _refuse_several(self, starts: Iterator[int]) -> None:
        lines: list[int] = []
        total, line, position = 0, 1, 0
        for start in islice(starts, MAX_COUNTED):
            total += 1
            if total <= MAX_NAMED_LINES:
                line += self.text.count("\n", position, start)
                position = start
                lines.append(line)
        listed = ", ".join(map(str, lines)) + (", …" if total > len(lines) else "")
        many = f"{total} or more" if total == MAX_COUNTED else str(total)
        raise _NoMatch(f"matches {many} places (lines {listed}); add lines around it to make it unique.")

    def replace(self, match: _Match, edit: Wanted) -> Iterator[Replacement]:
        """The stretches of the file that differ from what the edit wants.

        In a file with one kind of line end an exact match is replaced as a whole. Otherwise only the lines that
        differ between the old and the new text of the edit are, so that the others keep their line ends and
        the spelling that the fuzzy match overlooked.
        """
        old, new = _unix(edit.old), _unix(edit.new)
        if not match.fuzzy and not self._mixed:
            yield self._replacement(match.start, match.end, new)
            return
        old_lines, new_lines = split(old), split(new)
        bounds = list(accumulate(map(len, split(self.text[match.start : match.end])), initial=match.start))
        if len(bounds) == len(old_lines):  # a last line of spaces only, which folding took away
            bounds.append(match.end)
        for change in compare(old_lines, new_lines):
            text = "".join(new_lines[change.new_start : change.new_end])
            yield self._replacement(bounds[change.old_start], bounds[change.old_end], text)

    def _replacement(self, start: int, end: int, text: str) -> Replacement:
        if "\n" in text and self._crlf and self._ends_with_crlf(start):
            text = text.replace("\n", "\r\n")
        return Replacement(start=self._raw(start), end=self._raw(end), text=text)

    def _raw(self, position: int) -> int:
        return position + bisect_left(self._crlf, position)

    def _ends_with_crlf(self, position: int) -> bool:
        """Whether the line at `position` ends with CRLF; the last line, without an end, goes by the one before."""
        place = self.text.find("\n", position)
        if place < 0:
            place = self.text.rfind("\n", 0, position)
        at = bisect_left(self._crlf, place)
        return at < len(self._crlf) and self._crlf[at] == place

    def closest(self, old: str) -> str:
        """The place that looks most like `old`, with line numbers, or nothing."""
        if "\ufffd" in old:
            return " It holds U+FFFD, which stands for bytes that are not UTF-8; choose a passage without them."
        wanted = [line.strip() for line in _unix(old).strip("\n").split("\n")]
        lines = self.text.split("\n")
        place = _vote(lines, wanted)
        if place is None:
            place = _most_words(lines, max(wanted, key=len))
        if place is None:
            return ""
        shown = lines[place : place + min(len(wanted), MAX_HINT_LINES)]
        quoted = "\n".join(f"{place + 1 + offset}: {cut_line(line, 200)}" for offset, line in enumerate(shown))
        return f" The closest place is:\n{sendable(quoted)}"


class _Folded:
    """The text with quotes, dashes, spaces and compatibility characters (NFKC) made plain, and no trailing spaces."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._plain = [_fold(line).rstrip() for line in self._lines]
        self._text = "\n".join(self._plain)
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
        self._plain_starts = [0, *accumulate(len(line) + 1 for line in self._plain)]

    def find(self, old: str) -> list[tuple[int, int]]:
        """Where `old` is in the text that this was made from, start and end of each place."""
        *whole, last = old.split("\n")
        lines = [_fold(line).rstrip() for line in whole]
        exact_end = "\n".join([*lines, _fold(last)])
        spans = self._spans(exact_end, at_line_end=False)
        stripped = "\n".join([*lines, _fold(last).rstrip()])
        if not spans and stripped != exact_end:
            spans = self._spans(stripped, at_line_end=True)
        return spans

    def _spans(self, wanted: str, *, at_line_end: bool) -> list[tuple[int, int]]:
        if not wanted.strip():
            return []
        spans = []
        for position in islice(_occurrences(self._text, wanted), MAX_COUNTED):
            end = position + len(wanted)
            if at_line_end and self._text[end : end + 1] not in ("", "\n"):
                continue
            start_raw, end_raw = self._position(position), self._position(end)
            if start_raw is not None and end_raw is not None:
                spans.append((start_raw, end_raw))
        return spans

    def _position(self, folded: int) -> int | None:
        """The position before folding, or None in the middle of what folding made out of one character."""
        number = bisect_right(self._plain_starts, folded) - 1
        column = folded - self._plain_starts[number]
        line, plain = self._lines[number], self._plain[number]
        if line.startswith(plain) or column == 0:
            return self._starts[number] + column
        found = _columns(line, len(plain)).get(column)
        return None if found is None else self._starts[number] + found


def _columns(line: str, kept: int) -> dict[int, int]:
    """Columns of the folded line, of which `kept` characters are left, and where they are in `line`."""
    clusters = _clusters(line)
    pieces = [_fold(cluster) for cluster in clusters]
    if "".join(pieces) != _fold(line):  # characters that combine across clusters: only the end is known
        return {kept: len(line.rstrip())}
    return dict(zip(accumulate(map(len, pieces)), accumulate(map(len, clusters)), strict=True))


def _fold(text: str) -> str:
    if text.isascii():
        return text
    import unicodedata

    return unicodedata.normalize("NFKC", text).translate(_FOLDED)


def _clusters(line: str) -> list[str]:
    """The line in pieces that normalisation treats apart: a character with its marks, a run of Hangul letters."""
    import unicodedata

    pieces: list[str] = []
    for character in line:
        jamo = "\u1100" <= character <= "\u11ff"
        if pieces and (unicodedata.combining(character) or (jamo and "\u1100" <= pieces[-1][-1] <= "\u11ff")):
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces


def _occurrences(text: str, wanted: str) -> Iterator[int]:
    """Overlapping ones, too."""
    position = text.find(wanted)
    while position >= 0:
        yield position
        position = text.find(wanted, position + 1)


def _vote(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The start for which most of the wanted lines, but for their indentation, are where they should be."""
    places: dict[str, list[int]] = {}
    for offset, line in enumerate(wanted):
        if len(line) > 3:  # brackets and blank lines are everywhere
            places.setdefault(line, []).append(offset)
    votes: Counter[int] = Counter()
    for number, line in enumerate(lines):
        for offset in places.get(line.strip(), ())[:MAX_HINT_LINES]:
            votes[max(number - offset, 0)] += 1
    return max(votes, key=lambda place: (votes[place], -place)) if votes else None


def _most_words(lines: Sequence[str], wanted: str) -> int | None:
    """The line that has most of the words of `wanted`, if it has at least half of them."""
    words = set(_words(wanted))
    best, place = (len(words) + 1) // 2 - 1, None
    for number, line in enumerate(lines[:_SCANNED_LINES]):
        shared = len(words.intersection(_words(line)))
        if shared > best:
            best, place = shared, number
    return place if words else None


def _words(line: str) -> list[str]:
    import re

    return re.findall(r"\w+", line[:2_000])


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")
