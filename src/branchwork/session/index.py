"""The tree in memory: one small node per entry, links repaired where the file's own are broken."""

import sys
from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from branchwork.session.entries import LEAF_TYPE, KnownEntry, Problem
from branchwork.session.scan import Record

KNOWN_TYPES = frozenset(
    {
        "message",
        "model_change",
        "thinking_level_change",
        "usage",
        "compaction",
        "context_edit",
        "branch_summary",
        "custom",
        "custom_message",
        "label",
        "session_info",
    }
)


class Node(Struct, frozen=True, eq=False):  # without `gc=False`: the end of a long chain would overflow the C stack
    """One entry's place: in the tree (`parent`, `depth` from 0) and in the file (`offset`, `length` in bytes)."""

    id: str
    type: str
    parent: "Node | None"
    order: int
    """Position among the entries of the file, from 0."""
    line: int
    offset: int
    length: int
    depth: int
    timestamp: str
    role: str = ""
    """Of the message, for `message` entries."""
    custom_type: str = ""

    @property
    def parent_id(self) -> str | None:
        return self.parent.id if self.parent is not None else None

    @property
    def is_leaf_mark(self) -> bool:
        """Whether this entry only remembers where navigation went."""
        return self.custom_type == LEAF_TYPE and self.type == "custom"

    def __repr__(self) -> str:
        return f"Node({self.id!r}, {self.type!r}, parent={self.parent_id!r}, line={self.line})"


