"""What starting costs: which modules each way in may load, and that importing has no effects."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from branchwork.testing.server import FakeModelServer, says

PROBE = """
import sys
module, watched, report, argv = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
effects = []
READ_ONLY = {"r", "rb", "rt", None}
def watch(event, args):
    if event == "open":
        name, mode, flags = args
        if mode not in READ_ONLY or (isinstance(flags, int) and flags & 3):
            effects.append(f"{event} {name!r} {mode!r}")
    elif event.partition(".")[0] in ("socket", "subprocess", "shutil") or event in (
        "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod", "os.fork", "os.posix_spawn", "os.system",
        "os.link", "os.symlink", "os.truncate", "os.utime", "urllib.Request", "_thread.start_new_thread",
    ):
        effects.append(f"{event} {args!r}")
if watched:
    sys.addaudithook(watch)
before = set(sys.modules)
code = 0
try:
    if argv:
        sys.argv = ["branchwork", *argv]
        from branchwork.cli import main
        code = main()
    else:
        __import__(module)
except SystemExit as end:
    code = end.code
loaded, seen = sorted(set(sys.modules) - before), list(effects)
import json
with open(report, "w") as out:
    json.dump({"loaded": loaded, "effects": seen, "code": code}, out)
"""
"""Runs in a process of its own; argv[4:] is a command line, or empty for a plain import of `module`."""


class Started:
    """What one start of the program loaded and did."""

    def __init__(self, process: subprocess.CompletedProcess[str], report: Path, home: Path) -> None:
        told = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
        assert told, f"the probe did not end: {process.stderr}"
        self.process = process
        self.loaded: list[str] = told["loaded"]
        self.effects: list[str] = told["effects"]
        self.code: int | None = told["code"]
        self.left = sorted(path.relative_to(home).as_posix() for path in home.rglob("*"))

    @property
    def tops(self) -> set[str]:
        """Top-level names of the loaded modules that are neither the standard library's nor ours."""
        names = {name.partition(".")[0] for name in self.loaded}
        return {name for name in names - sys.stdlib_module_names - {"branchwork"} if not name.startswith("__")}


def start(folder: Path, *argv: str, module: str = "branchwork", watch: bool = False) -> Started:
    home = folder / "home"
    home.mkdir(mode=0o500, exist_ok=True)
    report = folder / "report.json"
    env = {"HOME": str(home), "BRANCHWORK_HOME": str(folder / "state"), "PATH": os.environ["PATH"]}
    process = subprocess.run(
        [sys.executable, "-I", "-B", "-c", PROBE, module, "watch" if watch else "", str(report), *argv],
        cwd=home,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Started(process, report, home)


def unexpected(started: Started, third_party: set[str], forbidden: set[str]) -> list[str]:
    """What was loaded beyond `third_party`, and which of `forbidden` (dotted names) was."""
    extra = [f"loads {name}, which this way in may not" for name in sorted(started.tops - third_party)]
    return extra + [f"loads {name}, which is for another way in" for name in started.loaded if name in forbidden]


def test_importing_the_package_loads_only_itself(tmp_path: Path) -> None:
    assert start(tmp_path).loaded == ["branchwork"]


@pytest.mark.parametrize("module", ["branchwork", "branchwork.cli"])
def test_importing_has_no_effects(tmp_path: Path, module: str) -> None:
    started = start(tmp_path, module=module, watch=True)
    assert started.effects == []
    assert (started.process.stdout, started.process.stderr, started.left) == ("", "", [])


NOT_FOR_VERSION = {"asyncio", "ssl", "socket", "subprocess", "json", "email", "http.client", "logging", "tomllib"}


def test_the_version_is_told_by_the_standard_library_alone(tmp_path: Path) -> None:
    started = start(tmp_path, "--version", watch=True)
    assert started.code in (0, None)
    assert unexpected(started, set(), NOT_FOR_VERSION) == []
    assert (started.effects, started.left) == ([], [])


def test_the_command_line_is_parsed_without_a_library(tmp_path: Path) -> None:
    assert unexpected(start(tmp_path, module="branchwork.cli"), set(), {"asyncio", "ssl", "email"}) == []


FOR_ONE_PROMPT = {
    "anyio",
    "h11",
    "httpcore2",
    "httpx2",
    "idna",
    "msgspec",
    "sniffio",
    "truststore",
    "typing_extensions",
}
NOT_FOR_ONE_PROMPT = {"branchwork.testing", "xml", "sqlite3", "unittest", "multiprocessing", "curses", "tkinter"}
"""Of the third-party libraries any other one is refused: textual, pydantic, rich, PIL, mcp, tomlkit, …"""

MODELS = """
[providers.fake]
api = "openai-chat"
base_url = "{url}"
key = "k"

[[providers.fake.models]]
id = "m"
"""


def test_one_prompt_loads_an_http_client_and_nothing_else(tmp_path: Path) -> None:
    models = tmp_path / "state" / "models.toml"
    models.parent.mkdir()
    models.touch(mode=0o600)
    with FakeModelServer(says("Hello.")) as server:
        models.write_text(MODELS.format(url=server.openai_url), encoding="utf-8")
        started = start(tmp_path, "-p", "hi", "--model", "fake/m")
    assert (started.code, started.process.stdout) == (0, "Hello.\n"), started.process.stderr
    assert unexpected(started, FOR_ONE_PROMPT, NOT_FOR_ONE_PROMPT) == []
