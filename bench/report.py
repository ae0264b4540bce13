"""The measurements as a Markdown table with the budgets: `python -m bench.report [bench/out/host.json]`."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

NPM, OWN = "npm host", "Branchwork"
HUNDRED = 100


@dataclass(frozen=True)
class Row:
    """One line of the table. `budget` bounds our figure as a part of the npm host's, or (`alone`) by itself."""

    title: str
    scenario: str
    figure: Callable[[dict[str, Any]], float]
    unit: str
    budget: float | None = None
    alone: bool = False


def _wall(run: dict[str, Any]) -> float:
    return float(run["wall_s"]) * 1000


def _cpu(run: dict[str, Any]) -> float:
    return float(run["cpu_s"]) * 1000


def _rss(run: dict[str, Any]) -> float:
    return float(run["max_rss"]) / 1_000_000


def _own(run: dict[str, Any]) -> float:
    return float(median(run["own_s"])) * 1000


def _growth(run: dict[str, Any]) -> float:
    """Own time of the last hundred turns against the first hundred."""
    own = run["own_s"]
    return float(median(own[-HUNDRED:]) / median(own[:HUNDRED]))


def _request(run: dict[str, Any]) -> float:
    return float(run["first_request"]) / 1000


ROWS = (
    Row("`--version`, wall", "version", _wall, "ms", 0.25),
    Row("`--version`, peak memory", "version", _rss, "MB"),
    Row("one-shot `-p`, wall", "one-shot", _wall, "ms", 0.7),
    Row("one-shot `-p`, CPU", "one-shot", _cpu, "ms"),
    Row("one-shot `-p`, peak memory", "one-shot", _rss, "MB", 0.6),
    Row("one-shot `-p`, size of the request", "one-shot", _request, "kB"),
    Row("50 tool calls, wall", "50 calls", _wall, "ms"),
    Row("50 tool calls, own time per turn", "50 calls", _own, "ms"),
    Row("1,000 tool calls, wall", "1000 calls", _wall, "ms"),
    Row("1,000 tool calls, peak memory", "1000 calls", _rss, "MB"),
    Row("1,000 tool calls, own time per turn", "1000 calls", _own, "ms"),
    Row("1,000 tool calls, last hundred turns / first hundred", "1000 calls", _growth, "", 1.3, alone=True),
    Row("resume 20,000 entries, wall", "resume", _wall, "ms", 0.5),
    Row("resume 20,000 entries, peak memory", "resume", _rss, "MB", 0.5),
    Row("resume 20,000 entries, size of the request", "resume", _request, "kB"),
    Row("resume 20,000 entries, own time per turn", "turns", _own, "ms", 0.2),
    Row("resume 20,000 entries compacted, wall", "resume compacted", _wall, "ms"),
    Row("resume 20,000 entries compacted, peak memory", "resume compacted", _rss, "MB"),
    Row("resume 20,000 entries compacted, size of the request", "resume compacted", _request, "kB"),
    Row("resume 20,000 entries compacted, own time per turn", "turns compacted", _own, "ms"),
)


def table(results: dict[str, Any]) -> str:
    """Markdown. Cells are `min / median`; ratios and verdicts go by the medians; the model's time does not count."""
    lines = [
        f"| What | {NPM} | {OWN} | ratio | budget | |",
        "|---|--:|--:|--:|--:|---|",
        *(_line(row, results[row.scenario]) for row in ROWS if row.scenario in results),
    ]
    problems = [
        f"- {scenario}: {found}"
        for scenario, hosts in results.items()
        for found in hosts.values()
        if isinstance(found, str)
    ]
    return "\n".join([*lines, *(["", *problems] if problems else [])])


def _line(row: Row, hosts: dict[str, Any]) -> str:
    npm, own = (_figures(row, hosts.get(name)) for name in (NPM, OWN))
    ratio = median(own) / median(npm) if npm and own else None
    judged = (median(own) if own else None) if row.alone else ratio
    verdict = ""
    if row.budget is not None:
        verdict = "not measured" if judged is None else "PASS" if judged <= row.budget else "FAIL"
    budget = "" if row.budget is None else f"{'' if row.alone else '× '}{row.budget:g}"
    shown = "" if ratio is None or row.alone else f"{ratio:.2f}"
    return f"| {row.title} | {_cell(npm, row.unit)} | {_cell(own, row.unit)} | {shown} | {budget} | {verdict} |"


def _figures(row: Row, runs: Any) -> list[float]:
    return [row.figure(run) for run in runs] if isinstance(runs, list) else []


def _cell(figures: list[float], unit: str) -> str:
    if not figures:
        return "–"
    low, middle = (f"{value:.0f}" if value >= 100 else f"{value:.3g}" for value in (min(figures), median(figures)))
    return f"{low} / {middle} {unit}".strip()


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "out" / "host.json"
    if not path.is_file():
        print(f"no results at {path}: run `python -m bench.host` first", file=sys.stderr)
        return 1
    print(table(json.loads(path.read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