class Index:
    """All nodes in file order, by id, and what is global to a session: name and labels."""

    def __init__(self, *, linear: bool = False) -> None:
        self.linear = linear
        """Version 1: entries have no ids and follow each other."""
        self.nodes: list[Node] = []
        self.by_id: dict[str, Node] = {}
        self.latest: dict[str, str] = {}
        """For ids that occur more than once: the node id of the newest occurrence."""
        self.problems: list[Problem] = []
        self.name = ""
        self.labels: dict[str, tuple[str, str]] = {}
        """By target: the label and its time."""
        self._pending: list[tuple[Node, str]] = []
        self._children: dict[str | None, list[Node]] | None = None

    def extend(self, records: Iterable[Record]) -> None:
        """Add entries in file order. References to entries that come later are resolved at the end."""
        nodes, by_id, intern = self.nodes, self.by_id, sys.intern
        for record in records:
            head = record.head
            parent, message = by_id.get(head.parent_id or ""), head.message
            # Almost all entries are messages below an entry before them, with nothing to repair.
            plain = head.type == "message" and head.custom_type is None and not self.latest
            if parent is None or message is None or not plain or not head.id or head.id in by_id:
                self._add(record)
                continue
            by_id[head.id] = node = Node(
                head.id,
                "message",
                parent,
                len(nodes),
                record.line,
                record.offset,
                record.length,
                parent.depth + 1,
                head.timestamp,
                intern(message.role),
            )
            nodes.append(node)
        if self._pending:
            self._resolve_pending()
        self._children = None

    def append(self, entry: KnownEntry, head: Record) -> Node:
        """Add an entry that this program wrote; its id and parent are already sound."""
        node = self._node(entry.id, self.by_id.get(entry.parent_id or ""), head)
        if self._children is not None:
            self._children.setdefault(node.parent_id, []).append(node)
        return node

    def resolve(self, reference: str | None, *, before: int | None = None) -> Node | None:
        """The node that an id in the file means, `ID~1` being the first of several.

        With `before` (an entry's `order`) the nearest with that id above it, otherwise the newest.
        """
        if not reference:
            return None
        newest = self.latest.get(reference)
        if newest is None:
            node = self.by_id.get(reference)
            return self.by_id.get(reference[:-2]) if node is None and reference.endswith("~1") else node
        node = self.by_id[newest]
        if before is not None and node.order >= before:
            same = (each for each in self.nodes[:before] if each.id.partition("~")[0] == reference)
            node = max(same, key=lambda each: each.order, default=node)
        return node

    def reference(self, node: Node) -> str:
        """How an entry written now must refer to `node`, so that `resolve` finds it again after a reload."""
        base = node.id.partition("~")[0] or node.id
        newest = self.latest.get(base)
        if newest is None:
            return node.id
        if newest == node.id:
            return base
        return f"{base}~1" if node.id == base else node.id

    def id_at(self, order: int) -> str | None:
        """The id of the entry at a position in the file."""
        return self.nodes[order].id if 0 <= order < len(self.nodes) else None

    def children(self, node_id: str | None) -> tuple[Node, ...]:
        if self._children is None:
            self._children = {}
            for node in self.nodes:
                self._children.setdefault(node.parent_id, []).append(node)
        return tuple(self._children.get(node_id, ()))

    def leaves(self) -> Iterator[Node]:
        """Nodes without children, in file order."""
        parents = {node.parent.order for node in self.nodes if node.parent is not None}
        return (node for node in self.nodes if node.order not in parents)

    def _add(self, record: Record) -> None:
        head, line = record.head, record.line
        stated, reference = head.id, head.parent_id
        if not stated:
            node_id, parent = self._unnamed(record), self._implied_parent(reference)
        else:
            node_id = stated if stated not in self.by_id else self._second(stated, line)
            parent = self.by_id.get(reference) if reference else None
            if self.linear and reference == "":
                parent = self.nodes[-1] if self.nodes else None
            elif self.latest and reference:
                parent = self.by_id.get(self.latest.get(reference, reference))
        node = self._node(node_id, parent, record)
        if node_id is not stated and stated:
            self.latest[stated] = node_id
        if parent is None and reference:
            self._pending.append((node, reference))
        if not head.type:
            self.problems.append(Problem(line, "invalid-entry", "the entry has no type"))

    def _node(self, node_id: str, parent: Node | None, record: Record) -> Node:
        head = record.head
        custom = head.custom_type
        node = Node(
            node_id,
            sys.intern(head.type),
            parent,
            len(self.nodes),
            record.line,
            record.offset,
            record.length,
            parent.depth + 1 if parent is not None else 0,
            head.timestamp,
            sys.intern(head.message.role) if head.message is not None else "",
            sys.intern(custom) if type(custom) is str else "",
        )
        self.nodes.append(node)
        self.by_id[node_id] = node
        if head.type == "label":
            self._label(head.target_id, head.label, head.timestamp)
        elif head.type == "session_info":
            self.name = " ".join(head.name.split()) if isinstance(head.name, str) else ""
        return node

    def _label(self, target: object, label: object, timestamp: str) -> None:
        if not isinstance(target, str):
            return
        node = self.resolve(target)
        key = node.id if node is not None else target
        if isinstance(label, str) and label:
            self.labels[key] = (label, timestamp)
        else:
            self.labels.pop(key, None)

    def _unnamed(self, record: Record) -> str:
        """An id from the position, so that it is the same at every opening."""
        if self.linear:
            return self._free(f"{len(self.nodes):08x}")
        self.problems.append(Problem(record.line, "missing-id", "the entry has no id"))
        return self._free(f"line{record.line}")

    def _implied_parent(self, reference: str | None) -> Node | None:
        if reference == "":
            return self.nodes[-1] if self.nodes else None
        return self.resolve(reference)

    def _second(self, stated: str, line: int) -> str:
        first = self.by_id[stated].line
        self.problems.append(Problem(line, "id-collision", f"id {stated!r} is also on line {first}; both are kept"))
        return self._free(stated)

    def _free(self, node_id: str) -> str:
        candidate, count = node_id, 2
        while candidate in self.by_id:
            candidate, count = f"{node_id}~{count}", count + 1
        return candidate

    def _resolve_pending(self) -> None:
        forward: list[Node] = []
        for node, reference in self._pending:
            target = self.resolve(reference)
            if target is node:
                self.problems.append(Problem(node.line, "cycle", "the entry is its own parent; it counts as a root"))
            elif target is None:
                detail = f"parent {reference!r} is not in the file; the entry counts as a root"
                self.problems.append(Problem(node.line, "orphan", detail))
            else:
                structs.force_setattr(node, "parent", target)
                forward.append(node)
        self._pending.clear()
        if forward:
            self._break_cycles(forward)
            self._measure()

    def _break_cycles(self, starts: list[Node]) -> None:
        """Every cycle holds a reference forward, so looking from those finds them all."""
        settled: set[int] = set()
        for start in starts:
            walk: list[Node] = []
            seen: set[int] = set()
            node: Node | None = start
            while node is not None and node.order not in settled and node.order not in seen:
                seen.add(node.order)
                walk.append(node)
                node = node.parent
            if node is not None and node.order in seen:
                ring = walk[next(i for i, each in enumerate(walk) if each is node) :]
                first = min(ring, key=lambda each: each.order)
                structs.force_setattr(first, "parent", None)
                detail = f"a cycle of {len(ring)} entries; {first.id!r} counts as a root"
                self.problems.append(Problem(first.line, "cycle", detail))
            settled |= seen

    def _measure(self) -> None:
        done: set[int] = set()
        for start in self.nodes:
            walk: list[Node] = []
            node: Node | None = start
            while node is not None and node.order not in done:
                walk.append(node)
                node = node.parent
            for each in reversed(walk):
                structs.force_setattr(each, "depth", each.parent.depth + 1 if each.parent is not None else 0)
                done.add(each.order)
