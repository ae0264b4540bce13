"""`branchwork models`: what can be used now, and why the rest cannot."""

import argparse
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from branchwork.errors import UserError
from branchwork.frontends.commands.auth import provider_reason
from branchwork.frontends.console import Console
from branchwork.models.base import ModelInfo, Price
from branchwork.models.builtin import Provider
from branchwork.models.catalog import Catalog, is_loopback

SUMMARY = "list models: limits, thinking levels, prices, and what each one needs"

HEADINGS = ("model", "window", "output", "thinking", "images", "$/M in", "out", "cached", "price from")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="*", help="words that the model's name must contain")
    parser.add_argument("--provider", metavar="NAME", help="models of this provider only")
    parser.add_argument("--all", action="store_true", help="list the models that cannot be used one by one, too")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--update-prices", action="store_true", help="take prices from the installed genai-prices before listing"
    )


class Row(Struct, frozen=True):
    """One model, as `--json` shows it. Prices are US dollars per million tokens."""

    ref: str
    name: str
    api: str
    context_window: int
    max_tokens: int
    thinking: tuple[str, ...]
    images: bool
    price: Price | None
    usable: bool
    reason: str | None


def run(args: argparse.Namespace, console: Console) -> int:
    catalog = Catalog(console.home, console.env)
    for problem in catalog.problems:
        console.warn(problem.message)
    if args.provider is not None and args.provider not in catalog.providers:
        known = ", ".join(catalog.providers)
        raise UserError(f"unknown provider {args.provider!r}; known are {known}", exit_code=2)
    if args.update_prices:
        console.warn(f"prices are those of {_update(catalog)} now")
    words = [word.lower() for word in args.query]
    infos = [info for info in catalog.models() if _wanted(info, args.provider, words)]
    rows = [_row(info, catalog) for info in infos]
    if args.json:
        console.print(msgspec.json.encode(rows).decode())
        return 0
    shown = [row for row in rows if row.usable or args.all]
    if shown:
        _table(shown, console)
    if not rows:
        console.print("no listed model fits; an id that is not listed can be used as PROVIDER/ID all the same")
    elif not shown:
        console.print("none of these can be used yet:")
    if not words:
        _servers(catalog, args.provider, console)
    if not args.all:
        _missing(rows, catalog, console)
    return 0


def _update(catalog: Catalog) -> str:
    try:
        return catalog.update_prices()
    except ImportError:
        raise UserError("genai-prices is not installed; run pip install 'branchwork[prices]'") from None
    except OSError as error:
        raise UserError(f"the prices cannot be stored: {error}") from None


def _wanted(info: ModelInfo, provider: str | None, words: list[str]) -> bool:
    text = f"{info.ref} {info.name}".lower()
    return (provider is None or info.provider == provider) and all(word in text for word in words)


def _row(info: ModelInfo, catalog: Catalog) -> Row:
    reason = catalog.usable(info)
    return Row(
        ref=info.ref,
        name=info.name,
        api=info.api,
        context_window=info.context_window,
        max_tokens=info.max_tokens,
        thinking=info.thinking,
        images=info.images,
        price=info.price,
        usable=reason is None,
        reason=reason.message if reason else None,
    )


def _table(rows: list[Row], console: Console) -> None:
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    for line, row in zip(cells, [None, *rows], strict=True):
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        console.print(text if row is None or row.usable else f"{text}  ({row.reason})")


def _cells(row: Row) -> tuple[str, ...]:
    price = row.price
    prices = ("?", "?", "?", "unknown") if price is None else (*_dollars(price), price.source)
    return (
        row.ref,
        tokens(row.context_window),
        tokens(row.max_tokens),
        ",".join(row.thinking) or "-",
        "yes" if row.images else "-",
        *prices,
    )


def _dollars(price: Price) -> tuple[str, str, str]:
    return f"{price.input:g}", f"{price.output:g}", f"{price.cache_read:g}"


def tokens(count: int) -> str:
    """`8192` → `8K`, `1050000` → `1.05M`."""
    if count >= 1_000_000:
        return f"{count / 1_000_000:.3g}M"
    return f"{count // 1000}K" if count >= 1000 else str(count)


def _servers(catalog: Catalog, only: str | None, console: Console) -> None:
    """Servers that take any model they have loaded."""
    for provider in catalog.providers.values():
        if not provider.models and only in (None, provider.name) and provider_reason(provider, catalog) is None:
            where = "local server" if is_loopback(provider.base_url) else "server"
            console.print(f"{provider.name}/NAME  any model of the {where} at {provider.base_url} (not probed)")


def _missing(rows: Iterable[Row], catalog: Catalog, console: Console) -> None:
    """One line per provider and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.reason is not None:
            groups.setdefault((row.ref.partition("/")[0], row.reason), []).append(row.ref)
    if groups:
        console.print()
    for (name, reason), refs in groups.items():
        console.print(f"{name}: {_count(refs, catalog.providers[name])} not usable: {reason}")


def _count(refs: list[str], provider: Provider) -> str:
    if len(refs) == len(provider.models) and len(refs) > 1:
        return f"all {len(refs)} models"
    return refs[0] if len(refs) == 1 else f"{len(refs)} models"
