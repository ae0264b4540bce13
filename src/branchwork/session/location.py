"""Names: the folder of a project's sessions and the file of one session."""

import os
import re
from pathlib import Path

from branchwork.clock import iso
from branchwork.errors import UserError

_NAME_LIMIT = 240
"""Bytes of a folder name; file systems end at 255."""
_SESSION_ID = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"


def session_directory(home: Path, cwd: str | os.PathLike[str]) -> Path:
    """`HOME/sessions/--CWD--`: the leading separator dropped, `/`, `\\` and `:` turned into `-`.

    Two folders may share a name (`/a/b` and `/a-b`), so listings look at the header's cwd. A path too long
    for one name is cut and told apart by a digest.
    """
    text = os.path.abspath(cwd)  # noqa: PTH100  # symlinks stay, so that a folder keeps its name
    name = re.sub(r"[/\\:]", "-", re.sub(r"^[/\\]", "", text))
    encoded = os.fsencode(name)
    if len(encoded) > _NAME_LIMIT:
        import hashlib

        digest = hashlib.sha256(encoded).hexdigest()[:8]
        name = encoded[: _NAME_LIMIT - 9].decode("utf-8", "ignore") + "-" + digest
    return home / "sessions" / f"--{name}--"


def session_filename(now_ms: int, session_id: str) -> str:
    """`TIMESTAMP_ID.jsonl`, sorting by age. Raises UserError (usage) for an id that is no file name."""
    check_session_id(session_id)
    return f"{re.sub('[:.]', '-', iso(now_ms))}_{session_id}.jsonl"


def check_session_id(session_id: str) -> None:
    """Letters, digits, `.`, `_` and `-`, first and last a letter or digit, at most 200 characters."""
    if len(session_id) > 200 or re.fullmatch(_SESSION_ID, session_id) is None:
        raise UserError(
            f"{session_id!r} cannot be a session id: use letters, digits, '.', '_' and '-', "
            "beginning and ending with a letter or digit.",
            exit_code=2,
        )
