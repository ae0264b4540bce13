"""Bytes of one line to typed values and back.

Reading is typed first (fast) and lenient second: files are written by more than one program and by hand, so
what can be understood is, and the rest becomes `UnknownEntry` with the reason. Nothing here raises for a
line that holds a JSON object.
"""

import json
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct, structs

from branchwork.session.entries import (
    SESSION_VERSION,
    Entry,
    Header,
    JSONObject,
    KnownEntry,
    Message,
    MessageEntry,
    SystemMessage,
    UnknownEntry,
)
from branchwork.session.repair import clean, repair_entry, repair_message


class Place(Struct, frozen=True, gc=False):
    """Where an entry stands in the tree, as the session decided (the line itself may be silent or wrong)."""

    id: str
    parent_id: str | None
    timestamp: str = ""


@cache
def _entry_decoder() -> msgspec.json.Decoder[KnownEntry]:
    return msgspec.json.Decoder(KnownEntry)


@cache
def _encoder() -> msgspec.json.Encoder:
    return msgspec.json.Encoder()


def decode_object(raw: bytes) -> JSONObject | None:
    """The JSON object in `raw`, or None when there is none (or it nests too deeply to be read).

    Broader than RFC 8259: invalid UTF-8 and lone surrogates come back as U+FFFD, `NaN` and infinities as
    None, and control characters may stand in strings.
    """
    try:
        value = msgspec.json.decode(raw)
    except RecursionError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            value = clean(json.loads(raw.decode("utf-8", "replace"), strict=False))
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def decode_entry(raw: bytes, *, place: Place | None = None) -> Entry:
    """The entry on one line (without its newline).

    `place` overrides the identity that the line states. Raises ValueError when `raw` is not a JSON object.
    """
    try:
        return _placed(_entry_decoder().decode(raw), place)
    except RecursionError:
        return _unknown({}, "the JSON nests too deeply", place)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error)
    data = decode_object(raw)
    if data is None:
        if raw.lstrip()[:1] != b"{":
            raise ValueError("not a JSON object")
        return _unknown({}, reason, place)
    return entry_from(data, place=place)


def decode_lines(block: bytes) -> list[KnownEntry] | None:
    """The entries of several lines, as `decode_entry` gives them; None when one needs its lenience."""
    try:
        return _entry_decoder().decode_lines(block)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def entry_from(data: JSONObject, *, place: Place | None = None) -> Entry:
    """The entry in an already decoded object, read leniently."""
    try:
        known: KnownEntry = msgspec.convert(repair_entry(data), KnownEntry, strict=False)
    except msgspec.ValidationError as error:
        return _unknown(data, str(error), place)
    except RecursionError:
        return _unknown(data, "the JSON nests too deeply", place)
    return _placed(known, place)


def decode_message(data: JSONObject) -> Message | None:
    """The message in `data`, read leniently; None when its role or shape is not one of ours."""
    try:
        message: Message = msgspec.convert(repair_message(data), Message, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return None
    return message


def encode_entry(entry: Entry) -> bytes:
    """Compact JSON without a newline: type, id, parentId, timestamp, then the payload.

    Lone surrogates in strings are written as U+FFFD, since UTF-8 has no bytes for them. Raises TypeError
    when free-form data (`details`, `data`, arguments) holds something that is not JSON.
    """
    if isinstance(entry, UnknownEntry):
        return encode_object(entry.raw)
    if isinstance(entry, MessageEntry) and isinstance(entry.message, SystemMessage) and entry.message.tools_removed:
        data = msgspec.to_builtins(entry)
        # The npm host stores removed tools as objects with a name.
        data["message"]["toolsRemoved"] = [{"name": name} for name in entry.message.tools_removed]
        return encode_object(data)
    try:
        return _encoder().encode(entry)
    except UnicodeEncodeError:
        return encode_object(msgspec.to_builtins(entry))


def settle(entry: KnownEntry) -> tuple[KnownEntry, bytes]:
    """The line for `entry`, and the entry as it will be read back from it."""
    line = encode_entry(entry)
    if b"\xef\xbf\xbd" not in line:
        return entry, line
    again = decode_entry(line)
    return (entry if isinstance(again, UnknownEntry) else again), line


def encode_object(data: JSONObject) -> bytes:
    """Compact JSON of plain data, keys in their order, lone surrogates as U+FFFD."""
    try:
        return _encoder().encode(data)
    except UnicodeEncodeError:
        return _encoder().encode(clean(data))


def encode_header(header: Header) -> bytes:
    """Compact JSON without a newline: type, version, id, timestamp, cwd, parentSession."""
    try:
        return _encoder().encode(header)
    except UnicodeEncodeError:
        return encode_object(msgspec.to_builtins(header))


def decode_header(raw: bytes) -> Header | None:
    """The header on a line, or None when the line is not a `session` object. Fields it lacks are empty.

    A missing version means 1 (the format had none at first); one that is not a number is taken as current.
    """
    data = decode_object(raw)
    if data is None or data.get("type") != "session":
        return None
    parent = data.get("parentSession")
    return Header(
        version=_version(data.get("version", 1)),
        id=_text(data.get("id")),
        timestamp=_text(data.get("timestamp")),
        cwd=_text(data.get("cwd")),
        parent_session=parent if isinstance(parent, str) and parent else None,
    )


def _version(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return SESSION_VERSION


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _placed(entry: KnownEntry, place: Place | None) -> KnownEntry:
    if place is None or (entry.id == place.id and entry.parent_id == place.parent_id):
        return entry
    return structs.replace(entry, id=place.id, parent_id=place.parent_id, timestamp=entry.timestamp or place.timestamp)


def _unknown(data: JSONObject, reason: str, place: Place | None) -> UnknownEntry:
    parent = data.get("parentId")
    return UnknownEntry(
        type=_text(data.get("type")),
        id=place.id if place else _text(data.get("id")),
        parent_id=place.parent_id if place else (None if parent is None else _text(parent)),
        timestamp=_text(data.get("timestamp")) or (place.timestamp if place else ""),
        reason=reason,
        raw=data,
    )
