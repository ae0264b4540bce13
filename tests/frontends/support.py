"""Runs the real program against a fake model server."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

MODELS = """
default = "fake/m1"
[providers.fake]
api = "openai-chat"
base_url = "{openai}"
key = "secret-key-1"
[[providers.fake.models]]
id = "m1"
context_window = 200000
max_tokens = 8000
images = true
cost = {{ input = 1.0, output = 2.0, cache_read = 0.1, cache_write = 1.25 }}
[providers.fakea]
api = "anthropic"
base_url = "{anthropic}"
key = "secret-key-2"
[[providers.fakea.models]]
id = "a1"
thinking = ["low", "medium", "high"]
"""


class Ran(Struct, frozen=True):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.split("\n") if line]


class Program:
    """`branchwork` in a home and a project of its own."""

    def __init__(
        self, folder: Path, *, openai: str = "http://127.0.0.1:9/v1", anthropic: str = "http://127.0.0.1:9"
    ) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        models = self.home / "models.toml"
        models.write_text(MODELS.format(openai=openai, anthropic=anthropic))
        models.chmod(0o600)  # it holds keys

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        keep = {key: os.environ[key] for key in ("PATH", "TMPDIR", "PYTHONDONTWRITEBYTECODE") if key in os.environ}
        return {**keep, "HOME": str(self.home), "BRANCHWORK_HOME": str(self.home), "LANG": "C.UTF-8", **(extra or {})}

    def run(self, *words: str, stdin: str | None = None, timeout: float = 60, **extra: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "branchwork.cli", *words],
            cwd=self.project, env=self.env(extra), timeout=timeout, text=True, capture_output=True,
            **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
        )  # fmt: skip
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "branchwork.cli", *words],
            cwd=self.project, env=self.env(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def session_files(self) -> list[Path]:
        return sorted((self.home / "sessions").rglob("*.jsonl"))
