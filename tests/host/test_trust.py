"""Trust: a person's decision by folder, and what happens without one."""

import stat
import threading
from io import StringIO
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.frontends.console import Console
from branchwork.host.places import World, project_root
from branchwork.host.trust import Remembered, TrustFile, decide, needs_trust


class Place:
    """A home and a repository in it."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "me"
        self.home = self.user / ".branchwork"
        self.root = self.user / "src" / "project"
        (self.root / ".git").mkdir(parents=True)
        self.file = TrustFile(self.home)

    def world(self, cwd: Path | None = None) -> World:
        return World(home=self.home, user_home=self.user, cwd=cwd or self.root)

    def add(self, name: str, text: str = "x") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(
    ("file", "what"),
    [
        (".branchwork/settings.toml", ".branchwork/settings.toml"),
        (".branchwork/extensions/a.py", ".branchwork/extensions"),
        (".branchwork/skills/a/SKILL.md", ".branchwork/skills"),
        (".branchwork/prompts/a.md", ".branchwork/prompts"),
        (".branchwork/agents/a.md", ".branchwork/agents"),
        (".branchwork/themes/a.toml", ".branchwork/themes"),
        (".agents/skills/a/SKILL.md", ".agents/skills"),
        (".claude/skills/a/SKILL.md", ".claude/skills"),
        (".pi/skills/a/SKILL.md", ".pi/skills"),
        (".pi/prompts/a.md", ".pi/prompts"),
    ],
)
def test_what_would_be_loaded_needs_trust(place: Place, file: str, what: str) -> None:
    assert needs_trust(place.world()) == ()
    place.add(file)
    assert needs_trust(place.world()) == (what,)


def test_context_files_and_empty_folders_need_none(place: Place) -> None:
    place.add("AGENTS.md")
    place.add(".branchwork/bridge/x")
    (place.root / ".branchwork/skills").mkdir()
    assert needs_trust(place.world()) == ()
    assert decide(place.world()).notice is None


def test_skills_count_from_the_working_folder_up_to_the_root_and_not_above(place: Place) -> None:
    inner = place.root / "a" / "b"
    inner.mkdir(parents=True)
    place.add("a/.agents/skills/x.md")
    place.add(".agents/skills/x.md")
    place.add("../.agents/skills/x.md")
    assert needs_trust(place.world(inner)) == ("a/.agents/skills", ".agents/skills")


def test_the_persons_own_folders_need_no_trust(place: Place) -> None:
    for name in (".branchwork/skills/x.md", ".branchwork/settings.toml", ".agents/skills/x.md", ".claude/skills/x.md"):
        path = place.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert needs_trust(place.world(place.user)) == ()
    (place.user / ".git").mkdir()
    assert needs_trust(place.world(place.user)) == ()


def test_the_project_is_the_repository_else_the_folder(place: Place) -> None:
    inner = place.root / "a"
    inner.mkdir()
    assert project_root(inner, place.user) == place.root
    assert project_root(place.root.parent, place.user) == place.root.parent
    (place.user / ".git").mkdir()  # all of the home directory is a repository
    assert project_root(place.root.parent, place.user) == place.root.parent
    (inner / ".git").write_text("gitdir: ../.git/worktrees/a")
    assert project_root(inner, place.user) == inner


def test_without_a_decision_nothing_is_loaded_and_one_line_says_how(place: Place) -> None:
    place.add(".branchwork/settings.toml")
    place.add(".claude/skills/a/SKILL.md")
    decision = decide(place.world())
    assert (decision.trusted, decision.source) == (False, "default")
    notice = decision.notice
    assert notice is not None
    assert "\n" not in notice
    assert ".branchwork/settings.toml, .claude/skills" in notice
    assert f"`branchwork trust {place.root}`" in notice


def test_the_nearest_decision_counts(place: Place) -> None:
    place.add(".branchwork/settings.toml")
    place.file.remember(place.user / "src", True)
    decision = decide(place.world())
    assert (decision.trusted, decision.source, decision.folder) == (True, "remembered", place.user / "src")
    place.file.remember(place.root, False)
    decision = decide(place.world())
    assert (decision.trusted, decision.folder, decision.notice) == (False, place.root, None)
    assert decision.skipped == (".branchwork/settings.toml",)
    assert place.file.forget(place.root)
    assert not place.file.forget(place.root)
    assert decide(place.world()).trusted
    place.file.remember(place.user / "sr", False)  # a name that begins alike is another folder
    assert decide(place.world()).trusted


def test_a_flag_wins_for_this_run_only(place: Place) -> None:
    place.add(".branchwork/settings.toml")
    place.file.remember(place.root, False)
    assert decide(place.world(), flag=True).trusted
    place.file.remember(place.root, True)
    decision = decide(place.world(), flag=False)
    assert (decision.trusted, decision.source, decision.notice) == (False, "flag", None)
    assert place.file.decisions() == (Remembered(place.root, True),)


def test_a_link_to_a_project_is_that_project(place: Place, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place.root)
    assert place.file.remember(link, True) == place.root
    assert decide(place.world(link)).folder == place.root
    other = tmp_path / "other"
    other.mkdir()
    link.unlink()
    link.symlink_to(other)  # what the link led to was trusted, not the link
    assert not decide(place.world(link)).trusted


def test_the_file_is_private_and_nothing_else_is_left(place: Place) -> None:
    place.file.remember(place.root, True)
    place.file.path.chmod(0o644)
    place.file.remember(place.root, False)
    assert stat.S_IMODE(place.file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.home.stat().st_mode) == 0o700
    assert sorted(path.name for path in place.home.iterdir()) == ["trust.json", "trust.json.lock"]


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"/a": "yes"}', b'{"/a": 1}', b"\xff"])
def test_a_broken_file_trusts_nobody_is_reported_and_is_left_alone(place: Place, data: bytes) -> None:
    place.home.mkdir(parents=True)
    place.file.path.write_bytes(data)
    decision = decide(place.world())
    assert not decision.trusted
    assert str(decision.problem).startswith(f"{place.file.path}: not a table")
    with pytest.raises(UserError, match="left as it is"):
        place.file.remember(place.root, True)
    assert place.file.path.read_bytes() == data


def test_writers_at_the_same_time_lose_nothing(place: Place) -> None:
    def write(number: int) -> None:
        for step in range(10):
            place.file.remember(Path(f"/p{number}/s{step}"), True)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(place.file.decisions()) == 60


class Command:
    """`branchwork trust` in the repository."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __call__(self, *words: str) -> tuple[str, str]:
        import argparse

        from branchwork.frontends.commands import trust

        parser = argparse.ArgumentParser()
        trust.configure(parser)
        out, err = StringIO(), StringIO()
        env = {"HOME": str(self.place.user)}
        place = self.place
        console = Console(out=out, err=err, stdin=StringIO(), env=env, cwd=place.root, home=place.home)
        assert trust.run(parser.parse_args(words), console) == 0
        return out.getvalue(), err.getvalue()


def test_the_command_lists_decides_and_forgets(place: Place) -> None:
    command = Command(place)
    place.add(".branchwork/settings.toml")
    out, err = command()
    assert out == "no decisions yet; `branchwork trust DIR` makes one\n"
    assert "is not trusted" in err
    assert command(".") == (f"trusted: {place.root} and the folders in it\n", "")
    assert decide(place.world()).trusted
    command("--no", "..")
    out, err = command()
    assert out == f"not trusted  {place.root.parent}\ntrusted      {place.root}\n"
    assert err == ""
    out, _ = command("--forget", str(place.root))
    assert out == f"forgotten: {place.root}\nit is still not trusted, because {place.root.parent} is\n"


@pytest.mark.parametrize("words", [["--no"], ["--forget"], ["--forget", "."], ["gone"]])
def test_the_command_says_what_is_missing(place: Place, words: list[str]) -> None:
    with pytest.raises(UserError):
        Command(place)(*words)
    assert not place.file.path.exists()
