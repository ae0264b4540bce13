"""Finding sessions without opening them: the picker's rows, and what `--resume TEXT` means.

A summary is taken from the first and the last bytes of a file, so a folder of hundreds is listed in a
fraction of a second however long its sessions are. Damage is a mark on a row, never an error.
"""

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from branchwork.clock import iso
from branchwork.errors import UserError
from branchwork.session.codec import decode_header
from branchwork.session.entries import Header

WHOLE = 128 * 1024
"""Files up to this size (bytes) are read whole."""
PIECE = 48 * 1024
"""Of longer files this much is read from either end."""
FAR = 1024 * 1024
"""A header is looked for in the first MiB, as in the npm host; so is the first message of a long file."""
FIRST_MESSAGE = 200
"""Characters of the first message that a summary keeps."""
SHORTEST_PREFIX = 4
"""Characters of an id that may stand for it."""
NAME_TRIES = 32
"""Places that look like a name change and are none, before a long file's middle is given up."""


class SessionSummary(Struct, frozen=True, kw_only=True):
    """One row of a listing. Times are ISO 8601 in UTC; texts are as stored, so escape them for a screen."""

    path: Path
    id: str
    """Empty when the header cannot be read."""
    name: str
    cwd: str
    started: str
    last_activity: str
    """Of the last readable entry; the file's modification time when there is none."""
    first_message: str
    """First user message, one line, at most `FIRST_MESSAGE` characters."""
    model: str
    """`provider/id` of the last reply or model change near the end, or empty."""
    size: int
    """Bytes."""
    problem: str | None = None
    """What is wrong with the file, as far as its ends tell; `branchwork sessions check` reads all of it."""


class _PeekMessage(Struct):
    role: Any = None
    provider: Any = None
    model: Any = None


class _Peek(Struct, rename="camel"):
    type: Any = None
    timestamp: Any = None
    name: Any = None
    provider: Any = None
    model_id: Any = None
    message: _PeekMessage | None = None


class _PeekText(Struct):
    message: dict[str, Any]


def sessions_root(home: Path) -> Path:
    """Where the folders of all working directories are."""
    return home / "sessions"


