"""`branchwork sessions`: what is kept, where it stands, and what one does with it outside a run."""

import argparse
import shutil
from collections.abc import Callable
from datetime import datetime
from glob import escape
from pathlib import Path

import msgspec

from branchwork.clock import RandomIds, SystemClock
from branchwork.errors import UserError
from branchwork.frontends.console import Console
from branchwork.frontends.plain import clean, is_terminal, table, terminal_columns
from branchwork.frontends.session_tree import tree_lines
from branchwork.session import operations
from branchwork.session.entries import LabelEntry, MessageEntry, SessionInfoEntry, UserMessage, text_of
from branchwork.session.export_data import Spent, Tally, Totals
from branchwork.session.files import LOCKED
from branchwork.session.listing import SessionSummary, list_sessions, resolve, session_folders
from branchwork.session.store import SessionUnreadable
from branchwork.session.tree import Session

SUMMARY = "List, check, show, name, label, fork, copy, import and delete sessions."
ID_COLUMNS = 13
"""Characters of an id in a listing: of a version-7 UUID, its time in milliseconds."""
SHORTEST_ENTRY = 4
"""Characters of an entry id that may stand for it."""


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, help_: str, *positional: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=help_, description=help_[0].upper() + help_[1:] + ".")
        for argument in positional:
            optional = argument.startswith("[")
            sub.add_argument(
                argument.strip("[]").lower(), metavar=argument.strip("[]"), nargs="?" if optional else None
            )
        return sub

    listing = action("list", "list the sessions of this folder, latest activity first")
    listing.add_argument("--all", action="store_true", help="of every folder")
    listing.add_argument("--json", action="store_true", help="as a JSON array")
    check = action("check", "read every entry of a file and report damage, changing nothing", "FILE")
    check.add_argument("--json", action="store_true", help="as a JSON object")
    show = action("show", "show the facts of a session", "SESSION")
    show.add_argument("--tree", action="store_true", help="draw its tree")
    action("name", "name a session; an empty text clears the name", "SESSION", "TEXT")
    action("label", "set a bookmark on an entry; without a text it is cleared", "SESSION", "ENTRY", "[TEXT]")
    fork = action("fork", "copy the current branch of a session into a new one", "SESSION")
    fork.add_argument("--at", metavar="ENTRY", help="up to this entry, or to before it when it is your message")
    action("clone", "copy the current branch of a session into a new one, all of it", "SESSION")
    action("import", "copy a session file into this folder's sessions", "FILE")
    delete = action("delete", "move a session to the trash folder", "SESSION")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace, console: Console) -> int:
    actions: dict[str, Callable[[argparse.Namespace, Console], int]] = {
        "list": _list,
        "check": _check,
        "show": _show,
        "name": _name,
        "label": _label,
        "fork": _fork,
        "clone": _fork,
        "import": _import,
        "delete": _delete,
    }
    return actions[args.action](args, console)


def open_session(text: str, console: Console, *, read_only: bool) -> Session:
    """The session that a command line means by a path, an id or the beginning of one. Raises UserError."""
    path = resolve(text, console.home, console.cwd)
    return Session.open(path, clock=SystemClock(), ids=RandomIds(), read_only=read_only, cwd=str(console.cwd))


def find_entry(session: Session, text: str) -> str:
    """The id of the entry that `text` is, or is the beginning of. Raises UserError (usage)."""
    if text in session:
        return text
    found = [node.id for node in session.nodes() if node.id.startswith(text)] if len(text) >= SHORTEST_ENTRY else []
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} entries begin with {text!r}" if found else f"no entry {text!r} in this session"
    raise UserError(f"{what}; `branchwork sessions show {session.header.id} --tree` lists them", exit_code=2)


# ---- list -----------------------------------------------------------------------------------------


def _list(args: argparse.Namespace, console: Console) -> int:
    rows = list_sessions(session_folders(console.home), cwd=None if args.all else console.cwd)
    if args.json:
        console.print(msgspec.json.encode([_plain_row(row) for row in rows]).decode())
        return 0
    if not rows:
        elsewhere = "" if args.all else "; `branchwork sessions list --all` looks in every folder"
        console.print(f"No sessions here{elsewhere}.")
        return 0
    head = ["ID", "LAST ACTIVITY", *(["FOLDER"] if args.all else []), "MODEL", "SESSION"]
    ids = short_ids([row.id for row in rows])
    cells = [_cells(row, ids[row.id], with_folder=args.all) for row in rows]
    for line in table(head, cells, terminal_columns(console)):
        console.print(line)
    return 0


