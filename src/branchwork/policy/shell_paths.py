"""Where a path leads, judged by its text alone."""

from typing import Literal

from branchwork.policy.shell_state import Cwds, Glob, Pipe, Unknown

Place = Literal["none", "scratch", "scratch-root", "outside", "unknown"]
"""`none`: nothing is written, as with /dev/null or an empty name."""

NOWHERE = frozenset(("", "/dev/null", "/dev/tty", "/dev/zero", "/dev/full"))
OWN_OUTPUT = frozenset(("/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2", "/proc/self/fd/1", "/proc/self/fd/2"))


def place(path: str, cwds: Cwds, tmp: str | None, *, outputs: bool = True) -> Place:
    """Where a write to `path` goes from every directory the shell may be in.

    `outputs`: standard output and error are what the program was started with, so their names are safe. A `..` in a
    path counts as outside: the name before it may be a link.
    """
    if isinstance(path, Pipe):
        return "none"
    if isinstance(path, Unknown):
        return _unknown(path, cwds, tmp)
    if path in NOWHERE or (path in OWN_OUTPUT and outputs):
        return "none"
    if isinstance(path, Glob) and _risky_glob(path):
        return "outside"
    if path.startswith("/"):
        return _absolute(path, tmp)
    worst: Place = "none"
    for cwd in cwds:
        if cwd is None:
            return "unknown"
        found = _absolute(f"{cwd}/{path}", tmp)
        if found == "outside":
            return found
        if worst != "scratch-root":
            worst = found
    return worst


def _unknown(path: Unknown, cwds: Cwds, tmp: str | None) -> Place:
    if path.root is not None:
        found = place(path.root, cwds, tmp)
        return found if found in ("scratch", "scratch-root", "outside") else "unknown"
    if path.plain:
        return place(path.prefix, cwds, tmp) if path.prefix else "unknown"
    return "unknown"


def _risky_glob(path: str) -> bool:
    """`.*` matches `..`."""
    return any(
        part.startswith((".", "[", "?", "@", "!", "+")) and any(c in "*?[(" for c in part) and not part.startswith("?.")
        for part in path.split("/")
        if part.startswith(".") or "(" in part or ("[" in part and "." in part)
    )


def _absolute(path: str, tmp: str | None) -> Place:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or tmp is None:
        return "outside"
    base = [part for part in tmp.split("/") if part not in ("", ".")]
    if not base or parts[: len(base)] != base:
        return "outside"
    return "scratch" if len(parts) > len(base) else "scratch-root"


def depth_below(path: str, tmp: str | None) -> int:
    """How many names stand between the scratch directory and the last name of an absolute path; 0 for others."""
    if tmp is None or not path.startswith(tmp.rstrip("/") + "/"):
        return 0
    return len([part for part in path[len(tmp) :].split("/") if part]) - 1


def resolve(cwd: str | None, path: str) -> str | None:
    """The directory that `cd path` leads to, the way `cd` reads it: `..` removes a name. None when unknown."""
    if isinstance(path, (Unknown, Glob)):
        return None
    if not path.startswith("/"):
        if cwd is None:
            return None
        path = f"{cwd}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
