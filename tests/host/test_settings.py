"""settings.toml: what is wrong is said with file and line, what is right still counts."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from branchwork.agent.compaction import CompactionLimits
from branchwork.agent.request import RetryPolicy
from branchwork.errors import UserError
from branchwork.host.settings import Settings, change_setting, load_settings
from branchwork.host.settings_file import show_key
from branchwork.host.settings_schema import CoreSettings, Layering, settings_of


def user_file(folder: Path, text: str) -> Path:
    """BRANCHWORK_HOME with these settings."""
    home = folder / ".branchwork"
    home.mkdir(parents=True, exist_ok=True)
    (home / "settings.toml").write_text(text)
    return home


def both(folder: Path, user: str, project: str) -> Settings:
    user_file(folder / "project", project)
    return load_settings(user_file(folder / "me", user), folder / "project")


def told(settings: Settings) -> list[str]:
    return [f"{problem.line}: {problem.detail}" for problem in settings.problems]


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load_settings(tmp_path, tmp_path / "project") == Settings()


def test_values_are_read(tmp_path: Path) -> None:
    text = """
thinking = "high"
repeat_stop = 0
[retry]
max_retries = 7
[shell]
prefix = "set -e;"
[queue]
steering = "all"
[compaction.models."fake/small"]
reserve_tokens = 5
"""
    settings = load_settings(user_file(tmp_path, text))
    assert settings.problems == ()
    assert (settings.thinking, settings.repeat_stop, settings.shell.prefix) == ("high", 0, "set -e;")
    assert settings.retry == RetryPolicy(max_retries=7)
    assert (settings.queue.steering, settings.queue.follow_up) == ("all", "one-at-a-time")
    assert settings.compaction.models == {"fake/small": CompactionLimits(reserve_tokens=5)}


@pytest.mark.parametrize(
    ("text", "line", "detail"),
    [
        ('\nthinkin = "low"', 2, "`thinkin`: unknown, so it is ignored; did you mean `thinking`?"),
        ("max_retries = 1", 1, "`max_retries`: unknown here, so it is ignored; did you mean `retry.max_retries`?"),
        ("[shell]\n# note\nquite = 1", 3, "`shell.quite`: unknown, so it is ignored; there are path, prefix"),
        ('thinking = "hihg"', 1, '`thinking`: did you mean "high"? It is one of "off", '),
        ("thinking = 3", 1, '`thinking`: it should be one of "off", '),
        ('repeat_stop = "3"', 1, "`repeat_stop`: it should be a whole number; it is ignored"),
        ("repeat_stop = true", 1, "`repeat_stop`: it should be a whole number; it is ignored"),
        ("repeat_stop = -1", 1, "`repeat_stop`: it is below 0; it is ignored"),
        ("[retry]\n\nbase_delay_s = nan", 3, "`retry.base_delay_s`: it is not a finite number"),
        ("retry = 3", 1, "`retry`: it should be a table [retry]"),
        ("[compaction]\nenabled = 1", 2, "`compaction.enabled`: it should be true or false"),
        ("[skills]\npaths = 'x'", 2, '`skills.paths`: it should be a list of strings, such as ["a", "b"]'),
        (
            '[compaction.models]\n"a/b".reserve_tokens = -1',
            2,
            '`compaction.models."a/b".reserve_tokens`: it is below 0',
        ),
        ('[skills]\npaths = ["a\\u0000b"]', 2, "`skills.paths`: a path holds no null character"),
        ('[compaction.models]\n"a/b" = 1', 2, '`compaction.models."a/b"`: it should be a table'),
    ],
)
def test_a_wrong_key_is_named_with_its_line_and_the_others_count(
    tmp_path: Path, text: str, line: int, detail: str
) -> None:
    settings = load_settings(user_file(tmp_path, f"{text}\n[tools]\nexclude = ['bash']\n"))
    (problem,) = settings.problems
    assert str(problem).startswith(f"{tmp_path}/.branchwork/settings.toml:{line}: {detail}")
    assert settings.tools.exclude == ("bash",)
    assert settings.retry == RetryPolicy()


def test_a_wrong_value_of_a_safety_key_allows_less_until_it_is_corrected(tmp_path: Path) -> None:
    settings = load_settings(user_file(tmp_path, "[tools]\nallow = 7\nexclude = 'bash'\n"))
    assert (settings.tools.allow, settings.tools.exclude) == ((), ("bash",))
    assert told(settings)[0].endswith("until it is corrected it counts as []")
    assert told(settings)[1].endswith('until it is corrected it counts as ["bash"]')


@pytest.mark.parametrize(
    ("data", "line"),
    [(b'a = 1\nthinking = "high\n', 2), (b"\n\n[x\n", 3), (b"x = \xff", None), (b"a=" + b"[" * 4000, None)],
)
def test_a_broken_file_stops_nothing_and_is_left_alone(tmp_path: Path, data: bytes, line: int | None) -> None:
    path = user_file(tmp_path, "") / "settings.toml"
    path.write_bytes(data)
    settings = load_settings(path.parent)
    assert settings.thinking == "medium"
    (problem,) = settings.problems
    assert problem.line == line
    assert path.read_bytes() == data


def test_a_folder_in_place_of_the_file_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").mkdir()
    assert load_settings(tmp_path) == Settings()


def test_a_mark_at_the_beginning_and_dos_line_ends_do_not_matter(tmp_path: Path) -> None:
    home = user_file(tmp_path, "")
    (home / "settings.toml").write_bytes(b'\xef\xbb\xbfthinking = "low"\r\n\r\nnope = 1\r\n')
    settings = load_settings(home)
    assert settings.thinking == "low"
    assert told(settings) == [told(settings)[0]]
    assert settings.problems[0].line == 3


def test_a_project_wins_key_by_key(tmp_path: Path) -> None:
    user = (
        'thinking = "low"\n[retry]\nmax_retries = 1\nbase_delay_s = 9\n[compaction.models."a/b"]\nreserve_tokens = 1\n'
    )
    project = 'thinking = "max"\n[retry]\nmax_retries = 2\n[compaction.models."a/b"]\nkeep_recent_tokens = 2\n'
    settings = both(tmp_path, user, project)
    assert settings.problems == ()
    assert settings.thinking == "max"
    assert settings.retry == RetryPolicy(max_retries=2, base_delay_s=9)
    assert settings.compaction.models == {"a/b": CompactionLimits(reserve_tokens=1, keep_recent_tokens=2)}


def test_a_project_takes_tools_away_and_cannot_give_any(tmp_path: Path) -> None:
    user = '[tools]\nallow = ["read", "grep"]\nexclude = ["ls"]\n[extensions]\ndisabled = ["web"]\n'
    project = '[tools]\nallow = ["bash", "grep"]\nexclude = ["find"]\n[extensions]\ndisabled = ["notes"]\n'
    settings = both(tmp_path, user, project)
    assert settings.tools.allow == ("grep",)
    assert settings.tools.exclude == ("ls", "find")
    assert settings.extensions.disabled == ("web", "notes")
    assert told(settings) == ['2: `tools.allow`: a project can only take away from what is allowed, so it is ["grep"]']
    assert settings.problems[0].path == tmp_path / "project/.branchwork/settings.toml"


def test_paths_of_both_files_count_and_start_at_their_own_folder(tmp_path: Path) -> None:
    settings = both(tmp_path, '[skills]\npaths = ["mine", "~/x", "/abs"]\n', '[skills]\npaths = ["theirs", "/abs"]\n')
    me, project = tmp_path / "me", tmp_path / "project"
    assert settings.skills.paths == (
        str(me / ".branchwork/mine"),
        str(me / "x"),
        "/abs",
        str(project / ".branchwork/theirs"),
    )


def test_a_project_whose_settings_are_the_persons_own_has_none(tmp_path: Path) -> None:
    home = user_file(tmp_path, 'thinking = "low"\n')
    assert [layer.name for layer in load_settings(home, tmp_path).layers] == ["user"]


class Lights(Struct, frozen=True, kw_only=True):
    color: Literal["red", "green"] = "red"
    level: Annotated[int, Meta(ge=-5)] = 0
    remote: Annotated[bool, Layering.FALSE_WINS] = True
    token_file: Annotated[str | None, Layering.USER_ONLY] = None

    def __post_init__(self) -> None:
        if self.color == "green" and self.level < 0:
            raise ValueError("green has no level below 0")


def test_an_extension_has_a_table_of_its_own(tmp_path: Path) -> None:
    user = '[lights]\ncolor = "gren"\nlevel = -3\n[lihgts]\nx = 1\n[ui]\ntheme = "x"\n'
    settings = both(tmp_path, user, '[lights]\nremote = false\ntoken_file = "/x"\n')
    assert settings.problems == ()
    lights = settings.table("lights", Lights)
    assert lights.value == Lights(level=-3, remote=False)
    details = [problem.detail for problem in lights.problems]
    assert 'did you mean "green"?' in details[0]
    assert details[1] == "`lights.token_file`: only the user's own settings can say this; it is ignored"
    (unclaimed,) = settings.unclaimed(["lights"])
    assert (unclaimed.line, unclaimed.detail) == (4, "`lihgts`: unknown, so it is ignored; did you mean `lights`?")


def test_a_wrong_switch_or_choice_counts_as_the_strict_one(tmp_path: Path) -> None:
    class Fence(Struct, frozen=True, kw_only=True):
        network: Annotated[bool, Layering.FALSE_WINS] = True
        read_only: Annotated[bool, Layering.TRUE_WINS] = False
        writes: Annotated[Literal["refuse", "free"], Layering.FIRST_WINS] = "free"

    home = user_file(tmp_path, "[fence]\nnetwork = 'no'\nread_only = 1\nwrites = 'frei'\n")
    fence = load_settings(home).table("fence", Fence)
    assert fence.value == Fence(network=False, read_only=True, writes="refuse")
    assert len(fence.problems) == 3


def test_values_that_do_not_fit_together_give_way_but_limits_stay(tmp_path: Path) -> None:
    user = '[lights]\ncolor = "green"\nlevel = -3\nremote = false\n'
    lights = load_settings(user_file(tmp_path, user)).table("lights", Lights)
    assert lights.value == Lights(remote=False)
    (problem,) = lights.problems
    assert (problem.line, problem.detail[:40]) == (1, "`lights`: green has no level below 0; wh")
    lights = both(tmp_path, '[lights]\ncolor = "green"\nremote = false\n', "[lights]\nlevel = -3\n").table(
        "lights", Lights
    )
    assert lights.value == Lights(color="green", remote=False)
    assert lights.problems[0].path == tmp_path / "project/.branchwork/settings.toml"


def test_a_table_needs_defaults_and_a_name_of_its_own() -> None:
    class Bad(Struct):
        size: int

    with pytest.raises(TypeError, match=r"Bad\.size needs a default"):
        Settings(layers=()).table("bad", Bad)
    with pytest.raises(ValueError, match="one of Branchwork's own"):
        Settings().table("retry", Lights)


def test_where_a_value_comes_from_is_told(tmp_path: Path) -> None:
    user = 'repeat_stop = 3\n[tools]\nallow = ["read", "ls"]\n[shell]\npath = "sh"\n'
    project = '[shell]\npath = "zsh"\n[tools]\nallow = ["ls", "bash"]\n[lights]\nlevel = 2\n'
    settings = both(tmp_path, user, project)
    mine, theirs = (layer.path for layer in settings.layers)

    def source(key: str) -> tuple[object, str, Path | None, int | None]:
        found = settings.explain(key, {"lights": Lights})
        return found.value, found.layer, found.path, found.line

    assert source("repeat_stop") == (3, "user", mine, 1)
    assert source("shell.path") == ("zsh", "project", theirs, 2)
    assert source("tools.allow") == (("ls",), "project", theirs, 4)
    assert source("retry.max_retries") == (3, "default", None, None)
    assert source("lights.level") == (2, "project", theirs, 6)
    assert source("lights.color") == ("red", "default", None, None)


@pytest.mark.parametrize(
    "key", ["nope", "retry.nope", "retry", "layers", 'compaction.models."a/b".reserve_tokens', "a b"]
)
def test_a_key_that_is_no_setting_is_an_error(tmp_path: Path, key: str) -> None:
    with pytest.raises(UserError):
        load_settings(tmp_path).explain(key)


def test_a_change_is_checked_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    for key, value in (("thinkin", "low"), ("thinking", "loud"), ("retry", 3), ("retry.max_retries", -1), ("ui", 3)):
        with pytest.raises(UserError, match="nothing was changed"):
            change_setting(path, key, value)
    assert not path.exists()
    change_setting(path, "retry.max_retries", 4)
    change_setting(path, "tools.allow", ("read",))
    change_setting(path, "lights.level", 4)
    settings = load_settings(tmp_path)
    assert (settings.retry.max_retries, settings.tools.allow) == (4, ("read",))
    assert settings.table("lights", Lights).value.level == 4
    change_setting(path, "retry.max_retries", None)
    assert load_settings(tmp_path).retry == RetryPolicy()


def test_every_setting_is_documented(repository: Path) -> None:
    text = (repository / "docs/settings.md").read_text(encoding="utf-8")
    names = []
    for name, setting in settings_of(CoreSettings).items():
        names += [show_key((name, inner)) for inner in settings_of(setting.table)] if setting.table else [name]
    assert [name for name in names if f"| `{name}` |" not in text] == []


def test_reading_takes_no_toml_writer_and_without_a_file_no_reader(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from branchwork.host.settings import load_settings;"
        "load_settings(pathlib.Path(sys.argv[1])); print('tomllib' in sys.modules, 'tomlkit' in sys.modules)"
    )

    def loaded() -> str:
        command = [sys.executable, "-c", code, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert loaded() == "False False"
    (tmp_path / "settings.toml").write_text("nope = 1\n")
    assert loaded() == "True False"
