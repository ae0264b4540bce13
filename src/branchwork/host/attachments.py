"""From the words of a command line, `@file` arguments and standard input to one prompt."""

import base64
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from branchwork.errors import UserError
from branchwork.session.entries import Image

MAX_TEXT_BYTES = 1024 * 1024
MAX_IMAGE_BYTES = 3_500_000
"""About 4.5 MiB as base64, the smallest limit among the providers."""
SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class Prompt(Struct, frozen=True):
    text: str
    images: tuple[Image, ...] = ()


def build_prompt(words: Sequence[str], piped: str | None, cwd: Path) -> Prompt:
    """Join the parts: words in order, files as tagged blocks, images attached, standard input last.

    Raises `UserError` (usage) for a file that cannot be used, or when nothing is left to ask.
    """
    texts: list[str] = []
    images: list[Image] = []
    for word in words:
        if word.startswith("@") and len(word) > 1:
            _attach(cwd / Path(word[1:]).expanduser(), texts, images)
        elif word.strip():
            texts.append(word)
    if piped and piped.strip():
        texts.append(piped.rstrip("\n"))
    if not texts:
        raise UserError("no prompt: give one after -p, or pipe it in", exit_code=2)
    return Prompt("\n\n".join(texts), tuple(images))


def _attach(path: Path, texts: list[str], images: list[Image]) -> None:
    try:
        if not path.is_file():
            raise UserError(f"@{path}: not a file", exit_code=2)
        raw = path.read_bytes() if path.stat().st_size <= max(MAX_TEXT_BYTES, MAX_IMAGE_BYTES) else None
    except OSError as error:
        raise UserError(f"@{path}: cannot be read ({error.strerror})", exit_code=2) from None
    mime_type = _image_type(raw) if raw is not None else None
    if raw is None or (mime_type is None and len(raw) > MAX_TEXT_BYTES):
        raise UserError(f"@{path}: too large to attach; name it in the prompt and let the agent read it", exit_code=2)
    if mime_type is not None:
        images.append(Image(data=base64.b64encode(raw).decode(), mime_type=mime_type))
        texts.append(f"[attached image: {path.name}]")
        return
    if b"\0" in raw[:8192]:
        raise UserError(f"@{path}: a binary file that is no image", exit_code=2)
    text = raw.decode("utf-8-sig", errors="replace")
    texts.append(f'<file path="{path}">\n{text.rstrip()}\n</file>')


def _image_type(raw: bytes) -> str | None:
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in SIGNATURES if raw.startswith(signature)), None)
