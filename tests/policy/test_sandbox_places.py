"""The sandbox holds, and commands find their files, wherever the project and the temporary directory are."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.policy.sandbox.bwrap import system_binary
from branchwork.policy.sandbox.plan import Layers, SandboxSpec, make_scratch
from branchwork.policy.sandbox.probe import Sandboxes, tried
from tests.policy.sandbox_support import BACKENDS, backend, places, sandboxed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the backends of Linux")
each_backend = pytest.mark.parametrize("name", BACKENDS)
ATTEMPT = 'cat a.txt; pwd; (echo x > new) 2>/dev/null || echo refused; echo x > "$TMPDIR/own" && cat "$TMPDIR/own"'


def git(cwd: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory that is not below /tmp."""
    base = Path("/var/tmp")
    if not os.access(base, os.W_OK):
        pytest.skip("/var/tmp is not writable")
    with tempfile.TemporaryDirectory(prefix="branchwork-test-", dir=base) as name:
        yield Path(name).resolve()


@each_backend
async def test_a_project_below_tmp_is_seen_and_not_written(name: str, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="branchwork-test-", dir="/tmp") as folder:
        spec = SandboxSpec(cwd=Path(folder) / "p", home=tmp_path, scratch=make_scratch(tmp_path / "area"))
        spec.cwd.mkdir()
        (spec.cwd / "a.txt").write_text("a\n")
        run = await sandboxed(name, spec, ATTEMPT)
    assert run.output == f"a\n{spec.cwd}\nrefused\nx\n"


@each_backend
async def test_a_project_elsewhere_is_seen_and_not_written(name: str, elsewhere: Path) -> None:
    spec = places(elsewhere, keep=())
    (spec.cwd / "a.txt").write_text("a\n")
    assert (await sandboxed(name, spec, ATTEMPT)).output == f"a\n{spec.cwd}\nrefused\nx\n"


async def test_when_tmp_itself_is_the_working_directory_it_is_seen(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(prefix="branchwork-test-", dir="/tmp") as file:
        spec = SandboxSpec(cwd=Path("/tmp"), home=tmp_path, scratch=make_scratch(tmp_path / "area"))
        run = await sandboxed(
            "bwrap", spec, f'ls {file.name}; (echo x > {file.name}) 2>/dev/null || echo refused; echo x > "$TMPDIR/own"'
        )
    assert (run.exit_code, run.output) == (0, f"{file.name}\nrefused\n")


async def test_other_files_of_tmp_are_not_in_the_sandbox(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(prefix="branchwork-test-", dir="/tmp") as file:
        run = await sandboxed("bwrap", places(tmp_path), f"cat {file.name}; echo x > {file.name}; cat {file.name}")
        assert run.output.endswith("x\n")
        assert Path(file.name).read_bytes() == b""


@each_backend
async def test_a_linked_working_tree_has_its_history(name: str, tmp_path: Path, elsewhere: Path) -> None:
    spec = places(tmp_path)
    git(elsewhere, "init", "-q", "main")
    git(elsewhere / "main", "commit", "-qm", "first", "--allow-empty")
    git(elsewhere / "main", "worktree", "add", "-q", str(spec.cwd / "linked"))
    inner = SandboxSpec(cwd=spec.cwd / "linked", home=spec.home, scratch=spec.scratch)
    run = await sandboxed(
        name, inner, "git log --format=%s; git status --short; git commit -qm x --allow-empty || echo no"
    )
    assert run.output.startswith("first\n")
    assert run.output.endswith("no\n")


async def test_a_linked_working_tree_whose_history_is_below_tmp_has_it(elsewhere: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "main")
    git(tmp_path / "main", "commit", "-qm", "first", "--allow-empty")
    git(tmp_path / "main", "worktree", "add", "-q", str(elsewhere / "linked"))
    spec = SandboxSpec(cwd=elsewhere / "linked", home=elsewhere, scratch=make_scratch(elsewhere / "area"))
    assert (await sandboxed("bwrap", spec, "git log --format=%s")).output == "first\n"


@each_backend
@pytest.mark.parametrize("below_tmp", [True, False])
async def test_a_project_behind_a_link_is_seen_and_not_written(
    name: str, below_tmp: bool, elsewhere: Path, tmp_path: Path
) -> None:
    real, link = (elsewhere, tmp_path / "link") if below_tmp else (tmp_path, elsewhere / "link")
    (real / "p").mkdir()
    (real / "p" / "a.txt").write_text("a\n")
    link.symlink_to(real / "p")
    spec = SandboxSpec(cwd=link, home=tmp_path, scratch=make_scratch(elsewhere / "area"))
    run = await sandboxed(name, spec, ATTEMPT.replace("pwd", "true"))
    assert run.output == "a\nrefused\nx\n"
    assert not (real / "p" / "new").exists()


@each_backend
async def test_linked_hooks_are_not_written(name: str, tmp_path: Path) -> None:
    spec = places(tmp_path)
    git(spec.cwd, "init", "-q")
    hooks = spec.cwd / ".git" / "hooks"
    hooks.rename(tmp_path / "hooks")
    hooks.symlink_to(tmp_path / "hooks")
    run = await sandboxed(
        name, spec, "echo x > .git/hooks/pre-commit || echo x > ../hooks/pre-commit || git status --short"
    )
    assert run.exit_code == 0
    assert not (tmp_path / "hooks" / "pre-commit").exists()


@each_backend
@pytest.mark.parametrize("value", ["relative/tmp", "/gone/tmp", "", "with space", "inside"])
async def test_an_odd_temporary_directory_does_not_matter(name: str, value: str, tmp_path: Path) -> None:
    spec = places(tmp_path)
    (spec.cwd / "a.txt").write_text("a\n")
    place = {"with space": tmp_path / "a b'\"$c", "inside": spec.cwd / "tmp"}.get(value)
    if place is not None:
        place.mkdir()
        spec = SandboxSpec(cwd=spec.cwd, home=spec.home, scratch=make_scratch(place / "session"))
    run = await sandboxed(name, spec, ATTEMPT, env={"TMPDIR": value if place is None else str(place)})
    assert run.output == f"a\n{spec.cwd}\nrefused\nx\n"


@each_backend
@pytest.mark.parametrize("target", ["home", "missing", "project/a.txt"])
async def test_a_link_left_in_scratch_does_not_lead_the_next_command_out(
    name: str, target: str, tmp_path: Path
) -> None:
    spec = places(tmp_path)
    top = spec.cwd.relative_to("/tmp").parts[0] if spec.cwd.is_relative_to("/tmp") else "x"
    outer = SandboxSpec(cwd=Path("/"), home=Path("/"), scratch=spec.scratch)
    await sandboxed(name, outer, f'ln -s {tmp_path}/{target} "$TMPDIR/{top}"; ln -s /proc/self/cwd "$TMPDIR/y"')
    run = await sandboxed(name, spec, "pwd; echo x > x; echo x > ../home/x")
    assert run.output.startswith(str(spec.cwd))
    assert [path for path in (tmp_path / "home", spec.cwd) if (path / "x").exists()] == []
    assert not (tmp_path / "missing").exists()


async def test_in_a_writable_project_the_layers_of_a_rehearsal_are_not_written(tmp_path: Path) -> None:
    upper = tmp_path / "area" / "rehearsal" / "upper"
    work = upper.parent / "work"
    for folder in (upper, work, tmp_path / "project"):
        folder.mkdir(parents=True)
    spec = places(tmp_path, writable=(tmp_path,), rehearse=Layers(project=tmp_path / "project", upper=upper, work=work))
    run = await sandboxed("bwrap", spec, f"(echo x > {upper}/planted) 2>/dev/null || echo refused")
    assert run.output == "refused\n"


@each_backend
async def test_inside_a_sandbox_another_one_is_found_or_none_is_claimed(name: str, tmp_path: Path) -> None:
    """What is inside cannot mount; Landlock stacks. Nothing may claim to hold that does not."""
    spec = places(tmp_path)
    code = (
        "import os; from branchwork.policy.sandbox.probe import Sandboxes;"
        "chosen = Sandboxes(os.environ).choose(); print(chosen.backend.name, len(chosen.refused))"
    )
    run = await sandboxed(name, spec, f'{sys.executable} -B -c "{code}"')
    assert run.output.split()[0] in ("landlock", "none"), run.output


def test_a_backend_that_lets_writes_through_is_not_used() -> None:
    class Open:
        name, detail, hides, overlays = "open", "confines nothing", False, False

        def wrap(self, argv: tuple[str, ...], *_: object) -> tuple[str, ...]:
            return argv

    found = tried(Open(), os.environ)
    assert "can write outside" in str(found)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 1", "does not tell its version"),
        ("echo bubblewrap 0.8.0; exit 0", "scratch directory"),
        (
            '[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit; echo "bwrap: No permissions" >&2; exit 1',
            "No permissions",
        ),
    ],
)
def test_a_broken_bubblewrap_is_passed_over_with_the_reason(script: str, reason: str, tmp_path: Path) -> None:
    binary = tmp_path / "bwrap"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    chosen = Sandboxes({**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}).choose()
    assert reason in chosen.refused[0].reason
    assert chosen.backend.detail != str(binary)


