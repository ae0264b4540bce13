"""Output of any size in bounded memory: its end is at hand, all of it goes to a file once it is too much."""

import codecs
import os
from io import BufferedWriter
from pathlib import Path

from branchwork.tools.truncate import LIMITS, Limits, Skipped, Truncation, tail

_MARGIN = 8
"""Bytes kept beyond the limit, so that the first shown character is never one that lost its beginning."""


class Spill:
    """A new file that takes output as it comes, readable by its owner only.

    Trouble with the file never ends the run it records: the first failure is kept in `error`, and what
    follows is dropped. `path` stays set if the file has the beginning.
    """

    def __init__(self, directory: Path, stem: str) -> None:
        self.path: Path | None = None
        self.error: str | None = None
        self._file: BufferedWriter | None = None
        path = directory / f"{stem}-{os.urandom(6).hex()}.log"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Exclusive creation follows no link that someone else may have put there.
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.error = error.strerror or str(error)
            return
        self.path = path
        self._file = os.fdopen(fd, "wb")

    def write(self, data: bytes | bytearray) -> None:
        if self._file is None:
            return
        try:
            self._file.write(data)
        except OSError as error:
            self._fail(error)

    def flush(self) -> None:
        if self._file is None:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._fail(error)

    def close(self) -> None:
        """Everything written so far is in the file afterwards, or `error` says why not. May be repeated."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _fail(self, error: OSError) -> None:
        self.error = error.strerror or str(error)
        file, self._file = self._file, None
        if file is not None:
            # The buffer still holds what could not be written and a normal close would try again.
            file.raw.close()


class Capture:
    """Takes bytes, shows the end of them as text.

    Holds at most about twice `limits.bytes`. From the moment the whole exceeds a limit it is also in a
    file of `directory`, from its first byte and unchanged. In the text, bytes that are not UTF-8 become
    U+FFFD; so does NUL, which several model servers refuse.
    """

    def __init__(self, directory: Path, stem: str, limits: Limits = LIMITS) -> None:
        self._directory, self._stem, self._limits = directory, stem, limits
        self._buffer = bytearray()
        self._skipped_bytes = 0
        self._skipped_lines = 0
        self._lines = 0
        self._spill: Spill | None = None

    @property
    def total_bytes(self) -> int:
        return self._skipped_bytes + len(self._buffer)

    @property
    def full_output(self) -> Path | None:
        """The file with the whole, or with its beginning if `spill_error` is set. None when all of it is shown."""
        return self._spill.path if self._spill else None

    @property
    def spill_error(self) -> str | None:
        """Why the file is incomplete or missing."""
        return self._spill.error if self._spill else None

    def add(self, data: bytes) -> None:
        self._buffer += data
        self._lines += data.count(b"\n")
        if self._spill is not None:
            self._spill.write(data)
        elif self.total_bytes > self._limits.bytes or self._lines > self._limits.lines:
            self._start_spill()
        self._trim()

    def now(self, limits: Limits) -> tuple[str, Truncation]:
        """The end of what came so far; a character of which only a part came is left for the next time.

        `limits` are not above those of the capture.
        """
        return self._shown(limits, final=False)

    def finish(self) -> tuple[str, Truncation]:
        """The end of everything; the file is complete and closed afterwards."""
        text, truncation = self._shown(self._limits, final=True)
        if truncation.truncated and self._spill is None:
            # Replaced bytes are longer in the text than they were in the output.
            self._start_spill()
        self.close()
        return text, truncation

    def close(self) -> None:
        if self._spill is not None:
            self._spill.close()

    def _start_spill(self) -> None:
        self._spill = Spill(self._directory, self._stem)
        self._spill.write(self._buffer)

    def _trim(self) -> None:
        keep = self._limits.bytes + _MARGIN
        if len(self._buffer) <= keep + self._limits.bytes:
            return
        cut = len(self._buffer) - keep
        for _ in range(3):  # a UTF-8 character has at most three continuation bytes
            if self._buffer[cut] & 0xC0 != 0x80:
                break
            cut += 1
        self._skipped_lines += self._buffer.count(b"\n", 0, cut)
        self._skipped_bytes += cut
        del self._buffer[:cut]

    def _shown(self, limits: Limits, *, final: bool) -> tuple[str, Truncation]:
        text, _ = codecs.utf_8_decode(self._buffer, "replace", final)
        skipped = Skipped(lines=self._skipped_lines, bytes=self._skipped_bytes)
        return tail(text.replace("\0", "\ufffd"), limits, skipped)
