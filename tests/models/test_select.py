"""What someone types becomes one usable model, or an error that says what to type instead."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.errors import UserError
from branchwork.models.base import THINKING_LEVELS
from branchwork.models.catalog import Catalog
from branchwork.models.select import choose, resolve, split_level
from branchwork.session.entries import ThinkingLevel

TWO = """
[providers.one]
base_url = "http://127.0.0.1:1/v1"
[[providers.one.models]]
id = "shared"
[[providers.one.models]]
id = "tag:high"
[providers.two]
base_url = "http://two.example/v1"
key_env = "TWO_KEY"
[[providers.two.models]]
id = "shared"
"""


def catalog(home: Path, env: Mapping[str, str] | None = None, toml: str = "") -> Catalog:
    if toml:
        (home / "models.toml").write_text(toml)
    return Catalog(home, env or {})


def failure(found: Catalog, **wish: str | None) -> str:
    with pytest.raises(UserError) as raised:
        choose(found, **wish)
    assert raised.value.exit_code == 3
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("anthropic/x:high", ("anthropic/x", "high")),
        ("ollama/qwen3:8b", ("ollama/qwen3:8b", None)),
        ("ollama/qwen3:8b:low", ("ollama/qwen3:8b", "low")),
        ("x:off", ("x", "off")),
        (":high", (":high", None)),
        ("x:HIGH", ("x:HIGH", None)),
        ("x:", ("x:", None)),
    ],
)
def test_only_a_level_after_the_last_colon_is_a_level(text: str, expected: tuple[str, ThinkingLevel | None]) -> None:
    assert split_level(text) == expected


@given(
    st.text(min_size=1).filter(lambda text: text.rpartition(":")[2] not in THINKING_LEVELS),
    st.sampled_from(THINKING_LEVELS),
)
def test_a_level_that_was_added_comes_off_again(text: str, level: ThinkingLevel) -> None:
    assert split_level(f"{text}:{level}") == (text, level)


def test_a_full_reference_is_taken_as_it_is(tmp_path: Path) -> None:
    selection = resolve(catalog(tmp_path, {"ANTHROPIC_API_KEY": "k"}), "anthropic/claude-opus-5-5:max")
    assert (selection.info.ref, selection.thinking, selection.warnings) == ("anthropic/claude-opus-5-5", "max", ())


def test_tags_of_local_servers_work_with_and_without_a_level(tmp_path: Path) -> None:
    plain = resolve(catalog(tmp_path), "ollama/qwen3:8b")
    levelled = resolve(catalog(tmp_path), "ollama/qwen3:8b:high")
    assert (plain.info.id, plain.thinking) == ("qwen3:8b", None)
    assert (levelled.info.id, levelled.thinking) == ("qwen3:8b", "high")


def test_a_listed_id_that_ends_like_a_level_is_an_id(tmp_path: Path) -> None:
    found = catalog(tmp_path, toml=TWO)
    for text in ("one/tag:high", "tag:high"):
        assert (resolve(found, text).info.id, resolve(found, text).thinking) == ("tag:high", None)
    assert resolve(found, "one/tag:high:low").thinking == "low"


def test_an_unlisted_id_is_used_with_exactly_one_warning(tmp_path: Path) -> None:
    selection = resolve(catalog(tmp_path), "vllm/org/model-7b")
    assert (selection.info.id, selection.info.known) == ("org/model-7b", False)
    (warning,) = selection.warnings
    assert "vllm/org/model-7b" in warning
    assert "32,768" in warning


def test_of_several_providers_the_one_that_can_be_used_is_taken(tmp_path: Path) -> None:
    assert resolve(catalog(tmp_path, toml=TWO), "shared").info.ref == "one/shared"


def test_several_usable_providers_are_an_error_that_names_them(tmp_path: Path) -> None:
    message = failure(catalog(tmp_path, {"TWO_KEY": "k"}, TWO), explicit="shared")
    assert "one/shared, two/shared" in message


def test_several_unusable_providers_are_an_error_with_each_reason(tmp_path: Path) -> None:
    message = failure(catalog(tmp_path), explicit="qwen/qwen3.8-27b")
    assert "OPENROUTER_API_KEY" in message
    assert "GROQ_API_KEY" in message


def test_an_id_that_begins_with_a_providers_name_finds_who_lists_it(tmp_path: Path) -> None:
    groq = resolve(catalog(tmp_path, {"GROQ_API_KEY": "k"}), "openai/gpt-oss-20b")
    assert groq.info.ref == "groq/openai/gpt-oss-20b"
    message = failure(catalog(tmp_path), explicit="openai/gpt-oss-20b")
    assert "OPENAI_API_KEY" in message


@pytest.mark.parametrize("text", ["sonnet 5.5", "Sonnet", "claude-sonnet-5.5", "anthropic sonnet"])
def test_words_find_the_first_usable_model_that_has_them(tmp_path: Path, text: str) -> None:
    assert resolve(catalog(tmp_path, {"ANTHROPIC_API_KEY": "k"}), text).info.ref == "anthropic/claude-sonnet-5-5"


def test_words_prefer_what_can_be_used_and_say_what_else_they_fit(tmp_path: Path) -> None:
    selection = resolve(catalog(tmp_path, {"OPENROUTER_API_KEY": "k"}), "claude:low")
    assert selection.info.ref == "openrouter/anthropic/claude-sonnet-5.5"
    assert selection.thinking == "low"
    assert "openrouter/anthropic/claude-opus-5.5" in selection.warnings[0]


def test_words_that_fit_only_unusable_models_give_the_reason(tmp_path: Path) -> None:
    assert "XAI_API_KEY" in failure(catalog(tmp_path), explicit="grok")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("antropic/claude-sonnet-5-5", "anthropic/claude-sonnet-5-5"),
        ("claude-sonet-5-5", "anthropic/claude-sonnet-5-5"),
        ("zzzz/yyyy", "ollama"),
        ("zzzz:ultra", "thinking levels are off"),
        ("  ", "branchwork models"),
    ],
)
def test_what_fits_nothing_is_an_error_with_near_names(tmp_path: Path, text: str, advice: str) -> None:
    assert advice in failure(catalog(tmp_path), explicit=text)


def test_an_explicit_model_without_a_key_is_an_error_and_nothing_else_is_tried(tmp_path: Path) -> None:
    message = failure(catalog(tmp_path, {"OPENROUTER_API_KEY": "k"}), explicit="anthropic/claude-sonnet-5-5")
    assert "ANTHROPIC_API_KEY" in message


# ---- the order of defaults ------------------------------------------------------------------------

DEFAULT = 'default = "vllm/mine:high"\n'


def test_the_order_is_explicit_session_default_environment(tmp_path: Path) -> None:
    env = {"ANTHROPIC_API_KEY": "k"}
    found = catalog(tmp_path, env, DEFAULT)
    assert choose(found, explicit="ollama/a", session="llamacpp/b").info.ref == "ollama/a"
    assert choose(found, session="llamacpp/b").info.ref == "llamacpp/b"
    assert choose(found).info.ref == "vllm/mine"
    assert choose(found).thinking == "high"
    (tmp_path / "models.toml").unlink()
    assert choose(catalog(tmp_path, env)).info.ref == "anthropic/claude-sonnet-5-5"


@pytest.mark.parametrize("session", ["gone/model", "anthropic/claude-sonnet-5-5"])
def test_a_session_model_that_is_gone_gives_way_with_a_warning(tmp_path: Path, session: str) -> None:
    selection = choose(catalog(tmp_path, toml=DEFAULT), session=session)
    assert selection.info.ref == "vllm/mine"
    assert session in selection.warnings[0]
    assert "going on with vllm/mine" in selection.warnings[0]


def test_a_configured_default_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    message = failure(catalog(tmp_path, {"OPENROUTER_API_KEY": "k"}, 'default = "xai/grok-4.7"'))
    assert "default in models.toml" in message
    assert "XAI_API_KEY" in message


def test_with_nothing_set_up_the_error_says_what_to_do(tmp_path: Path) -> None:
    message = failure(catalog(tmp_path))
    for advice in ("ANTHROPIC_API_KEY", "branchwork auth set", "ollama", "branchwork demo"):
        assert advice in message


def test_a_stored_key_and_a_declared_model_count_as_set_up(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text('{"groq": {"type": "api_key", "key": "k"}}')
    assert choose(catalog(tmp_path)).info.provider == "groq"
    toml = '[providers.box]\nbase_url = "http://127.0.0.1:1/v1"\n[[providers.box.models]]\nid = "m"\n'
    assert choose(catalog(tmp_path, toml=toml)).info.ref == "box/m"


def test_an_explicit_key_alone_does_not_choose_a_provider(tmp_path: Path) -> None:
    found = Catalog(tmp_path, {}, api_key="k")
    assert "no model can be used yet" in failure(found)
    assert resolve(found, "xai/grok-4.7").info.ref == "xai/grok-4.7"


def test_no_network_is_used_and_no_adapter_imported(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(TWO + '[[providers.ollama.models]]\nid = "qwen3:8b"\n')
    code = (
        "import sys; from pathlib import Path\n"
        "def watch(event, args):\n"
        "    assert not event.startswith('socket.'), event\n"
        "sys.addaudithook(watch)\n"
        "from branchwork.models.catalog import Catalog\n"
        "from branchwork.models.select import choose\n"
        f"print(choose(Catalog(Path({str(tmp_path)!r}), {{}}), explicit='qwen3:8b').info.ref)\n"
        "heavy = {'httpx2', 'asyncio', 'pydantic', 'pydantic_ai', 'genai_prices', 'xllamacpp'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert not [name for name in sys.modules if name.startswith('branchwork.models.adapters')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "ollama/qwen3:8b"
