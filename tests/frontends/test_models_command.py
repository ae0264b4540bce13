"""`branchwork models`: what can be used, what it costs and who says so, and why the rest cannot."""

import argparse
import io
import json
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.frontends.commands import models
from branchwork.frontends.console import Console

KEY = "sk-never-to-be-seen"
LAB = """
[providers.lab]
base_url = "http://127.0.0.1:1/v1"
[[providers.lab.models]]
id = "big"
context_window = 50_000
thinking = ["high"]
images = true
cost = { input = 1, output = 2.5 }
"""


def run(home: Path, *words: str, env: dict[str, str] | None = None) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    console = Console(out=out, err=err, stdin=io.StringIO(), env=env or {}, cwd=home, home=home)
    parser = argparse.ArgumentParser()
    models.configure(parser)
    assert models.run(parser.parse_args(words), console) == 0
    assert KEY not in out.getvalue() + err.getvalue()
    return out.getvalue(), err.getvalue()


def row(text: str, ref: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{ref} ")]
    return line.split()


def test_usable_models_have_their_limits_and_the_source_of_their_price(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(LAB)
    out, _ = run(tmp_path, env={"ANTHROPIC_API_KEY": KEY})
    assert row(out, "lab/big") == ["lab/big", "50K", "16K", "high", "yes", "1", "2.5", "1", "models.toml"]
    claude = row(out, "anthropic/claude-sonnet-5-5")
    assert claude[1:3] == ["1M", "128K"]
    assert claude[-2] == "genai-prices"


def test_what_cannot_be_used_is_one_line_a_provider_with_the_reason(tmp_path: Path) -> None:
    out, _ = run(tmp_path)
    assert "xai: all 3 models not usable: no key: set XAI_API_KEY" in out
    assert "anthropic/claude-sonnet-5-5" not in out


def test_all_lists_every_model_with_its_reason(tmp_path: Path) -> None:
    out, _ = run(tmp_path, "--all")
    assert "no key: set ANTHROPIC_API_KEY" in next(line for line in out.splitlines() if "claude-sonnet-5-5 " in line)


def test_servers_that_take_any_model_are_told(tmp_path: Path) -> None:
    out, _ = run(tmp_path, env={"OLLAMA_HOST": "127.0.0.1:7"})
    assert "ollama/NAME" in out
    assert "http://127.0.0.1:7/v1 (not probed)" in out


def test_words_and_a_provider_narrow_the_list(tmp_path: Path) -> None:
    rows = json.loads(run(tmp_path, "--json", "sonnet", "5.5")[0])
    assert {each["ref"] for each in rows} == {"openrouter/anthropic/claude-sonnet-5.5", "anthropic/claude-sonnet-5-5"}
    rows = json.loads(run(tmp_path, "--json", "--provider", "xai")[0])
    assert {each["ref"].split("/")[0] for each in rows} == {"xai"}
    with pytest.raises(UserError) as raised:
        run(tmp_path, "--provider", "nobody")
    assert raised.value.exit_code == 2
    assert "PROVIDER/ID all the same" in run(tmp_path, "zzzz")[0]


def test_json_has_every_model_with_its_reason(tmp_path: Path) -> None:
    rows = json.loads(run(tmp_path, "--json", env={"XAI_API_KEY": KEY})[0])
    by_ref = {each["ref"]: each for each in rows}
    grok = by_ref["xai/grok-4.7"]
    assert (grok["usable"], grok["reason"], grok["price"]["source"][:13]) == (True, None, "genai-prices ")
    claude = by_ref["anthropic/claude-sonnet-5-5"]
    assert not claude["usable"]
    assert "ANTHROPIC_API_KEY" in claude["reason"]


def test_problems_of_the_files_are_told_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text("colour = 1")
    out, err = run(tmp_path, "--json")
    assert "`colour`" in err
    json.loads(out)


def test_new_prices_are_stored_and_named(tmp_path: Path) -> None:
    _, err = run(tmp_path, "--update-prices", "--json")
    assert "genai-prices" in err
    assert (tmp_path / "prices.json").exists()


@pytest.mark.parametrize(
    ("count", "text"), [(512, "512"), (8_192, "8K"), (128_000, "128K"), (1_050_000, "1.05M"), (1_000_000, "1M")]
)
def test_token_counts_are_short(count: int, text: str) -> None:
    assert models.tokens(count) == text
