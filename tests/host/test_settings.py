"""settings.toml: what is wrong is said, what is right still counts."""

from pathlib import Path

from branchwork.agent.request import RetryPolicy
from branchwork.host.settings import Settings, load_settings


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load_settings(tmp_path) == (Settings(), ())


def test_values_are_read(tmp_path: Path) -> None:
    text = 'thinking = "high"\nrepeat_stop = 0\n[retry]\nmax_retries = 7\n[shell]\nprefix = "set -e;"\n'
    (tmp_path / "settings.toml").write_text(text)
    settings, problems = load_settings(tmp_path)
    assert problems == ()
    assert (settings.thinking, settings.repeat_stop, settings.shell.prefix) == ("high", 0, "set -e;")
    assert settings.retry == RetryPolicy(max_retries=7)


def test_a_bad_value_is_named_and_the_rest_counts(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('thinking = "loud"\nrepeat_stop = 3\nnonsense = 1\n')
    settings, problems = load_settings(tmp_path)
    assert (settings.thinking, settings.repeat_stop) == ("medium", 3)
    assert len(problems) == 2
    assert "thinking" in problems[0]
    assert "nonsense" in problems[1]


def test_a_broken_file_stops_nothing_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(b'thinking = "high\n\xff')
    settings, (problem,) = load_settings(tmp_path)
    assert settings == Settings()
    assert "not TOML" in problem
    assert path.read_bytes() == b'thinking = "high\n\xff'
