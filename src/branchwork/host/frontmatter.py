"""Markdown files that begin with YAML between two `---` lines, and how they are read safely.

Wrong frontmatter never hides the body: the file is then one without metadata, and the problem says why.
"""

import os
import stat
from pathlib import Path
from typing import Any

from msgspec import Struct

from branchwork.host.problems import Problem
from branchwork.host.yaml_reader import YamlProblem, read_mapping

MAX_FRONTMATTER = 16 * 1024
"""Bytes between the fences; longer frontmatter is a problem."""
MAX_BODY = 256 * 1024
"""Bytes; a longer file is cut there, with a problem."""
_HEAD = 4 * 1024


class Document(Struct, frozen=True):
    metadata: dict[str, Any]
    """Plain data with string keys, unknown ones included."""
    body: str
    """With `\\n` as line end, without blank lines at either end; only its beginning when the head alone was read."""
    problem: Problem | None = None


def read_document(path: Path) -> Document:
    """The whole file. Raises `OSError` when it cannot be read or is not a regular file."""
    data = _bytes(path, MAX_BODY + 1)
    document = parse(data[:MAX_BODY], path)
    if len(data) > MAX_BODY and document.problem is None:
        problem = Problem(path, f"longer than {MAX_BODY // 1024} KiB; only the beginning is used")
        return Document(document.metadata, document.body, problem)
    return document


def read_head(path: Path) -> Document:
    """As `read_document`, reading no more than the metadata needs. Raises `OSError`."""
    data = _bytes(path, _HEAD)
    if len(data) == _HEAD and _split(data.replace(b"\r\n", b"\n").decode(errors="ignore"))[0] is None:
        data = _bytes(path, MAX_FRONTMATTER + _HEAD)
    return parse(data, path, partial=len(data) >= _HEAD)


def parse(data: bytes, path: Path, *, partial: bool = False) -> Document:
    """`path` is for problems. `partial`: `data` may end in the middle of a character."""
    try:
        text = data.decode("utf-8-sig")
        problem = None
    except UnicodeDecodeError as error:
        text = data.decode("utf-8-sig", errors="replace")
        whole = not (partial and error.start >= len(data) - 4)
        problem = (
            Problem(path, "not UTF-8; characters are replaced", data.count(b"\n", 0, error.start) + 1)
            if whole
            else None
        )
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not _is_fence(text.partition("\n")[0]):
        return Document({}, text.strip("\n"), problem)
    head, body = _split(text)
    if head is None:
        detail = "the frontmatter that begins with `---` has no closing `---` line; it is read as text"
        return Document({}, text.strip("\n"), Problem(path, detail, 1))
    if len(head.encode()) > MAX_FRONTMATTER:
        return Document({}, body, Problem(path, f"frontmatter longer than {MAX_FRONTMATTER // 1024} KiB is ignored", 1))
    try:
        return Document(read_mapping(head), body, problem)
    except YamlProblem as error:
        line = None if error.line is None else error.line + 1
        return Document({}, body, Problem(path, f"the frontmatter is ignored: {error}", line))


def _split(text: str) -> tuple[str | None, str]:
    """What is between the fences and what follows; None without a closing fence."""
    first = text.find("\n") + 1
    at = first
    while first and at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if _is_fence(text[at:end]):
            return text[first:at], text[end:].strip("\n")
        at = end + 1
    return None, ""


def _is_fence(line: str) -> bool:
    return line.rstrip(" \t") == "---"


def _bytes(path: Path, limit: int) -> bytes:
    """Up to `limit` bytes. A pipe or a device is refused, since reading it may never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file", str(path))
        data = b""
        while len(data) < limit and (more := os.read(descriptor, limit - len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)
