"""Prompt templates: `prompts/NAME.md`, used as `/NAME arguments`. And Markdown definitions in general."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct

from branchwork.errors import UserError
from branchwork.host.frontmatter import Document, read_document, read_head
from branchwork.host.places import Place, is_file, is_folder
from branchwork.host.problems import Problem

_SUMMARY = 80


class Definition(Struct, frozen=True, kw_only=True):
    """A Markdown file with frontmatter, known by name. What the metadata means is up to whoever uses it."""

    name: str
    """That in the frontmatter where the kind has one, else the file's without `.md`."""
    description: str
    path: Path
    source: str
    """The kind of place: package, user, project, settings or given."""
    metadata: dict[str, Any] = {}
    """The frontmatter as it stands, unknown keys included."""

    def body(self) -> str:
        """The text below the frontmatter, read now. Raises `UserError` when the file is gone."""
        try:
            return read_document(self.path).body
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}); `{self.name}` cannot be used") from None


class Template(Definition, frozen=True, kw_only=True):
    argument_hint: str = ""
    """What to type after the name, such as `<file> [why]`."""


class Read(Struct, frozen=True):
    """One file of a folder of definitions."""

    path: Path
    head: Document
    source: str


def find_templates(where: Iterable[Place]) -> tuple[tuple[Template, ...], tuple[Problem, ...]]:
    """By name; the first of a name wins. Folders are not searched further down. Nothing in them raises."""
    problems: list[Problem] = []
    found: dict[str, Template] = {}
    for read in read_folder(where, "prompt template", problems):
        name = read.path.stem
        if not re.fullmatch(r"[^\s/]+", name):
            problems.append(Problem(read.path, "a template's file name has no white space; it is left out"))
            continue
        hint = read.head.metadata.get("argument-hint", "")
        template = Template(
            name=name,
            description=describe(read.head),
            path=read.path,
            source=read.source,
            metadata=read.head.metadata,
            argument_hint=hint if isinstance(hint, str) else _shown(hint),
        )
        keep_first(found, template, "prompt template", problems)
    return tuple(sorted(found.values(), key=lambda each: each.name)), tuple(problems)


def read_folder(where: Iterable[Place], what: str, problems: list[Problem]) -> Iterable[Read]:
    """The heads of the `.md` files in these folders, or of files named directly, each real file once."""
    seen: set[Path] = set()
    for place in where:
        for path in _files(place, what, problems):
            real = path.resolve()
            if real in seen:
                continue
            seen.add(real)
            try:
                head = read_head(path)
            except OSError as error:
                problems.append(Problem(path, f"cannot be read ({error.strerror}); the {what} is left out"))
                continue
            if head.problem:
                problems.append(head.problem)
            yield Read(path, head, place.source)


def keep_first(found: dict[str, Any], new: Definition, what: str, problems: list[Problem]) -> None:
    first = found.setdefault(new.name, new)
    if first is not new:
        problems.append(Problem(new.path, f"the {what} `{new.name}` is not used: {first.path} comes first"))


def _files(place: Place, what: str, problems: list[Problem]) -> list[Path]:
    path = place.path
    if is_folder(path):
        try:
            found = sorted(path.glob("*.md"))
        except OSError as error:
            problems.append(Problem(path, f"cannot be searched ({error.strerror})"))
            return []
        return [each for each in found if not each.name.startswith(".") and not is_folder(each)]
    if not place.named:
        return []
    if is_file(path):
        return [path]
    problems.append(Problem(path, f"there is no such {what} or folder"))
    return []


def describe(head: Document) -> str:
    """The description, else the beginning of the text, on one line."""
    given = head.metadata.get("description")
    if isinstance(given, str) and given.strip():
        return " ".join(given.split())
    first = head.body.lstrip().partition("\n")[0].strip("# ")
    return first if len(first) <= _SUMMARY else f"{first[: _SUMMARY - 1].rstrip()}…"


def _shown(value: Any) -> str:
    """`[file]` without quotes is a list in YAML, and meant as text."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else ""


_PLACEHOLDER = re.compile(
    r"\$(?:"
    r"(?P<number>[1-9][0-9]{0,5})"
    r"|(?P<all>@|ARGUMENTS(?![A-Za-z0-9_]))"
    r"|\{(?P<one>[1-9][0-9]{0,5}|@|ARGUMENTS)(?::-(?P<default>[^}]*))?\}"
    r"|\{@:(?P<start>[0-9]{1,6})(?::(?P<count>[0-9]{1,6}))?\}"
    r")"
)


def expand_template(template: Template, args: str = "") -> str:
    """What `/NAME args` sends. Raises `UserError` when the file is gone."""
    return substitute(template.body(), args)


def substitute(body: str, args: str) -> str:
    """`body` with its placeholders filled, in one pass: what is filled in is not looked at again.

    `$1`, `${1}`, `$@`, `$ARGUMENTS`; `${1:-text}` and `${@:-text}` for text when there is nothing; `${@:2}` from the
    second on, `${@:2:3}` three of those. What is missing is empty. A body without any placeholder gets the arguments
    as they are typed below it.
    """
    words = split_arguments(args)
    if not _PLACEHOLDER.search(body):
        return f"{body}\n\n{args.strip()}" if args.strip() else body

    def fill(match: re.Match[str]) -> str:
        if match["start"]:
            start = max(int(match["start"]), 1) - 1
            end = None if match["count"] is None else start + int(match["count"])
            return " ".join(words[start:end])
        which = match["number"] or match["all"] or match["one"]
        value = " ".join(words) if not which.isdigit() else "".join(words[int(which) - 1 : int(which)])
        return value or match["default"] or ""

    return _PLACEHOLDER.sub(fill, body)


_WORD = re.compile(
    r"""
    \s*
    (?:
        (?P<quote>["'])(?P<quoted>(?:\\(?P=quote)|(?!(?P=quote)).)*)(?P=quote)(?P<rest>\S*)
        | (?P<bare>\S+)
    )
    """,
    re.VERBOSE | re.DOTALL,
)


def split_arguments(text: str) -> list[str]:
    """Words as a shell has them, without its surprises.

    A quote counts only at the beginning of a word, and ends at the next one of its kind that has no backslash before
    it; without such an end it is an ordinary character. `""` is an empty word.
    """
    words = []
    for match in _WORD.finditer(text):
        if match["bare"] is not None:
            words.append(match["bare"])
        else:
            quote = match["quote"]
            words.append(match["quoted"].replace(f"\\{quote}", quote) + match["rest"])
    return words