def session_folders(home: Path) -> list[Path]:
    """Every folder below the root that may hold sessions, the root itself included."""
    root = sessions_root(home)
    try:
        return [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    except OSError:
        return []


def list_sessions(folders: Iterable[Path], *, cwd: Path | None = None) -> list[SessionSummary]:
    """Summaries of the `*.jsonl` files directly in `folders`, latest activity first.

    With `cwd`, only sessions whose header names it: folder names are not unique, and a folder may be shared.
    A file without a readable header stays in the listing, since nobody can say whose it is. Never raises for
    what files hold; files that cannot be opened get a row with a problem.
    """
    wanted = _same(cwd) if cwd is not None else None
    rows = [summarize(path) for path in _files(folders)]
    if wanted is not None:
        rows = [row for row in rows if not row.cwd or _same(row.cwd) & wanted]
    return sorted(rows, key=lambda row: (row.last_activity, row.path.name), reverse=True)


def summarize(path: Path) -> SessionSummary:
    """The summary of one file. Never raises."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            modified = iso(path.stat().st_mtime_ns // 1_000_000)
            head = file.read(WHOLE if size <= WHOLE else PIECE)
            if size <= WHOLE:
                return _summary(path, modified, _Ends(head, head, whole=True, size=size))
            file.seek(size - PIECE)
            ends = _Ends(head, file.read(PIECE), whole=False, size=size)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _summary(path, modified, ends, data)
    except (OSError, ValueError) as error:
        return _bare(path, f"cannot be read: {error}")


class _Ends(Struct, frozen=True):
    head: bytes
    tail: bytes
    whole: bool
    size: int

    def first_lines(self) -> list[bytes]:
        lines = self.head.split(b"\n")
        return lines if self.whole else lines[:-1]

    def last_lines(self) -> Iterator[bytes]:
        """From the end backwards, the cut first line of a long file's tail left out."""
        end = len(self.tail)
        while end > 0:
            start = self.tail.rfind(b"\n", 0, end)
            if start < 0 and not self.whole:
                return
            yield self.tail[start + 1 : end]
            end = start


def _bare(path: Path, problem: str) -> SessionSummary:
    return SessionSummary(
        path=path,
        id="",
        name="",
        cwd="",
        started="",
        last_activity="",
        first_message="",
        model="",
        size=0,
        problem=problem,
    )


def _summary(path: Path, modified: str, ends: _Ends, data: mmap.mmap | None = None) -> SessionSummary:
    header = _header(data[:FAR].split(b"\n") if data is not None and b"\n" not in ends.head else ends.first_lines())
    last = _last(ends)
    name = last.name
    if name is None and data is not None:
        name = _name_in(data)
    return SessionSummary(
        path=path,
        id=header.id if header else "",
        name=name or "",
        cwd=header.cwd if header else "",
        started=header.timestamp if header else "",
        last_activity=last.timestamp or (header.timestamp if header else "") or modified,
        first_message=_first_message(ends, data),
        model=last.model,
        size=ends.size,
        problem="no readable header" if header is None else last.problem,
    )


def _header(lines: list[bytes]) -> Header | None:
    """The header, when the first line that can be read is one."""
    for line in lines:
        if line.strip() and _peek(line) is not None:
            return decode_header(line)
    return None


def _peek(line: bytes) -> _Peek | None:
    try:
        return msgspec.json.decode(line, type=_Peek)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class _Last(Struct):
    timestamp: str = ""
    name: str | None = None
    model: str = ""
    problem: str | None = None


def _last(ends: _Ends) -> _Last:
    """What the end of the file says. All of the tail is read only while the name is unknown."""
    found = _Last()
    if ends.tail and not ends.tail.endswith(b"\n") and _peek(ends.tail.rpartition(b"\n")[2]) is None:
        found.problem = "the last line is torn"
    may_name = b'"session_info"' in ends.tail
    for line in ends.last_lines():
        if not line.strip():
            continue
        peek = _peek(line)
        if peek is None:
            found.problem = found.problem or "a line cannot be read"
            continue
        if not found.timestamp and isinstance(peek.timestamp, str):
            found.timestamp = peek.timestamp
        found.model = found.model or _model(peek)
        if found.name is None and peek.type == "session_info" and isinstance(peek.name, str):
            found.name = peek.name
        if found.timestamp and found.model and (found.name is not None or not may_name):
            break
    return found


def _model(peek: _Peek) -> str:
    if peek.type == "model_change":
        return f"{peek.provider}/{peek.model_id}"
    if peek.message is not None and peek.message.role == "assistant" and peek.message.model:
        return f"{peek.message.provider}/{peek.message.model}"
    return ""


def _name_in(data: mmap.mmap) -> str | None:
    """The latest name anywhere in a long file: a scan for the entry's type, not a parse."""
    end = len(data)
    for _ in range(NAME_TRIES):
        at = data.rfind(b'"session_info"', 0, end)
        if at < 0:
            return None
        start = data.rfind(b"\n", 0, at) + 1
        stop = data.find(b"\n", at)
        peek = _peek(data[start : stop if stop >= 0 else len(data)])
        if peek is not None and peek.type == "session_info" and isinstance(peek.name, str):
            return peek.name
        end = start
    return None


def _first_message(ends: _Ends, data: mmap.mmap | None) -> str:
    for line in ends.first_lines():
        found = _user_text(line)
        if found is not None:
            return found
    if data is None:
        return ""
    for line in data[len(ends.head) - len(ends.head.rpartition(b"\n")[2]) : FAR].split(b"\n")[:-1]:
        found = _user_text(line)
        if found is not None:
            return found
    return ""


def _user_text(line: bytes) -> str | None:
    if b'"user"' not in line:
        return None
    peek = _peek(line)
    if peek is None or peek.type != "message" or peek.message is None or peek.message.role != "user":
        return None
    content = msgspec.json.decode(line, type=_PeekText).message.get("content")
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    text = " ".join(str(content or "").split())
    return text if len(text) <= FIRST_MESSAGE else text[: FIRST_MESSAGE - 1] + "…"


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        try:
            yield from (path for path in folder.iterdir() if path.suffix == ".jsonl" and path.is_file())
        except OSError:
            continue


def _same(cwd: Path | str) -> set[str]:
    """The spellings of a directory that count as equal: as given, and with its links resolved."""
    path = Path(cwd)
    try:
        return {str(path), str(path.resolve())}
    except (OSError, RuntimeError, ValueError):
        return {str(path)}


# ---- resolving ------------------------------------------------------------------------------------


def resolve(text: str, home: Path, cwd: Path) -> Path:
    """The session file that `text` means.

    `text` is a path, an id, or the beginning of one (`SHORTEST_PREFIX` characters or more). Sessions of `cwd`
    are looked at first, then all; a full id beats a prefix. Raises UserError (exit 2) when nothing or more
    than one session fits.
    """
    path = _file(text, cwd)
    if path is not None:
        return path
    if "/" in text or "\\" in text or text.endswith(".jsonl"):
        raise UserError(
            f"no session file at {text!r}; `branchwork sessions list --all` shows what there is", exit_code=2
        )
    if len(text) < SHORTEST_PREFIX:
        raise UserError(
            f"{text!r} is too short for a session id; give {SHORTEST_PREFIX} characters or more", exit_code=2
        )
    known = list(_identities(home))
    here = _same(cwd)
    for headers in ([pair for pair in known if _same(pair[1].cwd) & here], known):
        found = [path for path, header in headers if header.id == text]
        found = found or [path for path, header in headers if header.id.startswith(text)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UserError(_ambiguous(text, found), exit_code=2)
    raise UserError(
        f"no session has an id that begins with {text!r}; try `branchwork sessions list --all`", exit_code=2
    )


def _file(text: str, cwd: Path) -> Path | None:
    try:
        path = cwd / (Path(text).expanduser() if text.startswith("~/") else text)
        return (path.resolve() if ".." in path.parts else path) if path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None  # too long, or no file name at all


def _ambiguous(text: str, paths: list[Path]) -> str:
    rows = [summarize(path) for path in sorted(paths, reverse=True)[:5]]
    shown = "; ".join(f"{row.id} ({_plain(row.name or row.first_message or 'empty')}, {row.path})" for row in rows)
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return f"{text!r} fits {len(paths)} sessions, give more of the id: {shown}{more}"


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:40]


def _identities(home: Path) -> Iterator[tuple[Path, Header]]:
    for path in _files(session_folders(home)):
        try:
            with path.open("rb") as file:
                header = _header([file.readline(FAR)])
        except OSError:
            continue
        if header is not None and header.id:
            yield path, header


def most_recent(home: Path, cwd: Path) -> Path | None:
    """The session of `cwd` that was active last and whose header can be read, for `--continue`."""
    rows = list_sessions(session_folders(home), cwd=cwd)
    return next((row.path for row in rows if row.id and row.cwd), None)
