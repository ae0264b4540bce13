"""All resources together: places, their order, trust, and what loading costs."""

import time
from pathlib import Path

import msgspec
import pytest

from branchwork.host.places import World, places
from branchwork.host.resources import Resources


class House:
    """A home, a project in a repository, and the working folder inside it."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "me"
        self.home = self.user / ".branchwork"
        self.root = folder / "project"
        self.cwd = self.root / "package"
        (self.root / ".git").mkdir(parents=True)
        self.cwd.mkdir()
        self.home.mkdir(parents=True)

    def world(self, *, trusted: bool = True) -> World:
        return World(home=self.home, user_home=self.user, cwd=self.cwd, trusted=trusted)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def skill(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "SKILL.md").write_text(f"---\ndescription: {text}\n---\nBody\n")


def definition(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)


SKILL_PLACES = (
    "given",
    "me/.branchwork/skills",
    "me/.agents/skills",
    "me/.claude/skills",
    "me/.pi/agent/skills",
    "project/.branchwork/skills",
    "project/package/.agents/skills",
    "project/.agents/skills",
    "project/.claude/skills",
    "project/.pi/skills",
    "settings",
)
"""In the order of docs/resources.md, before those of the package."""


def test_skills_come_from_all_places_and_the_first_wins(house: House, tmp_path: Path) -> None:
    world = msgspec.structs.replace(
        house.world(),
        settings_paths={"skills": (tmp_path / "settings",)},
        given_paths={"skills": (tmp_path / "given",)},
    )
    *_, shipped = (place.path for place in places("skills", world))
    assert shipped.parts[-2:] == ("data", "skills")
    for number, place in enumerate(SKILL_PLACES):
        skill(tmp_path / place, f"only-{number:02}", place)
        skill(tmp_path / place, "same", place)
    found = Resources.load(world)
    assert [each.description for each in found.skills if each.name != "same"] == list(SKILL_PLACES)
    same = found.skill("same")
    assert same is not None
    assert (same.description, same.source) == (SKILL_PLACES[0], "given")
    losers = [str(problem.path.relative_to(tmp_path).parent.parent) for problem in found.problems]
    assert losers == list(SKILL_PLACES[1:])
    assert all(str(problem).endswith(f"{same.path} comes first") for problem in found.problems)


def test_without_trust_nothing_of_the_project_but_context_files_is_loaded(house: House, tmp_path: Path) -> None:
    for place in SKILL_PLACES[5:10]:
        skill(tmp_path / place, "evil", place)
    for name in (".branchwork/prompts", ".pi/prompts", ".branchwork/agents"):
        definition(house.root / name, "evil", "x")
    definition(house.root, "AGENTS", "Rules")
    assert Resources.load(house.world(trusted=False)) == Resources(
        context_files=Resources.load(house.world(trusted=False)).context_files
    )
    assert [file.text for file in Resources.load(house.world(trusted=False)).context_files] == ["Rules"]
    trusted = Resources.load(msgspec.structs.replace(house.world(), context_files=False))
    assert trusted.skill("evil") is not None
    assert trusted.template("evil") is not None
    assert trusted.agent("evil") is not None
    assert trusted.context_files == ()
    assert (trusted.skill("no"), trusted.template("no"), trusted.agent("no")) == (None, None, None)


def test_the_persons_own_come_before_the_projects(house: House) -> None:
    for folder, text in ((house.home, "mine"), (house.root / ".branchwork", "theirs")):
        definition(folder / "prompts", "review", text)
        definition(folder / "agents", "scout", text)
    found = Resources.load(house.world())
    template, agent = found.template("review"), found.agent("scout")
    assert template is not None
    assert agent is not None
    assert (template.body(), agent.body(), template.source) == ("mine", "mine", "user")
    assert len(found.problems) == 2


def test_a_place_that_is_a_link_to_another_is_one_place(house: House) -> None:
    skill(house.user / ".agents/skills", "one", "x")
    (house.user / ".claude").mkdir()
    (house.user / ".claude/skills").symlink_to(house.user / ".agents/skills")
    found = Resources.load(house.world())
    assert [each.name for each in found.skills] == ["one"]
    assert found.problems == ()
    assert house.user / ".claude/skills" not in [place.path for place in places("skills", house.world())]


def test_a_project_that_is_the_home_directory_brings_nothing_of_its_own(house: House) -> None:
    skill(house.user / ".branchwork/skills", "one", "x")
    skill(house.user / ".claude/skills", "two", "x")
    world = World(home=house.home, user_home=house.user, cwd=house.user, trusted=True)
    assert [(each.name, each.source) for each in Resources.load(world).skills] == [("one", "user"), ("two", "user")]


def test_a_folder_that_cannot_be_looked_at_stops_nothing(house: House, tmp_path: Path) -> None:
    unusable = tmp_path / ("x" * 300)  # longer than a name may be, so that each look at it is an error
    skill(house.home / "skills", "one", "x")
    world = World(home=house.home, user_home=unusable, cwd=unusable, given_paths={"prompts": (unusable,)}, trusted=True)
    found = Resources.load(world)
    assert [each.name for each in found.skills] == ["one"]
    assert [problem.path for problem in found.problems] == [unusable]


def test_two_hundred_skills_are_found_without_reading_their_bodies(house: House) -> None:
    for number in range(200):
        folder = house.home / "skills" / f"skill-{number:03}"
        folder.mkdir(parents=True)
        head = f"description: >-\n  Use it when you need\n  number {number}.\nmetadata:\n  author: me\n"
        (folder / "SKILL.md").write_text(f"---\n{head}---\n" + "text\n" * 20_000)
    took = []
    for _ in range(3):
        started = time.process_time()
        assert len(Resources.load(house.world()).skills) == 200
        took.append(time.process_time() - started)
    assert min(took) < 0.06
