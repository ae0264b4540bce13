"""Server-sent events, from bytes in any pieces.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html. Only the data is of interest here: the
two APIs that use it repeat the event's name inside, or have none.
"""

_BOM = b"\xef\xbb\xbf"


class EventDecoder:
    """Feed it what arrives; it gives the data of each event that is complete. Total work is linear in the bytes."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._after_cr = False
        self._first = True
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        if not chunk:
            return []
        lines = chunk.splitlines()  # of bytes: at LF, CR and CRLF only
        last = chunk[-1]
        if self._partial:
            if len(lines) == 1 and last not in b"\r\n":
                self._partial.append(chunk)
                return []
            self._partial.append(lines[0])
            lines[0] = b"".join(self._partial)
            self._partial.clear()
        if last not in b"\r\n":
            self._partial.append(lines.pop())
        else:
            self._after_cr = last == 0x0D
        return self._events(lines)

    def flush(self) -> list[bytes]:
        """The event that the end of the stream left without its blank line, if any."""
        line = b"".join(self._partial)
        self._partial.clear()
        return self._events([line, b""] if line else [b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        if self._first and lines:
            self._first = False
            lines[0] = lines[0].removeprefix(_BOM)
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if self._data:
                    events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                    self._data.clear()
            elif line == b"data":
                self._data.append(b"")
        return events
