"""`branchwork demo`: the real loop, tools and session; only the model is a script, and says so."""

import argparse
import asyncio
import shlex
import sys
import tempfile
from pathlib import Path

from branchwork import data
from branchwork.agent.agent import SessionAgent
from branchwork.agent.events import RunFinished
from branchwork.clock import RandomIds, SystemClock
from branchwork.errors import UserError
from branchwork.extensions import BUILTIN
from branchwork.frontends.console import Console
from branchwork.frontends.headless import ending_signals
from branchwork.frontends.narrate import narrator
from branchwork.frontends.outcome import DONE, ERROR, INTERRUPTED
from branchwork.host.assembly import AgentRequest, SessionChoice, Surroundings
from branchwork.host.host import Front, Host
from branchwork.models.scripted import ScriptedModel, Step, calls, says

SUMMARY = "Watch a scripted model repair a small project with the real tools; no key needed."
PROMPT = "The test of this project fails. Find out why, repair it, and show that it passes."
FILES = ("README.md", "invoice.py", "test_invoice.py")
DELAY_S = 0.012


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fast", action="store_true", help="do not stream at reading speed")


def run(args: argparse.Namespace, console: Console) -> int:
    folder = Path(tempfile.mkdtemp(prefix="branchwork-demo-"))
    make_project(folder)
    model = ScriptedModel(script(), delay_s=0.0 if args.fast else DELAY_S)
    world = Surroundings(
        home=console.home, cwd=folder, cwd_given=True, env=console.env, clock=SystemClock(), ids=RandomIds()
    )
    request = AgentRequest(session=SessionChoice(name="demo"), given_model=model, discover=False)
    console.print("This is a demonstration. The model is a SCRIPT that ships with Branchwork: it cannot think.")
    console.print("Everything else is real: the loop, the tools, the files, the test runs and the session.")
    console.print(f"Project: {folder}\n\n› {PROMPT}\n")
    return asyncio.run(_play(request, world, console))


async def _play(request: AgentRequest, world: Surroundings, console: Console) -> int:
    host = await Host.open(request, world, Front(name="print", builtin=BUILTIN))
    host.subscribe(narrator(console))
    try:
        with ending_signals(lambda: host.agent.abort()):
            await host.start()
            submitted = await host.submit(PROMPT, source="program")
        assert submitted.finished is not None
        return _conclude(host.agent, submitted.finished, console, world.cwd)
    finally:
        await host.aclose()


def _conclude(agent: SessionAgent, finished: RunFinished, console: Console, folder: Path) -> int:
    if finished.end == "aborted":
        console.warn("interrupted")
        return INTERRUPTED
    if finished.end != "done" or not repaired(folder):
        console.warn(f"the demonstration did not work ({finished.error or finished.end}); please report this")
        return ERROR
    session_id = agent.session.header.id
    console.print(f"\n\n{finished.turns} turns, {finished.tool_calls} tool calls, {finished.duration_ms / 1000:.1f} s.")
    console.print(f"\nThe session is a file: {agent.session.path}\nLook at it:")
    console.print(f"  branchwork sessions show {session_id} --tree")
    console.print(f"  branchwork export {session_id} demo.html     # one page for the browser")
    console.print("\nNext: give it a real model (README.md), then, in a project of yours:")
    console.print('  branchwork -p "What does this project do, and how are its tests run?"')
    return DONE


def make_project(folder: Path) -> None:
    for name in FILES:
        source = name if name.endswith(".md") else f"{name}.txt"
        (folder / name).write_text(data.text(f"demo/project/{source}"), encoding="utf-8")


def repaired(folder: Path) -> bool:
    """Whether the project on the disk is what the script set out to make of it."""
    try:
        return ">= DISCOUNT_FROM" in (folder / "invoice.py").read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder}: the sample project is gone ({error.strerror})") from None


def script() -> list[Step]:
    test = f"{shlex.quote(sys.executable)} -B -m unittest -q"
    return [
        says("I look at the project and run its test first.") + calls("ls") + calls("bash", command=test),
        says("One of two tests fails: an order of exactly 100 gets no discount. I read the code and the test.")
        + calls("read", path="invoice.py")
        + calls("read", path="test_invoice.py"),
        says("The text says “from 100 upwards”, the code asks for more than 100. One character is missing.")
        + calls(
            "edit",
            path="invoice.py",
            edits=[{"oldText": "    if amount > DISCOUNT_FROM:", "newText": "    if amount >= DISCOUNT_FROM:"}],
        ),
        says("Now the test again.") + calls("bash", command=test),
        says(
            "The test passes. The discount began above 100 instead of at 100: `>` had to be `>=` in "
            "`total` (invoice.py). Nothing else was changed."
        ),
    ]
