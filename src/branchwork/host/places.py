"""Where skills, prompt templates and agent definitions are looked for, in which order, and what needs trust."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["skills", "prompts", "agents"]

_USER: dict[Kind, tuple[str, ...]] = {
    "skills": (".agents/skills", ".claude/skills", ".pi/agent/skills"),
    "prompts": (".pi/agent/prompts",),
    "agents": (),
}
"""Below the person's home, after `KIND` in BRANCHWORK_HOME."""

_PROJECT: dict[Kind, tuple[str, ...]] = {
    "skills": (".branchwork/skills", ".agents/skills", ".claude/skills", ".pi/skills"),
    "prompts": (".branchwork/prompts", ".pi/prompts"),
    "agents": (".branchwork/agents",),
}

OTHER_PROJECT_RESOURCES = (".branchwork/settings.toml", ".branchwork/extensions", ".branchwork/themes")
"""What other parts read from a project, and only from a trusted one."""

FROM_CWD_UP = ".agents/skills"
"""Looked for in every folder from the working folder up to the project's root, the nearest first."""


class World(Struct, frozen=True, kw_only=True):
    """What resources are looked for in."""

    home: Path
    """BRANCHWORK_HOME."""
    user_home: Path
    """The person's home directory."""
    cwd: Path
    trusted: bool = False
    """Whether what the project brings may be loaded."""
    settings_paths: dict[Kind, tuple[Path, ...]] = {}
    """From `skills.paths` and `prompts.paths`."""
    given_paths: dict[Kind, tuple[Path, ...]] = {}
    """From the command line, such as `--skill`."""
    context_files: bool = True


class Place(Struct, frozen=True):
    path: Path
    source: Literal["package", "user", "project", "settings", "given"]

    @property
    def named(self) -> bool:
        """Whether a person named it: then it may be a single file, and it is missed when it is not there."""
        return self.source in ("settings", "given")


def is_folder(path: Path) -> bool:
    """False too when it cannot be looked at."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """False too when it cannot be looked at."""
    try:
        return path.is_file()
    except OSError:
        return False


def project_root(cwd: Path, user_home: Path) -> Path:
    """The project that `cwd` is in, links followed: the repository's root, or `cwd` itself outside of one.

    A linked worktree or a submodule is a project of its own. A repository that is the person's whole home directory
    counts only in that directory itself.
    """
    cwd = Path(os.path.realpath(cwd))
    own = Path(os.path.realpath(user_home))
    for folder in (cwd, *cwd.parents):
        if os.path.lexists(folder / ".git"):
            return cwd if folder == own else folder
    return cwd


def places(kind: Kind, world: World) -> Iterator[Place]:
    """In the order in which the first of a name wins. They need not exist; none is given twice."""
    seen: set[str] = set()
    for place in _all(kind, world):
        real = os.path.realpath(place.path)
        if real not in seen:
            seen.add(real)
            yield place


def _all(kind: Kind, world: World) -> Iterator[Place]:
    """What was named for this run, the person's own, the project's, what settings name, what comes along: a project
    does not replace what a person made, and what ships can be replaced by anybody."""
    for path in world.given_paths.get(kind, ()):
        yield Place(path, "given")
    for path in _user_places(kind, world):
        yield Place(path, "user")
    if world.trusted:
        for path in project_places(kind, world):
            yield Place(path, "project")
    for path in world.settings_paths.get(kind, ()):
        yield Place(path, "settings")
    if kind != "prompts":  # data/prompts holds the program's own texts
        yield Place(Path(__file__).parent.parent / "data" / kind, "package")


def _user_places(kind: Kind, world: World) -> list[Path]:
    return [world.home / kind, *(world.user_home / name for name in _USER[kind])]


def project_places(kind: Kind, world: World) -> list[Path]:
    """Those of the project, existing or not, without any that is the person's own."""
    root = project_root(world.cwd, world.user_home)
    cwd = Path(os.path.realpath(world.cwd))
    found = []
    for name in _PROJECT[kind]:
        inner = [cwd, *cwd.parents] if name == FROM_CWD_UP else [root]
        found += [folder / name for folder in inner if folder.is_relative_to(root)]
    own = {os.path.realpath(path) for path in _user_places(kind, world)}
    return [path for path in found if os.path.realpath(path) not in own]


def project_resources(world: World) -> tuple[Path, ...]:
    """Files and folders of the project that trust would load; empty folders do not count."""
    root = project_root(world.cwd, world.user_home)
    candidates = [root / name for name in OTHER_PROJECT_RESOURCES]
    for kind in _PROJECT:
        candidates += project_places(kind, world)
    home = os.path.realpath(world.home)
    found = dict.fromkeys(path for path in candidates if _holds_something(path))
    return tuple(path for path in found if os.path.realpath(path.parent) != home)


def _holds_something(path: Path) -> bool:
    try:
        with os.scandir(path) as rows:
            return next(rows, None) is not None
    except NotADirectoryError:
        return path.name.endswith(".toml")
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it cannot be looked into now, but may be later
