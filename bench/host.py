"""Measures Branchwork against the npm host it grew from, both against one fake model server, in turns.

    python -m bench.host                 all scenarios; prints the table, keeps bench/out/host.json
    python -m bench.host version one-shot --runs 10

Compare ratios, not seconds: machines differ and so does their load.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.hosts import NPM_VARIABLE, OUT, Host, Unavailable, npm_host, own_host
from bench.report import table
from bench.sessions import FILE_NAME, write_session
from branchwork.testing.server import FakeModelServer, Script, calls, says

LAUNCHER = Path(__file__).parent / "launch.py"
LIMIT_S = 900
LONG_SESSION = 20_000
"""Entries."""
ANSWER = "All done."
FILES = 100
"""Different files to read: a host may stop a model that repeats one call."""


@dataclass(frozen=True)
class Scenario:
    """What is run, how often (`runs`), and against which answers. `session` names a generated one to resume."""

    name: str
    runs: int
    script: Script | None = None
    requests: int = 0
    session: str | None = None


def reads(count: int) -> Script:
    return calls(count, tool="read", arguments=lambda number: {"path": _file(number)}, final=ANSWER)


def _file(number: int) -> str:
    return f"notes-{number % FILES:02}.txt"


SCENARIOS = (
    Scenario("version", runs=10),
    Scenario("one-shot", runs=9, script=says(ANSWER), requests=1),
    Scenario("50 calls", runs=5, script=reads(50), requests=51),
    Scenario("1000 calls", runs=1, script=reads(1000), requests=1001),
    Scenario("resume", runs=5, script=says(ANSWER), requests=1, session="long"),
    Scenario("turns", runs=3, script=reads(10), requests=11, session="long"),
    Scenario("resume compacted", runs=5, script=says(ANSWER), requests=1, session="compacted"),
    Scenario("turns compacted", runs=3, script=reads(10), requests=11, session="compacted"),
)


@dataclass(frozen=True)
class Run:
    """One measured process. Times in seconds, sizes in bytes."""

    wall_s: float
    """Without `server_s`, as if the model had no latency."""
    server_s: float
    """What the fake server took from the last byte of each request to the last byte of its reply."""
    cpu_s: float
    max_rss: int
    first_request: int
    """Size of the first request's body."""
    own_s: tuple[float, ...]
    """The client's own times between a reply and the next request."""


class Failed(Exception):
    """A host did not do what the scenario asks for, so its figures mean nothing."""


