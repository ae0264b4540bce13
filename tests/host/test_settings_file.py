"""Where keys stand in a TOML file, and changes that leave everything else as it was."""

import stat
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from branchwork.errors import UserError
from branchwork.host.settings_file import Key, edited, key_lines, line_of, parse_key, set_value, show_key

SAMPLE = '''# settings
thinking = "low" # quiet
retry.max_retries = 1

text = """
[not.a.table]
a = 1 ""\\"
"""""
raw = \'\'\'
b = '2'\'\'\'
[compaction . models."a/b"] # for one
"reserve\\u005ftokens" = 7
list = [
  1, # first
  { x = "}", y = { 'z z' = [2, 3] } },
]
date = 1979-05-27 07:32:00
[[row]]
a = 1
[[row]]
b = 2
[row.inner]
c = 3
'''


def flat(value: Any, at: Key = ()) -> set[Key]:
    rows: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        rows = list(value.items())
    elif isinstance(value, list):
        rows = list(enumerate(value))
    return {(*at, key) for key, _ in rows}.union(*(flat(inner, (*at, key)) for key, inner in rows))


def test_each_key_is_found_on_its_line() -> None:
    lines = key_lines(SAMPLE)
    assert flat(tomllib.loads(SAMPLE)) == set(lines)
    for key, line in {
        ("thinking",): 2,
        ("retry", "max_retries"): 3,
        ("text",): 5,
        ("raw",): 9,
        ("compaction", "models", "a/b", "reserve_tokens"): 12,
        ("list",): None,
        ("compaction", "models", "a/b", "list", 1, "y", "z z", 0): 15,
        ("row", 1, "b"): 21,
        ("row", 1, "inner", "c"): 23,
    }.items():
        assert lines.get(key) == line, key


def test_what_is_missing_is_placed_at_the_table_around_it() -> None:
    assert line_of(SAMPLE, ("compaction", "models", "a/b", "gone", "deep")) == 11
    assert line_of(SAMPLE, ("gone",)) is None


NAMES = st.text("ab-_ .\"'\\#[=é\n", min_size=1, max_size=4)
SCALARS = st.one_of(
    st.integers(-99, 99),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
    st.text("ab\"'\\#[]{}=,\n\t é", max_size=8),
)
TABLES = st.recursive(
    st.dictionaries(NAMES, SCALARS, max_size=4),
    lambda inner: st.dictionaries(
        NAMES, SCALARS | inner | st.lists(SCALARS, max_size=3) | st.lists(inner, min_size=1, max_size=3), max_size=4
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(table=TABLES)
def test_every_key_of_any_document_has_a_line_and_no_other_has(table: dict[str, Any]) -> None:
    text = tomlkit.dumps(table)
    assert set(key_lines(text)) == flat(tomllib.loads(text))


@given(text=st.text("[]{}\"'=.,#\\ \nab", max_size=40))
def test_text_that_is_no_toml_does_not_hang_or_raise(text: str) -> None:
    key_lines(text)


@given(parts=st.lists(st.text('ab-_ ."\\é', max_size=4), min_size=1, max_size=4).map(tuple))
def test_a_key_reads_back_as_it_is_shown(parts: tuple[str, ...]) -> None:
    assert parse_key(show_key(parts)) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a b", "a = 1", 'a."b', "a\n.b"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a settings key"):
        parse_key(text)


def test_a_change_touches_only_its_line(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(SAMPLE)
    set_value(path, "thinking", "high")
    set_value(path, 'compaction.models."a/b".reserve_tokens', 8)
    expected = SAMPLE.replace('"low" # quiet', '"high" # quiet').replace("= 7", "= 8")
    assert path.read_text().replace('"reserve\\u005ftokens"', "R") == expected.replace('"reserve\\u005ftokens"', "R")


def test_new_keys_new_tables_and_keys_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "new" / "settings.toml"
    set_value(path, "retry.max_retries", 2)
    set_value(path, "thinking", "low")
    set_value(path, 'compaction.models."a/b".reserve_tokens', 1)
    assert tomllib.loads(path.read_text()) == {
        "thinking": "low",
        "retry": {"max_retries": 2},
        "compaction": {"models": {"a/b": {"reserve_tokens": 1}}},
    }
    set_value(path, "thinking", None)
    set_value(path, "not.there", None)
    assert "thinking" not in path.read_text()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(table=TABLES, data=st.data(), value=SCALARS | st.lists(SCALARS, max_size=2) | st.none())
def test_a_change_does_that_and_nothing_else(table: dict[str, Any], data: st.DataObject, value: Any) -> None:
    text = tomlkit.dumps(table)
    expected = tomllib.loads(text)
    known = sorted(key for key in flat(expected) if all(isinstance(part, str) for part in key))
    paths = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
    key = data.draw(st.sampled_from(known) | paths if known else paths)
    try:
        changed = tomllib.loads(edited(text, tuple(map(str, key)), value, Path("settings.toml")))
    except UserError as error:
        assert "is a value" in str(error) or "by hand" in str(error) or "cannot be set" in str(error)
        return
    inner: Any = expected
    for part in key[:-1]:
        inner = inner.setdefault(part, {}) if value is not None else inner.get(part, {})
    if value is None:
        inner.pop(key[-1], None)
    else:
        inner[key[-1]] = value
    assert changed == expected


def test_a_value_is_not_made_into_a_table(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("retry = 3\n")
    with pytest.raises(UserError, match="`retry` is a value"):
        set_value(path, "retry.max_retries", 1)
    assert path.read_text() == "retry = 3\n"


@pytest.mark.parametrize("data", [b"a = ", b"a = '\xff'"])
def test_a_broken_file_is_not_written_over(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(data)
    with pytest.raises(UserError, match="left as it is"):
        set_value(path, "a", 1)
    assert path.read_bytes() == data


def test_mode_and_link_are_kept_and_nothing_is_left_behind(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "settings.toml"
    real.parent.mkdir()
    real.write_text("a = 1\n")
    real.chmod(0o640)
    link = tmp_path / "settings.toml"
    link.symlink_to(real)
    set_value(link, "a", 2)
    assert link.is_symlink()
    assert real.read_text() == "a = 2\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(path.name for path in real.parent.iterdir()) == ["settings.toml", "settings.toml.lock"]


def test_a_folder_that_cannot_be_written_is_an_error_for_the_person(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="cannot be opened"):
        set_value(blocked / "settings.toml", "a", 1)


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("# keep me\n")

    def write(number: int) -> None:
        for step in range(5):
            set_value(path, f"t{number}.k{step}", step)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = tomllib.loads(path.read_text())
    assert found == {f"t{number}": {f"k{step}": step for step in range(5)} for number in range(6)}
    assert path.read_text().startswith("# keep me\n")
