"""The providers and models that work without a `models.toml`.

Windows that are left out here, and all prices, come from the price snapshot (`branchwork.models.prices`).
Output limits, thinking levels and image input are those of the providers' model pages in November 2026; models
are listed newest and most capable first, which is the order in which a default is looked for.

Chat Completions at api.openai.com refuses tools together with thinking from GPT-5.4 on, so OpenAI's own endpoint
is spoken to through the Responses API; a different base URL means a compatible server, which has Chat Completions.
"""

from msgspec import Struct, field

from branchwork.models.auth import Secret
from branchwork.models.models_file import ModelTable
from branchwork.session.entries import JSONObject, ThinkingLevel

GRADED: tuple[ThinkingLevel, ...] = ("low", "medium", "high")
WIDE: tuple[ThinkingLevel, ...] = ("low", "medium", "high", "xhigh", "max")
BUDGETED: tuple[ThinkingLevel, ...] = ("minimal", "low", "medium", "high")


class Provider(Struct, frozen=True, kw_only=True):
    """A server and what to know to talk to it."""

    name: str
    api: str
    base_url: str | None = None
    key: Secret | None = None
    key_env: tuple[str, ...] = ()
    """Environment variables that may hold the key, best first."""
    headers: dict[str, str] = field(default_factory=dict)
    options: JSONObject = field(default_factory=dict)
    models: tuple[ModelTable, ...] = ()
    base_url_env: str | None = None
    """The environment variable that moves the provider to another server."""
    moved_api: str | None = None
    """The API of such another server, where it differs; also spoken, without thinking, while the extra that `api`
    needs is not installed."""
    moved: bool = False
    """Whether the base URL is not the built-in one."""
    declared: bool = False
    """Whether `models.toml` has a table for it."""
    prices: str | None = None
    """The provider's name in genai-prices."""
    context_window: int = 128_000
    """For models about which nothing is known."""
    max_tokens: int = 16_384

    def spec(self, model: str) -> ModelTable | None:
        """The listed model of that id."""
        return next((each for each in self.models if each.id == model), None)


def _claude(name: str, title: str, levels: tuple[ThinkingLevel, ...] = WIDE) -> ModelTable:
    options: JSONObject = {"thinking_style": "adaptive", "thinking_display": "summarized"}
    return ModelTable(name, title, max_tokens=128_000, thinking=levels, images=True, options=options)


def _gpt(name: str, title: str, thinking: tuple[ThinkingLevel, ...]) -> ModelTable:
    return ModelTable(name, title, max_tokens=128_000, thinking=thinking, images=True)


def _gemini(name: str, title: str, thinking: tuple[ThinkingLevel, ...]) -> ModelTable:
    return ModelTable(name, title, context_window=1_048_576, max_tokens=65_536, thinking=thinking, images=True)


def _routed(name: str, title: str, window: int, *, images: bool = True) -> ModelTable:
    return ModelTable(name, title, context_window=window, max_tokens=65_536, thinking=GRADED, images=images)


ANTHROPIC = Provider(
    name="anthropic",
    api="anthropic",
    base_url="https://api.anthropic.com",
    base_url_env="ANTHROPIC_BASE_URL",
    key_env=("ANTHROPIC_API_KEY",),
    prices="anthropic",
    models=(
        _claude("claude-sonnet-5-5", "Claude Sonnet 5.5"),
        _claude("claude-opus-5-5", "Claude Opus 5.5"),
        _claude("claude-haiku-5-5", "Claude Haiku 5.5"),
        _claude("claude-fable-5-2", "Claude Fable 5.2"),
        _claude("claude-opus-5", "Claude Opus 5"),
        _claude("claude-sonnet-5", "Claude Sonnet 5"),
        _claude("claude-opus-4-8", "Claude Opus 4.8"),
        _claude("claude-sonnet-4-6", "Claude Sonnet 4.6", (*GRADED, "max")),
        ModelTable("claude-haiku-4-5", "Claude Haiku 4.5", max_tokens=64_000, thinking=BUDGETED, images=True),
    ),
)

OPENAI = Provider(
    name="openai",
    api="pydantic-ai:openai-responses",
    base_url="https://api.openai.com/v1",
    base_url_env="OPENAI_BASE_URL",
    moved_api="openai-chat",
    key_env=("OPENAI_API_KEY",),
    prices="openai",
    models=(
        _gpt("gpt-6.1-sol", "GPT-6.1 Sol", WIDE),
        _gpt("gpt-6-astra", "GPT-6 Astra", WIDE),
        _gpt("gpt-6.1-terra", "GPT-6.1 Terra", WIDE),
        _gpt("gpt-6-sol", "GPT-6 Sol", WIDE),
        _gpt("gpt-6-luna", "GPT-6 Luna", WIDE),
        _gpt("gpt-5.6-sol", "GPT-5.6 Sol", WIDE),
        _gpt("gpt-5.5", "GPT-5.5", ("low", "medium", "high", "xhigh")),
        ModelTable("gpt-4.1", "GPT-4.1", api="openai-chat", max_tokens=32_768, images=True),
        ModelTable("gpt-4.1-mini", "GPT-4.1 mini", api="openai-chat", max_tokens=32_768, images=True),
    ),
)

