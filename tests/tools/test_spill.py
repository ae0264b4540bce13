"""Captured output has the end at hand and the whole in a file, in bounded memory."""

import os
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.tools.spill import Capture, Spill
from branchwork.tools.truncate import LIMITS, Limits, tail

texts = st.text(alphabet=st.sampled_from("a\nß…\U0001f600"), max_size=120)
limits_ = st.builds(Limits, lines=st.integers(1, 8), bytes=st.integers(1, 40))


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@given(texts, limits_, st.lists(st.integers(0, 300)))
def test_output_in_any_pieces_has_the_same_tail_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, text: str, limits: Limits, cuts: list[int]
) -> None:
    capture = Capture(tmp_path_factory.getbasetemp() / "pieces", "out", limits)
    for piece in chunks(text.encode(), cuts):
        capture.add(piece)
    assert capture.finish() == tail(text, limits)
    if capture.full_output is None:
        assert not tail(text, limits)[1].truncated
    else:
        assert capture.full_output.read_bytes() == text.encode()
        capture.full_output.unlink()


@given(st.binary(max_size=200), limits_, st.lists(st.integers(0, 200)))
def test_any_bytes_become_text_within_the_limits_and_are_in_the_file_unchanged(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, limits: Limits, cuts: list[int]
) -> None:
    capture = Capture(tmp_path_factory.getbasetemp() / "bytes", "out", limits)
    for piece in chunks(data, cuts):
        capture.add(piece)
    text, cut = capture.finish()
    whole = data.decode("utf-8", "replace").replace("\0", "\ufffd")
    assert whole.endswith(text)
    assert len(text.encode()) <= limits.bytes
    assert cut.truncated == (text != whole) == (capture.full_output is not None)
    if capture.full_output is not None:
        assert capture.full_output.read_bytes() == data
        capture.full_output.unlink()


def test_half_a_character_is_shown_only_once_it_is_whole(tmp_path: Path) -> None:
    capture = Capture(tmp_path, "out")
    capture.add(b"caf\xc3")
    assert capture.now(LIMITS)[0] == "caf"
    capture.add(b"\xa9")
    assert capture.now(LIMITS)[0] == "café"
    capture.add(b"\xc3")
    assert capture.finish()[0] == "café\ufffd"


def test_output_within_the_limits_leaves_no_file(tmp_path: Path) -> None:
    capture = Capture(tmp_path / "scratch", "out", Limits(lines=2, bytes=100))
    capture.add(b"one\ntwo\n")
    assert capture.finish()[0] == "one\ntwo\n"
    assert capture.full_output is None
    assert not (tmp_path / "scratch").exists()


def test_the_file_is_for_its_owner_only_and_in_a_private_folder(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        spill = Spill(tmp_path / "a" / "scratch", "out")
        spill.write(b"secret")
        spill.close()
    finally:
        os.umask(old)
    assert spill.path is not None
    assert spill.path.read_bytes() == b"secret"
    assert stat.S_IMODE(spill.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(spill.path.parent.stat().st_mode) == 0o700


def test_two_spills_of_one_name_are_two_files(tmp_path: Path) -> None:
    one, other = Spill(tmp_path, "out"), Spill(tmp_path, "out")
    one.close()
    other.close()
    assert one.path != other.path


def test_without_a_place_for_the_file_the_tail_is_still_there_and_the_reason_too(tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("not a folder")
    capture = Capture(tmp_path / "scratch", "out", Limits(bytes=4))
    capture.add(b"1\n2\n3\n")
    assert capture.finish()[0] == "2\n3\n"
    assert capture.full_output is None
    assert capture.spill_error == "File exists"


# Runs in a process of its own: a file size limit is the one full disk that every system can have.
FULL_DISK = """
import resource, sys
from pathlib import Path
from branchwork.tools.spill import Capture
from branchwork.tools.truncate import Limits

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
capture = Capture(Path(sys.argv[1]), "out", Limits(bytes=1000))
for number in range(10_000):
    capture.add(b"line %d\\n" % number)
text, cut = capture.finish()
assert text.endswith("line 9998\\nline 9999\\n") and cut.total_lines == 10_000, cut
assert capture.spill_error == "File too large", capture.spill_error
assert capture.full_output.read_bytes().startswith(b"line 0\\nline 1\\n")
print(capture.full_output.stat().st_size)
"""


def test_a_full_disk_is_reported_and_ends_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert 0 < int(done.stdout) <= 20_000
