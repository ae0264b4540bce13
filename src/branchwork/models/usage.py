"""Usage and cost: fixed when a request ends, from the price that was in force then."""

from collections.abc import Iterable

from branchwork.models.base import Price, ReplyEnd
from branchwork.session.entries import Cost, Usage

PER = 1_000_000
LONG_CACHE_FACTOR = 1.6
"""A one-hour cache write against a five-minute one: 2.0 and 1.25 times the input price (Anthropic's list)."""


def usage_of(end: ReplyEnd, price: Price | None) -> Usage:
    """The usage a server reported, priced. Missing figures count as zero."""
    fresh, output = end.input or 0, end.output or 0
    return Usage(
        input=fresh,
        output=output,
        cache_read=end.cache_read,
        cache_write=end.cache_write,
        cache_write_1h=end.cache_write_1h,
        reasoning=end.reasoning,
        total_tokens=fresh + output + end.cache_read + end.cache_write,
        cost=_cost(end, price),
    )


def _cost(end: ReplyEnd, price: Price | None) -> Cost:
    if price is None:
        if end.cost is None:
            return Cost()
        return Cost(total=end.cost, total_from_provider=True, source="provider")
    short = end.cache_write - end.cache_write_1h
    parts = (
        (end.input or 0) * price.input / PER,
        (end.output or 0) * price.output / PER,
        end.cache_read * price.cache_read / PER,
        (short + end.cache_write_1h * LONG_CACHE_FACTOR) * price.cache_write / PER,
    )
    total = sum(parts) if end.cost is None else end.cost
    source = price.source if end.cost is None else "provider"
    return Cost(*parts, total=total, total_from_provider=end.cost is not None, source=source)


def add_usage(usages: Iterable[Usage]) -> Usage:
    """The sum. Its cost's `source` is the common one, `mixed`, or None when nothing was priced."""
    total = Usage()
    for usage in usages:
        total = Usage(
            input=total.input + usage.input,
            output=total.output + usage.output,
            cache_read=total.cache_read + usage.cache_read,
            cache_write=total.cache_write + usage.cache_write,
            cache_write_1h=total.cache_write_1h + usage.cache_write_1h,
            reasoning=total.reasoning + usage.reasoning,
            total_tokens=total.total_tokens + usage.total_tokens,
            cost=_add_cost(total.cost, usage.cost),
        )
    return total


def _add_cost(a: Cost, b: Cost) -> Cost:
    sources = {source for source in (a.source, b.source) if source}
    return Cost(
        input=a.input + b.input,
        output=a.output + b.output,
        cache_read=a.cache_read + b.cache_read,
        cache_write=a.cache_write + b.cache_write,
        total=a.total + b.total,
        source=sources.pop() if len(sources) == 1 else ("mixed" if sources else None),
    )
