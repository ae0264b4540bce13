"""The rules for macOS, as text: they are written for a kernel that these tests cannot ask."""

from pathlib import Path

import pytest

from branchwork.policy.sandbox.plan import Layers, SandboxSpec, Unsupported, make_scratch
from branchwork.policy.sandbox.seatbelt import Seatbelt, profile


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    (tmp_path / "keys").mkdir()
    return SandboxSpec(
        cwd=tmp_path, home=tmp_path, scratch=make_scratch(tmp_path / "a'\"b)"), hide=(tmp_path / "keys",)
    )


def test_writes_are_refused_but_to_scratch_and_the_null_device(spec: SandboxSpec) -> None:
    text, parameters = profile(spec)
    lines = text.splitlines()
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    assert [line for line in lines if line.startswith("(allow file-write")] == [
        '(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))',
        '(allow file-write* (subpath (param "WRITE0")))',
    ]
    assert parameters["WRITE0"] == str(spec.scratch)


def test_paths_are_parameters_so_that_no_quote_in_one_ends_a_rule(spec: SandboxSpec) -> None:
    text, _ = profile(spec)
    assert "'" not in text
    argv = Seatbelt().wrap(("bash", "-c", "true"), spec, {})
    assert f"WRITE0={spec.scratch}" in argv
    assert argv[-3:] == ("bash", "-c", "true")


def test_the_last_rules_hide_what_must_not_be_read(spec: SandboxSpec, tmp_path: Path) -> None:
    text, parameters = profile(spec)
    assert text.splitlines()[-1] == '(deny file-read* file-write* (subpath (param "HIDE0")))'
    assert parameters["HIDE0"] == str(tmp_path / "keys")


def test_the_network_is_refused_unless_it_is_wanted(spec: SandboxSpec, tmp_path: Path) -> None:
    assert "(deny network*)" in profile(spec)[0]
    text, _ = profile(SandboxSpec(cwd=tmp_path, home=tmp_path, scratch=spec.scratch, network=True))
    assert "(deny network*)" not in text
    assert "(deny network-outbound (remote unix-socket))" in text


def test_the_environment_leads_to_scratch_and_away_from_services(spec: SandboxSpec) -> None:
    argv = Seatbelt().wrap(("true",), spec, {"SSH_AUTH_SOCK": "/x"})
    start = argv.index("/usr/bin/env")
    assert argv[start + 1 : start + 3] == ("-u", "SSH_AUTH_SOCK")
    assert f"TMPDIR={spec.scratch}" in argv[start:]


def test_writes_cannot_be_rehearsed(spec: SandboxSpec, tmp_path: Path) -> None:
    layers = Layers(project=tmp_path, upper=tmp_path / "u", work=tmp_path / "w")
    with pytest.raises(Unsupported, match="cannot rehearse"):
        Seatbelt().wrap(("true",), SandboxSpec(cwd=tmp_path, home=tmp_path, scratch=spec.scratch, rehearse=layers), {})
