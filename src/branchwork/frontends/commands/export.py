"""`branchwork export`: a session as one HTML page, or as the JSONL it is."""

import argparse
import os
from pathlib import Path

from branchwork.clock import SystemClock, iso
from branchwork.errors import UserError
from branchwork.frontends.commands.sessions import find_entry, open_session
from branchwork.frontends.console import Console
from branchwork.frontends.plain import clean
from branchwork.session.export import PageOptions, export_html
from branchwork.session.operations import export_jsonl
from branchwork.session.tree import Session

SUMMARY = "Write a session to one HTML page or a JSONL file."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION", help="an id, the beginning of one, or a file")
    parser.add_argument("out", metavar="OUT", nargs="?", help="a file or a folder; default: a file in this folder")
    parser.add_argument("--format", choices=("html", "jsonl"), help="default: jsonl when OUT ends so, else html")
    parser.add_argument("--branch", metavar="ENTRY", help="only the path to this entry; default: every branch")
    parser.add_argument("--force", action="store_true", help="replace OUT when it exists")


def run(args: argparse.Namespace, console: Console) -> int:
    with open_session(args.session, console, read_only=True) as session:
        form = args.format or ("jsonl" if (args.out or "").endswith(".jsonl") else "html")
        target = _target(args.out, console.cwd, f"session-{session.header.id or 'unnamed'}.{form}")
        _refuse_itself(session, target)
        branch = find_entry(session, args.branch) if args.branch is not None else None
        if form == "html":
            options = PageOptions(exported=iso(SystemClock().now_ms()), branch=branch)
            export_html(session, target, options, overwrite=args.force)
        else:
            _jsonl(session, target, branch, overwrite=args.force)
        size = target.stat().st_size
        console.print(f"{clean(str(target))}  {size / 1024:.0f} KiB")
        if session.problems:
            console.warn(
                f"the session file is damaged in {len(session.problems)} places; see `branchwork sessions check`"
            )
    return 0


def _target(out: str | None, cwd: Path, name: str) -> Path:
    target = cwd / Path(out).expanduser() if out is not None else cwd
    target = target / name if target.is_dir() else target
    if not target.parent.is_dir():
        raise UserError(f"there is no folder {target.parent}; create it or give another OUT", exit_code=2)
    return target


def _refuse_itself(session: Session, target: Path) -> None:
    if session.path is not None and target.exists() and target.samefile(session.path):
        raise UserError(f"{target} is the session itself; give another OUT", exit_code=2)


def _jsonl(session: Session, target: Path, branch: str | None, *, overwrite: bool) -> None:
    if not (overwrite and target.exists()):
        export_jsonl(session, target, branch)
        return
    beside = target.with_name(f".{target.name[:200]}.{os.urandom(4).hex()}.tmp")
    try:
        export_jsonl(session, beside, branch)
        beside.replace(target)
    except OSError as error:
        raise UserError(f"{target} could not be written: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)
