"""What each mode takes away: a restriction for the posture, and a closer look at commands that use the network."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from branchwork.extensions.modes.prompts import MARK
from branchwork.extensions.modes.state import MODES, Mode
from branchwork.policy.posture import Restriction
from branchwork.policy.verdicts import Judgement, SimpleCommand

MANIFEST = ("docs", "design", "manifest.json")
MAX_MANIFEST = 1 << 20
"""Bytes from which a manifest counts as broken."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


READERS = _names(
    "pwd ls find rg grep egrep fgrep cat head tail wc jq tree diff cmp stat file sort uniq column cut tr nl comm paste "
    "fold basename dirname realpath readlink sed awk echo printf true false test [ cd read ccc"
)
"""Programs that may run in Review, where the network is on; each still has to be one that only reads."""
GIT_READERS = _names(
    "diff log show status blame grep ls-files ls-tree rev-parse rev-list cat-file merge-base shortlog describe"
)
GH_READERS = _names("view diff list status checks")
"""Of `gh pr`."""
GH_PUBLISHERS = {"review": _names("--approve -a --request-changes -r --comment -c"), "comment": _names("")}
"""Of `gh pr`: those that say something on GitHub, and their options without a value."""
NETWORK = _names("curl wget ssh scp sftp rsync nc ncat netcat socat telnet ftp lftp aria2c http https xh")
WRAPPERS = _names(
    "env time timeout nohup nice ionice xargs parallel command exec sudo doas setsid stdbuf watch find busybox"
)
"""Programs whose arguments may name another program."""

_GH_ENVIRONMENT = re.compile(r"\b(?:GH|GITHUB|GIT|PAGER|BROWSER|EDITOR|VISUAL)\w*\+?=")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_UNKNOWN = ("$…", "$(…)", "/dev/fd/…")
"""Stand in the words of a judgement for what is only known at run time."""


# ---- restrictions ---------------------------------------------------------------------------------


def restriction(mode: Mode, cwd: Path) -> Restriction | None:
    """What `mode` takes away in a project at `cwd`; None when nothing."""
    if mode in ("off", "build"):
        return None
    write: tuple[str, ...] = ()
    may = "Reading, searching and commands that only read are possible."
    if mode == "design":
        write = design_surface(cwd)
        may = "Only docs/design and the token files that its manifest declares may be written."
    return Restriction(
        contributor=f"{MODES[mode].label} mode",
        reason=f"{may} The latest `{MARK}` line says which mode is active.",
        write=write,
        shell="read-only",
        network=mode == "review",
        delegate="readers",
    )


def unknown_mode(name: str) -> Restriction:
    """For a `--mode` that there is not: a slip of the pen must not open everything."""
    return Restriction(
        contributor=f"--mode={name}",
        reason="There is no such mode, so nothing may be changed until the person chooses one.",
        write=(),
        shell="off",
        network=False,
        delegate="none",
    )


def design_surface(cwd: Path) -> tuple[str, ...]:
    """The real paths that Design may write: docs/design, and the declared token files. Empty when in doubt.

    None of them may be reached over a link, since a link could lead to any source.
    """
    root = Path(os.path.realpath(cwd))
    folder = root.joinpath(*MANIFEST[:2])
    if _reached_over_link(folder) or (folder.exists() and not folder.is_dir()):
        return ()
    files = [root / name for name in token_files(cwd)]
    return (str(folder), *(str(path) for path in files if not _reached_over_link(path) and not path.is_dir()))


def _reached_over_link(path: Path) -> bool:
    return os.path.realpath(path) != str(path)


def token_files(cwd: Path) -> tuple[str, ...]:
    """`tokenFiles` of the manifest, relative to `cwd`. None at all when the manifest or one of them is not in order."""
    path = Path(os.path.realpath(cwd), *MANIFEST)
    try:
        if _reached_over_link(path) or path.stat().st_size > MAX_MANIFEST:
            return ()
        manifest: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    if not isinstance(manifest, dict) or type(manifest.get("version")) is not int or manifest["version"] != 1:
        return ()
    names = manifest.get("tokenFiles")
    if manifest.get("kind") != "design-docs" or not isinstance(names, list):
        return ()
    return tuple(names) if all(_is_token_file(name) for name in names) else ()


def _is_token_file(name: Any) -> bool:
    if not isinstance(name, str) or not name.lower().endswith(".css") or not name.isprintable() or "\\" in name:
        return False
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):  # an absolute path begins with an empty part
        return False
    lower = [part.lower() for part in parts]
    return lower[0] not in (".pi", ".branchwork", ".git") and lower[:2] != ["docs", "engineering"]


def is_manifest(argument: str, cwd: Path) -> bool:
    """Whether a path, as a tool is given it, is the design manifest."""
    text = argument.strip().removeprefix("@")
    real = os.path.realpath(cwd / Path(text).expanduser())
    return real.lower() == os.path.realpath(cwd.joinpath(*MANIFEST)).lower()


# ---- commands -------------------------------------------------------------------------------------


class Objection(Struct, frozen=True):
    reason: str


class Publishes(Struct, frozen=True):
    """The command says something on GitHub: the person has to agree."""

    command: str


