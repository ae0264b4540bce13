"""Builds the tree of a store and decides whether it may be continued."""

from collections.abc import Iterable, Iterator

from branchwork.session.codec import decode_header
from branchwork.session.entries import SESSION_VERSION, Header, Problem
from branchwork.session.index import KNOWN_TYPES, Index, Node
from branchwork.session.migrate import migrate_line
from branchwork.session.scan import Record, Scanner
from branchwork.session.store import SessionUnreadable, Store


class Loaded:
    """What one pass over a store found."""

    def __init__(self, store: Store) -> None:
        self.index = Index()
        self.header: Header | None = None
        self.header_record: Record | None = None
        self.read_only: str | None = None
        """Why this content should not be added to, or None."""
        self._store = store
        self._problems: list[Problem] = []
        self._scanner = Scanner()
        self.index.extend(self._entries(self._scanner.records(store.chunks())))
        self.torn_at = self._scanner.torn_at
        end = self.torn_at if self.torn_at is not None else self._scanner.end
        self.open_line = end > 0 and store.read(end - 1, 1) != b"\n"
        """The last kept line has no line feed yet."""
        self.next_line = self._scanner.line + self.open_line
        self._judge()

    @property
    def problems(self) -> tuple[Problem, ...]:
        found = [*self._scanner.problems, *self._problems, *self.index.problems]
        return tuple(sorted(found, key=lambda problem: problem.line))

    def line_of(self, store: Store, node: Node) -> bytes:
        """The entry's line as the current version has it."""
        raw = store.read(node.offset, node.length)
        if self.header is None or self.header.version >= SESSION_VERSION:
            return raw
        return migrate_line(raw, node_id=node.id, parent_id=node.parent_id, id_at=self.index.id_at)

    def _entries(self, records: Iterable[Record]) -> Iterator[Record]:
        first = True
        for record in records:
            if record.head.type == "session":
                self._take_header(record, first)
            elif first:
                if record.head.type in KNOWN_TYPES:
                    self._problem(record, "missing-header", "the file begins with an entry, not a header")
                    yield record
                else:
                    self._problem(record, "foreign-header", f"the file begins with {record.head.type[:40]!r}")
            else:
                yield record
            first = False

    def _take_header(self, record: Record, first: bool) -> None:
        header = decode_header(self._store.read(record.offset, record.length))
        if header is None or (self.header is not None):
            self._problem(record, "second-header", "another header; it is kept and ignored")
            return
        self.header, self.header_record = header, record
        if not first:
            self.header_record = None
            return
        self.index.linear = header.version < 2
        if header.version > SESSION_VERSION:
            self._problem(record, "newer-version", f"version {header.version}; this program writes {SESSION_VERSION}")
        if not header.id or not header.cwd:
            self._problem(record, "invalid-entry", "the header lacks an id or a folder")

    def _problem(self, record: Record, kind: str, detail: str) -> None:
        self._problems.append(Problem(record.line, kind, detail))  # type: ignore[arg-type]  # kinds are literals here

    def _judge(self) -> None:
        if self.header_record is None:
            if not any(node.type in KNOWN_TYPES for node in self.index.nodes):
                raise SessionUnreadable(f"{self._store.path} holds no session that can be read; it was not changed.")
            self.read_only = "it does not begin with a session header"
        elif self.header is not None and self.header.version > SESSION_VERSION:
            self.read_only = f"version {self.header.version} of the format is newer than this program"
