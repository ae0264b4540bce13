"""The encoded conversation, kept from request to request so that only what is new gets encoded.

A request repeats the whole history. What was said does not change, so its bytes are kept: for n messages, of
which k are new since the last request, Python's work is k (and one reference per MiB of history).
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from branchwork.models.base import Transcript
from branchwork.models.conversation import Group, Grouper, Rules, clean_json
from branchwork.session.entries import AssistantMessage, Message, ToolResultMessage

SEGMENT_BYTES = 1 << 20
"""From this size on, encoded messages are joined for good; what one request joins again stays below it."""

STEP = 256
"""Messages that are grouped before they are encoded, so that a long history is in memory once, not three times."""

KEPT_TRANSCRIPTS = 4
"""A model serves the main conversation and a few children at a time."""

_ENCODER = msgspec.json.Encoder()


def dumps(value: Any) -> bytes:
    """Compact JSON in UTF-8, keys in their given order; lone surrogates are removed."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(clean_json(value))


class MessageEncoder(Protocol):
    """One wire format."""

    def encode(self, groups: Sequence[Group]) -> list[bytes]:
        """One JSON value per wire message.

        Cutting `groups` before a reply and encoding the pieces apart must give the same messages, and the last
        message of each piece must be on the user's side.
        """
        ...

    def mark(self, message: bytes, own: bytes | None = None) -> bytes:
        """The user-side `message` with a cache breakpoint at its end.

        `own` is the same message without blocks that belong to one request only; the breakpoint goes before those.
        """
        ...


class WireHistory:
    """The encoded form of one transcript. Appending to the transcript extends it, anything else starts it anew."""

    def __init__(self, rules: Rules, encoder: MessageEncoder) -> None:
        self.groups_encoded = 0
        """Groups encoded so far, each time they were."""
        self.bytes_encoded = 0
        self._rules = rules
        self._encoder = encoder
        self._transcript: Transcript | None = None
        self._generation = 0
        self._reset(None)

    def chunks(self, transcript: Transcript, extra: Sequence[Message] = (), *, mark: bool = False) -> list[bytes]:
        """The wire messages, comma separated, in few large pieces to be sent one after the other.

        `extra` comes after the transcript, in this request only. With `mark`, the last two user-side messages of
        the transcript carry cache breakpoints; the kept bytes never do.
        """
        if any(isinstance(message, AssistantMessage | ToolResultMessage) for message in extra):
            whole = WireHistory(self._rules, self._encoder)
            return whole.chunks(Transcript([*transcript.messages, *extra]), mark=mark)
        self._follow(transcript)
        fresh = self._encode(self._grouper.open(extra))
        recent = list(self._recent)
        if mark and fresh and not extra:
            fresh[-1] = self._encoder.mark(fresh[-1])
        elif mark and fresh and self._grouper.on_user_side:
            fresh[-1] = self._encoder.mark(fresh[-1], self._encode(self._grouper.open())[-1])
        if mark and recent:
            recent[-1] = self._encoder.mark(recent[-1])
        last = b",".join([*recent, *fresh])
        return [*self._segments, last] if last else []

    def _follow(self, transcript: Transcript) -> None:
        same = transcript is self._transcript and transcript.generation == self._generation
        if not same or len(transcript.messages) < self._seen:
            self._reset(transcript)
        self._read(transcript, STEP)
        if self._grouper.stale:
            self._reset(transcript)
            self._read(transcript, len(transcript.messages))  # at once: no result can come too late

    def _reset(self, transcript: Transcript | None) -> None:
        self._transcript = transcript
        self._generation = transcript.generation if transcript is not None else 0
        self._grouper = Grouper(self._rules)
        self._seen = 0
        self._segments: list[bytes] = []
        self._recent: list[bytes] = []
        self._recent_bytes = 0

    def _read(self, transcript: Transcript, step: int) -> None:
        grouper, messages = self._grouper, transcript.messages
        while self._seen < len(messages) and not grouper.stale:
            for message in messages[self._seen : self._seen + step]:
                grouper.add(message)
            self._seen = min(self._seen + step, len(messages))
            self._keep(self._encode(grouper.take_closed()))

    def _encode(self, groups: Sequence[Group]) -> list[bytes]:
        encoded = self._encoder.encode(groups)
        self.groups_encoded += len(groups)
        self.bytes_encoded += sum(map(len, encoded))
        return encoded

    def _keep(self, messages: Sequence[bytes]) -> None:
        size = sum(map(len, messages))
        if self._recent_bytes + size < SEGMENT_BYTES:
            self._recent += messages
            self._recent_bytes += size
            return
        for message in messages:
            if self._recent_bytes >= SEGMENT_BYTES:
                self._segments.append(b",".join([*self._recent, b""]))
                self._recent.clear()
                self._recent_bytes = 0
            self._recent.append(message)
            self._recent_bytes += len(message)


class Histories:
    """The wire histories of the transcripts that use one model; the least recently used one is dropped."""

    def __init__(self, rules: Rules, encoder: MessageEncoder) -> None:
        self._rules = rules
        self._encoder = encoder
        self._kept: dict[int, tuple[Transcript, WireHistory]] = {}

    def of(self, transcript: Transcript, *, keep: bool = True) -> WireHistory:
        """The history of `transcript`; a new one is not kept for later unless `keep`."""
        # The transcript is kept beside its id: an id alone may be given to another object later.
        _, history = self._kept.pop(id(transcript), (transcript, None))
        if history is None:
            history = WireHistory(self._rules, self._encoder)
            if not keep:
                return history
        self._kept[id(transcript)] = (transcript, history)
        while len(self._kept) > KEPT_TRANSCRIPTS:
            del self._kept[next(iter(self._kept))]
        return history
