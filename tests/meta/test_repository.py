"""What may stand in the repository's files, and whether what they refer to is there."""

import itertools
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.meta.sources import ROOT, relative, repository_files

HERE = Path(__file__).name

FORBIDDEN = {
    "a path of one machine": re.compile(
        r"(?<![\w.~-])(?:/root/|/work/(?:main|shared)\b|/home/(?!(?:[a-z]|me|you|user|someone|ada)\b)\w+|/Users/\w+|[A-Z]:\\Users\\)"
    ),
    "the address of a package registry": re.compile(
        r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|crates\.io|deb\.debian\.org|proxy\.golang\.org|rubygems\.org"
    ),
    "a key": re.compile(
        r"\bsk-(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{20,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}|\bAIza[0-9A-Za-z_-]{35}"
        r"|\bxox[abpr]-[0-9A-Za-z-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    ),
}
"""Test data that needs to look like one of these is put together from parts, and paths use `/home/me`."""

LOCK_FILES = {
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "Pipfile.lock",
    "pylock.toml",
    "package-lock.json",
    "yarn.lock",
    "pnpm-lock.yaml",
}

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def forbidden_in(text: str) -> list[str]:
    """`line N: what it is` for everything that may not stand in a file."""
    return [
        f"line {number}: {name} ({found.group()!r})"
        for number, line in enumerate(text.splitlines(), 1)
        for name, pattern in FORBIDDEN.items()
        for found in pattern.finditer(line)
    ]


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace")


def anchors(markdown: str) -> set[str]:
    """The fragment of each heading: lower case, punctuation dropped, spaces as hyphens."""
    titles = HEADING.findall(FENCE.sub("", markdown))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path, markdown: str) -> list[str]:
    """Links to files or headings that are not there; addresses with a scheme are not looked at."""
    broken = []
    for pair in LINK.findall(FENCE.sub("", markdown)):
        target = unquote(pair[0] or pair[1])
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, fragment = target.partition("#")
        path = (page.parent / name) if name else page
        if not path.exists() or (fragment and fragment not in anchors(text_of(path))):
            broken.append(target)
    return broken


def test_no_file_holds_a_machines_path_a_registrys_address_or_a_key() -> None:
    found = {relative(path): hits for path in repository_files() if (hits := forbidden_in(text_of(path)))}
    assert {name: hits for name, hits in found.items() if Path(name).name != HERE} == {}


@pytest.mark.parametrize(
    "text",
    [
        "see /home/" + "carol/x",
        "cd /root/" + ".cache",
        "/Users/" + "carol",
        "https://files.pythonhosted" + ".org/packages/x",
        "key = 'sk-" + "aB3" * 8 + "'",
        "-----BEGIN RSA PRIVATE " + "KEY-----",
    ],
)
def test_each_kind_of_forbidden_text_is_found(text: str) -> None:
    assert len(forbidden_in(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "/home/me/project",
        "root/leaf",
        "~/work/main",
        "task-" + "aB3" * 8,
        "sk-only-to-be-read-by-a-test-1",
        "from root/ to",
    ],
)
def test_ordinary_text_is_not_mistaken_for_it(text: str) -> None:
    assert forbidden_in(text) == []


def test_there_is_no_lock_file() -> None:
    assert [relative(path) for path in repository_files() if path.name in LOCK_FILES] == []


PAGES = [path for path in repository_files() if path.suffix == ".md" and not path.is_relative_to(ROOT / "src")]
"""Markdown for people; what is below `src` is text for a model."""


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, text_of(page)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](page.md#one-two) [b](#no) [c](gone.md) [d](https://example.org)\n")
    assert broken_links(page, text_of(page)) == ["#no", "gone.md"]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.MULTILINE))


def test_every_make_command_in_the_documents_exists() -> None:
    pages = ("README.md", "AGENTS.md", "CONTRIBUTING.md")
    named = {name: set(re.findall(r"(?:^|`)make ([a-z]+)", text_of(ROOT / name), re.MULTILINE)) for name in pages}
    assert {"demo", "test"} <= named["README.md"]
    assert set().union(*named.values()) - make_targets() == set()


def test_ci_runs_what_a_person_runs() -> None:
    assert text_of(ROOT / ".ci" / "run").splitlines()[-1] == "exec make test"


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_constraints_are_plain_versions_and_cover_every_requirement() -> None:
    lines = [line for line in text_of(ROOT / "constraints.txt").splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", line)] == []
    pinned = {normalized(line.partition("==")[0]) for line in lines}
    assert len(pinned) == len(lines)
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    required = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    names = {normalized(re.match(r"[\w.-]+", each).group()) for each in required}  # type: ignore[union-attr]
    assert names - pinned - {"branchwork"} == set()


MARKER = re.compile(r"^(?:\s*@|pytestmark = )pytest\.mark\.needs\(([^)]*)\)", re.MULTILINE)


def test_every_program_that_a_test_needs_is_installed_for_it_and_no_other() -> None:
    markers = [found for path in (ROOT / "tests").rglob("*.py") for found in MARKER.findall(text_of(path))]
    needed = {name for found in markers for name in re.findall(r'"([^"]+)"', found)}
    (listed,) = re.findall(r'^needed="([^"]*)"', text_of(ROOT / "scripts" / "system.sh"), re.MULTILINE)
    assert needed | {"git"} == {pair.partition(":")[0] for pair in listed.split()}
