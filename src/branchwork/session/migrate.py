"""Versions 1 and 2 of the format, read as version 3.

1 had neither ids nor parents (a line follows the line before) and compactions kept `firstKeptEntryIndex`,
which counts all lines, the header being 0. 2 named the role of extension messages `hookMessage`.
Unknown fields are kept.
"""

from collections.abc import Callable

from branchwork.session.codec import decode_object, encode_object
from branchwork.session.entries import SESSION_VERSION, JSONObject


def migrate_line(raw: bytes, *, node_id: str, parent_id: str | None, id_at: Callable[[int], str | None]) -> bytes:
    """An entry's line as version 3 has it. `id_at` gives the id of the entry at a position in the file."""
    data = decode_object(raw)
    if data is None:
        return raw
    entry: JSONObject = {"type": data.pop("type", ""), "id": node_id, "parentId": parent_id}
    entry.update({key: value for key, value in data.items() if key not in ("id", "parentId")})
    index = entry.get("firstKeptEntryIndex")
    if entry["type"] == "compaction" and isinstance(index, int):
        del entry["firstKeptEntryIndex"]
        kept = id_at(index - 1)
        if kept is not None:
            entry["firstKeptEntryId"] = kept
    message = entry.get("message")
    if isinstance(message, dict) and message.get("role") == "hookMessage":
        message["role"] = "custom"
    return encode_object(entry)


def migrate_header(raw: bytes) -> bytes:
    """The header's line with the current version, everything else as it was."""
    data = decode_object(raw) or {}
    header: JSONObject = {"type": "session", "version": SESSION_VERSION}
    header.update({key: value for key, value in data.items() if key != "version"})
    return encode_object(header)
