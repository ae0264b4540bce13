"""No command changes anything outside of the scratch directory, whoever runs it, under each backend by itself."""

import sys

import pytest

from tests.policy.sandbox_support import BACKENDS, attacks, backend, run_driver, users

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the backends of Linux")

SAMPLE = ("plain", "time", "hard-link-into-the-project", "unix-socket", "loopback", "signal", "ring", "outlives")
"""One of each kind, for the fast suite."""


def changed(told: dict[str, dict[str, dict[str, object]]]) -> dict[str, object]:
    return {name: each["changed"] for name, each in told["attacks"].items() if each["changed"]}


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("name", BACKENDS)
def test_one_attack_of_each_kind_changes_nothing(name: str, user: str) -> None:
    backend(name)
    known = attacks()
    assert changed(run_driver(name, user, {each: known[each][1] for each in SAMPLE})) == {}


@pytest.mark.slow
@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("name", BACKENDS)
def test_no_attack_changes_a_byte_a_mode_an_owner_a_time_or_another_process(name: str, user: str) -> None:
    backend(name)
    told = run_driver(name, user, {each: command for each, (_, command) in attacks().items()})
    assert len(told["attacks"]) >= 100
    assert changed(told) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_with_network_no_attack_changes_a_file_or_reaches_a_unix_socket(name: str) -> None:
    backend(name)
    reaching = {each for each in attacks() if each.startswith(("loopback", "datagram"))}
    chosen = {each: command for each, (_, command) in attacks().items() if each not in reaching}
    assert changed(run_driver(name, users()[-1], chosen, network=True)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("user", users())
def test_without_a_sandbox_the_attacks_do_what_they_say(user: str) -> None:
    """Else the tests above would pass because the attacks are broken."""
    kinds = ("bites", "root") if user == "root" else ("bites",)
    biting = {each: command for each, (kind, command) in attacks().items() if kind in kinds}
    assert len(biting) >= 60
    told = run_driver("none", user, biting)
    assert sorted(biting.keys() - changed(told)) == []