def look_at(mode: Mode, command: str, judgement: Judgement) -> Objection | Publishes | None:
    """What a mode has against a shell command beyond its restriction; None when nothing."""
    if mode in ("off", "build"):
        return None
    if mode != "review":
        return _first(_offline(each) for each in judgement.commands)
    if _publishes(judgement.commands):
        if judgement.verdict != "A" or _GH_ENVIRONMENT.search(command.split("gh", 1)[0]):
            return Objection("A command that publishes has to be plain and on its own.")
        return Publishes(command)
    if judgement.verdict != "A":
        return Objection(f"{judgement.reason.rstrip('.')}. The network is on in Review, so it must be clear what runs.")
    uses_gh = any(_base(each.words) == "gh" for each in judgement.commands)
    if uses_gh and _GH_ENVIRONMENT.search(command):
        return Objection("`gh` runs without changes to its environment.")
    return _first(_reviewing(each) for each in judgement.commands)


def _first(found: Any) -> Objection | None:
    objection: Objection | None = next((each for each in found if each is not None), None)
    return objection


def _offline(command: SimpleCommand) -> Objection | None:
    """Modes without network: a clear word instead of a connection that fails or, without sandbox, does not."""
    for index, word in enumerate(command.words):
        name = word.rpartition("/")[2].lower()
        if name in NETWORK:
            return Objection(f"`{name}` was refused: the network is off in this mode.")
        if name == "gh" and not _gh_reads(command.words[index:]):
            return Objection("`gh` was refused: only `gh pr view|diff|list|status|checks` reads without changes.")
        if index == 0 and name not in WRAPPERS:
            return None
    return None


def _reviewing(command: SimpleCommand) -> Objection | None:
    name = _base(command.words)
    if name == "gh":
        if _gh_reads(command.words):
            return None
        return Objection(
            "Of `gh`, `pr view|diff|list|status|checks` may run, with plain arguments and without --web; "
            "`pr review|comment` with --body inline and alone in its command, when the person agrees."
        )
    if name == "git":
        return None if _git_reads(command.words) else Objection("Of `git`, only commands that read what is here run.")
    if name not in READERS:
        return Objection(f"`{name}` is not among the readers of Review; builds and tests belong to Plan and Build.")
    if name == "find" and any(word.startswith(("-exec", "-ok")) for word in command.words):
        return Objection("`find` runs no other programs in Review.")
    if name == "ccc" and command.words[1:2] != ("search",):
        return Objection("Of `ccc`, only `search` runs in Review.")
    return None


def _base(words: Sequence[str]) -> str:
    """The program's name; one that is given by its path stays a path, as anything may lie there."""
    first = words[0] if words else ""
    return first.removeprefix("/usr/bin/").removeprefix("/bin/")


def _gh_reads(words: Sequence[str]) -> bool:
    if tuple(words[1:]) in (("--version",), ("version",)):
        return True
    if len(words) < 3 or words[1] != "pr" or words[2] not in GH_READERS:
        return False
    return _plain(words[3:]) and not any(word in ("-w", "--web") or word.startswith("--web=") or _bundles(word, "w")
                                         for word in words[3:])  # fmt: skip


def _bundles(word: str, letter: str) -> bool:
    """Whether a bundle of short options, such as `-cw`, has `letter`; what comes after a value letter is a value."""
    if not re.fullmatch(r"-[A-Za-z]+", word):
        return False
    flags = re.split(r"[RLqtHBAlSs]", word[1:])[0]
    return letter in flags


def _plain(words: Sequence[str]) -> bool:
    """Whether all is known, and no argument leads to another host."""
    for index, word in enumerate(words):
        if not _known(word):
            return False
        option, given, value = word.partition("=")
        if option in ("-R", "--repo"):
            value = value if given else (words[index + 1] if index + 1 < len(words) else "")
            if not _REPOSITORY.fullmatch(value):
                return False
        elif word.startswith("-R"):
            if not _REPOSITORY.fullmatch(word[2:].removeprefix("=")):
                return False
        elif "://" in word and not word.startswith("https://github.com/"):
            return False
    return True


def _known(word: str) -> bool:
    return not any(mark in word for mark in _UNKNOWN)


def _publishes(commands: Sequence[SimpleCommand]) -> bool:
    """Whether this is one `gh pr review` or `gh pr comment` with its text inline."""
    if len(commands) != 1:
        return False
    words = commands[0].words
    if len(words) < 4 or _base(words) != "gh" or words[1] != "pr" or words[2] not in GH_PUBLISHERS:
        return False
    if not all(map(_known, words)):
        return False
    bare, rest, body, targets = GH_PUBLISHERS[words[2]], list(words[3:]), 0, 0
    while rest:
        word = rest.pop(0)
        option, given, value = word.partition("=")
        if word in bare:
            continue
        if option in ("--body", "-b", "--repo", "-R"):
            value = value if given else (rest.pop(0) if rest else "")
            body += option in ("--body", "-b") and bool(value.strip())
            if option in ("--repo", "-R") and not _REPOSITORY.fullmatch(value):
                return False
        elif word.startswith("-"):
            return False
        else:
            targets += 1
            if not _plain([word]):
                return False
    return targets <= 1 and (body == 1 or (words[2] == "review" and body == 0 and bool(bare & set(words))))


def _git_reads(words: Sequence[str]) -> bool:
    rest = list(words[1:])
    while rest and rest[0] in ("-C", "--no-pager", "-P"):
        del rest[: 2 if rest[0] == "-C" else 1]
    return bool(rest) and rest[0] in GIT_READERS
