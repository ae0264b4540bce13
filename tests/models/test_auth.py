"""Keys are kept safe on disk and do not leak in memory."""

import json
import os
import pickle
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.models.auth import AuthFile, Secret, clean_key

KEY = "sk-never-to-be-seen-0123456789"


@pytest.fixture
def loose_umask() -> Iterator[None]:
    """The mode must not depend on a careful umask."""
    old = os.umask(0)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_secret_shows_itself_to_reveal_only() -> None:
    secret = Secret(KEY)
    shown = f"{secret} {secret!r} {[secret]} {'%s' % secret} {vars(type(secret)).keys()}"  # noqa: UP031
    assert KEY not in shown
    assert secret.reveal() == KEY
    assert secret == Secret(KEY)
    with pytest.raises(TypeError) as raised:
        pickle.dumps(secret)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("text", ["", "  \n", "two words", "line\nline", "bell\x07"])
def test_what_is_no_key_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(UserError) as raised:
        clean_key(text)
    assert not text.strip() or text.strip() not in str(raised.value)


def test_surrounding_space_of_a_key_goes() -> None:
    assert clean_key(f"  {KEY}\n").reveal() == KEY


@pytest.mark.usefixtures("loose_umask")
def test_the_file_and_its_folder_are_private_from_creation(tmp_path: Path) -> None:
    home = tmp_path / "home"
    file = AuthFile(home)
    file.set("groq", Secret(KEY))
    assert mode(file.path) == 0o600
    assert mode(home) == 0o700
    assert json.loads(file.path.read_text()) == {"groq": {"type": "api_key", "key": KEY}}


@pytest.mark.usefixtures("loose_umask")
def test_the_key_is_never_in_a_file_that_others_may_read(tmp_path: Path) -> None:
    """Whatever file the key goes through is created with mode 0600: watch every one that appears."""
    file = AuthFile(tmp_path)
    modes: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for name in os.listdir(tmp_path):  # noqa: PTH208  the cheapest listing
                try:
                    modes.add(mode(tmp_path / name))
                except FileNotFoundError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(20):
        file.set(f"p{number}", Secret(KEY))
    done.set()
    watcher.join()
    assert modes == {0o600}


def test_a_wide_mode_is_narrowed_by_the_next_write(tmp_path: Path) -> None:
    file = AuthFile(tmp_path)
    file.path.write_text("{}")
    file.path.chmod(0o644)
    assert file.exposed()
    file.set("groq", Secret(KEY))
    assert mode(file.path) == 0o600
    assert not file.exposed()


def test_other_entries_and_fields_survive_a_change(tmp_path: Path) -> None:
    file = AuthFile(tmp_path)
    oauth = {"type": "oauth", "refresh": "r", "expires": 1}
    file.path.write_text(json.dumps({"hub": oauth, "xai": {"type": "api_key", "key": "old", "env": {"A": "b"}}}))
    file.set("xai", Secret(KEY))
    assert json.loads(file.path.read_text()) == {
        "hub": oauth,
        "xai": {"type": "api_key", "key": KEY, "env": {"A": "b"}},
    }
    assert list(file.keys()) == ["xai"]
    assert file.remove("xai")
    assert not file.remove("xai")
    assert json.loads(file.path.read_text()) == {"hub": oauth}


@pytest.mark.parametrize("text", ['{"groq": {"type": "api', "[1]", '{"groq": "bare"}', "\udcff"])
def test_a_file_that_cannot_be_understood_is_an_error_and_stays_as_it_is(tmp_path: Path, text: str) -> None:
    file = AuthFile(tmp_path)
    data = (text + KEY).encode("utf-8", "surrogateescape")
    file.path.write_bytes(data)
    for action in (file.keys, lambda: file.set("xai", Secret(KEY)), lambda: file.remove("xai")):
        with pytest.raises(UserError) as raised:
            action()
        assert str(file.path) in str(raised.value)
        assert KEY not in str(raised.value)
    assert file.path.read_bytes() == data


def test_an_empty_file_and_no_file_are_no_keys(tmp_path: Path) -> None:
    file = AuthFile(tmp_path / "absent")
    assert file.keys() == {}
    assert not file.remove("xai")
    assert not (tmp_path / "absent").exists()
    file = AuthFile(tmp_path)
    file.path.write_text("\n")
    assert file.keys() == {}


def test_changes_at_the_same_time_all_arrive(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(12)]
    threads = [threading.Thread(target=AuthFile(tmp_path).set, args=(name, Secret(name))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(AuthFile(tmp_path).keys()) == sorted(names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["auth.json", "auth.json.lock"]


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "keys.json"
    real.parent.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    (home / "auth.json").symlink_to(real)
    AuthFile(home).set("xai", Secret(KEY))
    assert (home / "auth.json").is_symlink()
    assert json.loads(real.read_text())["xai"]["key"] == KEY


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file in the way")
    with pytest.raises(UserError) as raised:
        AuthFile(tmp_path / "home").set("xai", Secret(KEY))
    assert KEY not in str(raised.value)