def _plain_row(row: SessionSummary) -> dict[str, str | int | None]:
    return {
        "id": row.id,
        "path": str(row.path),
        "name": row.name,
        "cwd": row.cwd,
        "started": row.started,
        "lastActivity": row.last_activity,
        "firstMessage": row.first_message,
        "model": row.model,
        "size": row.size,
        "problem": row.problem,
    }


def _cells(row: SessionSummary, short: str, *, with_folder: bool) -> list[str]:
    title = row.name or row.first_message or "(no message yet)"
    if row.problem is not None:
        title = f"! {row.problem}: {(row.name or row.first_message) if row.id else row.path}"
    folder = [clean(row.cwd) or "?"] if with_folder else []
    return [clean(short) or "?", local_time(row.last_activity), *folder, clean(row.model) or "-", clean(title)]


def short_ids(ids: list[str]) -> dict[str, str]:
    """For each id its shortest beginning that no other has, `ID_COLUMNS` characters at least."""
    ordered = sorted(set(ids))
    out: dict[str, str] = {}
    for index, each in enumerate(ordered):
        beside = ordered[max(0, index - 1) : index] + ordered[index + 1 : index + 2]
        shared = max((_shared(each, other) for other in beside), default=0)
        out[each] = each[: max(ID_COLUMNS, shared + 1)]
    return out


def _shared(left: str, right: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))


def local_time(iso: str) -> str:
    """`2026-03-01 10:15` in the local time zone; what it was given when that is no time."""
    try:
        return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):
        return clean(iso)[:16] or "-"


# ---- check and show -------------------------------------------------------------------------------


def _check(args: argparse.Namespace, console: Console) -> int:
    path = resolve(args.file, console.home, console.cwd)
    try:
        report = operations.check(path)
    except SessionUnreadable as error:
        console.warn(str(error))
        return 2
    if args.json:
        console.print(msgspec.json.encode({"path": str(path), **msgspec.to_builtins(report)}).decode())
        return report.exit_code
    if not report.readable:
        console.print(f"{clean(str(path))}: not a session that can be read; it was not changed.")
        return report.exit_code
    console.print(f"{clean(str(path))}: {_count(report.entries, 'entry', 'entries')}")
    console.print(f"  branches  {report.branches}")
    console.print(f"  leaf      {clean(report.leaf or '-')}")
    console.print(f"  version   {report.version}")
    for problem in report.problems:
        lost = "  LOST" if problem.lost else ""
        console.print(f"  line {problem.line}: {problem.kind}: {clean(problem.detail)}{lost}")
    console.print("  sound" if not report.problems else f"  {_count(len(report.problems), 'problem', 'problems')}")
    return report.exit_code


def _show(args: argparse.Namespace, console: Console) -> int:
    with open_session(args.session, console, read_only=True) as session:
        for key, value in _facts(session):
            console.print(f"{key:<14}{clean(value)}")
        for problem in session.problems:
            console.print(f"{'Problem':<14}line {problem.line}: {problem.kind}: {clean(problem.detail)}")
        if args.tree:
            console.print()
            for line in tree_lines(session, terminal_columns(console)):
                console.print(line)
    return 0


def _facts(session: Session) -> list[tuple[str, str]]:
    tally = Tally()
    last = ""
    for node in session.nodes():
        tally.add(session.entry(node.id))
        last = max(last, node.timestamp)
    totals = tally.totals(sum(1 for _ in session.leaves()))
    header = session.header
    facts = [
        ("Name", session.name or "-"),
        ("Id", header.id),
        ("File", str(session.path)),
        ("Folder", header.cwd or "-"),
        ("Started", local_time(header.timestamp)),
        ("Last activity", local_time(last)),
        (
            "Entries",
            f"{totals.entries}, {totals.messages} of them messages, {_count(totals.branches, 'branch', 'branches')}",
        ),
        ("Current leaf", session.branch().anchor_id or "before the first entry"),
        *([("Parent", header.parent_session)] if header.parent_session else []),
    ]
    return facts + _spending(totals)


def _spending(totals: Totals) -> list[tuple[str, str]]:
    rows = [(spent.name, spent) for spent in totals.models]
    if len(rows) > 1:
        rows.append(("all", totals.all))
    return [("Usage", f"{name}: {_spent(spent)}") for name, spent in rows]


def _spent(spent: Spent) -> str:
    tokens = f"{spent.input + spent.cache_read + spent.cache_write} in ({spent.cache_read} cached), {spent.output} out"
    if not spent.priced:
        return f"{tokens}, cost unknown"
    missing = spent.requests - spent.priced
    but = f", {missing} of {spent.requests} requests without a price" if missing else ""
    return f"{tokens}, ${spent.cost:.4f} ({spent.source}{but})"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


# ---- changing -------------------------------------------------------------------------------------


def _name(args: argparse.Namespace, console: Console) -> int:
    name = " ".join(args.text.split())
    with open_session(args.session, console, read_only=False) as session:
        session.append(SessionInfoEntry(name=name))
        session.sync()
        console.print(
            f"{session.header.id} is now called {clean(name)}." if name else f"{session.header.id} has no name now."
        )
    return 0


def _label(args: argparse.Namespace, console: Console) -> int:
    label = " ".join((args.text or "").split()) or None
    with open_session(args.session, console, read_only=False) as session:
        entry_id = find_entry(session, args.entry)
        session.append(LabelEntry(target_id=entry_id, label=label))
        session.sync()
    console.print(f"{entry_id} is labelled {clean(label)}." if label else f"{entry_id} has no label now.")
    return 0


def _fork(args: argparse.Namespace, console: Console) -> int:
    with open_session(args.session, console, read_only=True) as session:
        at = find_entry(session, args.at) if getattr(args, "at", None) else session.branch().anchor_id
        said = _said(session, at) if getattr(args, "at", None) else None
        forked = operations.fork(
            session,
            at,
            position="at" if said is None else "before",
            directory=operations.session_directory(console.home, session.header.cwd or console.cwd),
            clock=SystemClock(),
            ids=RandomIds(),
        )
    with forked:
        if forked.waiting:
            raise UserError("there is no message before that place, so there is nothing to copy; start a new session")
        forked.sync()
        console.print(f"{forked.header.id}  {clean(str(forked.path))}")
        console.print(f"Continue it with: branchwork --resume {forked.header.id}")
    if said:
        console.print(f"The message that was left out: {clean(said)}")
    return 0


def _said(session: Session, entry_id: str | None) -> str | None:
    """The text of a user message, None for any other entry."""
    entry = session.entry(entry_id) if entry_id is not None else None
    if isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage):
        return text_of(entry.message.content)
    return None


def _import(args: argparse.Namespace, console: Console) -> int:
    path = console.cwd / Path(args.file).expanduser()
    copy = operations.import_file(path, operations.session_directory(console.home, console.cwd))
    console.print(f"Imported as {clean(str(copy))}")
    return 0


def _delete(args: argparse.Namespace, console: Console) -> int:
    path = resolve(args.session, console.home, console.cwd)
    _refuse_if_open(path, console)
    if not args.yes and not _agreed(path, console):
        console.print("Nothing was deleted.")
        return 1
    target = _free_name(console.home / "trash", path.name)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = sorted(path.parent.glob(escape(path.name) + ".*"))
    try:
        shutil.move(path, target)
        for each in beside:
            shutil.move(each, target.with_name(target.name + each.name.removeprefix(path.name)))
    except OSError as error:
        raise UserError(f"{path} could not be moved to {target}: {error.strerror or error}") from error
    console.print(f"Moved to {clean(str(target))}; `branchwork sessions import` brings it back.")
    return 0


def _refuse_if_open(path: Path, console: Console) -> None:
    """A damaged file may be deleted, one that another process writes may not."""
    try:
        with Session.open(path, clock=SystemClock(), ids=RandomIds(), cwd=str(console.cwd)) as session:
            if session.read_only is not None and LOCKED in session.read_only:
                raise UserError(f"{path} is open in another process; close it there first")
    except SessionUnreadable:
        return


def _agreed(path: Path, console: Console) -> bool:
    if not (is_terminal(console.stdin) and is_terminal(console.out)):
        raise UserError("deleting needs --yes when nobody can be asked", exit_code=2)
    console.out.write(f"Move {clean(str(path))} to the trash folder? [y/N] ")
    console.out.flush()
    return console.stdin.readline().strip().lower() in ("y", "yes")


def _free_name(folder: Path, name: str) -> Path:
    target, count = folder / name, 2
    while target.exists():
        target, count = folder / f"{Path(name).stem}-{count}{Path(name).suffix}", count + 1
    return target
