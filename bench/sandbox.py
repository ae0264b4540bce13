"""What confining a command costs: `python -m bench.sandbox [RUNS]`, against plain `bash -c true`.

The kinds are measured in turns, so that a change in the load of the machine meets them all.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from branchwork.errors import UserError
from branchwork.policy.sandbox.overlay import begin
from branchwork.policy.sandbox.plan import SandboxSpec, make_scratch
from branchwork.policy.sandbox.probe import Sandboxes

COMMAND = ("bash", "-c", "true")
SYSTEM_CALLS = 200_000
CALLS = (sys.executable, "-I", "-S", "-c", f"import os\nfor _ in range({SYSTEM_CALLS}): os.stat('/')")
Run = Callable[[], float]


def timed(argv: tuple[str, ...], cwd: Path) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, check=True, start_new_session=True)
    return (time.perf_counter() - started) * 1000


def kinds(base: Path) -> dict[str, tuple[Callable[[tuple[str, ...]], tuple[str, ...]], Path]]:
    """Name to what wraps an argument list, and where it runs. Each command is wrapped anew, as the program does."""
    project, home = base / "project", base / "home"
    for folder in (project, home):
        folder.mkdir()
    spec = SandboxSpec(cwd=project, home=home, scratch=make_scratch(base / "area"), keep=(base,))
    found: dict[str, tuple[Callable[[tuple[str, ...]], tuple[str, ...]], Path]] = {
        "plain": (lambda argv: argv, project)
    }
    for name in ("bwrap", "landlock", "seatbelt"):
        try:
            backend = Sandboxes(os.environ).choose(name).backend
        except UserError:
            continue
        found[name] = (lambda argv, backend=backend: backend.wrap(argv, spec, os.environ), project)  # type: ignore[misc]
        if backend.overlays:
            layers = begin(project, base / "area")
            over = SandboxSpec(cwd=project, home=home, scratch=spec.scratch, keep=(base,), rehearse=layers)
            found[f"{name}, rehearsal"] = (
                lambda argv, backend=backend, over=over: backend.wrap(argv, over, os.environ),  # type: ignore[misc]
                project,
            )
    return found


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory(prefix="branchwork-bench-") as name:
        chosen = kinds(Path(name).resolve())
        took: dict[str, list[float]] = {kind: [] for kind in chosen}
        calls: dict[str, list[float]] = {kind: [] for kind in chosen}
        for number in range(runs):
            for kind, (wrap, cwd) in chosen.items():
                took[kind].append(timed(wrap(COMMAND), cwd))
                if number < 5:
                    calls[kind].append(timed(wrap(CALLS), cwd))
    started = time.perf_counter()
    Sandboxes(os.environ).choose()
    probing = (time.perf_counter() - started) * 1000
    plain = statistics.median(took["plain"])
    print("| | min ms | median ms | over plain ms | ms for 200,000 calls of stat |\n|---|--:|--:|--:|--:|")
    for kind, times in took.items():
        middle = statistics.median(times)
        print(f"| {kind} | {min(times):.1f} | {middle:.1f} | {middle - plain:+.1f} | {min(calls[kind]):.0f} |")
    print(f"\nfinding the backend, once per process: {probing:.0f} ms; {runs} runs each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
