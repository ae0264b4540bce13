"""What every test may rely on: a home of its own, nobody's keys, and no network beyond this machine."""

import ipaddress
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

KEPT = {"PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "CI", "VIRTUAL_ENV", "PYENV_ROOT", "PYTHONDONTWRITEBYTECODE"}
"""Variables that tests and the processes they start see; a key or a setting of the developer is none of them."""


class NetworkUsed(BaseException):
    """A test tried to leave this machine. No handler of the code under test may turn this into a typed failure."""


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An environment that is the same on every machine, with a home that is empty."""
    before = dict(os.environ)
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in before.items() if name in KEPT or name.startswith(("PYTEST_", "COV_"))}
    os.environ.clear()
    os.environ.update(
        kept,
        HOME=str(home),
        GIT_CONFIG_NOSYSTEM="1",
        GIT_AUTHOR_NAME="Ada",
        GIT_AUTHOR_EMAIL="ada@example.org",
        GIT_COMMITTER_NAME="Ada",
        GIT_COMMITTER_EMAIL="ada@example.org",
    )
    yield
    os.environ.clear()
    os.environ.update(before)


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_stay_here)


def _stay_here(event: str, args: tuple[object, ...]) -> None:
    if event == "socket.connect":
        address = args[1]
        host = address[0] if isinstance(address, tuple) else None
    elif event == "socket.getaddrinfo":
        host = args[0]
    else:
        return
    if not _is_local(host):
        raise NetworkUsed(f"a test asked for {host!r}; only loopback is allowed")


def _is_local(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode()
    if not isinstance(host, str) or host in ("", "localhost"):
        return True  # a Unix socket, or the wildcard of a server
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`@pytest.mark.needs("tmux")`: a missing program skips the test, and fails it where CI is set."""
    for marker in item.iter_markers("needs"):
        missing = [program for program in marker.args if shutil.which(program) is None]
        if missing and os.environ.get("CI"):
            pytest.fail(f"not installed: {', '.join(missing)}; scripts/system.sh should have done it", pytrace=False)
        if missing:
            pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent
