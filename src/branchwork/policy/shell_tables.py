"""The tables of `branchwork/data/policy`, read once and indexed for look-ups."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from msgspec import Struct

WRITE, CREATE, INPLACE, REFUSE, OPAQUE, RUN, DIR, VALUE, SAFE, FLAG = (
    "write", "create", "inplace", "refuse", "opaque", "run", "dir", "value", "safe", "flag",
)  # fmt: skip
DANGEROUS = frozenset((WRITE, CREATE, INPLACE, REFUSE, OPAQUE, RUN))
TAKES_VALUE = frozenset((WRITE, RUN, VALUE, DIR))


class Spec(Struct, frozen=True, kw_only=True):
    """One program; the fields are explained in `commands.toml` and `shell.toml`."""

    name: str
    kinds: dict[str, str]
    """Option to its kind. The most dangerous kind wins when an option is listed twice."""
    operands: str = ""
    verdict: str = ""
    bare: str = ""
    handler: str = ""
    single: bool = False
    subs: bool = False
    longs: tuple[str, ...] = ()
    dangerous: bool = False


class Wrapper(Struct, frozen=True, kw_only=True):
    name: str
    spec: Spec
    skip: int = 0
    lock: bool = False
    script: bool = False
    assigns: bool = False
    floor: str = ""
    bare: str = ""


class Verbs(Struct, frozen=True, kw_only=True):
    name: str
    ratings: dict[str, str]
    other: str
    bare: str
    spec: Spec
    project: frozenset[str]
    dashed: bool = False


class Tables(Struct, frozen=True, kw_only=True):
    commands: dict[str, Spec]
    verbs: dict[str, Verbs]
    wrappers: dict[str, Wrapper]
    words: dict[str, frozenset[str]]
    """Word lists of `shell.toml` and `git.toml`, by `section.key`."""
    git_mixed: dict[str, dict[str, Any]]
    git_verbs: dict[str, Spec]
    prefixes: tuple[str, ...]
    config: tuple[str, ...]


def spec(name: str, entry: dict[str, Any]) -> Spec:
    kinds: dict[str, str] = {}
    for kind in (SAFE, VALUE, DIR, OPAQUE, RUN, CREATE, WRITE, INPLACE, REFUSE):
        for option in str(entry.get(kind, "")).split():
            kinds[option] = kind
    for option in str(entry.get("long", "")).split():
        kinds["--" + option] = VALUE
    return Spec(
        name=name,
        kinds=kinds,
        operands=entry.get("operands", ""),
        verdict=entry.get("verdict", ""),
        bare=entry.get("bare", ""),
        handler=entry.get("handler", ""),
        single=entry.get("single", False),
        subs=entry.get("subs", False),
        longs=tuple(option for option, kind in kinds.items() if option.startswith("--") and kind in DANGEROUS | {DIR}),
        dangerous=any(kind in DANGEROUS for kind in kinds.values()),
    )


def _verbs(name: str, entry: dict[str, Any]) -> Verbs:
    return Verbs(
        name=name,
        ratings={verb: rating for rating in "ASB" for verb in str(entry.get(rating, "")).split()},
        other=entry.get("other", "S"),
        bare=entry.get("bare", "A"),
        spec=spec(name, entry),
        project=frozenset(str(entry.get("project", "")).split()),
        dashed=entry.get("dashed", False),
    )


def _wrapper(name: str, entry: dict[str, Any]) -> Wrapper:
    rest = {key: entry[key] for key in ("skip", "lock", "script", "assigns", "floor", "bare") if key in entry}
    return Wrapper(name=name, spec=spec(name, entry), **rest)


@cache
def tables() -> Tables:
    """Raises OSError or ValueError when the installation is damaged."""
    import tomllib

    from branchwork.data import text

    read = {name: tomllib.loads(text(f"policy/{name}.toml")) for name in ("commands", "verbs", "git", "shell")}
    shell, git = read["shell"], read["git"]
    words = {
        f"{section}.{key}": frozenset(value.split())
        for source in (shell, {"git": git})
        for section, entry in source.items()
        if section != "wrappers"
        for key, value in entry.items()
        if isinstance(value, str)
    }
    shared = {REFUSE: git["refuse"], WRITE: git["write"]}
    git_verbs = {verb: spec("git", {**shared, REFUSE: f"{git['refuse']} {more}"}) for verb, more in git["verb"].items()}
    verbs: dict[str, Verbs] = {}
    for key, entry in read["verbs"].items():
        for name in _names(key, read["verbs"]):
            verbs[name] = _verbs(name, entry)
    return Tables(
        commands={name: spec(name, entry) for names, entry in read["commands"].items() for name in names.split()},
        verbs=verbs,
        wrappers={name: _wrapper(name, entry) for names, entry in shell["wrappers"].items() for name in names.split()},
        words=words,
        git_mixed=git["mixed"],
        git_verbs={**git_verbs, "": spec("git", shared)},
        prefixes=tuple(shell["env"]["prefixes"].split()),
        config=tuple(git["config"]["safe"].split()),
    )


def _names(key: str, every: Iterable[str]) -> list[str]:
    """`"pip:cache"` is the second level of pip and of what is listed with pip; `"yum dnf"` are two programs."""
    first, nested, second = key.partition(":")
    if not nested:
        return key.split()
    group = next(other.split() for other in every if other.split()[0] == first)
    return [f"{sibling} {second}" for sibling in group]
