"""A rehearsal shows what commands would have changed, and only applying it changes the project."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from branchwork.policy.sandbox.overlay import Change, Refused, apply, begin, changes, diff, drop
from branchwork.policy.sandbox.plan import Layers, SandboxSpec
from tests.policy.sandbox_support import backend, places, sandboxed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="overlays are Linux's")


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    """A rehearsal over a small project."""
    backend("bwrap", overlays=True)
    project = tmp_path / "project"
    (project / "sub" / "deep").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"):
        (project / name).write_text(f"{name}\n")
        (project / name).chmod(0o640)
    (project / "link").symlink_to("a.txt")
    return places(tmp_path, rehearse=begin(project, tmp_path / "area"))


def layers_of(spec: SandboxSpec) -> Layers:
    assert spec.rehearse is not None
    return spec.rehearse


def picture(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of everything."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(folder))] = (path.lstat().st_mode, content)
    return found


def shell(cwd: Path, command: str) -> str:
    """What a command prints outside of the sandbox."""
    return subprocess.run(["bash", "-c", command], cwd=cwd, capture_output=True, text=True, check=True).stdout


async def rehearse(spec: SandboxSpec, command: str) -> list[Change]:
    """The changes; the project is as before."""
    before = picture(spec.cwd)
    run = await sandboxed("bwrap", spec, command)
    assert run.exit_code == 0, run.output
    assert picture(spec.cwd) == before
    return changes(layers_of(spec))


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("echo new > n.txt", [("n.txt", "added", "file")]),
        ("echo more >> a.txt", [("a.txt", "modified", "file")]),
        ("rm a.txt", [("a.txt", "deleted", "file")]),
        ("chmod 755 a.txt", [("a.txt", "mode", "file")]),
        ("chmod 700 sub", [("sub", "mode", "directory")]),
        ("rm a.txt; ln -s b.txt a.txt", [("a.txt", "type", "link")]),
        ("ln -sfn b.txt link", [("link", "modified", "link")]),
        ("rm link", [("link", "deleted", "link")]),
        ("mkdir -p x/y", [("x", "added", "directory"), ("x/y", "added", "directory")]),
        ("rm -r sub/deep", [("sub/deep", "deleted", "directory"), ("sub/deep/d.txt", "deleted", "file")]),
        (
            "rm -r sub/deep; mkdir sub/deep; echo x > sub/deep/e",
            [("sub/deep/d.txt", "deleted", "file"), ("sub/deep/e", "added", "file")],
        ),
        (
            "rm -r sub/deep; echo x > sub/deep",
            [("sub/deep", "type", "file"), ("sub/deep/d.txt", "deleted", "file")],
        ),
        ("rm a.txt; mkdir a.txt; echo x > a.txt/x", [("a.txt", "type", "directory"), ("a.txt/x", "added", "file")]),
        ("mv a.txt z.txt", [("a.txt", "deleted", "file"), ("z.txt", "added", "file")]),
        (
            "mv sub/deep moved",
            [
                ("moved", "added", "directory"),
                ("moved/d.txt", "added", "file"),
                ("sub/deep", "deleted", "directory"),
                ("sub/deep/d.txt", "deleted", "file"),
            ],
        ),
        ("echo x > t; rm t", []),
        ("touch a.txt; cat b.txt > /dev/null", []),
        ("cp a.txt c; cat c > a.txt; rm c", []),
        ("mkfifo pipe", [("pipe", "added", "other")]),
        ("echo x > .wh.a.txt", [(".wh.a.txt", "added", "file")]),
    ],
)
async def test_a_change_is_told_for_what_it_is(
    command: str, wanted: list[tuple[str, str, str]], spec: SandboxSpec
) -> None:
    found = await rehearse(spec, command)
    assert [(each.path, each.kind, each.what) for each in found] == wanted


async def test_a_later_command_sees_what_an_earlier_one_wrote(spec: SandboxSpec) -> None:
    await rehearse(spec, "echo more >> a.txt; rm b.txt")
    run = await sandboxed("bwrap", spec, "cat a.txt; ls b.txt 2>/dev/null; rm -r sub; ls")
    assert run.output == "a.txt\nmore\na.txt\nlink\n"
    assert [each.path for each in changes(layers_of(spec))] == [
        "a.txt",
        "b.txt",
        "sub",
        "sub/c.txt",
        "sub/deep",
        "sub/deep/d.txt",
    ]


async def test_outside_of_the_project_nothing_is_written(spec: SandboxSpec) -> None:
    run = await sandboxed("bwrap", spec, "echo x > a.txt && echo x > ~/new")
    assert run.exit_code == 1
    assert list(spec.home.iterdir()) == []


EVERYTHING = """
echo more >> a.txt; rm b.txt; chmod 755 sub/c.txt; rm -r sub/deep; echo x > sub/deep
mkdir -p new/er; echo y > new/er/f; chmod 700 new/er/f; ln -s f new/er/l; chmod 750 sub; rm link; mkdir link
printf '\\000\\001' > binary; echo z > 'odd
name'
"""


async def test_applied_the_project_is_what_the_commands_saw(spec: SandboxSpec) -> None:
    await rehearse(spec, EVERYTHING)
    run = await sandboxed("bwrap", spec, "find . -printf '%P|%M|%l\\n' | sort; cat a.txt sub/deep new/er/f")
    apply(changes(layers_of(spec)), layers_of(spec))
    assert shell(spec.cwd, "find . -printf '%P|%M|%l\\n' | sort; cat a.txt sub/deep new/er/f") == run.output
    assert changes(layers_of(spec)) == []


async def test_a_part_is_applied_and_the_rest_stays_a_proposal(spec: SandboxSpec) -> None:
    first, second = await rehearse(spec, "echo more >> a.txt; rm b.txt")
    apply([second], layers_of(spec))
    assert not (spec.cwd / "b.txt").exists()
    assert (spec.cwd / "a.txt").read_text() == "a.txt\n"
    assert changes(layers_of(spec)) == [first]
    apply([first], layers_of(spec))
    assert (spec.cwd / "a.txt").read_text() == "a.txt\nmore\n"


@pytest.mark.parametrize(
    ("command", "meanwhile"),
    [
        ("echo more >> a.txt", "echo mine > a.txt"),
        ("echo more >> a.txt", "rm a.txt"),
        ("rm a.txt", "echo mine >> a.txt"),
        ("echo x > n.txt", "echo mine > n.txt"),
        ("chmod 700 a.txt", "chmod 600 a.txt"),
        ("rm -r sub", "echo mine > sub/new"),
        ("echo x > sub/deep/n", "mv sub/deep sub/other && ln -s other sub/deep && echo mine > sub/deep/n"),
    ],
)
async def test_what_changed_meanwhile_is_not_overwritten(command: str, meanwhile: str, spec: SandboxSpec) -> None:
    await rehearse(spec, f"{command}; echo also > other.txt")
    shell(spec.cwd, meanwhile)
    before = picture(spec.cwd)
    with pytest.raises(Refused, match="changed since the rehearsal began"):
        apply(changes(layers_of(spec)), layers_of(spec))
    assert picture(spec.cwd) == before


async def test_a_directory_that_became_a_link_is_not_followed_out(spec: SandboxSpec, tmp_path: Path) -> None:
    (found,) = await rehearse(spec, "echo x > sub/deep/d.txt")
    (spec.cwd / "sub" / "deep").rename(tmp_path / "out")
    (spec.cwd / "sub" / "deep").symlink_to(tmp_path / "out")
    with pytest.raises(Refused):
        apply([found], layers_of(spec))
    assert (tmp_path / "out" / "d.txt").read_text() == "sub/deep/d.txt\n"


async def test_a_mode_that_forbids_reading_is_a_change_like_any_other(spec: SandboxSpec) -> None:
    found = await rehearse(
        spec, "echo x > sub/c.txt; mkdir sub/in; echo y > sub/in/f; chmod 0 sub/in/f sub/in a.txt sub/c.txt sub"
    )
    assert [each.path for each in found] == ["a.txt", "sub", "sub/c.txt", "sub/in", "sub/in/f"]
    assert "+y" in diff(found[-1], layers_of(spec))
    apply(found, layers_of(spec))
    for path in (spec.cwd / "sub", spec.cwd / "sub" / "in"):
        assert path.stat().st_mode & 0o777 == 0
        path.chmod(0o700)
    for name, content in (("a.txt", "a.txt\n"), ("sub/c.txt", "x\n"), ("sub/in/f", "y\n")):
        assert (spec.cwd / name).stat().st_mode & 0o777 == 0
        (spec.cwd / name).chmod(0o600)
        assert (spec.cwd / name).read_text() == content


async def test_what_is_no_file_is_not_applied(spec: SandboxSpec) -> None:
    found = await rehearse(spec, "mkfifo pipe; echo x > a.txt")
    with pytest.raises(Refused, match="neither file, directory nor link: pipe"):
        apply(found, layers_of(spec))
    assert (spec.cwd / "a.txt").read_text() == "a.txt\n"


async def test_dropped_it_is_gone_and_the_next_starts_afresh(spec: SandboxSpec) -> None:
    await rehearse(spec, "echo more >> a.txt; mkdir locked; echo x > locked/x; chmod 0 locked")
    layers = layers_of(spec)
    drop(layers)
    assert not layers.upper.exists()
    again = begin(spec.cwd, layers.upper.parents[1])
    assert changes(again) == []


async def test_a_rehearsal_is_gone_on_with(spec: SandboxSpec) -> None:
    await rehearse(spec, "echo more >> a.txt")
    again = begin(spec.cwd, layers_of(spec).upper.parents[1])
    assert [each.path for each in changes(again)] == ["a.txt"]


async def test_the_difference_is_shown(spec: SandboxSpec) -> None:
    found = await rehearse(
        spec, "echo more >> a.txt; rm b.txt; echo n > n; chmod 755 sub/c.txt; printf '\\0' > bin; ln -sfn b.txt link"
    )
    shown = {each.path: diff(each, layers_of(spec)) for each in found}
    assert " a.txt\n+more" in shown["a.txt"]
    assert "-b.txt" in shown["b.txt"]
    assert "+n" in shown["n"]
    assert shown["sub/c.txt"] == "sub/c.txt: mode 0640 becomes 0755"
    assert shown["bin"] == "bin: file added (1 bytes)"
    assert "-a.txt" in shown["link"]
    assert "+b.txt" in shown["link"]


@pytest.mark.parametrize("area", ["project", "project/tmp", "."])
def test_layers_inside_the_project_or_around_it_are_refused(area: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with pytest.raises(Refused, match="must not contain"):
        begin(tmp_path / "project", tmp_path / area)
    assert list((tmp_path / "project").iterdir()) == []


@pytest.mark.skipif(sys.platform == "linux" and os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_owner_are_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "theirs").write_text("x")
    os.chown(tmp_path / "project" / "theirs", 12345, 0)
    with pytest.raises(Refused, match="theirs belongs to user 12345"):
        begin(tmp_path / "project", tmp_path / "area")


def test_a_damaged_record_is_refused_and_nothing_is_applied(spec: SandboxSpec) -> None:
    layers = layers_of(spec)
    (layers.upper / "a.txt").write_text("planted")
    (layers.upper.parent / "record").write_bytes(b"\xff")
    with pytest.raises(Refused, match="cannot be read"):
        apply(changes(layers), layers)
    assert (spec.cwd / "a.txt").read_text() == "a.txt\n"


@pytest.mark.parametrize("prefix", ["user.overlay", "trusted.overlay"])
def test_deletions_noted_as_attributes_are_understood(prefix: str, spec: SandboxSpec) -> None:
    layers = layers_of(spec)
    (layers.upper / "a.txt").touch()
    (layers.upper / "sub").mkdir()
    try:
        os.setxattr(layers.upper / "a.txt", f"{prefix}.whiteout", b"")
        os.setxattr(layers.upper / "sub", f"{prefix}.opaque", b"y")
    except PermissionError:
        pytest.skip("only root may set trusted attributes")
    (layers.upper / "sub").chmod(spec.cwd.joinpath("sub").stat().st_mode)
    kinds = {each.path: each.kind for each in changes(layers)}
    assert kinds == {"a.txt": "deleted", "sub/c.txt": "deleted", "sub/deep": "deleted", "sub/deep/d.txt": "deleted"}


def test_a_directory_that_the_kernel_only_noted_as_renamed_is_refused(spec: SandboxSpec) -> None:
    layers = layers_of(spec)
    (layers.upper / "x").mkdir()
    os.setxattr(layers.upper / "x", "user.overlay.redirect", b"/sub")
    with pytest.raises(Refused, match="renamed"):
        changes(layers)


NAMES = st.sampled_from(
    ["a.txt", "b.txt", "sub", "sub/c.txt", "sub/deep", "sub/deep/d.txt", "link", "n", "n/m", "sub/n"]
)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["echo x >>", "rm -rf", "mkdir -p", "chmod 700", "ln -sfn nowhere"]), NAMES).map(
        " ".join
    ),
    st.tuples(st.just("mv -T"), NAMES, NAMES).map(" ".join),
    st.tuples(st.just("cp -rT"), NAMES, NAMES).map(" ".join),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=1, max_size=8))
async def test_whatever_commands_do_applying_gives_what_they_saw(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("rehearsal")
    project = base / "project"
    (project / "sub" / "deep").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"):
        (project / name).write_text(f"{name}\n")
    (project / "link").symlink_to("a.txt")
    spec = places(base, rehearse=begin(project, base / "area"))
    before = picture(project)
    look = "find . -printf '%P|%M|%l\\n' | sort; find . -type f | sort | xargs -r cat"
    run = await sandboxed("bwrap", spec, "(" + "; ".join(steps) + f") 2>/dev/null; {look}")
    assert picture(project) == before
    apply(changes(layers_of(spec)), layers_of(spec))
    assert shell(project, look) == run.output
    assert changes(layers_of(spec)) == []
