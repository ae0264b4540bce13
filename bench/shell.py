"""Verdicts a second and wrong verdicts: `python -m bench.shell [TABLE]` (default: the table of the tests)."""

import sys
import time
from pathlib import Path

from branchwork.policy.shell import judge

DATA = Path(__file__).parent.parent / "tests" / "policy" / "data"
SECONDS = 3.0


def rows(path: Path) -> list[tuple[str, str, str]]:
    """Directory, wanted verdict, command."""
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")[1:]
    cells = [line.split("\t") for line in lines]
    return [("/home/u" if cwd == "~" else cwd, want, command.replace("⏎", "\n")) for _, cwd, want, command in cells]


def plain(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").split("\n")
    return [line.replace("⏎", "\n") for line in lines if line and not line.startswith("# ")]


def verdict(command: str, cwd: str = "/w") -> str:
    return judge(command, cwd=cwd, tmp="/tmp", home="/home/u").verdict


def main() -> int:
    table = rows(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "verdicts.tsv")
    found = [(want, verdict(command, cwd)) for cwd, want, command in table]
    wrong_a = sum(want != "A" and got == "A" for want, got in found)
    wrong_b = sum(want != "B" and got == "B" for want, got in found)
    other = sum(want != got for want, got in found) - wrong_a - wrong_b
    print(f"table: {len(table)} rows, wrong A {wrong_a}, wrong B {wrong_b}, other {other}")
    hostile, reading = plain(DATA / "hostile.txt"), plain(DATA / "reading.txt")
    holes = sum(verdict(command) == "A" for command in hostile)
    refused = [verdict(command) for command in reading]
    print(f"hostile: {len(hostile)} commands, rated A {holes}")
    print(f"reading: {len(reading)} commands, rated B {refused.count('B')}, rated S {refused.count('S')}")
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < SECONDS:
        for cwd, _, command in table:
            verdict(command, cwd)
        count += len(table)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"speed: {count / wall:,.0f} verdicts a second of wall time, {count / cpu:,.0f} of CPU time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
