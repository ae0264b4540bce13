"""Which states of one session are remembered: few, and near to wherever one may go next."""

from typing import Generic, TypeVar

S = TypeVar("S")

RECENT = 32
"""States kept where they were read last."""
CHECKPOINTS = 32
"""States kept along the paths that were folded."""
FIRST_STRIDE = 64
"""Entries between two checkpoints at first."""
SPREAD = 8
"""Checkpoints that a path keeps at least while the distance between them grows."""


class StateCache(Generic[S]):
    """At most `RECENT + CHECKPOINTS` states by entry id, whatever the length of the session.

    Checkpoints are at depths that are multiples of `stride`. When there are too many the stride doubles and
    every second one goes, so that they stay spread over the whole path; on many short branches the ones that
    were not used for longest go instead.
    """

    def __init__(self) -> None:
        self.stride = FIRST_STRIDE
        self.states: dict[str, S] = {}
        """All that is known. Read it through `take`, so that what is used stays."""
        self.reported: set[str] = set()
        """Entries that were skipped and reported."""
        self._recent: dict[str, None] = {}
        self._depths: dict[str, int] = {}

    def take(self, node_id: str) -> S:
        """A known state. Raises KeyError."""
        for kept in (self._recent, self._depths):
            if node_id in kept:
                kept[node_id] = kept.pop(node_id)  # type: ignore[assignment]  # the same dict on both sides
        return self.states[node_id]

    def keep_recent(self, node_id: str, state: S) -> None:
        self._recent.pop(node_id, None)
        self._recent[node_id] = None
        self.states[node_id] = state
        if len(self._recent) > RECENT:
            self._forget(self._recent, next(iter(self._recent)))

    def keep_checkpoint(self, node_id: str, depth: int, state: S) -> None:
        """`depth` is a multiple of `stride`."""
        self._depths.pop(node_id, None)
        self._depths[node_id] = depth
        self.states[node_id] = state
        if len(self._depths) > CHECKPOINTS:
            self._thin()

    def _thin(self) -> None:
        if max(self._depths.values()) >= self.stride * SPREAD * 2:
            self.stride *= 2
            for node_id in [each for each, depth in self._depths.items() if depth % self.stride]:
                self._forget(self._depths, node_id)
        while len(self._depths) > CHECKPOINTS:
            self._forget(self._depths, next(iter(self._depths)))

    def _forget(self, kept: dict[str, None] | dict[str, int], node_id: str) -> None:
        del kept[node_id]
        if node_id not in self._recent and node_id not in self._depths:
            del self.states[node_id]
