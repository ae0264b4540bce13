"""docs/models.md: its examples work, and its lists are complete."""

import re
from pathlib import Path

import pytest

from branchwork.models.adapters.anthropic_encode import MessagesOptions
from branchwork.models.adapters.openai_encode import ChatOptions
from branchwork.models.builtin import PROVIDERS
from branchwork.models.catalog import Catalog
from branchwork.models.select import choose, split_level
from branchwork.models.thinking import BUDGETS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text()
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
KEYS = {"LAB_API_KEY": "k", "PROXY_KEY": "k", "OPENAI_API_KEY": "k", "VLLM_API_KEY": "k"}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_read_without_a_complaint_and_its_models_are_found(example: str, tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(example)
    catalog = Catalog(tmp_path, KEYS)
    assert catalog.problems == ()
    for provider, model in re.findall(r'\[\[providers\.(\w+)\.models\]\]\nid = "([^"]+)"', example):
        info = catalog.find(f"{provider}/{model}")
        assert info.known
        assert catalog.usable(info) is None or info.provider in ("anthropic", "responses")
    if catalog.default is not None:
        wanted, level = split_level(catalog.default)
        selection = choose(catalog)
        assert (selection.info.ref, selection.thinking, selection.warnings) == (wanted, level, ())


def test_every_option_has_a_row() -> None:
    for name in (*ChatOptions.__struct_fields__, *MessagesOptions.__struct_fields__):
        assert f"| `{name}` |" in TEXT


def test_every_built_in_provider_has_a_row_with_its_variables() -> None:
    rows = {line.split("`")[1]: line for line in TEXT.splitlines() if line.startswith("| `")}
    for provider in PROVIDERS:
        for variable in (*provider.key_env, *filter(None, [provider.base_url_env])):
            assert f"`{variable}`" in rows[provider.name]


def test_the_budgets_are_those_of_the_program() -> None:
    for tokens in BUDGETS.values():
        assert f"{tokens:,}" in TEXT
