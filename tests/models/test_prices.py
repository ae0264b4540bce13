"""Prices come from a snapshot that says where it is from."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from branchwork.models.builtin import PROVIDERS
from branchwork.models.prices import PROVIDERS as PRICED
from branchwork.models.prices import SHIPPED, Prices, matches, snapshot

BUILTIN = [(provider, model.id) for provider in PROVIDERS if provider.prices for model in provider.models]


@pytest.mark.parametrize(("provider", "model"), BUILTIN, ids=lambda each: each if isinstance(each, str) else each.name)
def test_a_built_in_model_has_a_price_and_a_window(tmp_path: Path, provider: object, model: str) -> None:
    name = getattr(provider, "prices", "")
    table = Prices(tmp_path).table
    price = table.price(name, model)
    assert price is not None
    assert 0 < price.cache_read <= price.input < price.output
    assert price.source.startswith("genai-prices ")


def test_the_shipped_snapshot_is_what_the_installed_list_gives() -> None:
    import genai_prices

    shipped = json.loads(SHIPPED.read_bytes())
    if shipped["version"] != genai_prices.__version__:
        pytest.skip(f"the snapshot is of {shipped['version']}, installed is {genai_prices.__version__}")
    assert SHIPPED.read_bytes() == snapshot()
    assert set(shipped["providers"]) == set(PRICED)


def test_figures_agree_with_genai_prices_itself(tmp_path: Path) -> None:
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=3000, cache_read_tokens=1000, output_tokens=500)
    for provider, model in BUILTIN:
        if provider.name == "deepseek":
            continue  # priced by time of day there, by the list price here
        assert provider.prices is not None
        price = Prices(tmp_path).table.price(provider.prices, model)
        assert price is not None
        theirs = calc_price(usage, model, provider_id=provider.prices).total_price
        ours = (2000 * price.input + 1000 * price.cache_read + 500 * price.output) / 1_000_000
        assert ours == pytest.approx(float(theirs)), model


def test_a_dated_id_has_the_price_of_its_model_and_unknown_ids_have_none(tmp_path: Path) -> None:
    table = Prices(tmp_path).table
    assert table.price("anthropic", "claude-sonnet-5-5-20261001") == table.price("anthropic", "claude-sonnet-5-5")
    assert table.price("anthropic", "gpt-6.1-sol") is None
    assert table.price("nobody", "claude-sonnet-5-5") is None
    assert table.context_window("nobody", "x") is None


def test_the_price_in_force_on_the_day_counts(tmp_path: Path) -> None:
    own = {
        "version": "999.0",
        "providers": {"openai": [[["equals", "m"], 0, [["", 1, 2, 3, 4], ["2030-01-02", 5, 6, 7, 8]]]]},
    }
    (tmp_path / "prices.json").write_text(json.dumps(own))
    table = Prices(tmp_path).table
    before, after = table.price("openai", "m", "2030-01-01"), table.price("openai", "m", "2030-01-02")
    assert (before and before.input, after and after.input) == (1, 5)
    assert before is not None
    assert before.source == "genai-prices 999.0"
    assert table.context_window("openai", "m") is None


@pytest.mark.parametrize("content", ["not json", '{"version": "0.0.1", "providers": {}}'])
def test_a_broken_or_older_own_snapshot_does_not_hide_the_shipped_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "prices.json").write_text(content)
    assert Prices(tmp_path).table.price("openai", "gpt-6.1-sol") is not None


def test_an_update_is_stored_and_used(tmp_path: Path) -> None:
    prices = Prices(tmp_path / "home")
    source = prices.update()
    assert source == prices.table.source
    assert (tmp_path / "home" / "prices.json").read_bytes() == snapshot()


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        (["equals", "a"], "a", True),
        (["equals", "a"], "ab", False),
        (["starts_with", "a"], "ab", True),
        (["ends_with", "b"], "ab", True),
        (["contains", "x"], "ab", False),
        (["regex", r"^a-\d$"], "a-1", True),
        (["or", [["equals", "a"], ["equals", "b"]]], "b", True),
        (["and", [["contains", "a"], ["contains", "b"]]], "a", False),
        (["new kind", "a"], "a", False),
    ],
)
def test_match_rules(rule: list[object], name: str, expected: bool) -> None:
    assert matches(rule, name) is expected


def test_looking_a_price_up_does_not_import_genai_prices(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from branchwork.models.catalog import Catalog\n"
        f"info = Catalog(Path({str(tmp_path)!r}), {{}}).find('anthropic/claude-sonnet-5-5')\n"
        "assert info.price is not None\n"
        "heavy = {'genai_prices', 'pydantic', 'pydantic_ai', 'httpx2', 'asyncio', 'tomllib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
