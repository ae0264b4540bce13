"""The store of sessions that are not kept, for tests and for embedding."""

from branchwork.session.store import MemoryStore

__all__ = ["MemoryStore"]
