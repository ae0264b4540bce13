"""`branchwork auth`: keys come in hidden, go out never, and readiness is an exit code."""

import argparse
import io
import json
import os
import pty
import stat
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from branchwork.errors import UserError
from branchwork.frontends.commands import auth
from branchwork.frontends.console import Console

KEY = "sk-never-to-be-seen"


class Done(Struct, frozen=True):
    code: int
    out: str
    err: str


def run(home: Path, *words: str, stdin: str = "", env: dict[str, str] | None = None) -> Done:
    out, err = io.StringIO(), io.StringIO()
    console = Console(out=out, err=err, stdin=io.StringIO(stdin), env=env or {}, cwd=home, home=home)
    parser = argparse.ArgumentParser()
    auth.configure(parser)
    code = auth.run(parser.parse_args(words), console)
    assert KEY not in out.getvalue() + err.getvalue()
    return Done(code, out.getvalue(), err.getvalue())


def test_a_key_from_standard_input_is_stored_privately(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert run(home, "set", "groq", stdin=f"{KEY}\n").code == 0
    path = home / "auth.json"
    assert json.loads(path.read_text())["groq"]["key"] == KEY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_terminal_is_asked_without_echo(tmp_path: Path) -> None:
    code = "import sys; from branchwork.cli import main; sys.exit(main(['auth', 'set', 'groq']))"
    child, terminal = pty.fork()
    if child == 0:
        os.environ["BRANCHWORK_HOME"] = str(tmp_path)
        os.execv(sys.executable, [sys.executable, "-c", code])
    shown = b""
    while b"not shown" not in shown:
        shown += os.read(terminal, 1024)
    os.write(terminal, KEY.encode() + b"\n")
    try:
        while piece := os.read(terminal, 1024):
            shown += piece
    except OSError:
        pass  # Linux says EIO when the last process has closed the terminal
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert KEY.encode() not in shown
    assert json.loads((tmp_path / "auth.json").read_text())["groq"]["key"] == KEY


def test_an_unknown_provider_and_an_empty_key_store_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean groq"):
        run(tmp_path, "set", "grok", stdin=KEY)
    with pytest.raises(UserError, match="declare it in"):
        run(tmp_path, "set", "zzzz", stdin=KEY)
    with pytest.raises(UserError, match="empty"):
        run(tmp_path, "set", "groq", stdin="\n")
    assert not (tmp_path / "auth.json").exists()


def test_a_declared_provider_can_have_a_key(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text('[providers.lab]\nbase_url = "http://lab.example/v1"\nkey_env = "LAB_KEY"\n')
    assert run(tmp_path, "check", "lab").code == 1
    assert run(tmp_path, "set", "lab", stdin=KEY).code == 0
    assert run(tmp_path, "check", "lab").code == 0


def test_the_list_says_where_each_key_is_from(tmp_path: Path) -> None:
    run(tmp_path, "set", "groq", stdin=KEY)
    listed = run(tmp_path, "list", env={"XAI_API_KEY": KEY}).out.splitlines()
    lines = {line.split()[0]: line for line in listed}
    assert "key from auth.json" in lines["groq"]
    assert "environment variable XAI_API_KEY" in lines["xai"]
    assert "set ANTHROPIC_API_KEY" in lines["anthropic"]
    assert "needs no key" in lines["ollama"]


def test_a_key_is_removed_once(tmp_path: Path) -> None:
    run(tmp_path, "set", "groq", stdin=KEY)
    assert run(tmp_path, "remove", "groq").code == 0
    assert json.loads((tmp_path / "auth.json").read_text()) == {}
    with pytest.raises(UserError, match="no key of 'groq'"):
        run(tmp_path, "remove", "groq")


def test_check_tells_readiness_by_its_exit_code(tmp_path: Path) -> None:
    nothing = run(tmp_path, "check")
    assert (nothing.code, "branchwork auth set" in nothing.out) == (1, True)
    assert run(tmp_path, "check", env={"ANTHROPIC_API_KEY": KEY}) == Done(0, "anthropic: ready\n", "")
    missing = run(tmp_path, "check", "xai", env={"ANTHROPIC_API_KEY": KEY})
    assert missing.code == 1
    assert "XAI_API_KEY" in missing.out
    assert run(tmp_path, "check", "ollama").code == 0


def test_a_broken_key_file_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text(f'{{"groq": "{KEY}')
    with pytest.raises(UserError, match="not valid JSON"):
        run(tmp_path, "set", "xai", stdin=KEY)
    assert "auth.json" in run(tmp_path, "list").err
    assert (tmp_path / "auth.json").read_text() == f'{{"groq": "{KEY}'
