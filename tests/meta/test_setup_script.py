"""`scripts/setup.sh`: which interpreter it takes, and what it says when there is none."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.meta.sources import ROOT

OLD = '#!/bin/sh\ncase "$1" in --version) echo "Python 3.9.2" ;; *) exit 1 ;; esac\n'

FAKE = """#!/bin/sh
echo "{name} $*" >> "{log}"
case "$1 $2 $3" in
  "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  "-m pip --version") ;;
  "-m pip "*) [ -z "$BROKEN" ] || exit 1; echo "$PWD" > "{log}.pip" ;;
esac
"""
"""An interpreter that notes how it was called; with BROKEN set, it cannot install."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the script reads, in a folder of their own."""
    root = tmp_path / "check out"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup.sh", root / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, root)
    return root


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for PATH with the few programs that the script uses and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "sh", "cat", "cksum", "cp", "dirname", "head", "mkdir", "rm"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def interpreter(folder: Path, name: str, text: str) -> Path:
    """A fake Python; its calls are noted in the returned file."""
    log = folder.parent / f"{name}.log"
    (folder / name).write_text(text.format(name=name, log=log) if text is FAKE else text)
    (folder / name).chmod(0o755)
    return log


def setup(checkout: Path, programs: Path, what: str, **env: str) -> subprocess.CompletedProcess[str]:
    script = [str(programs / "bash"), str(checkout / "scripts" / "setup.sh"), what]
    return subprocess.run(script, env={"PATH": str(programs), **env}, capture_output=True, text=True, check=False)


def test_an_old_python_is_named_with_what_to_do(checkout: Path, programs: Path) -> None:
    interpreter(programs, "python3", OLD)
    done = setup(checkout, programs, "run")
    assert done.returncode == 1
    assert "needs Python 3.11 or newer; found: python3 (Python 3.9.2);" in done.stderr
    assert "make demo PYTHON=" in done.stderr
    assert not (checkout / ".venv").exists()


def test_no_python_at_all_is_said_so(checkout: Path, programs: Path) -> None:
    assert "found: none." in setup(checkout, programs, "run").stderr


def test_an_old_python3_11_shim_does_not_hide_a_good_python3(checkout: Path, programs: Path) -> None:
    interpreter(programs, "python3.11", OLD)
    log = interpreter(programs, "python3", FAKE)
    done = setup(checkout, programs, "run")
    assert done.returncode == 0, done.stderr
    assert "python3 -m venv --clear .venv" in log.read_text()


def test_what_is_installed_is_left_alone_until_the_requirements_change(checkout: Path, programs: Path) -> None:
    pip = programs.parent / "python3.log.pip"
    interpreter(programs, "python3", FAKE)
    installs = []
    for change in ("", "", "# changed\n", ""):
        with (checkout / "constraints.txt").open("a") as file:
            file.write(change)
        pip.unlink(missing_ok=True)
        assert setup(checkout, programs, "run").returncode == 0
        installs.append(pip.exists())
    assert installs == [True, False, True, False]


def test_the_development_set_includes_the_other(checkout: Path, programs: Path) -> None:
    pip = programs.parent / "python3.log.pip"
    interpreter(programs, "python3", FAKE)
    installs = []
    for what in ("run", "dev", "run"):
        pip.unlink(missing_ok=True)
        assert setup(checkout, programs, what).returncode == 0
        installs.append(pip.exists())
    assert installs == [True, True, False]


def test_a_failed_installation_is_tried_again(checkout: Path, programs: Path) -> None:
    interpreter(programs, "python3", FAKE)
    assert setup(checkout, programs, "run", BROKEN="1").returncode != 0
    pip = programs.parent / "python3.log.pip"
    assert not pip.exists()
    assert setup(checkout, programs, "run").returncode == 0
    assert pip.exists()


def test_anything_but_the_two_sets_is_refused(checkout: Path, programs: Path) -> None:
    assert setup(checkout, programs, "all").returncode == 2
