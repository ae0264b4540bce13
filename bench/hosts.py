"""The two programs that are compared: how each is found, configured for the fake server, and called."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OUT = Path(__file__).parent / "out"
"""Results and the installed npm host; ignored by git."""

NPM_VARIABLE = "BRANCHWORK_BENCH_NPM_HOST"
OWN_VARIABLE = "BRANCHWORK_BENCH_OWN"
PACKAGES = ("@earendil-works/pi-coding-agent@1.6.0", "node@22")
WINDOW = 100_000_000
"""Tokens; so large that nobody compacts."""


class Unavailable(Exception):
    """A host cannot be had here; the text says why and what to do."""


@dataclass(frozen=True)
class Host:
    name: str
    program: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    sessions: Path
    """Where this host keeps the sessions of `cwd`."""
    model: tuple[str, ...]
    resume: str
    """The flag that takes the path of a session."""

    def version(self) -> list[str]:
        return [*self.program, "--version"]

    def prompt(self, text: str, session: Path | None) -> list[str]:
        resumed = [] if session is None else [self.resume, str(session)]
        return [*self.program, *self.model, *resumed, "-p", text]


def npm_host(root: Path, cwd: Path, openai_url: str, *, install: bool) -> Host:
    """Raises `Unavailable`."""
    program = _npm_program(install)
    agent = root / "npm-agent"
    agent.mkdir(parents=True)
    model = {
        "id": "m1",
        "name": "m1",
        "contextWindow": WINDOW,
        "maxTokens": 8_000,
        "cost": {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 1},
    }
    provider = {"baseUrl": openai_url, "api": "openai-completions", "apiKey": "k", "models": [model]}
    (agent / "models.json").write_text(json.dumps({"providers": {"fake": provider}}), encoding="utf-8")
    encoded = str(cwd).lstrip("/").replace("/", "-")
    node = program.parent.parent / "node" / "bin"
    path = f"{node}{os.pathsep}{os.environ['PATH']}" if node.is_dir() else os.environ["PATH"]
    return Host(
        name="npm host",
        program=(str(program),),
        env={**_clean_env(root), "PATH": path, "PI_CODING_AGENT_DIR": str(agent), "PI_OFFLINE": "1"},
        cwd=cwd,
        sessions=agent / "sessions" / f"--{encoded}--",
        model=("--provider", "fake", "--model", "m1"),
        resume="--session",
    )


def own_host(root: Path, cwd: Path, openai_url: str) -> Host:
    """Raises `Unavailable`."""
    given = os.environ.get(OWN_VARIABLE)
    program = Path(given) if given else Path(sys.executable).parent / "branchwork"
    if not program.is_file():
        raise Unavailable(f"no {program}: install the package, or set {OWN_VARIABLE} to its command")
    home = root / "own-home"
    home.mkdir(parents=True)
    models = home / "models.toml"
    models.touch(mode=0o600)
    models.write_text(
        "[providers.fake]\n"
        'api = "openai-chat"\n'
        f'base_url = "{openai_url}"\n'
        'key = "k"\n'
        "[[providers.fake.models]]\n"
        'id = "m1"\n'
        f"context_window = {WINDOW}\n"
        "max_tokens = 8000\n",
        encoding="utf-8",
    )
    return Host(
        name="Branchwork",
        program=(str(program),),
        env={**_clean_env(root), "PATH": os.environ["PATH"], "BRANCHWORK_HOME": str(home)},
        cwd=cwd,
        sessions=home / "sessions",
        model=("--model", "fake/m1"),
        resume="--resume",
    )


def _clean_env(root: Path) -> dict[str, str]:
    home = root / "home"
    home.mkdir(exist_ok=True)
    return {"HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}


def _npm_program(install: bool) -> Path:
    given = os.environ.get(NPM_VARIABLE)
    if given:
        if not Path(given).is_file():
            raise Unavailable(f"{NPM_VARIABLE} names {given!r}, which is no file")
        return Path(given)
    prefix = OUT / "npm"
    program = prefix / "node_modules" / ".bin" / "pi"
    if program.is_file():
        return program
    npm = shutil.which("npm")
    if npm is None or not install:
        why = "npm is not on PATH" if npm is None else "--no-install was given"
        raise Unavailable(f"the npm host is not installed and {why}; set {NPM_VARIABLE} to its command")
    prefix.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(prefix), *PACKAGES]
    done = subprocess.run(command, cwd=prefix, capture_output=True, text=True, check=False)
    if done.returncode or not program.is_file():
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Unavailable(f"npm could not install {' '.join(PACKAGES)}: {last}")
    return program
