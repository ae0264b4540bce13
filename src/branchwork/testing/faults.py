"""What can go wrong between a client and a model server, as values, and the oddities of server-sent events.

Frames follow the HTML standard's `text/event-stream` format (https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

import json
from typing import Literal, TypeAlias

from msgspec import Struct

from branchwork.session.entries import JSONObject

RefusalKind: TypeAlias = Literal["rate_limit", "quota", "server", "overloaded", "auth", "overflow", "rejected"]


class Refused(Struct, frozen=True):
    """The request is answered with an error status and the provider's error body.

    `status` overrides the usual one of the kind, `plain` replaces the body by text that is no JSON (what a
    proxy in between answers), `retry_after` (seconds) becomes the header of that name.
    """

    kind: RefusalKind
    retry_after: float | None = None
    status: int | None = None
    plain: str | None = None


class Cut(Struct, frozen=True):
    """The stream stops after `after` frames. A `clean` cut ends the HTTP body properly, the other one does not."""

    after: int
    clean: bool = False


class StreamError(Struct, frozen=True):
    """After `after` frames of a stream with status 200, the provider's error is sent as a frame."""

    kind: RefusalKind
    after: int = 1


class Hang(Struct, frozen=True):
    """Nothing more is sent after `after` frames (0: not even a status line); released when the server stops."""

    after: int = 0


Fault: TypeAlias = Refused | Cut | StreamError | Hang


class Framing(Struct, frozen=True):
    """How frames are written; every combination is legal."""

    crlf: bool = False
    noise: bool = False
    """Comments, empty events, and the fields `id`, `retry` and an unknown one between the data."""
    several_lines: bool = False
    """JSON spread over several `data` lines of one event."""
    tight: bool = False
    """No space after the colon."""
    piece_bytes: int = 0
    """Bytes per HTTP chunk; small numbers split lines and UTF-8 characters. 0 sends whole frames."""


class Frame(Struct, frozen=True):
    """One server-sent event; `data` that is text is sent as it is."""

    data: JSONObject | str
    event: str | None = None


def encode_frame(frame: Frame, framing: Framing) -> bytes:
    """The bytes of one event, blank line included."""
    colon = ":" if framing.tight else ": "
    data = frame.data
    if isinstance(data, str):
        text = data
    elif framing.several_lines:
        text = json.dumps(data, ensure_ascii=False, indent=1)
    else:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    lines = []
    if framing.noise:
        lines += [": keep-alive", "", ":", "id: 7", "retry: 1000", "colour: blue"]
    if frame.event is not None:
        lines.append(f"event{colon}{frame.event}")
    lines += [f"data{colon}{line}" for line in text.split("\n")]
    end = "\r\n" if framing.crlf else "\n"
    return (end.join(lines) + end + end).encode()


def pieces(data: bytes, framing: Framing) -> list[bytes]:
    """`data` cut into the HTTP chunks it is sent in."""
    size = framing.piece_bytes or len(data)
    return [data[start : start + size] for start in range(0, len(data), size)]
