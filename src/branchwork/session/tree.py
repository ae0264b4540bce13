"""A session: an append-only tree of entries with a leaf, over a store of lines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import TracebackType

from msgspec import UNSET, UnsetType, structs

from branchwork.clock import Clock, Ids, RandomIds, SystemClock, iso
from branchwork.errors import UserError
from branchwork.session.branch import Branch
from branchwork.session.bulk import decode_run, runs
from branchwork.session.cache import EntryCache
from branchwork.session.codec import Place, decode_entry, encode_header, settle
from branchwork.session.entries import (
    LEAF_TYPE,
    SESSION_VERSION,
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    Entry,
    Header,
    KnownEntry,
    LabelEntry,
    MessageEntry,
    Problem,
    SessionInfoEntry,
)
from branchwork.session.filestore import FileStore
from branchwork.session.index import Index, Node
from branchwork.session.load import Loaded
from branchwork.session.location import check_session_id, session_filename
from branchwork.session.migrate import migrate_line
from branchwork.session.scan import Head, MessageHead, Record, Scanner
from branchwork.session.store import MemoryStore, SessionReadOnly, SessionWriteError, Store
from branchwork.session.upgrade import Upgrade

ID_ATTEMPTS = 100
"""Short ids tried before a long one is taken."""


class NoSuchEntry(UserError):
    """An id that is not in the session."""


class Session:
    """One opened session. Not safe for use by several threads.

    Everything that `append` returns is in the file (see `sync` for the device); a session that was created
    but has no user or assistant message yet is in memory only.
    """

    def __init__(self, store: Store, loaded: Loaded, header: Header, *, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._header = header
        self._header_record = loaded.header_record
        self._index: Index = loaded.index
        self._problems = loaded.problems
        self._clock = clock
        self._ids = ids
        self._leaf: Node | None = self._index.nodes[-1] if self._index.nodes else None
        self._next_line = loaded.next_line
        self._open_line = loaded.open_line
        self._end = store.size if loaded.torn_at is None else loaded.torn_at
        self._cache = EntryCache()
        why = store.read_only or loaded.read_only
        self._read_only = None if why is None else f"{store.path} is read-only: {why}. Fork it to continue in a copy."
        self.decoded = 0
        """Entries decoded so far; what laziness is measured by."""

    # ---- opening and closing ----

    @classmethod
    def create(
        cls,
        *,
        cwd: str,
        directory: Path | None,
        clock: Clock,
        ids: Ids,
        session_id: str | None = None,
        parent_session: str | None = None,
    ) -> "Session":
        """A new session; its file appears in `directory` with the first user or assistant message.

        Without `directory` it stays in memory. Raises UserError (usage) for an unusable `session_id`.
        """
        now = clock.now_ms()
        if session_id is None:
            session_id = ids.session(now)
        check_session_id(session_id)
        header = new_header(session_id, now, cwd, parent_session)
        path = directory / session_filename(now, session_id) if directory is not None else None
        return cls.over(FileStore.new(path) if path is not None else MemoryStore(), header, clock=clock, ids=ids)

    @classmethod
    def in_memory(cls, cwd: Path | None = None) -> "Session":
        """A new session that is kept nowhere, for work in `cwd` (default: the process's folder)."""
        return cls.create(cwd=str(cwd or Path.cwd()), directory=None, clock=SystemClock(), ids=RandomIds())

    @classmethod
    def open(cls, path: Path, *, clock: Clock, ids: Ids, read_only: bool = False, cwd: str | None = None) -> "Session":
        """An existing session; an empty file becomes a new one for `cwd` (default: the process's folder).

        The file is not changed. Raises SessionUnreadable when nothing in it is a session.
        """
        store = FileStore.open(path, read_only=read_only)
        now = clock.now_ms()
        header = new_header(ids.session(now), now, cwd if cwd is not None else str(Path.cwd()), None)
        try:
            return cls.over(store, header, clock=clock, ids=ids)
        except BaseException:
            store.close()
            raise

    @classmethod
    def over(cls, store: Store, new: Header, *, clock: Clock, ids: Ids) -> "Session":
        """The session in `store`; `new` becomes its header if the store is empty."""
        if store.size == 0 and store.read_only is None:
            store.append(encode_header(new) + b"\n", wait=True)
        if store.size == 0:
            empty = Loaded(MemoryStore(encode_header(new) + b"\n"))
            return cls(store, empty, new, clock=clock, ids=ids)
        loaded = Loaded(store)
        if loaded.torn_at is not None:
            store.mark_torn(loaded.torn_at)
        header = loaded.header
        if header is None:
            stem = store.path.stem if store.path is not None else ""
            header = Header(version=SESSION_VERSION, id=stem.rpartition("_")[2], timestamp="", cwd="")
        return cls(store, loaded, header, clock=clock, ids=ids)

    def sync(self) -> None:
        """Return when everything appended is on the device. Raises SessionWriteError."""
        self._store.sync()

    def close(self) -> None:
        """Release the lock; the session must not be used afterwards. May be called twice."""
        self._store.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- reading ----

    @property
    def header(self) -> Header:
        return self._header

    @property
    def path(self) -> Path | None:
        """The file, even before it exists; None in memory."""
        return self._store.path

    @property
    def waiting(self) -> bool:
        """True until the file exists."""
        return self._store.waiting

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Damage found, by line. Nothing in the file was changed because of it."""
        return self._problems

    @property
    def read_only(self) -> str | None:
        """Why nothing can be appended, as a sentence for a person; None when it can."""
        return self._read_only

    @property
    def leaf_id(self) -> str | None:
        return self._leaf.id if self._leaf is not None else None

    @property
    def name(self) -> str:
        """On one line; empty when the session has none."""
        return self._index.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Bookmarks by the entry they are on."""
        return {target: label for target, (label, _) in self._index.labels.items()}

    def label_time(self, target_id: str) -> str | None:
        """When the label on an entry was set (ISO 8601); None without one."""
        found = self._index.labels.get(target_id)
        return found[1] if found is not None else None

    def __len__(self) -> int:
        return len(self._index.nodes)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._index.by_id

    def node(self, entry_id: str) -> Node:
        """Raises NoSuchEntry."""
        node = self._index.by_id.get(entry_id)
        if node is None:
            raise NoSuchEntry(f"There is no entry {entry_id!r} in this session; list its entries to find the id.")
        return node

    def nodes(self) -> Sequence[Node]:
        """In file order; grows with the session and must not be changed."""
        return self._index.nodes

    def children(self, entry_id: str | None) -> tuple[Node, ...]:
        """In file order; those of None are the roots."""
        return self._index.children(entry_id)

    def leaves(self) -> Iterator[Node]:
        """Entries without children, in file order."""
        return self._index.leaves()

    def branch(self, leaf_id: str | UnsetType | None = UNSET) -> Branch:
        """The path to `leaf_id` (default: the current leaf; None: the empty path)."""
        if leaf_id is UNSET:
            return Branch(self._leaf, self.entry)
        return Branch(self.node(leaf_id) if leaf_id is not None else None, self.entry)

    def raw(self, entry_id: str) -> bytes:
        """The exact bytes of the entry in the file, without the line feed."""
        node = self.node(entry_id)
        return self._store.read(node.offset, node.length)

    def chunks(self) -> Iterator[bytes]:
        """All bytes of the session in pieces, the header included."""
        return self._store.chunks()

    def line(self, entry_id: str) -> bytes:
        """The same as version 3 has it; equal to `raw` for sessions of that version."""
        node = self.node(entry_id)
        return self._line_of(node)

    def entry(self, entry_id: str) -> Entry:
        """The entry, decoded when it is asked for and then kept for a while."""
        found = self._cache.get(entry_id)
        if found is not None:
            return found
        node = self.node(entry_id)
        entry = decode_entry(self._line_of(node), place=Place(node.id, node.parent_id, node.timestamp))
        self.decoded += 1
        if self._index.latest:
            entry = self._with_references(entry, node)
        self._cache.put(entry, node.length)
        return entry

    def entries(self, nodes: Iterable[Node]) -> Iterator[Entry]:
        """The entries of `nodes` in that order, read and decoded together where they follow each other in the file.

        Faster than `entry` for each; of what is read together only the last entry is kept.
        """
        plain = self._header.version >= SESSION_VERSION and not self._index.latest
        for run in runs(nodes):
            together = decode_run(run, self._store.read) if plain and len(run) > 1 else None
            if together is None:
                yield from (self.entry(node.id) for node in run)
            else:
                self.decoded += len(together)
                self._cache.put(together[-1], run[-1].length)
                yield from together

    # ---- writing ----

    def new_id(self) -> str:
        """An id that no entry has; for entries that must name themselves before they are appended."""
        return self._fresh_id(frozenset())

    def append(self, *entries: KnownEntry) -> tuple[KnownEntry, ...]:
        """Add entries below the leaf, each below the one before, in one write; the last becomes the leaf.

        Fills in `id`, `parent_id` and `timestamp` where they are empty; an empty `first_kept_entry_id` means
        that nothing is kept. Returns the entries as stored. Raises SessionReadOnly or SessionWriteError, and
        then nothing has changed.
        """
        if self._read_only is not None:
            raise SessionReadOnly(self._read_only)
        if not entries:
            return ()
        self._absorb()
        if self._header.version < SESSION_VERSION:
            self._upgrade()
        chained = self._chain(entries)
        settled = [settle(self._for_disk(entry)) for entry in chained]
        lines = [line for _, line in settled]
        talk = any(_starts_conversation(entry) for entry in chained)
        at = self._store.append(b"".join(line + b"\n" for line in lines), wait=not talk)
        stored: list[KnownEntry] = []
        for entry, (read_back, line) in zip(chained, settled, strict=True):
            kept = structs.replace(read_back, parent_id=entry.parent_id)
            self._leaf = self._index.append(kept, Record(_head_of(kept), self._next_line, at, len(line)))
            self._cache.put(kept, len(line))
            at += len(line) + 1
            self._next_line += 1
            stored.append(kept)
        self._end, self._open_line = at, False
        return tuple(stored)

    def navigate(self, target_id: str | None) -> None:
        """Move the leaf to an entry, or to before the first with None, so that a later opening finds it there.

        Nothing happens when the leaf is there already. In a session that is read-only or not in a file yet
        the move is not recorded. Raises NoSuchEntry and what `append` raises.
        """
        target = self.node(target_id) if target_id is not None else None
        leaf = self._leaf
        if leaf is target or (leaf is not None and leaf.is_leaf_mark and leaf.parent is target):
            return
        if self._read_only is not None or self._store.waiting:
            self._leaf = target
            return
        self.append(CustomEntry(custom_type=LEAF_TYPE, parent_id=target_id))

    # ---- internals ----

    def _line_of(self, node: Node) -> bytes:
        raw = self._store.read(node.offset, node.length)
        if self._header.version >= SESSION_VERSION:
            return raw
        return migrate_line(raw, node_id=node.id, parent_id=node.parent_id, id_at=self._index.id_at)

    def _chain(self, entries: tuple[KnownEntry, ...]) -> list[KnownEntry]:
        chained: list[KnownEntry] = []
        taken: set[str] = set()
        parent_id = self.leaf_id
        now = iso(self._clock.now_ms())
        for entry in entries:
            if entry.parent_id != "":
                parent_id = entry.parent_id
                if parent_id is not None and parent_id not in taken:
                    self.node(parent_id)
            entry_id = entry.id or self._fresh_id(taken)
            if entry_id in taken or entry_id in self._index.by_id:
                raise ValueError(f"entry id {entry_id!r} is already in the session")
            taken.add(entry_id)
            entry = structs.replace(entry, id=entry_id, parent_id=parent_id, timestamp=entry.timestamp or now)
            if isinstance(entry, CompactionEntry) and not entry.first_kept_entry_id:
                entry = structs.replace(entry, first_kept_entry_id=entry_id)
            chained.append(entry)
            parent_id = entry_id
        return chained

    def _fresh_id(self, taken: Set[str]) -> str:
        for _ in range(ID_ATTEMPTS):
            candidate = self._ids.entry()
            if candidate not in self._index.by_id and candidate not in taken:
                return candidate
        while True:
            candidate = self._ids.session(self._clock.now_ms())
            if candidate not in self._index.by_id and candidate not in taken:
                return candidate

    def _absorb(self) -> None:
        """Take in what another program appended since; its entries are a branch beside ours."""
        if not self._store.grown():
            return
        scanner = Scanner(offset=self._store.size, line=self._next_line - self._open_line)
        found = [r for r in scanner.records(self._store.chunks(self._store.size)) if r.head.type != "session"]
        if scanner.torn_at is not None:
            raise SessionWriteError(f"Another program is writing to {self.path}; try again, or open the session anew.")
        before = len(self._index.problems)
        self._index.extend(found)
        self._store.accept(scanner.end)
        fresh = (*scanner.problems, *self._index.problems[before:])
        self._problems = tuple(sorted((*self._problems, *fresh), key=lambda problem: problem.line))
        self._end = scanner.end
        self._open_line = self._store.read(scanner.end - 1, 1) != b"\n"
        self._next_line = scanner.line + self._open_line

    def _upgrade(self) -> None:
        assert self._header_record is not None  # without a header at the top the session is read-only
        upgrade = Upgrade(self._store, self._header_record, self._index.nodes, self._line_of)
        upgrade.run(version=self._header.version, end=self._end)
        self._header = structs.replace(self._header, version=SESSION_VERSION)
        self._end, self._open_line, self._next_line = self._store.size, False, upgrade.lines + 1

    def _for_disk(self, entry: KnownEntry) -> KnownEntry:
        if not self._index.latest:
            return entry
        parent = self._index.by_id.get(entry.parent_id or "")
        if parent is not None:
            entry = structs.replace(entry, parent_id=self._index.reference(parent))
        match entry:
            case LabelEntry() | ContextEditEntry():
                return structs.replace(entry, target_id=self._reference(entry.target_id))
            case CompactionEntry():
                return structs.replace(entry, first_kept_entry_id=self._reference(entry.first_kept_entry_id))
            case BranchSummaryEntry():
                return structs.replace(entry, from_id=self._reference(entry.from_id))
            case _:
                return entry

    def _reference(self, entry_id: str) -> str:
        node = self._index.by_id.get(entry_id)
        return self._index.reference(node) if node is not None else entry_id

    def _with_references(self, entry: Entry, node: Node) -> Entry:
        def meant(reference: str) -> str:
            found = self._index.resolve(reference, before=node.order + 1)
            return found.id if found is not None else reference

        match entry:
            case LabelEntry() | ContextEditEntry():
                return structs.replace(entry, target_id=meant(entry.target_id))
            case CompactionEntry():
                return structs.replace(entry, first_kept_entry_id=meant(entry.first_kept_entry_id))
            case BranchSummaryEntry():
                return structs.replace(entry, from_id=meant(entry.from_id))
            case _:
                return entry


def new_header(session_id: str, now_ms: int, cwd: str, parent_session: str | None) -> Header:
    return Header(version=SESSION_VERSION, id=session_id, timestamp=iso(now_ms), cwd=cwd, parent_session=parent_session)


def _starts_conversation(entry: KnownEntry) -> bool:
    return isinstance(entry, MessageEntry) and _role(entry) in ("user", "assistant")


def _role(entry: MessageEntry) -> str:
    tag = entry.message.__struct_config__.tag
    return tag if isinstance(tag, str) else ""


def _head_of(entry: KnownEntry) -> Head:
    kind = entry.__struct_config__.tag
    head = Head(type=kind if isinstance(kind, str) else "", id=entry.id, timestamp=entry.timestamp)
    match entry:
        case MessageEntry():
            head.message = MessageHead(_role(entry))
        case CustomEntry() | CustomMessageEntry():
            head.custom_type = entry.custom_type
        case LabelEntry():
            head.target_id, head.label = entry.target_id, entry.label
        case SessionInfoEntry():
            head.name = entry.name
        case _:
            pass
    return head
