"""What the exported page says about a session beside its entries: kinds, totals, provenance.

Pure: entries in, values out. The JavaScript that reads these values is in `branchwork/data/export`.
"""

from typing import assert_never

from msgspec import Struct

from branchwork.session.entries import (
    LEAF_TYPE,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryEntry,
    BranchSummaryMessage,
    CompactionEntry,
    CompactionSummaryMessage,
    ContextEditEntry,
    CustomEntry,
    CustomMessage,
    CustomMessageEntry,
    Entry,
    LabelEntry,
    Message,
    MessageEntry,
    ModelChangeEntry,
    Problem,
    SessionInfoEntry,
    SystemMessage,
    ThinkingLevelChangeEntry,
    ToolResultMessage,
    UnknownEntry,
    Usage,
    UsageEntry,
    UserMessage,
)

UNRECORDED = "source not recorded"
"""Shown for a cost without a source, as the npm host writes it."""


def kind_of(entry: Entry) -> str:
    """One letter for the tree of the page (`KINDS` in store.js lists the same letters)."""
    match entry:
        case MessageEntry(message=message):
            return _message_kind(message)
        case CompactionEntry():
            return "k"
        case BranchSummaryEntry():
            return "s"
        case CustomEntry(custom_type=custom_type):
            return "v" if custom_type == LEAF_TYPE else "p"
        case CustomMessageEntry(display=display):
            return "d" if display else "h"
        case ModelChangeEntry():
            return "m"
        case ThinkingLevelChangeEntry():
            return "t"
        case UsageEntry():
            return "$"
        case ContextEditEntry():
            return "x"
        case LabelEntry():
            return "l"
        case SessionInfoEntry():
            return "n"
        case UnknownEntry():
            return "?"
        case _:
            assert_never(entry)


def _message_kind(message: Message) -> str:
    match message:
        case UserMessage():
            return "u"
        case AssistantMessage():
            if message.stop_reason == "error":
                return "e"
            return "c" if message.tool_calls and not message.text.strip() else "a"
        case ToolResultMessage():
            return "r"
        case BashExecutionMessage():
            return "b"
        case SystemMessage():
            return "y"
        case CustomMessage(display=display):
            return "d" if display else "h"
        case BranchSummaryMessage():
            return "s"
        case CompactionSummaryMessage():
            return "k"
        case _:
            assert_never(message)


class Spent(Struct, frozen=True, rename="camel"):
    """Tokens and US dollars of some requests. `priced` of the `requests` have a price; `cost` sums those."""

    name: str
    requests: int
    priced: int
    input: int
    cache_read: int
    cache_write: int
    output: int
    total: int
    cost: float
    source: str
    """Where the prices came from; several sources are joined with commas."""


class Totals(Struct, frozen=True, rename="camel"):
    """Sums over every entry of the export. `messages` counts those of people and models."""

    entries: int
    messages: int
    branches: int
    all: Spent
    models: tuple[Spent, ...]
    """By what spent it, largest token count first."""


class _Account:
    __slots__ = ("cost", "priced", "requests", "sources", "tokens")

    def __init__(self) -> None:
        self.requests = 0
        self.priced = 0
        self.tokens = [0, 0, 0, 0]
        self.cost = 0.0
        self.sources: dict[str, None] = {}

    def add(self, usage: Usage) -> None:
        counts = (usage.input, usage.cache_read, usage.cache_write, usage.output)
        self.tokens = [a + b for a, b in zip(self.tokens, counts, strict=True)]
        self.requests += 1
        if usage.cost.total > 0 or usage.cost.source is not None:
            self.priced += 1
            self.cost += usage.cost.total
            self.sources[usage.cost.source or UNRECORDED] = None

    def spent(self, name: str) -> Spent:
        fresh, cache_read, cache_write, output = self.tokens
        return Spent(
            name=name,
            requests=self.requests,
            priced=self.priced,
            input=fresh,
            cache_read=cache_read,
            cache_write=cache_write,
            output=output,
            total=sum(self.tokens),
            cost=self.cost,
            source=", ".join(self.sources),
        )


class Tally:
    """Adds entries up one by one, so that a session need not be held to be summed."""

    def __init__(self) -> None:
        self._entries = 0
        self._messages = 0
        self._all = _Account()
        self._by_name: dict[str, _Account] = {}

    def add(self, entry: Entry) -> None:
        self._entries += 1
        if isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage | AssistantMessage):
            self._messages += 1
        for name, usage in _spending(entry):
            if usage.total_tokens or usage.input or usage.output or usage.cost.total:
                self._all.add(usage)
                self._by_name.setdefault(name, _Account()).add(usage)

    def totals(self, branches: int) -> Totals:
        models = [account.spent(name) for name, account in self._by_name.items()]
        models.sort(key=lambda spent: -spent.total)
        return Totals(self._entries, self._messages, branches, self._all.spent("All"), tuple(models))


def _spending(entry: Entry) -> list[tuple[str, Usage]]:
    match entry:
        case MessageEntry(message=AssistantMessage(provider=provider, model=model, usage=usage)):
            return [(f"{provider}/{model}", usage)]
        case MessageEntry(message=ToolResultMessage(tool_name=name, usage=Usage() as usage)):
            return [(f"inside tool {name}", usage)]
        case CompactionEntry(usage=Usage() as usage):
            return [("compaction summaries", usage)]
        case BranchSummaryEntry(usage=Usage() as usage):
            return [("branch summaries", usage)]
        case UsageEntry(provider=provider, model=model, usage=usage, kind=kind):
            return [(f"{provider}/{model} ({kind})", usage)]
        case _:
            return []


class PageSession(Struct, frozen=True):
    id: str
    name: str
    cwd: str
    started: str
    """ISO 8601, as the header has it."""


class PageMeta(Struct, frozen=True):
    """The second data block of the page; nodes are numbered in the order of the first block."""

    session: PageSession
    leaf: int
    """Number of the current leaf, -1 when the export does not hold it."""
    parents: list[int]
    """-1 for a root."""
    kinds: str
    labels: dict[int, str]
    totals: Totals
    problems: tuple[Problem, ...]
    about: dict[str, str]
