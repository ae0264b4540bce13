"""From what someone typed, stored or configured to one model that can be used.

A reference is `PROVIDER/ID[:LEVEL]`, a bare `ID[:LEVEL]`, or words that occur in one. Ids may contain `/` and `:`;
only a thinking level after the last colon is a level, and not if the whole text is the id of a listed model.
"""

from typing import cast

from msgspec import Struct, structs

from branchwork.errors import UserError
from branchwork.models.base import THINKING_LEVELS, ModelInfo
from branchwork.models.catalog import EXIT_MODEL, Catalog
from branchwork.models.thinking import is_level
from branchwork.session.entries import ThinkingLevel

NOTHING_USABLE = (
    "no model can be used yet: set a key such as ANTHROPIC_API_KEY or OPENROUTER_API_KEY, store one with "
    "`branchwork auth set PROVIDER`, name a local server's model (--model ollama/NAME), or try `branchwork demo`"
)


class Selection(Struct, frozen=True):
    info: ModelInfo
    thinking: ThinkingLevel | None = None
    """The level of the reference; None when it named none. Not clamped to the model yet."""
    warnings: tuple[str, ...] = ()


def split_level(text: str) -> tuple[str, ThinkingLevel | None]:
    """`qwen3:8b:high` → (`qwen3:8b`, high); `qwen3:8b` → (`qwen3:8b`, None)."""
    head, colon, tail = text.rpartition(":")
    if colon and head and is_level(tail):
        return head, cast(ThinkingLevel, tail)
    return text, None


def choose(catalog: Catalog, *, explicit: str | None = None, session: str | None = None) -> Selection:
    """The model to run: the explicit reference, the session's own, the default of `models.toml`, the first usable.

    A session model (`PROVIDER/ID`) that is gone or cannot be used gives way with a warning. An explicit model or
    a configured default that cannot be used is an error: nobody else is sent what was meant for it.
    Raises `UserError` with exit code 3.
    """
    if explicit is not None:
        return resolve(catalog, explicit)
    warnings: tuple[str, ...] = ()
    if session is not None:
        try:
            return _usable(catalog, _trusted(catalog.find(session), None))
        except UserError as error:
            warnings = (f"the session's model {session} is not available ({error})",)
    if catalog.default is not None:
        try:
            selection = resolve(catalog, catalog.default)
        except UserError as error:
            raise UserError(f"default in models.toml: {error}", exit_code=EXIT_MODEL) from None
    else:
        selection = _first_usable(catalog)
    if warnings:
        warnings = (f"{warnings[0]}; going on with {selection.info.ref}",)
    return Selection(selection.info, selection.thinking, warnings + selection.warnings)


def resolve(catalog: Catalog, text: str) -> Selection:
    """The usable model that `text` refers to; raises `UserError` with exit code 3."""
    text = text.strip()
    if not text:
        raise UserError("the model's name is empty; see `branchwork models`", exit_code=EXIT_MODEL)
    head, level = split_level(text)
    refs = catalog.refs()
    if level is not None and any(text in (name, f"{provider}/{name}") for provider, name in refs):
        head, level = text, None
    provider, slash, name = head.partition("/")
    if slash and (provider, name) in refs:
        return _usable(catalog, Selection(catalog.find(head), level))
    bare = [(each, model) for each, model in refs if model == head]
    named = bool(slash and name and provider in catalog.providers)
    if bare:
        listed = _of_bare(catalog, head, [each for each, _ in bare], level, strict=not named)
        if listed is not None:
            return listed
    if named:
        return _usable(catalog, _trusted(catalog.find(head), level))
    return _fuzzy(catalog, head, refs, level)


