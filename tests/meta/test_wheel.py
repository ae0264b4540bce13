"""What is shipped: the archives hold the package, its data and its metadata, and nothing else."""

import os
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from email.parser import Parser
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

import branchwork
from tests.meta.sources import PACKAGE, ROOT

DATA_SUFFIXES = {".md", ".json", ".toml", ".html", ".css", ".js", ".tcss", ".txt"}
SIZE_LIMIT = 1 << 20


class Archives(NamedTuple):
    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """An sdist of the working tree and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Archives(sdist, wheel)


@pytest.fixture(scope="module")
def names(archives: Archives) -> list[str]:
    with zipfile.ZipFile(archives.wheel) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


def read(wheel: Path, ending: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(ending))
        return archive.read(name).decode()


def test_the_wheel_holds_modules_and_data_and_nothing_else(names: list[str]) -> None:
    metadata = f"branchwork-{branchwork.__version__}.dist-info"
    strange = []
    for name in names:
        path = PurePosixPath(name)
        if path.parts[0] == metadata:
            continue
        data = path.parts[:2] == ("branchwork", "data") and path.suffix in DATA_SUFFIXES
        module = (path.suffix == ".py" and not path.name.startswith("test_")) or name == "branchwork/py.typed"
        if path.parts[0] != "branchwork" or not (data or module):
            strange.append(name)
    assert strange == []


def test_the_wheel_holds_every_file_of_the_package(names: list[str]) -> None:
    files = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - set(names) == set()


def test_the_archives_are_small(archives: Archives) -> None:
    sizes = {path.name: path.stat().st_size for path in archives}
    assert {name: size for name, size in sizes.items() if size >= SIZE_LIMIT} == {}


def test_the_sdist_holds_what_a_build_needs_and_no_tests(archives: Archives) -> None:
    with tarfile.open(archives.sdist) as archive:
        tops = {PurePosixPath(name).parts[1] for name in archive.getnames()}
    assert tops == {"src", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}


def test_both_commands_start_the_same_program(archives: Archives) -> None:
    scripts = ConfigParser()
    scripts.read_string(read(archives.wheel, "/entry_points.txt"))
    assert dict(scripts["console_scripts"]) == {"branchwork": "branchwork.cli:run", "bwk": "branchwork.cli:run"}


def test_the_metadata_states_license_version_and_python(archives: Archives) -> None:
    metadata = Parser().parsestr(read(archives.wheel, ".dist-info/METADATA"))
    assert metadata["License-Expression"] == "MIT"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Version"] == branchwork.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Copyright (c) 2026 The Branchwork authors" in read(archives.wheel, "/licenses/LICENSE")


READ_ALL = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:]
import branchwork.data
folder = Path(branchwork.data.__file__).parent
for path in sorted(folder.rglob("*")):
    if path.is_file() and path.suffix not in (".py", ".pyc"):
        print(path.relative_to(folder).as_posix(), len(branchwork.data.text(path.relative_to(folder).as_posix())))
print(folder)
"""


def data_seen_by(*extra_path: Path) -> tuple[list[str], Path]:
    """Name and length of every data file as `branchwork.data` reads it, and the folder it comes from."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", READ_ALL, *map(str, extra_path)], capture_output=True, text=True, check=True
    )
    *texts, folder = done.stdout.splitlines()
    return texts, Path(folder)


def test_installed_and_editable_packages_read_the_same_data(archives: Archives, tmp_path: Path) -> None:
    target = tmp_path / "target"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-cache-dir"]
    env = dict(os.environ, PIP_CONFIG_FILE=os.devnull, PIP_DISABLE_PIP_VERSION_CHECK="1")
    subprocess.run([*install, "--target", str(target), str(archives.wheel)], env=env, check=True)
    installed, installed_at = data_seen_by(target)
    editable, editable_at = data_seen_by()
    assert installed_at.is_relative_to(target)
    assert editable_at == PACKAGE / "data"
    assert installed == editable != []
