"""`branchwork extensions`: what is loaded, from where, and what it registered."""

import argparse
import asyncio

from branchwork.clock import RandomIds, SystemClock
from branchwork.extensions import BUILTIN
from branchwork.frontends.console import Console
from branchwork.frontends.stray import stray_output
from branchwork.host.assembly import AgentRequest, SessionChoice, Surroundings
from branchwork.host.host import Front, Host
from branchwork.models.scripted import ScriptedModel
from branchwork.session.codec import encode_object

SUMMARY = "List extensions: what is loaded, from where, and what it registered."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one object with a list of extensions")
    parser.add_argument("-e", "--extension", metavar="PATH", action="append", default=[], help="load this one too")
    parser.add_argument("--disable", metavar="NAME", action="append", default=[], help="do not load this one")


def run(args: argparse.Namespace, console: Console) -> int:
    request = AgentRequest(
        session=SessionChoice(kind="none"),
        given_model=ScriptedModel(),
        extension_paths=tuple(console.cwd / path for path in args.extension),
        disabled=tuple(args.disable),
    )
    world = Surroundings(
        home=console.home, cwd=console.cwd, cwd_given=True, env=console.env, clock=SystemClock(), ids=RandomIds()
    )
    with stray_output(console):
        return asyncio.run(_list(request, world, console, as_json=args.json))


async def _list(request: AgentRequest, world: Surroundings, console: Console, *, as_json: bool) -> int:
    host = await Host.open(request, world, Front(name="print", builtin=BUILTIN))
    try:
        rows = [_row(host, index) for index in range(len(host.extensions))]
        if as_json:
            console.print(encode_object({"extensions": rows}).decode())
        else:
            _print(rows, console)
        return 1 if any(row["state"] == "failed" for row in rows) else 0
    finally:
        await host.aclose()


def _row(host: Host, index: int) -> dict[str, object]:
    loaded = host.extensions[index]
    names = {kind: shelf.names_of(loaded.name) for kind, shelf in host.registry.shelves().items()}
    hooks = host.hook_names(loaded.name)
    return {
        "name": loaded.name,
        "source": loaded.source,
        "where": loaded.where,
        "state": loaded.state,
        "reason": loaded.reason,
        "registered": {kind: list(found) for kind, found in {**names, "hooks": hooks}.items() if found},
    }


def _print(rows: list[dict[str, object]], console: Console) -> None:
    for row in rows:
        console.print(f"{row['name']}  {row['state']}, {row['source']}: {row['where']}")
        if row["reason"]:
            console.print(f"    {row['reason']}")
        registered = row["registered"]
        assert isinstance(registered, dict)
        for kind, names in registered.items():
            console.print(f"    {kind}: {', '.join(names)}")