GOOGLE = Provider(
    name="google",
    api="pydantic-ai:google",
    key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    prices="google",
    models=(
        _gemini("gemini-3.8-flash", "Gemini 3.8 Flash", GRADED),
        _gemini("gemini-4-argon", "Gemini 4 Argon", GRADED),
        _gemini("gemini-3.1-pro-preview", "Gemini 3.1 Pro", GRADED),
        _gemini("gemini-3.5-flash-lite", "Gemini 3.5 Flash-Lite", BUDGETED),
        _gemini("gemini-2.5-pro", "Gemini 2.5 Pro", BUDGETED),
        _gemini("gemini-2.5-flash", "Gemini 2.5 Flash", BUDGETED),
    ),
)

OPENROUTER = Provider(
    name="openrouter",
    api="openai-chat",
    base_url="https://openrouter.ai/api/v1",
    key_env=("OPENROUTER_API_KEY",),
    options={"thinking_field": "reasoning"},
    prices="openrouter",
    models=(
        _routed("anthropic/claude-sonnet-5.5", "Claude Sonnet 5.5", 1_000_000),
        _routed("anthropic/claude-opus-5.5", "Claude Opus 5.5", 1_000_000),
        _routed("openai/gpt-6.1-sol", "GPT-6.1 Sol", 1_050_000),
        _routed("google/gemini-3.8-flash", "Gemini 3.8 Flash", 1_048_576),
        _routed("moonshotai/kimi-k3", "Kimi K3", 1_048_576, images=False),
        _routed("z-ai/glm-5.3", "GLM-5.3", 1_048_576, images=False),
        _routed("deepseek/deepseek-v4.1-flash", "DeepSeek V4.1 Flash", 1_048_576, images=False),
        _routed("qwen/qwen3.8-27b", "Qwen3.8 27B", 262_144, images=False),
    ),
)

DEEPSEEK = Provider(
    name="deepseek",
    api="openai-chat",
    base_url="https://api.deepseek.com/v1",
    key_env=("DEEPSEEK_API_KEY",),
    options={"thinking_field": "reasoning_content", "reasoning_effort": {"high": "high", "max": "max"}},
    prices="deepseek",
    models=(
        ModelTable("deepseek-v4-pro", "DeepSeek V4 Pro", max_tokens=131_072, thinking=("high", "max")),
        ModelTable("deepseek-flash", "DeepSeek V4.1 Flash", max_tokens=131_072, thinking=("high", "max")),
    ),
)

GROQ = Provider(
    name="groq",
    api="openai-chat",
    base_url="https://api.groq.com/openai/v1",
    key_env=("GROQ_API_KEY",),
    prices="groq",
    models=(
        ModelTable("openai/gpt-oss-120b", "gpt-oss 120B", max_tokens=65_536, thinking=GRADED),
        ModelTable("openai/gpt-oss-20b", "gpt-oss 20B", max_tokens=65_536, thinking=GRADED),
        ModelTable("qwen/qwen3.8-27b", "Qwen3.8 27B", max_tokens=32_768),
        ModelTable("llama-3.3-70b-versatile", "Llama 3.3 70B", context_window=131_072, max_tokens=32_768),
    ),
)

MISTRAL = Provider(
    name="mistral",
    api="openai-chat",
    base_url="https://api.mistral.ai/v1",
    key_env=("MISTRAL_API_KEY",),
    options={"call_id_length": 9},
    prices="mistral",
    models=(
        ModelTable("mistral-large-4", "Mistral Large 4", max_tokens=131_072, images=True),
        ModelTable("mistral-medium-3-5", "Mistral Medium 3.5", max_tokens=32_768, images=True),
        ModelTable("mistral-small-2603", "Mistral Small", max_tokens=32_768, images=True),
        ModelTable("codestral-2508", "Codestral", max_tokens=32_768),
    ),
)

XAI = Provider(
    name="xai",
    api="openai-chat",
    base_url="https://api.x.ai/v1",
    key_env=("XAI_API_KEY",),
    prices="x-ai",
    models=(
        ModelTable("grok-4.7", "Grok 4.7", max_tokens=65_536, thinking=GRADED, images=True),
        ModelTable("grok-4.3", "Grok 4.3", max_tokens=65_536, thinking=GRADED, images=True),
        ModelTable("grok-build-0.1", "Grok Build", max_tokens=32_768),
    ),
)


def _server(name: str, base_url: str, base_url_env: str | None = None) -> Provider:
    """A local server: no key, any model that it serves, a window that most small models have."""
    return Provider(
        name=name,
        api="openai-chat",
        base_url=base_url,
        base_url_env=base_url_env,
        context_window=32_768,
        max_tokens=8_192,
    )


LOCAL = Provider(
    name="local",
    api="local",
    models=(ModelTable("smollm2", "SmolLM2 135M Instruct", context_window=8_192, max_tokens=1_024),),
)

PROVIDERS: tuple[Provider, ...] = (
    ANTHROPIC,
    OPENAI,
    GOOGLE,
    OPENROUTER,
    DEEPSEEK,
    MISTRAL,
    XAI,
    GROQ,
    _server("ollama", "http://127.0.0.1:11434/v1", "OLLAMA_HOST"),
    _server("llamacpp", "http://127.0.0.1:8080/v1"),
    _server("vllm", "http://127.0.0.1:8000/v1"),
    LOCAL,
)
"""In the order in which a default is looked for."""
