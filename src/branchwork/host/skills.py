"""Agent Skills: folders with a `SKILL.md` that the model reads when a task calls for it.

Format: the Agent Skills specification (name, description, license, compatibility, metadata, allowed-tools), plus
`disable-model-invocation`. Names of skills, rules for folders and what a clash does: docs/resources.md.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from branchwork.errors import UserError
from branchwork.host.frontmatter import read_document, read_head
from branchwork.host.ignore import Ignore
from branchwork.host.places import Place, is_file, is_folder
from branchwork.host.problems import Problem

FILE_NAME = "SKILL.md"
MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MAX_DEPTH = 8
MAX_FOLDERS = 2_000
"""In one place; a link to a whole disk is not searched to its end."""

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Skill(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    path: Path
    """`SKILL.md`, or the loose file."""
    source: str
    """The kind of place: package, user, project, settings or given."""
    for_model: bool = True
    """Whether the model is told of it; without, only a person can use it."""
    metadata: dict[str, Any] = {}
    """The frontmatter as it stands, unknown keys included."""

    @property
    def folder(self) -> Path:
        """What paths inside the skill are relative to."""
        return self.path.parent

    def body(self) -> str:
        """The instructions, read now. Raises `UserError` when the file is gone."""
        try:
            return read_document(self.path).body
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}); the skill cannot be used") from None


class Found(Struct, frozen=True):
    skills: tuple[Skill, ...]
    """By name."""
    problems: tuple[Problem, ...]


def find_skills(where: Iterable[Place]) -> Found:
    """The skills in these places; the first of a name wins. Nothing in them raises."""
    search = _Search()
    for place in where:
        search.place(place)
    return Found(tuple(sorted(search.skills.values(), key=lambda skill: skill.name)), tuple(search.problems))


class _Search:
    def __init__(self) -> None:
        self.skills: dict[str, Skill] = {}
        self.problems: list[Problem] = []
        self._files: set[str] = set()
        """Real paths, so that one skill reached over several links is one."""
        self._folders: set[tuple[int, int]] = set()
        """Device and inode of those searched in the present place."""

    def place(self, place: Place) -> None:
        self._folders.clear()
        path = place.path
        if is_folder(path):
            if not self._skill_in(path, place):
                self._folder(path, "", Ignore(), place)
        elif place.named and is_file(path):
            self._load(path, place)
        elif place.named:
            self.problems.append(Problem(path, "there is no such skill or folder of skills"))

    def _skill_in(self, folder: Path, place: Place) -> bool:
        """Whether `folder` is one skill."""
        path = folder / FILE_NAME
        if not is_file(path):
            return False
        self._load(path, place)
        return True

    def _folder(self, folder: Path, below: str, ignore: Ignore, place: Place) -> None:
        try:
            info = folder.stat()
            with os.scandir(folder) as found:
                rows = sorted(found, key=lambda row: row.name)
        except OSError as error:
            self.problems.append(Problem(folder, f"cannot be searched for skills ({error.strerror})"))
            return
        if (info.st_dev, info.st_ino) in self._folders:
            return
        if len(self._folders) == MAX_FOLDERS:
            self.problems.append(Problem(place.path, f"more than {MAX_FOLDERS} folders; the rest is not searched"))
        if len(self._folders) >= MAX_FOLDERS:
            return
        self._folders.add((info.st_dev, info.st_ino))
        ignore = ignore.entering(folder, {row.name for row in rows}, below)
        for row in rows:
            if row.name.startswith(".") or row.name == "node_modules":
                continue
            inner = below + row.name
            path = folder / row.name
            inside = is_folder(path) if row.is_symlink() else row.is_dir()
            if ignore.ignores(inner, is_folder=inside):
                continue
            if not inside:
                if not below and row.name.endswith(".md") and row.name != FILE_NAME:
                    self._load(path, place, loose=True)
            elif not self._skill_in(path, place) and inner.count("/") < MAX_DEPTH:
                self._folder(path, f"{inner}/", ignore, place)

    def _load(self, path: Path, place: Place, *, loose: bool = False) -> None:
        real = os.path.realpath(path)
        if real in self._files:
            return
        self._files.add(real)
        try:
            head = read_head(path)
        except OSError as error:
            self.problems.append(Problem(path, f"cannot be read ({error.strerror}); the skill is left out"))
            return
        if loose and "description" not in head.metadata and head.problem is None:
            return  # a README or the like
        skill = self._skill(path, head.metadata, place, head.problem)
        if skill is None:
            return
        first = self.skills.setdefault(skill.name, skill)
        if first is not skill:
            self.problems.append(Problem(path, f"the skill `{skill.name}` is not used: {first.path} comes first"))

    def _skill(self, path: Path, metadata: dict[str, Any], place: Place, problem: Problem | None) -> Skill | None:
        wrong = _Notes(path, self.problems)
        if problem is not None:
            self.problems.append(problem)
        description = metadata.get("description")
        if not isinstance(description, str) or not description.strip():
            if problem is None:
                wrong.note("no `description` in its frontmatter, so the skill is left out")
            return None
        given = path.parent.name if path.name == FILE_NAME else path.stem
        name = _name(metadata, given, wrong)
        if name is None:
            return None
        if len(description.strip()) > MAX_DESCRIPTION:
            wrong.note(f"the description is longer than {MAX_DESCRIPTION} characters; it is cut")
        compatibility = metadata.get("compatibility", "")
        if not isinstance(compatibility, str) or len(compatibility) > MAX_COMPATIBILITY:
            wrong.note(f"`compatibility` should be text of up to {MAX_COMPATIBILITY} characters")
        hidden = metadata.get("disable-model-invocation", False)
        if not isinstance(hidden, bool):
            wrong.note("`disable-model-invocation` should be true or false; it counts as true")
        return Skill(
            name=name,
            description=" ".join(description.split())[:MAX_DESCRIPTION],
            path=path,
            source=place.source,
            for_model=hidden is False,
            metadata=metadata,
        )


class _Notes(Struct, frozen=True):
    path: Path
    problems: list[Problem]

    def note(self, detail: str) -> None:
        self.problems.append(Problem(self.path, detail))


def _name(metadata: dict[str, Any], folder: str, wrong: _Notes) -> str | None:
    """The name by which the skill is used; None when there is none that can be typed."""
    wanted = metadata.get("name", folder)
    text = wanted.strip() if isinstance(wanted, str) else str(wanted)
    name = "-".join(re.findall(r"[a-z0-9]+", text.lower()))[:MAX_NAME].strip("-")
    if not name:
        wrong.note(f"`name` is {text!r}; use lower-case letters, digits and hyphens. The skill is left out")
        return None
    if name != wanted or not _NAME.fullmatch(text):
        rule = f"up to {MAX_NAME} lower-case letters, digits and single hyphens"
        wrong.note(f"the name {text!r} should be {rule}; it is used as `{name}`")
    elif "name" not in metadata:
        pass
    elif name != folder:
        wrong.note(f"the name `{name}` differs from that of its folder, `{folder}`")
    return name


def skill_prompt(skills: Sequence[Skill]) -> str:
    """The section of the system prompt: name, description and path of each skill for the model, by name. Or empty."""
    from branchwork.agent.prompt import tagged

    rows = [
        f'<skill name="{skill.name}" path="{escaped(str(skill.path))}">{escaped(skill.description)}</skill>'
        for skill in sorted(skills, key=lambda skill: skill.name)
        if skill.for_model
    ]
    if not rows:
        return ""
    intro = (
        "Instructions for particular kinds of work. When a task fits a description, read the file at its path before "
        "you begin, and follow it. Paths in it are relative to the folder that the file is in."
    )
    return tagged("skills", "\n".join((intro, *rows)))


def expand_skill(skill: Skill, args: str = "") -> str:
    """What `/skill:NAME args` sends: the instructions with their folder, then the arguments. Raises `UserError`."""
    place = f'<skill name="{skill.name}" path="{escaped(str(skill.path))}">'
    text = f"{place}\nPaths here are relative to {skill.folder}.\n\n{skill.body()}\n</skill>"
    return f"{text}\n\n{args.strip()}" if args.strip() else text


def escaped(text: str) -> str:
    """For text or an attribute between tags."""
    for char, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(char, name)
    return text
