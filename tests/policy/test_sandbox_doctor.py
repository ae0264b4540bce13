"""`branchwork doctor` proves the sandbox in force by trying what it must not allow."""

import argparse
import io
import json
import os
import sys
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.frontends.commands import doctor
from branchwork.frontends.console import Console
from branchwork.policy.sandbox.probe import Sandboxes
from branchwork.policy.sandbox.proof import prove
from tests.policy.sandbox_support import BACKENDS, backend

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the backends of Linux")


def run(tmp_path: Path, *words: str) -> tuple[int, str]:
    project, home = tmp_path / "project", tmp_path / "home"
    for folder in (project, home):
        folder.mkdir(exist_ok=True)
    out = io.StringIO()
    env = {**os.environ, "HOME": str(home)}
    console = Console(out=out, err=io.StringIO(), stdin=io.StringIO(), env=env, cwd=project, home=home / ".branchwork")
    parser = argparse.ArgumentParser()
    doctor.configure(parser)
    code = doctor.run(parser.parse_args(words), console)
    assert [path for folder in (project, home) for path in folder.iterdir()] == []
    return code, out.getvalue()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_that_holds_passes_every_line(name: str, tmp_path: Path) -> None:
    backend(name)
    code, text = run(tmp_path, "--backend", name)
    assert code == 0, text
    assert text.count("PASS") == 9
    assert "FAIL" not in text


def test_without_a_sandbox_it_says_so_and_ends_with_1(tmp_path: Path) -> None:
    code, text = run(tmp_path, "--backend", "none")
    assert code == 1
    assert "PASS  writing the scratch directory" in text
    for title in ("writing outside", "changing mode", "a service of this machine", "a Unix socket", "another process"):
        assert any(line.startswith("FAIL") and title in line for line in text.splitlines()), title
    assert "NOT CONFINED" in text


def test_as_json_it_is_one_object(tmp_path: Path) -> None:
    code, text = run(tmp_path, "--json")
    told = json.loads(text)
    assert told["sandbox"]["holds"] == (code == 0)
    assert {"name": "write", "title": "writing outside of it"}.items() <= told["sandbox"]["checks"][1].items()
    assert {"python", "platform", "home", "rg", "git", "clock"} <= told.keys()


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    console = Console(
        out=io.StringIO(),
        err=io.StringIO(),
        stdin=io.StringIO(),
        env={"PATH": str(tmp_path)},
        cwd=tmp_path,
        home=tmp_path / "none",
    )
    facts = doctor._facts(console)
    assert facts["git"] == "not found"
    assert "does not exist yet" in facts["home"]


@pytest.mark.parametrize("name", ["seatbelt", "nonsense"])
def test_a_backend_that_is_not_for_this_machine_is_an_error(name: str) -> None:
    with pytest.raises(UserError, match=name):
        Sandboxes(os.environ).choose(name)


def test_a_sandbox_in_which_nothing_runs_does_not_pass(tmp_path: Path) -> None:
    class Dead:
        name, detail, hides, overlays = "dead", "runs nothing", False, False

        def wrap(self, *_: object) -> tuple[str, ...]:
            return ("sh", "-c", "echo no luck >&2; exit 1")

    checks = prove(Dead(), os.environ, tmp_path, tmp_path)
    assert not any(check.holds for check in checks)
    assert checks[0].saw == "no luck"


def test_the_backends_are_tried_once() -> None:
    sandboxes = Sandboxes(os.environ)
    assert sandboxes.choose() is sandboxes.choose()
