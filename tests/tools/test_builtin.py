"""The built-in tools as models, prompts and the start-up of the program see them."""

import re
import subprocess
import sys

import msgspec
import pytest

from branchwork.agent.toolset import Effect, Tool
from branchwork.tools import edit, find, grep, images, ls
from branchwork.tools.builtin import BUILTIN_NAMES, DEFAULT_ACTIVE, builtin_tools
from branchwork.tools.truncate import MAX_BYTES, MAX_LINE, MAX_LINES, format_size

TOOLS = {tool.name: tool for tool in builtin_tools()}
FILE_TOOLS = [TOOLS[name] for name in BUILTIN_NAMES if name != "bash"]


def test_the_order_is_stable_and_all_are_active() -> None:
    assert tuple(tool.name for tool in builtin_tools()) == BUILTIN_NAMES == DEFAULT_ACTIVE
    assert BUILTIN_NAMES == ("read", "bash", "edit", "write", "grep", "find", "ls")


def test_the_schemas_are_the_same_bytes_every_time() -> None:
    assert msgspec.json.encode([tool.spec for tool in builtin_tools()]) == msgspec.json.encode(
        [tool.spec for tool in builtin_tools()]
    )


@pytest.mark.parametrize(
    ("name", "parameters", "required"),
    [
        ("read", ["path", "offset", "limit"], ["path"]),
        ("edit", ["path", "edits"], ["path", "edits"]),
        ("write", ["path", "content"], ["path", "content"]),
        ("grep", ["pattern", "path", "glob", "ignoreCase", "literal", "context", "limit"], ["pattern"]),
        ("find", ["pattern", "path", "limit"], ["pattern"]),
        ("ls", ["path", "limit"], []),
    ],
)
def test_parameters_have_their_names_on_the_wire(name: str, parameters: list[str], required: list[str]) -> None:
    schema = TOOLS[name].spec.parameters
    assert list(schema["properties"]) == parameters
    assert schema.get("required", []) == required
    assert schema["additionalProperties"] is False
    assert all(value.get("description") and value.get("type") for value in schema["properties"].values())


def test_the_edits_of_edit_have_their_names_on_the_wire() -> None:
    item = TOOLS["edit"].spec.parameters["properties"]["edits"]["items"]
    assert list(item["properties"]) == item["required"] == ["oldText", "newText"]


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("read", [f"{MAX_LINES} lines", format_size(MAX_BYTES), f"{images.MAX_SIDE}×{images.MAX_SIDE} pixels"]),
        ("edit", [f"{edit.MAX_EDIT_BYTES // 1_000_000} MB"]),
        ("grep", [f"{grep.MAX_MATCHES} matches", format_size(MAX_BYTES), f"{MAX_LINE} characters"]),
        ("find", [f"At most {find.MAX_RESULTS} ", format_size(MAX_BYTES)]),
        ("ls", [f"{ls.MAX_ENTRIES} entries", format_size(MAX_BYTES)]),
    ],
)
def test_descriptions_state_the_limits_that_hold(name: str, facts: list[str]) -> None:
    for fact in facts:
        assert fact in TOOLS[name].description


@pytest.mark.parametrize("tool", FILE_TOOLS, ids=lambda tool: tool.name)
def test_snippets_and_guidelines_are_short_and_name_the_tool(tool: Tool) -> None:
    assert tool.snippet
    assert len(tool.snippet) < 80
    assert tool.guidelines
    assert all(re.search(rf"\b{tool.name}\b", rule) and len(rule) < 200 for rule in tool.guidelines)
    assert len(tool.description) < 1200


def test_effects_and_touched_paths_are_declared_for_policy() -> None:
    assert {tool.name for tool in FILE_TOOLS if Effect.WRITE in tool.effects} == {"edit", "write"}
    for tool in FILE_TOOLS:
        assert tool.touches is not None
    args = msgspec.convert({"path": "~/x", "content": ""}, TOOLS["write"].args)
    touches = TOOLS["write"].touches
    assert touches is not None
    assert touches(args) == ("~/x",)


IMPORT = """
import sys, time
import branchwork.agent.toolset
before = set(sys.modules)
start = time.process_time()
import branchwork.tools.builtin
branchwork.tools.builtin.builtin_tools()
print((time.process_time() - start) * 1000)
print(*(set(sys.modules) - before))
"""


def test_importing_the_tools_is_quick_and_loads_nothing_heavy() -> None:
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True) for _ in range(3)
    ]
    spent, loaded = zip(*(run.stdout.splitlines() for run in runs), strict=True)
    assert min(map(float, spent)) < 15
    heavy = {"difflib", "base64", "PIL", "unicodedata", "shutil", "tempfile", "importlib.metadata", "json"}
    assert heavy.isdisjoint(loaded[0].split())
