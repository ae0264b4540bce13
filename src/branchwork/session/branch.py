"""The path from the root to one entry, as a value."""

from collections.abc import Callable, Iterator
from functools import cached_property

from branchwork.session.entries import Entry
from branchwork.session.index import Node


class Branch:
    """Immutable: it stays the same while the session grows. Entries are read when they are asked for."""

    def __init__(self, leaf: Node | None, read: Callable[[str], Entry]) -> None:
        self._leaf = leaf
        self._read = read

    @property
    def leaf(self) -> Node | None:
        return self._leaf

    @property
    def leaf_id(self) -> str | None:
        return self._leaf.id if self._leaf is not None else None

    @property
    def anchor_id(self) -> str | None:
        """The nearest entry at or above the leaf that is more than a mark of navigation."""
        node = self._leaf
        while node is not None and node.is_leaf_mark:
            node = node.parent
        return node.id if node is not None else None

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Root first."""
        return tuple(reversed(list(self.upwards())))

    def upwards(self) -> Iterator[Node]:
        """Leaf first; costs only as much as is consumed."""
        node = self._leaf
        while node is not None:
            yield node
            node = node.parent

    def entries(self) -> Iterator[Entry]:
        """Root first, each decoded when it is reached."""
        return (self._read(node.id) for node in self.nodes)

    def common_ancestor(self, other: "Branch") -> str | None:
        """The deepest entry on both paths, or None. Both must come from one session."""
        left, right = self._leaf, other._leaf
        while left is not None and right is not None and left.id != right.id:
            if left.depth >= right.depth:
                left = left.parent
            else:
                right = right.parent
        return left.id if left is not None and right is not None else None

    def __len__(self) -> int:
        return self._leaf.depth + 1 if self._leaf is not None else 0
