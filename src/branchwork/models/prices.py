"""List prices and context windows, from a snapshot of `genai-prices` that costs a millisecond to read.

Importing `genai_prices` takes as long as the rest of a one-shot start together, so a run never does. The package
ships `data/prices.json`, a snapshot that names the version it was taken from; `branchwork models
--update-prices` writes a newer one to `BRANCHWORK_HOME/prices.json` from whatever version is installed. The
higher version of the two is read.

A snapshot keeps, per model, how its ids are matched, the context window, and dated list prices. Left out:
surcharges for long prompts, discounts by time of day, and batch or priority tiers; figures are for the base tier.
"""

import os
import re
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from branchwork.models.base import Price

SHIPPED = Path(__file__).parent.parent / "data" / "prices.json"
FILE_NAME = "prices.json"
SOURCE = "genai-prices"
PROVIDERS = ("anthropic", "deepseek", "google", "groq", "mistral", "openai", "openrouter", "x-ai")
"""Those of genai-prices' providers that the built-in catalogue refers to."""

Match: TypeAlias = list[Any]
"""`["equals"|"starts_with"|"ends_with"|"contains"|"regex", text]`, or `["or"|"and", [Match, …]]`."""


class DatedPrice(Struct, frozen=True, array_like=True):
    """US dollars per million tokens from `start` (ISO date, empty: since ever)."""

    start: str
    input: float
    output: float
    cache_read: float
    cache_write: float


class PricedModel(Struct, frozen=True, array_like=True):
    match: Match
    context_window: int
    """0 when the list does not tell."""
    prices: tuple[DatedPrice, ...]


class _Snapshot(Struct, frozen=True):
    version: str
    providers: dict[str, msgspec.Raw]


class PriceTable:
    """Looks models up in one snapshot; a provider's part is decoded when it is first asked for."""

    def __init__(self, snapshot: _Snapshot) -> None:
        self._snapshot = snapshot
        self._models: dict[str, list[PricedModel]] = {}

    @property
    def source(self) -> str:
        return f"{SOURCE} {self._snapshot.version}"

    def price(self, provider: str, model: str, today: str | None = None) -> Price | None:
        """The list price on `today` (ISO date, default now in UTC), or None when the model is not listed."""
        found = self._find(provider, model)
        if found is None:
            return None
        today = today or time.strftime("%Y-%m-%d", time.gmtime())
        dated = [each for each in found.prices if each.start <= today]
        if not dated:
            return None
        now = max(dated, key=lambda each: each.start)
        return Price(now.input, now.output, now.cache_read, now.cache_write, source=self.source)

    def context_window(self, provider: str, model: str) -> int | None:
        found = self._find(provider, model)
        return (found.context_window or None) if found else None

    def _find(self, provider: str, model: str) -> PricedModel | None:
        models = self._models.get(provider)
        if models is None:
            raw = self._snapshot.providers.get(provider)
            models = msgspec.json.decode(raw, type=list[PricedModel]) if raw is not None else []
            self._models[provider] = models
        name = model.lower()
        return next((each for each in models if matches(each.match, name)), None)


def matches(rule: Match, name: str) -> bool:
    kind, operand = rule
    match kind:
        case "equals":
            return bool(name == operand)
        case "starts_with":
            return name.startswith(operand)
        case "ends_with":
            return name.endswith(operand)
        case "contains":
            return operand in name
        case "regex":
            return re.search(operand, name) is not None
        case "or":
            return any(matches(each, name) for each in operand)
        case "and":
            return all(matches(each, name) for each in operand)
        case _:
            return False


class Prices:
    """The price table of one home directory, read when first needed. A broken own snapshot counts as absent."""

    def __init__(self, home: Path) -> None:
        self._own = home / FILE_NAME

    @cached_property
    def table(self) -> PriceTable:
        shipped = _load(SHIPPED)
        own = _load(self._own)
        candidates = [each for each in (shipped, own) if each is not None]
        if not candidates:
            return PriceTable(_Snapshot(version="none", providers={}))
        return PriceTable(max(candidates, key=lambda each: _version_key(each.version)))

    def update(self) -> str:
        """Take a new snapshot from the installed `genai-prices` (slow) and return its source string."""
        data = snapshot()
        self._own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._own.with_name(f"{FILE_NAME}.{os.getpid()}.tmp")
        temporary.write_bytes(data)
        temporary.replace(self._own)
        self.__dict__.pop("table", None)
        return self.table.source


def _load(path: Path) -> _Snapshot | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Snapshot)
    except (OSError, msgspec.DecodeError):
        return None


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


# ---- taking a snapshot ----------------------------------------------------------------------------


def snapshot() -> bytes:
    """The snapshot of the installed `genai-prices` as JSON, one model a line. Imports it: 0.2 to 0.5 s."""
    import genai_prices
    from genai_prices.data import providers

    parts = []
    for provider in sorted(providers, key=lambda each: each.id):
        if provider.id not in PROVIDERS:
            continue
        rows = [row for model in provider.models if not model.deprecated and (row := _row(model)) is not None]
        lines = ",\n".join(msgspec.json.encode(row).decode() for row in rows)
        parts.append(f'"{provider.id}": [\n{lines}\n]')
    body = ",\n".join(parts)
    return f'{{"version": "{genai_prices.__version__}", "providers": {{\n{body}\n}}}}\n'.encode()


def _row(model: Any) -> PricedModel | None:
    from genai_prices.types import StartDateConstraint

    conditions = model.prices if isinstance(model.prices, list) else None
    dated: dict[str, DatedPrice] = {}
    for start, price in (
        [("", model.prices)]
        if conditions is None
        else [
            (each.constraint.start_date.isoformat() if each.constraint else "", each.prices)
            for each in conditions
            if each.constraint is None or isinstance(each.constraint, StartDateConstraint)
        ]
    ):
        figures = _figures(start, price)
        if figures is not None:
            dated[start] = figures
    if not dated:
        return None
    return PricedModel(match=_rule(model.match), context_window=model.context_window or 0, prices=tuple(dated.values()))


def _figures(start: str, price: Any) -> DatedPrice | None:
    """None for models that are not charged by input and output tokens (speech, images, embeddings)."""
    fresh, output = _dollars(price.input_mtok), _dollars(price.output_mtok)
    if fresh is None or output is None:
        return None
    read, write = _dollars(price.cache_read_mtok), _dollars(price.cache_write_mtok)
    return DatedPrice(start, fresh, output, fresh if read is None else read, fresh if write is None else write)


def _dollars(value: Any) -> float | None:
    if value is None:
        return None
    return float(getattr(value, "base", value))  # tiered prices have a base


def _rule(clause: Any) -> Match:
    fields: Mapping[str, Any] = vars(clause)
    ((name, operand),) = fields.items()
    if name in ("or_", "and_"):
        return [name.rstrip("_"), [_rule(each) for each in operand]]
    return [name, operand.lower() if name != "regex" else operand]