def _of_bare(
    catalog: Catalog, name: str, providers: list[str], level: ThinkingLevel | None, *, strict: bool
) -> Selection | None:
    """The one provider of `name` that can be used. None if there is none and `strict` is off."""
    infos = [catalog.find(f"{provider}/{name}") for provider in providers]
    ready = [info for info in infos if catalog.usable(info) is None]
    if len(ready) == 1:
        return _usable(catalog, Selection(ready[0], level))
    if not ready and not strict:
        return None
    if not ready and len(infos) == 1:
        return _usable(catalog, Selection(infos[0], level))
    which = ", ".join(info.ref for info in ready or infos)
    if ready:
        raise UserError(f"{name!r} is offered by several providers; name one: {which}", exit_code=EXIT_MODEL)
    reasons = "; ".join(f"{info.ref}: {_reason(catalog, info)}" for info in infos)
    raise UserError(f"no provider of {name!r} can be used: {reasons}", exit_code=EXIT_MODEL)


def _fuzzy(catalog: Catalog, text: str, refs: list[tuple[str, str]], level: ThinkingLevel | None) -> Selection:
    """The first listed model with all words of `text` in its reference; usable ones win."""
    words = _plain(text).split()
    found = [ref for provider, name in refs if all(word in _plain(ref := f"{provider}/{name}") for word in words)]
    infos = [catalog.find(ref) for ref in found]
    ready = [info for info in infos if catalog.usable(info) is None]
    if ready:
        others = [info.ref for info in ready[1:4]]
        note = (f"{text!r} is taken as {ready[0].ref}; it also fits {', '.join(others)}",) if others else ()
        return _usable(catalog, Selection(ready[0], level, note))
    if infos:
        return _usable(catalog, Selection(infos[0], level))
    raise UserError(f"no model {text!r}: {_advice(catalog, text, refs)}", exit_code=EXIT_MODEL)


def _plain(text: str) -> str:
    """Providers write versions as `5.5` and as `5-5`."""
    return text.lower().replace(".", "-")


def _advice(catalog: Catalog, text: str, refs: list[tuple[str, str]]) -> str:
    import difflib

    provider, slash, name = text.partition("/")
    if slash:
        names = difflib.get_close_matches(provider, list(catalog.providers), n=2)
        if names:
            return f"no provider {provider!r}; did you mean {' or '.join(f'{each}/{name}' for each in names)}?"
    by_id = {name: f"{each}/{name}" for each, name in refs}
    near = [by_id[each] for each in difflib.get_close_matches(name if slash else text, list(by_id), n=3)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    _, colon, level = text.rpartition(":")
    levels = f" (thinking levels are {', '.join(THINKING_LEVELS)})" if colon and level.isalpha() else ""
    known = ", ".join(catalog.providers)
    return f"write PROVIDER/ID with one of the providers {known}{levels}; `branchwork models` lists models"


def _trusted(info: ModelInfo, level: ThinkingLevel | None) -> Selection:
    if info.known:
        return Selection(info, level)
    warning = (
        f"{info.ref} is not in the catalogue: assuming a window of {info.context_window:,} tokens and replies of up "
        f"to {info.max_tokens:,}; models.toml can say better"
    )
    return Selection(info, level, (warning,))


def _usable(catalog: Catalog, selection: Selection) -> Selection:
    reason = catalog.usable(selection.info)
    if reason is not None:
        raise UserError(f"{selection.info.ref} cannot be used: {reason.message}", exit_code=EXIT_MODEL)
    note = catalog.given_up(selection.info)
    if note is not None:
        return structs.replace(selection, warnings=(*selection.warnings, note))
    return selection


def _reason(catalog: Catalog, info: ModelInfo) -> str:
    reason = catalog.usable(info)
    return reason.message if reason else ""


def _first_usable(catalog: Catalog) -> Selection:
    """The first usable listed model of a provider that someone set up."""
    passed: list[str] = []
    for name, provider in catalog.providers.items():
        if not catalog.set_up(name):
            continue
        for spec in provider.models:
            info = catalog.find(f"{name}/{spec.id}")
            reason = catalog.usable(info)
            if reason is None:
                return _usable(catalog, Selection(info, None, tuple(passed[:1])))
            if reason.code == "no-extra":
                passed.append(f"{info.ref} is passed over: {reason.message}")
    hint = f" ({passed[0]})" if passed else ""
    raise UserError(NOTHING_USABLE + hint, exit_code=EXIT_MODEL)