class Bench:
    def __init__(self, root: Path, server: FakeModelServer) -> None:
        self.root, self.server = root, server
        self.cwd = root / "project"
        self.cwd.mkdir()
        for number in range(FILES):
            (self.cwd / _file(number)).write_text("A small file.\n" * 20, encoding="utf-8")
        self._templates: dict[str, Path] = {}

    def measure(self, host: Host, scenario: Scenario) -> Run:
        """Raises `Failed`."""
        if scenario.script is None:
            return self._run(host, host.version(), scenario)
        self.server.script = scenario.script
        if scenario.session is None:
            return self._run(host, host.prompt("Go on.", None), scenario)
        # A copy for each run, because a resumed session grows.
        session = host.sessions / FILE_NAME
        session.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self._template(scenario.session), session)
        try:
            return self._run(host, host.prompt("Go on.", session), scenario)
        finally:
            for file in session.parent.glob(session.name + "*"):
                file.unlink()

    def _template(self, kind: str) -> Path:
        if kind not in self._templates:
            path = self.root / f"{kind}.jsonl"
            write_session(path, self.cwd, LONG_SESSION, compacted=kind == "compacted")
            self._templates[kind] = path
        return self._templates[kind]

    def _run(self, host: Host, command: list[str], scenario: Scenario) -> Run:
        self.server.clear()
        result = self.root / "result.json"
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), str(result)]
        out, err = (self.root / name for name in ("stdout", "stderr"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [*launcher, *command],
                cwd=host.cwd,
                env=host.env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired as error:
                raise Failed(f"{host.name} did not end within {LIMIT_S} s") from error
            finally:
                _end(process)
        took: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        self._check(host, scenario, took["code"], out.read_text(errors="replace"), err.read_text(errors="replace"))
        requests = self.server.requests
        server_s = sum(request.last_byte - request.complete for request in requests if request.last_byte is not None)
        return Run(
            wall_s=took["wall_s"] - server_s,
            server_s=server_s,
            cpu_s=took["cpu_s"],
            max_rss=took["max_rss"],
            first_request=requests[0].bytes if requests else 0,
            own_s=tuple(self.server.own_times()),
        )

    def _check(self, host: Host, scenario: Scenario, code: int, out: str, err: str) -> None:
        if self.server.rejected:
            raise Failed(f"{host.name} sent a wrong request: {self.server.rejected[0].error}")
        if code != 0 or (scenario.script is not None and out.strip() != ANSWER) or not out.strip():
            raise Failed(f"{host.name} ended with code {code} and printed {out[-200:]!r}, {err[-400:]!r}")
        if len(self.server.requests) != scenario.requests:
            raise Failed(f"{host.name} made {len(self.server.requests)} requests instead of {scenario.requests}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Whatever is left of the process group that the run started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _hosts(bench: Bench, install: bool) -> list[Host]:
    makers: tuple[Callable[[], Host], ...] = (
        lambda: npm_host(bench.root, bench.cwd, bench.server.openai_url, install=install),
        lambda: own_host(bench.root, bench.cwd, bench.server.openai_url),
    )
    hosts = []
    for make in makers:
        try:
            hosts.append(make())
        except Unavailable as reason:
            print(f"skipped: {reason}", file=sys.stderr)
    return hosts


def run_all(bench: Bench, hosts: list[Host], scenarios: list[Scenario], runs: int | None) -> dict[str, Any]:
    """Scenario → host → its runs, or the text of what went wrong."""
    results = {}
    for scenario in scenarios:
        results[scenario.name] = _run_scenario(bench, hosts, scenario, runs or scenario.runs)
        print(f"{scenario.name}: done", file=sys.stderr)
    return results


def _run_scenario(bench: Bench, hosts: list[Host], scenario: Scenario, runs: int) -> dict[str, Any]:
    found: dict[str, list[Any]] = {host.name: [] for host in hosts}
    problems: dict[str, str] = {}
    for number in range(runs):
        # Every other round the other way round, so that no host always runs in the wake of the same one.
        for host in hosts if number % 2 == 0 else reversed(hosts):
            if host.name in problems:
                continue
            try:
                found[host.name].append(asdict(bench.measure(host, scenario)))
            except Failed as reason:
                problems[host.name] = str(reason)
    return {**found, **problems}


def main(argv: list[str] | None = None) -> int:
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(prog="python -m bench.host", description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"default: all of {', '.join(names)}")
    parser.add_argument("--runs", type=int, help="runs per host and scenario, instead of each scenario's own number")
    parser.add_argument("--no-install", action="store_true", help=f"do not install the npm host; see {NPM_VARIABLE}")
    options = parser.parse_args(argv)
    unknown = set(options.scenarios) - set(names)
    if unknown:
        parser.error(f"unknown scenario: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    chosen = [scenario for scenario in SCENARIOS if not options.scenarios or scenario.name in options.scenarios]
    with (
        tempfile.TemporaryDirectory(prefix="branchwork-bench-") as folder,
        FakeModelServer(says(ANSWER), keep_bodies=False) as server,
    ):
        bench = Bench(Path(folder).resolve(), server)
        hosts = _hosts(bench, install=not options.no_install)
        results = run_all(bench, hosts, chosen, options.runs)
    OUT.mkdir(exist_ok=True)
    (OUT / "host.json").write_text(json.dumps(results), encoding="utf-8")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
