"""Restrictions only narrow, whatever their order and number."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from branchwork.policy.posture import Posture, Restriction

PLACES = ["/w", "/w/docs", "/w/docs/adr", "/w/src", "/other", "/"]
TARGETS = [Path(place) / "file" for place in PLACES]
RESTRICTIONS = st.builds(
    Restriction,
    contributor=st.sampled_from(["plan mode", "--readonly", "settings"]),
    reason=st.just("because"),
    write=st.none() | st.lists(st.sampled_from(PLACES), max_size=3).map(tuple),
    shell=st.sampled_from(["free", "read-only", "off"]),
    network=st.booleans(),
    delegate=st.sampled_from(["all", "readers", "none"]),
)
POSTURES = st.lists(RESTRICTIONS, max_size=4).map(lambda found: Posture(tuple(found)))


def allowed(posture: Posture) -> set[str]:
    found = {str(target) for target in TARGETS if posture.against_writing(target) is None}
    found |= {"anywhere"} if posture.against_writing(None) is None else set()
    found |= {"network"} if posture.network else set()
    found |= {"free": {"shell", "reading shell"}, "read-only": {"reading shell"}, "off": set[str]()}[posture.shell]
    decisive = posture.against_delegation()
    level = decisive.delegate if decisive else "all"
    return found | {"all": {"readers", "workers"}, "readers": {"readers"}, "none": set[str]()}[level]


@given(POSTURES, RESTRICTIONS)
def test_a_restriction_never_allows_what_was_forbidden(posture: Posture, more: Restriction) -> None:
    assert allowed(posture.narrowed(more)) <= allowed(posture)
    assert allowed(posture.narrowed(more)) <= allowed(Posture((more,)))


@given(POSTURES, st.randoms(use_true_random=False))
def test_the_order_of_restrictions_does_not_matter(posture: Posture, chance: object) -> None:
    shuffled = list(posture.restrictions)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert allowed(Posture(tuple(shuffled))) == allowed(posture)


@given(POSTURES)
def test_what_a_sandbox_would_leave_open_is_what_the_gate_leaves_open(posture: Posture) -> None:
    writable = posture.writable
    for target in TARGETS:
        free = writable is None or any(target == Path(p) or Path(p) in target.parents for p in writable)
        assert free == (posture.against_writing(target) is None)


def test_without_restrictions_all_is_allowed() -> None:
    assert Posture().writable is None
    assert not Posture().read_only
    assert Posture().shell == "free"


def test_the_deciding_restriction_is_named() -> None:
    plan = Restriction(contributor="plan mode", reason="Switch to build.", write=(), shell="read-only")
    off = Restriction(contributor="settings", reason="No shell.", shell="off")
    posture = Posture((plan, off))
    assert posture.read_only
    shell, write = posture.against_shell(), posture.against_writing(Path("/w/a"))
    assert shell is not None
    assert write is not None
    assert (shell.contributor, write.contributor) == ("settings", "plan mode")


def test_a_link_is_judged_as_the_place_it_leads_to(tmp_path: Path) -> None:
    inside, outside = tmp_path / "docs", tmp_path / "src"
    inside.mkdir()
    outside.mkdir()
    (inside / "way-out").symlink_to(outside)
    (tmp_path / "alias").symlink_to(inside)
    posture = Posture((Restriction(contributor="design", reason="", write=(str(tmp_path / "alias"),)),))
    assert posture.against_writing(inside / "new.md") is None
    assert posture.against_writing(tmp_path / "alias" / "deep" / "new.md") is None
    assert posture.against_writing(inside / "way-out" / "new.py") is not None
    assert posture.against_writing(inside / ".." / "src" / "new.py") is not None
    assert posture.against_writing(tmp_path / "docs-of-another") is not None
