"""A bounded memory of decoded entries."""

from branchwork.session.entries import Entry


class EntryCache:
    """Keeps the entries that were added last, up to `limit` bytes of the lines they come from."""

    def __init__(self, limit: int = 8 << 20) -> None:
        self._limit = limit
        self._size = 0
        self._held: dict[str, tuple[Entry, int]] = {}

    def get(self, entry_id: str) -> Entry | None:
        found = self._held.get(entry_id)
        return found[0] if found is not None else None

    def put(self, entry: Entry, size: int) -> None:
        if size > self._limit or entry.id in self._held:
            return
        self._held[entry.id] = (entry, size)
        self._size += size
        while self._size > self._limit:
            oldest = next(iter(self._held))
            self._size -= self._held.pop(oldest)[1]
