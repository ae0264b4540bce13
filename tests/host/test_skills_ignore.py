"""Ignore files mean what they mean to git."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from branchwork.host.ignore import Ignore

TREE = (
    "a",
    "a.md",
    "b/",
    "b/a",
    "b/a.md",
    "b/c/",
    "b/c/a",
    "ab/",
    "ab/c",
    "x y",
    "[a]",
    "#a",
    "!a",
    "c/b/a",
    "c/",
    "c/b/",
)
PATTERNS = (
    *(
        "",
        "# a",
        "a",
        "/a",
        "b/",
        "b/a",
        "/b/a",
        "*/a",
        "**/a",
        "a/**",
        "b/**",
        "b/*",
        "*.md",
        "!a",
        "!b/a",
        "\\#a",
        "\\!a",
    ),
    *(
        "[ab]",
        "[!a]*",
        "[^a]",
        "[a-b]",
        "a?",
        "?",
        "*",
        "x\\ y",
        "x y ",
        "a  ",
        "\\[a]",
        "[[]a]",
        "[a",
        "b/**/a",
        "**/c/**",
    ),
    *(
        "c/**/a",
        "**",
        "/**",
        "/",
        "a\\",
        "**/",
        "b**/c",
        "//a",
        "[]a]",
        "[]-]a",
        "*a",
        "a*",
        "\\a",
        "b/c/",
        "ab//c",
    ),
)


def ours(rules: str, root: Path) -> set[str]:
    (root / ".ignore").write_text(rules)
    ignore = Ignore().entering(root, {".ignore"}, "")
    left: set[str] = set()
    for path in TREE:
        parents = ["/".join(path.split("/")[:n]) for n in range(1, path.rstrip("/").count("/") + 1)]
        whole = ignore.ignores(path.rstrip("/"), is_folder=path.endswith("/"))
        if whole or any(ignore.ignores(parent, is_folder=True) for parent in parents):
            left.add(path.rstrip("/"))
    return left


def git(rules: str, root: Path) -> set[str]:
    (root / ".gitignore").write_text(rules)
    command = ["git", "-C", str(root), "check-ignore", "--no-index", "-z", "--stdin"]
    paths = "\0".join(f"./{path}".rstrip("/") for path in TREE)
    ran = subprocess.run(command, input=paths, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    return {path.removeprefix("./") for path in ran.stdout.split("\0") if path}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for path in TREE:
        if path.endswith("/"):
            (root / path).mkdir(parents=True, exist_ok=True)
    for path in TREE:
        if not path.endswith("/"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).touch()
    return root


@pytest.mark.needs("git")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_leaves_out_what_git_leaves_out(root: Path, pattern: str) -> None:
    assert ours(pattern, root) == git(pattern, root)


@pytest.mark.needs("git")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=st.lists(st.sampled_from(PATTERNS), min_size=2, max_size=5).map("\n".join))
def test_later_rules_override_earlier_ones_as_in_git(root: Path, rules: str) -> None:
    assert ours(rules, root) == git(rules, root)


@given(rules=st.text("a*?[]!/\\-^ \n#", max_size=20))
def test_no_pattern_raises(tmp_path_factory: pytest.TempPathFactory, rules: str) -> None:
    folder = tmp_path_factory.mktemp("rules")
    (folder / ".ignore").write_text(rules)
    Ignore().entering(folder, {".ignore"}, "").ignores("a/b", is_folder=False)
