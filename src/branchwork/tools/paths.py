"""Paths as models write them, and names as models can read them.

Models copy paths from prose, from terminals and from other tools' habits. `locate` takes the literal
spelling whenever it exists and tries others only when it does not, so a correct path is never reinterpreted.
"""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from branchwork.agent.toolset import ToolContext, ToolError

ODD_SPACES = dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " ")
"""Unicode's other space separators (category Zs), for `str.translate`."""

_PROBLEMS = {
    errno.ENOENT: "no such file or directory",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "its symbolic links form a loop",
    errno.ENAMETOOLONG: "the name is too long",
    errno.EISDIR: "it is a directory",
    errno.ENOSPC: "no space is left on the device",
    errno.EROFS: "the file system is read-only",
}


def resolve(text: str, ctx: ToolContext, *, similar: bool = False) -> Path:
    """The absolute path that `text` means for a running tool; see `locate`."""
    return locate(text, cwd=ctx.cwd, home=ctx.home, similar=similar)


def locate(text: str, *, cwd: Path, home: Path, similar: bool = False) -> Path:
    """The absolute path that `text` means; symbolic links and `..` are left for the kernel.

    Relative to `cwd`; `~` is `home`; the empty text is `cwd` itself. When the literal path does not exist, one
    leading `@` is dropped, odd Unicode spaces become plain ones, and `\\xNN` stands for a byte, which is how
    `shown` writes names that are not UTF-8. `similar` (for files that must exist) also tries the spellings of
    macOS: U+202F before AM and PM, decomposed letters, curly apostrophes. Raises `ToolError` for text that cannot be
    a path.
    """
    _check(text)
    for spelling in _spellings(text, similar):
        path = _absolute(spelling, cwd, home)
        if os.path.lexists(path):
            return path
    plain = _without_mark(text, cwd) if text.startswith("@") else text
    return _absolute(plain.translate(ODD_SPACES), cwd, home)


def shown(text: str | Path) -> str:
    """A name that is safe to print on one line: control characters and bytes that are not UTF-8 become `\\xNN`."""
    name = str(text)
    return name if name.isprintable() else re.sub("[\x00-\x1f\x7f\ud800-\udfff]", _escaped, name)


def relative(path: Path, cwd: Path) -> str:
    """`path` as one would type it in `cwd`: relative when it lies below, else absolute."""
    return os.fspath(path.relative_to(cwd)) if path.is_relative_to(cwd) else os.fspath(path)


def shell_word(path: str | Path) -> str:
    """`path` as one word of a bash command."""
    import shlex

    name = str(path)
    if name.isprintable():
        return shlex.quote(name)
    return "$'" + shown(name.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def failed(doing: str, path: Path, text: str, error: OSError) -> ToolError:
    """What to tell the model when the system refused: one line, `doing` is a verb, `text` the path as written."""
    problem = _PROBLEMS.get(error.errno or 0) or error.strerror or str(error)
    if error.errno == errno.ENOENT and path.is_symlink():
        problem = f"it is a symbolic link to {shown(path.readlink())}, which does not exist"
    return ToolError(f"Cannot {doing} {shown(text)}: {problem}.")


def _check(text: str) -> None:
    if "\0" in text:
        raise ToolError(f"Invalid path {shown(text)}: it contains a NUL character.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise ToolError(f"Invalid path {shown(text)}: it contains half of a character.") from None


def _absolute(text: str, cwd: Path, home: Path) -> Path:
    if text == "~" or text.startswith("~/"):
        return home / text[1:].lstrip("/")
    return cwd / text


def _without_mark(text: str, cwd: Path) -> str:
    """A new file in an existing folder such as `@types` keeps its name."""
    first, slash, _ = text.partition("/")
    return text if slash and os.path.lexists(cwd / first) else text[1:]


def _spellings(text: str, similar: bool) -> Iterator[str]:
    yield text
    bare = text.removeprefix("@")
    if bare != text:
        yield bare
    plain = bare.translate(ODD_SPACES)
    if plain != bare:
        yield plain
    if "\\x" in bare:
        yield _bytes_of(bare)
    if similar:
        yield from _macos_spellings(plain)


def _macos_spellings(text: str) -> Iterator[str]:
    narrow = re.sub(r" (?=[AP]M\b)", "\u202f", text, flags=re.IGNORECASE)
    if narrow != text:
        yield narrow
    curly = text.replace("'", "\u2019")
    if curly != text:
        yield curly
    if text.isascii():
        return
    import unicodedata

    for form in ("NFD", "NFC"):
        other = unicodedata.normalize(form, text)
        for spelling in dict.fromkeys((other, other.replace("'", "\u2019"))):
            if spelling != text:
                yield spelling


def _bytes_of(text: str) -> str:
    raw = re.sub(rb"\\x([0-9a-fA-F]{2})", lambda found: bytes.fromhex(found[1].decode()), os.fsencode(text))
    return os.fsdecode(raw.replace(b"\0", b""))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x80:
        return f"\\x{code:02x}"
    # PEP 383: U+DC80 to U+DCFF stand for single bytes that could not be decoded.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else "\ufffd"
