"""`branchwork auth`: store, list, remove and check API keys. No key is ever printed."""

import argparse
import difflib

from branchwork.errors import UserError
from branchwork.frontends.console import Console
from branchwork.models.auth import AuthFile, Secret, clean_key
from branchwork.models.builtin import Provider
from branchwork.models.catalog import Catalog, Reason

SUMMARY = "store, list, remove and check API keys"


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    store = actions.add_parser("set", help="store a key: asked for without echo, or read from standard input")
    store.add_argument("provider", metavar="PROVIDER")
    actions.add_parser("list", help="where each provider's key comes from")
    remove = actions.add_parser("remove", help="forget a stored key")
    remove.add_argument("provider", metavar="PROVIDER")
    check = actions.add_parser("check", help="exit 0 when PROVIDER (or any that is set up) can be used, 1 when not")
    check.add_argument("provider", metavar="PROVIDER", nargs="?")


def run(args: argparse.Namespace, console: Console) -> int:
    catalog = Catalog(console.home, console.env)
    for problem in catalog.problems:
        console.warn(problem.message)
    match args.action:
        case "set":
            return _set(args.provider, catalog, console)
        case "list":
            return _list(catalog, console)
        case "remove":
            return _remove(args.provider, console)
        case "check":
            return _check(args.provider, catalog, console)
        case other:
            raise UserError(f"unknown action {other!r}", exit_code=2)


def _set(name: str, catalog: Catalog, console: Console) -> int:
    _known(name, catalog)
    AuthFile(console.home).set(name, _read_key(name, console))
    console.print(f"stored the key of {name} in {AuthFile(console.home).path}")
    return 0


def _read_key(name: str, console: Console) -> Secret:
    if console.stdin.isatty():
        import getpass

        try:
            return clean_key(getpass.getpass(f"Key for {name} (not shown): ", stream=console.err))
        except EOFError:
            raise UserError("no key was given; nothing was stored") from None
    return clean_key(console.stdin.read())


def _list(catalog: Catalog, console: Console) -> int:
    rows = [(name, _source(provider, catalog)) for name, provider in catalog.providers.items()]
    width = max(len(name) for name, _ in rows)
    for name, source in rows:
        console.print(f"{name:<{width}}  {source}")
    return 0


def _source(provider: Provider, catalog: Catalog) -> str:
    found = catalog.key(provider.name)
    if found is not None:
        where = found.source if found.source.endswith((".json", ".toml")) else f"environment variable {found.source}"
        return f"key from {where}"
    if provider.key_env:
        return f"no key (set {' or '.join(provider.key_env)}, or `branchwork auth set {provider.name}`)"
    return "needs no key"


def _remove(name: str, console: Console) -> int:
    file = AuthFile(console.home)
    if not file.remove(name):
        raise UserError(
            f"no key of {name!r} is stored in {file.path}; `branchwork auth list` shows where keys are from"
        )
    console.print(f"removed the key of {name} from {file.path}")
    return 0


def _check(name: str | None, catalog: Catalog, console: Console) -> int:
    if name is not None:
        providers = [_known(name, catalog)]
    else:
        providers = [provider for provider in catalog.providers.values() if catalog.set_up(provider.name)]
    reasons = [(provider.name, provider_reason(provider, catalog)) for provider in providers]
    for each, reason in reasons:
        console.print(f"{each}: {'ready' if reason is None else reason.message}")
    if not providers:
        console.print("no provider is set up; store a key with `branchwork auth set PROVIDER`")
    return 0 if any(reason is None for _, reason in reasons) else 1


def provider_reason(provider: Provider, catalog: Catalog) -> Reason | None:
    """None when at least one of the provider's models, or any model of its server, could be used."""
    refs = [f"{provider.name}/{spec.id}" for spec in provider.models] or [f"{provider.name}/any"]
    reasons = [catalog.usable(catalog.find(ref)) for ref in refs]
    return None if None in reasons else reasons[0]


def _known(name: str, catalog: Catalog) -> Provider:
    provider = catalog.providers.get(name)
    if provider is not None:
        return provider
    near = difflib.get_close_matches(name, list(catalog.providers), n=3)
    advice = f"did you mean {' or '.join(near)}?" if near else "declare it in models.toml first"
    raise UserError(f"unknown provider {name!r}; {advice}", exit_code=2)
