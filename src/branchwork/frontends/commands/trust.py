"""`branchwork trust`: which projects may bring settings, extensions, skills and the like."""

import argparse
from pathlib import Path

from branchwork.errors import UserError
from branchwork.frontends.console import Console
from branchwork.host.places import World
from branchwork.host.trust import TrustFile, canonical, decide

SUMMARY = "say which projects may bring settings, extensions, skills and the like; without DIR, list the decisions"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", nargs="?", help="a folder; the decision also holds in those inside")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--no", action="store_true", help="never load what it brings")
    what.add_argument("--forget", action="store_true", help="take the decision for this very folder back")


def run(args: argparse.Namespace, console: Console) -> int:
    file = TrustFile(console.home)
    if args.dir is None:
        if args.no or args.forget:
            raise UserError("name the folder, such as `branchwork trust --no .`", exit_code=2)
        return _list(file, console)
    folder = canonical(console.cwd / Path(args.dir).expanduser())
    if args.forget:
        if not file.forget(folder):
            raise UserError(f"there is no decision for {folder}; `branchwork trust` lists those there are")
        console.print(f"forgotten: {folder}")
        around = file.nearest(folder)
        if around is not None:
            console.print(f"it is still {_word(around.trusted)}, because {around.folder} is")
        return 0
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; nothing was changed", exit_code=2)
    file.remember(folder, not args.no)
    console.print(f"{_word(not args.no)}: {folder} and the folders in it")
    return 0


def _list(file: TrustFile, console: Console) -> int:
    decisions = file.decisions()
    for each in decisions:
        gone = "" if each.folder.is_dir() else "  (is gone)"
        console.print(f"{_word(each.trusted):11}  {each.folder}{gone}")
    if not decisions:
        console.print("no decisions yet; `branchwork trust DIR` makes one")
    user_home = Path(console.env.get("HOME") or Path.home())
    decision = decide(World(home=console.home, user_home=user_home, cwd=console.cwd))
    if decision.notice:
        console.warn(decision.notice)
    return 0


def _word(trusted: bool) -> str:
    return "trusted" if trusted else "not trusted"