def test_bubblewrap_before_overlays_says_that_it_cannot_rehearse(tmp_path: Path) -> None:
    from branchwork.policy.sandbox.bwrap import Bubblewrap
    from branchwork.policy.sandbox.plan import Unsupported

    old = Bubblewrap(Path("/usr/bin/bwrap"), (0, 8, 0))
    layers = Layers(project=tmp_path, upper=tmp_path / "u", work=tmp_path / "w")
    with pytest.raises(Unsupported, match="cannot rehearse"):
        old.wrap(("true",), places(tmp_path, rehearse=layers), {})
    with pytest.raises(Unsupported, match="cannot rehearse"):
        backend("landlock").wrap(("true",), places(tmp_path, rehearse=layers), {})


def test_where_writes_cannot_be_rehearsed_that_is_an_error_and_no_fallback() -> None:
    for name in ("landlock", "none"):
        with pytest.raises(UserError, match="cannot be rehearsed"):
            Sandboxes(os.environ).choose(name, overlays=True)


def test_a_bubblewrap_without_overlays_is_passed_over_when_they_are_needed(tmp_path: Path) -> None:
    """As on systems whose own one is older than the package's."""
    real = backend("bwrap", overlays=True).detail.partition("(")[2].partition(")")[0].partition(",")[0]
    binary = tmp_path / "bwrap"
    binary.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit\nexec {real} "$@"\n')
    binary.chmod(0o755)
    sandboxes = Sandboxes({**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert str(binary) in sandboxes.choose().backend.detail
    assert str(binary) not in sandboxes.choose(overlays=True).backend.detail


def test_a_program_that_a_project_brings_is_not_taken_for_bubblewrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bwrap").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "bwrap").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in ("bin", ":bin:.", ""):
        assert "not on PATH" in str(system_binary({"PATH": path}))
    assert system_binary({"PATH": f"bin:{tmp_path}/bin"}) == tmp_path / "bin" / "bwrap"
