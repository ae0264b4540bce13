"""What one does with whole sessions: fork, clone, import, export, check."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from branchwork.clock import Clock, Ids
from branchwork.errors import UserError
from branchwork.session.codec import decode_entry, decode_object, encode_header, encode_object
from branchwork.session.entries import SESSION_VERSION, Entry, Header, LabelEntry, Problem, UnknownEntry
from branchwork.session.files import write_new
from branchwork.session.filestore import FileStore
from branchwork.session.index import KNOWN_TYPES, Node
from branchwork.session.load import Loaded
from branchwork.session.location import session_directory, session_filename
from branchwork.session.store import MemoryStore, SessionUnreadable, SessionWriteError, Store
from branchwork.session.tree import Session, new_header

__all__ = [
    "CheckReport",
    "check",
    "clone",
    "export_jsonl",
    "fork",
    "import_file",
    "session_directory",
    "session_filename",
]


def fork(
    session: Session,
    entry_id: str | None,
    *,
    position: Literal["before", "at"],
    directory: Path | None,
    clock: Clock,
    ids: Ids,
) -> Session:
    """A new session with the path to `entry_id` (`at`) or to its parent (`before`), opened for writing.

    Lines are copied as they are, labels on the path are set again, and the header names the session of
    origin. The file appears in one step; a path without a user or assistant message waits in memory like
    any new session. Without `directory` the fork is in memory only. Raises NoSuchEntry, SessionWriteError.
    """
    leaf = session.node(entry_id) if entry_id is not None else None
    if leaf is not None and position == "before":
        leaf = leaf.parent
    nodes = session.branch(leaf.id if leaf is not None else None).nodes
    now = clock.now_ms()
    parent = str(session.path) if session.path is not None and not session.waiting else None
    header = new_header(ids.session(now), now, session.header.cwd or str(Path.cwd()), parent)
    path = directory / session_filename(now, header.id) if directory is not None else None
    if any(node.role in ("user", "assistant") for node in nodes):
        store = _filled(path, _lines(session, header, nodes))
    else:
        store = FileStore.new(path) if path is not None else MemoryStore()
        for line in _lines(session, header, nodes):
            store.append(line, wait=True)
    forked = Session.over(store, header, clock=clock, ids=ids)
    _restore_labels(session, forked)
    return forked


def clone(session: Session, *, directory: Path | None, clock: Clock, ids: Ids) -> Session:
    """A new session with the path to the current leaf."""
    return fork(session, session.leaf_id, position="at", directory=directory, clock=clock, ids=ids)


def import_file(path: Path, directory: Path) -> Path:
    """Copy a session file into `directory`, byte for byte, and return the copy.

    A name that is taken gets `-2`, `-3`, …; nothing is overwritten. A file that is there already is not
    copied. Raises SessionUnreadable, leaving `directory` as it was, and SessionWriteError.
    """
    if path.parent.resolve() == directory.resolve():
        check(path).require_readable(path)
        return path
    store = FileStore.open(path, read_only=True)
    try:
        Loaded(store)
        return _copy(store, path, directory)
    finally:
        store.close()


def export_jsonl(session: Session, path: Path, leaf: str | None = None) -> None:
    """Write the session to a new file: all bytes as they are, or only the path to `leaf` (lines as in a fork).

    Raises UserError when `path` exists, SessionWriteError, NoSuchEntry.
    """
    pieces = session.chunks() if leaf is None else _lines(session, session.header, session.branch(leaf).nodes)
    try:
        write_new(path, pieces)
    except FileExistsError as error:
        raise UserError(f"{path} exists and was left alone; choose another name.") from error
    except OSError as error:
        raise _failed(path, error) from error


class CheckReport(Struct, frozen=True, kw_only=True):
    """What `check` found. `leaf` is the id of the entry at which a session opened now would continue."""

    entries: int
    branches: int
    leaf: str | None
    problems: tuple[Problem, ...]
    version: int
    readable: bool

    @property
    def exit_code(self) -> int:
        """0 sound, 1 readable with problems, 2 not readable."""
        if not self.readable:
            return 2
        return 1 if self.problems else 0

    def require_readable(self, path: Path) -> None:
        if not self.readable:
            raise SessionUnreadable(f"{path} holds no session that can be read; it was not changed.")


def check(path: Path) -> CheckReport:
    """Read every entry of a file and report. Takes no lock and writes nothing.

    Raises SessionUnreadable only when the file cannot be opened.
    """
    store = FileStore.open(path, read_only=True)
    try:
        if store.size == 0:
            return _report(None, ())
        try:
            loaded = Loaded(store)
        except SessionUnreadable:
            return CheckReport(entries=0, branches=0, leaf=None, problems=(), version=0, readable=False)
        return _report(loaded, tuple(_invalid_entries(store, loaded)))
    finally:
        store.close()


def _report(loaded: Loaded | None, invalid: tuple[Problem, ...]) -> CheckReport:
    if loaded is None:
        return CheckReport(entries=0, branches=0, leaf=None, problems=(), version=SESSION_VERSION, readable=True)
    nodes = loaded.index.nodes
    return CheckReport(
        entries=len(nodes),
        branches=sum(1 for _ in loaded.index.leaves()),
        leaf=nodes[-1].id if nodes else None,
        problems=tuple(sorted((*loaded.problems, *invalid), key=lambda problem: problem.line)),
        version=loaded.header.version if loaded.header is not None else SESSION_VERSION,
        readable=True,
    )


def _invalid_entries(store: Store, loaded: Loaded) -> Iterator[Problem]:
    for node in loaded.index.nodes:
        entry = decode_entry(loaded.line_of(store, node))
        if isinstance(entry, UnknownEntry) and entry.type in KNOWN_TYPES:
            yield Problem(node.line, "invalid-entry", f"{entry.type}: {entry.reason}")


def _lines(session: Session, header: Header, nodes: tuple[Node, ...]) -> Iterator[bytes]:
    yield encode_header(header) + b"\n"
    sound = not session.problems
    above: str | None = None
    for node in nodes:
        line = session.line(node.id)
        yield (line if sound else _relinked(line, session.entry(node.id), above)) + b"\n"
        above = node.id


_LINKS = (("targetId", "target_id"), ("firstKeptEntryId", "first_kept_entry_id"), ("fromId", "from_id"))


def _relinked(line: bytes, entry: Entry, above: str | None) -> bytes:
    """The line with the links that this program understood from a damaged file; unknown fields stay."""
    data = decode_object(line)
    if data is None:
        return line
    meant = {"id": entry.id, "parentId": above}
    meant |= {key: getattr(entry, name) for key, name in _LINKS if key in data and hasattr(entry, name)}
    if all(key in data and data[key] == value for key, value in meant.items()):
        return line
    return encode_object({**data, **meant})


def _filled(path: Path | None, lines: Iterator[bytes]) -> Store:
    if path is None:
        return MemoryStore(b"".join(lines))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_new(path, lines)
    except OSError as error:
        raise _failed(path, error) from error
    return FileStore.open(path)


def _restore_labels(origin: Session, forked: Session) -> None:
    wanted = {target: label for target, label in origin.labels.items() if target in forked}
    present = forked.labels
    changes = [LabelEntry(target_id=key, label=label) for key, label in wanted.items() if present.get(key) != label]
    changes += [LabelEntry(target_id=target) for target in present if target not in wanted]
    forked.append(*changes)


def _copy(store: FileStore, path: Path, directory: Path) -> Path:
    for count in range(1, 10_000):
        target = directory / (path.name if count == 1 else f"{path.stem}-{count}{path.suffix}")
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_new(target, store.chunks())
        except FileExistsError:
            continue
        except OSError as error:
            raise _failed(target, error) from error
        return target
    raise SessionWriteError(f"{directory} has too many files named like {path.name}; rename the file and try again.")


def _failed(path: Path, error: OSError) -> SessionWriteError:
    return SessionWriteError(f"{path} could not be written: {error.strerror or error}. Check the folder and its space.")
