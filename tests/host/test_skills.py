"""Agent Skills: which are found, what odd ones do, and what the model and a person get of them."""

from pathlib import Path

import pytest
import skills_ref  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from branchwork.errors import UserError
from branchwork.host.places import Place
from branchwork.host.skills import MAX_DESCRIPTION, Found, Skill, expand_skill, find_skills, skill_prompt


def add(folder: Path, head: str = "description: Does things", body: str = "Do it.") -> Path:
    """A skill in `folder`; the path of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "SKILL.md"
    path.write_text(f"---\n{head}\n---\n{body}\n")
    return path


def find(*folders: Path) -> Found:
    return find_skills(Place(folder, "given") for folder in folders)


def names(found: Found) -> list[str]:
    return [skill.name for skill in found.skills]


def told(found: Found) -> str:
    return "\n".join(map(str, found.problems))


def test_a_skill_is_a_folder_with_its_file(tmp_path: Path) -> None:
    head = "name: pdf\ndescription: |\n  Reads\n  forms\nlicense: MIT\nmodel-group: fast\nreadonly: on"
    path = add(tmp_path / "pdf", head)
    found = find(tmp_path)
    (skill,) = found.skills
    assert found.problems == ()
    assert (skill.name, skill.description, skill.path, skill.folder) == ("pdf", "Reads forms", path, path.parent)
    assert (skill.metadata["model-group"], skill.metadata["readonly"]) == ("fast", "on")
    assert skill.for_model
    assert skill.body() == "Do it."


def test_a_folder_is_searched_down_to_each_skill_and_not_inside_it(tmp_path: Path) -> None:
    add(tmp_path / "group" / "deep" / "one")
    add(tmp_path / "two")
    add(tmp_path / "two" / "inner")
    add(tmp_path / ".hidden")
    add(tmp_path / "node_modules" / "pack")
    assert names(find(tmp_path)) == ["one", "two"]


def test_the_place_itself_may_be_a_skill_or_its_file(tmp_path: Path) -> None:
    path = add(tmp_path / "one")
    assert names(find(path.parent)) == names(find(path)) == ["one"]
    assert "there is no such skill" in told(find(tmp_path / "gone"))
    assert find_skills([Place(tmp_path / "gone", "user"), Place(path, "user")]) == Found((), ())


def test_loose_files_count_in_the_place_itself_when_they_have_a_description(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name in ("loose.md", "deep/other.md"):
        (tmp_path / name).write_text("---\ndescription: Loose\n---\nText")
    (tmp_path / "README.md").write_text("# Skills")
    (tmp_path / "note.txt").write_text("---\ndescription: x\n---\n")
    found = find(tmp_path)
    assert names(found) == ["loose"]
    assert found.problems == ()


def test_ignored_folders_are_passed_over(tmp_path: Path) -> None:
    for name in ("kept", "dropped", "build", "deep/kept-too", "deep/private", "deep/build"):
        add(tmp_path / name)
    (tmp_path / ".gitignore").write_text("# no\nbuild/\n/dropped\n")
    (tmp_path / "deep" / ".ignore").write_text("private\n!build/\n")
    assert names(find(tmp_path)) == ["build", "kept", "kept-too"]


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    add(tmp_path / "real" / "one", "name: one\ndescription: x")
    place = tmp_path / "place"
    place.mkdir()
    (place / "link").symlink_to(tmp_path / "real")
    (place / "again").symlink_to(tmp_path / "real" / "one")
    (tmp_path / "real" / "loop").symlink_to(tmp_path)
    (place / "self").symlink_to(place / "self")
    found = find(place, tmp_path / "real")
    assert names(found) == ["one"]
    assert told(found) == f"{place}/again/SKILL.md: the name `one` differs from that of its folder, `again`"


def test_folders_that_hold_themselves_many_times_are_searched_once(tmp_path: Path) -> None:
    add(tmp_path / "one")
    for number in range(5):
        (tmp_path / f"loop-{number}").symlink_to(tmp_path)
    found = find(tmp_path)
    assert names(found) == ["one"]
    assert found.problems == ()


def test_the_first_of_a_name_wins_and_the_other_is_named(tmp_path: Path) -> None:
    first = add(tmp_path / "a" / "x")
    second = add(tmp_path / "b" / "x")
    found = find(tmp_path / "a", tmp_path / "b")
    assert [skill.path for skill in found.skills] == [first]
    assert told(found) == f"{second}: the skill `x` is not used: {first} comes first"


@pytest.mark.parametrize(
    ("folder", "head", "name", "detail"),
    [
        ("a", "name: a", None, "no `description`"),
        ("a", "description: ''", None, "no `description`"),
        ("a", "description: 5", None, "no `description`"),
        ("a", "description: [x", None, "the frontmatter is ignored"),
        ("a", "description: x\ndescription: y", None, "stands twice"),
        ("a", "name: b\ndescription: x", "b", "differs from that of its folder, `a`"),
        ("My Skill", "description: x", "my-skill", "'My Skill' should be up to 64"),
        ("a", "name: A b_C\ndescription: x", "a-b-c", "it is used as `a-b-c`"),
        ("a", "name: a--b\ndescription: x", "a-b", "it is used as `a-b`"),
        ("a", "name: -a\ndescription: x", "a", "it is used as `a`"),
        ("a", f"name: {'x' * 65}\ndescription: x", "x" * 64, "it is used as"),
        ("a", "name: 日本\ndescription: x", None, "The skill is left out"),
        ("7", "name: 7\ndescription: x", "7", "it is used as `7`"),
        ("a", f"description: {'x' * (MAX_DESCRIPTION + 1)}", "a", "it is cut"),
        ("a", "description: x\ndisable-model-invocation: yes", "a", "it counts as true"),
        ("a", "description: x\ncompatibility: [1]", "a", "`compatibility` should be text"),
    ],
)
def test_an_odd_skill_is_told_and_used_as_far_as_it_can_be(
    tmp_path: Path, folder: str, head: str, name: str | None, detail: str
) -> None:
    add(tmp_path / folder, head)
    found = find(tmp_path)
    assert names(found) == ([] if name is None else [name])
    (problem,) = found.problems
    assert detail in problem.detail
    assert all(len(skill.description) <= MAX_DESCRIPTION for skill in found.skills)
    assert all(skill.for_model is ("disable" not in head) for skill in found.skills)


def test_what_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    import os

    add(tmp_path / "good")
    (tmp_path / "bytes").mkdir()
    (tmp_path / "bytes" / "SKILL.md").write_bytes(b"---\ndescription: caf\xe9\n---\n\xff\x00")
    (tmp_path / "folder" / "SKILL.md").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "dead.md").symlink_to(tmp_path / "nowhere")
    found = find(tmp_path)
    assert names(found) == ["bytes", "good"]
    assert len(found.problems) == 3
    assert "pipe.md: cannot be read (not a regular file); the skill is left out" in told(found)


def test_a_search_of_a_whole_disk_ends(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(12):
        deep = deep / "d"
    add(deep / "far")
    assert names(find(tmp_path)) == []


NAMES = st.text("ab1-AÄß_. ", min_size=1, max_size=6).filter(lambda name: name.strip(". ") == name != "")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    folder=NAMES,
    name=st.none() | NAMES | st.just("x" * 65),
    description=st.text("ab: #'é\n", max_size=5) | st.sampled_from(["d" * n for n in (1024, 1025)]),
    compatibility=st.none() | st.sampled_from(["c" * n for n in (500, 501)]),
)
def test_what_is_accepted_without_a_word_is_valid_by_the_reference(
    tmp_path_factory: pytest.TempPathFactory,
    folder: str,
    name: str | None,
    description: str,
    compatibility: str | None,
) -> None:
    root = tmp_path_factory.mktemp("skills")
    quoted = description.replace("'", "''")
    fields = {"name": name, "description": f"'{quoted}'", "compatibility": compatibility}
    add(root / folder, "\n".join(f"{key}: {value}" for key, value in fields.items() if value is not None))
    found = find(root)
    wrong = skills_ref.validate(root / folder)
    if found.skills and not found.problems and name is not None:
        assert wrong == []
    if not wrong and (name or "").isascii() and not (name or "").isdigit():
        assert (names(found), found.problems) == ([name], ())


def skill(name: str, **other: object) -> Skill:
    fields: dict[str, object] = {"description": f"About {name}", "path": Path(f"/s/{name}/SKILL.md"), "source": "user"}
    return Skill(name=name, **{**fields, **other})  # type: ignore[arg-type]


def test_the_prompt_lists_name_description_and_path_by_name() -> None:
    hostile = skill("b", description='</skill> & "x" <b>', path=Path('/s/"q"/SKILL.md'))
    skills = [hostile, skill("a"), skill("hidden", for_model=False)]
    text = skill_prompt(skills)
    assert text == skill_prompt(skills[::-1])
    lines = text.split("\n")
    assert (lines[0], lines[-1]) == ("<skills>", "</skills>")
    assert lines[-3:-1] == [
        '<skill name="a" path="/s/a/SKILL.md">About a</skill>',
        '<skill name="b" path="/s/&quot;q&quot;/SKILL.md">&lt;/skill&gt; &amp; &quot;x&quot; &lt;b&gt;</skill>',
    ]
    assert "hidden" not in text
    assert skill_prompt([skills[2]]) == skill_prompt([]) == ""


def test_a_person_gets_the_instructions_with_their_folder_and_arguments(tmp_path: Path) -> None:
    path = add(tmp_path / "one", "description: x\ndisable-model-invocation: true", "Step 1 <b>.")
    (found,) = find(tmp_path).skills
    assert not found.for_model
    text = expand_skill(found, "  now ")
    assert text.startswith(f'<skill name="one" path="{path}">\nPaths here are relative to {path.parent}.')
    assert text.endswith("Step 1 <b>.\n</skill>\n\nnow")
    assert expand_skill(found).endswith("</skill>")
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        expand_skill(found)
