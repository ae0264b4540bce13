import json

from hypothesis import given
from hypothesis import strategies as st

from branchwork.testing.faults import Frame, Framing, encode_frame, pieces
from tests.testing.client import events

FRAMINGS = st.builds(
    Framing,
    crlf=st.booleans(),
    noise=st.booleans(),
    several_lines=st.booleans(),
    tight=st.booleans(),
    piece_bytes=st.integers(0, 9),
)
DATA = st.dictionaries(st.text(max_size=5), st.one_of(st.text(), st.lists(st.integers())), max_size=4)


@given(FRAMINGS, DATA, st.sampled_from([None, "message_start"]))
def test_every_framing_carries_the_same_event(framing: Framing, data: dict[str, object], name: str | None) -> None:
    raw = b"".join(pieces(encode_frame(Frame(data, event=name), framing), framing))
    ((found_name, found),) = events(raw)
    assert (found_name, json.loads(found)) == (name or "message", data)


def test_several_lines_really_are_several() -> None:
    raw = encode_frame(Frame({"a": 1, "b": 2}), Framing(several_lines=True))
    assert raw.count(b"data:") == 4


def test_noise_surrounds_the_data() -> None:
    quiet, noisy = (encode_frame(Frame({"a": 1}), Framing(noise=noise)) for noise in (False, True))
    assert noisy.endswith(quiet)
    assert all(sign in noisy for sign in (b": keep-alive\n\n", b"\nid: ", b"\nretry: "))


def test_pieces_have_the_size_asked_for() -> None:
    assert [len(piece) for piece in pieces(b"x" * 10, Framing(piece_bytes=4))] == [4, 4, 2]
