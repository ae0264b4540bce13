"""The pages about extensions say what the program says."""

import re
import subprocess
import sys
from pathlib import Path

import branchwork
from branchwork.agent.toolset import ToolOutput
from branchwork.host import points
from branchwork.host.extension import ExtensionAPI
from branchwork.host.hooks import BUDGET_S, STRIKES
from branchwork.host.host import SENT_RUNS
from branchwork.host.loader import LOAD_BUDGET_S


def test_the_generated_parts_are_up_to_date(repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(repository / "scripts" / "docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_example_is_in_the_page_and_every_point_is_in_its_table(repository: Path) -> None:
    page = (repository / "docs" / "extensions.md").read_text(encoding="utf-8")
    for example in (repository / "examples").glob("*.py"):
        assert example.read_text(encoding="utf-8").strip() in page, example.name
    for point in points.ALL:
        assert f"| `{point.name.upper()}` |" in page
        assert getattr(points, point.name.upper()) is point


def test_every_method_of_the_api_and_every_number_of_the_page_is_the_real_one(repository: Path) -> None:
    page = (repository / "docs" / "extensions.md").read_text(encoding="utf-8")
    methods = {name for name in vars(ExtensionAPI) if not name.startswith("_")} - {"name", "close"}
    assert {name for name in methods if f"`{name}" not in page} == set()
    assert f"longer\nthan {LOAD_BUDGET_S:g} seconds" in page
    assert f"({BUDGET_S:g} seconds;" in page
    assert f"at most {SENT_RUNS} runs" in page
    assert STRIKES == 3
    assert "dropped the third time" in page


def test_what_extensions_import_is_public() -> None:
    names = {"ExtensionAPI", "ExtensionContext", "CommandContext", "ToolArgs", "ToolContext", "ToolError", "tool"}
    assert names <= set(branchwork.__all__)
    assert branchwork.ToolOutput is ToolOutput
    for name in branchwork.__all__:
        assert getattr(branchwork, name) is not None


def test_examples_import_only_the_public_names(repository: Path) -> None:
    for example in (repository / "examples").glob("*.py"):
        found = re.findall(r"^from branchwork(\S*) import", example.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(found) == {""}, example.name
