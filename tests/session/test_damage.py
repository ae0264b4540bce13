"""Damaged files: every kind is reported with its line, and nothing that can be read is lost."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from branchwork.session import scan
from branchwork.session.entries import UnknownEntry
from branchwork.session.operations import check
from branchwork.session.store import SessionReadOnly, SessionUnreadable
from branchwork.session.tree import Session, new_header
from branchwork.testing.clock import FakeClock, SequentialIds
from branchwork.testing.memory_store import MemoryStore
from tests.session.builders import HEADER, header, ids_of, line, opened, said, write


def found(session: Session) -> list[tuple[int, str, bool]]:
    return [(problem.line, problem.kind, problem.lost) for problem in session.problems]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.jsonl"


def test_a_sound_file_has_no_problems(path: Path) -> None:
    with opened(write(path, header(), line("a", None), line("b", "a"))) as session:
        assert found(session) == []
        assert ids_of(session) == ["a", "b"]


def test_a_torn_last_line_loses_only_that_entry(path: Path) -> None:
    torn = line("b", "a")[:-9]
    write(path, header(), line("a", None), torn, end=b"")
    before = path.read_bytes()
    with opened(path) as session:
        assert found(session) == [(3, "torn-tail", True)]
        assert ids_of(session) == ["a"]
        assert path.read_bytes() == before
        assert not path.with_name("s.jsonl.torn").exists()
        session.append(said("next"))
    assert path.with_name("s.jsonl.torn").read_bytes() == torn
    with opened(path) as session:
        assert found(session) == []
        assert len(session) == 2


def test_a_whole_last_line_without_its_line_feed_is_not_torn(path: Path) -> None:
    write(path, header(), line("a", None), end=b"")
    with opened(path) as session:
        assert found(session) == []
        (added,) = session.append(said("next"))
        assert session.node(added.id).line == 3
    with opened(path) as session:
        assert ids_of(session) == ["a", added.id]
        assert session.node(added.id).line == 3


def test_a_torn_line_behind_a_whole_entry_is_cut_where_it_begins(path: Path) -> None:
    write(path, header(), line("a", None) + line("b", "a")[:20], end=b"")
    with opened(path) as session:
        assert found(session) == [(2, "torn-tail", True)]
        session.append(said("next"))
    with opened(path) as session:
        assert found(session) == []
        assert len(session) == 2


def test_a_tail_of_nul_bytes_is_reported_and_cut_like_a_torn_one(path: Path) -> None:
    write(path, header(), line("a", None), b"\0" * 500, end=b"")
    with opened(path) as session:
        assert found(session) == [(3, "nul-bytes", True)]
        session.append(said("next"))
    with opened(path) as session:
        assert found(session) == []
        assert len(session) == 2


def test_nul_bytes_before_an_entry_do_not_hide_it(path: Path) -> None:
    with opened(write(path, header(), b"\0" * 64 + line("a", None), b"\0" * 9, line("b", "a"))) as session:
        assert found(session) == [(2, "nul-bytes", False), (3, "nul-bytes", True)]
        assert ids_of(session) == ["a", "b"]


def test_nul_bytes_inside_an_entry_cost_that_entry_and_not_its_neighbour(path: Path) -> None:
    broken = line("a", None)[:30] + b"\0" * 40 + line("b", None)
    with opened(write(path, header(), broken, line("c", "b"))) as session:
        assert found(session) == [(2, "nul-bytes", False), (2, "not-json", True)]
        assert ids_of(session) == ["b", "c"]


@pytest.mark.parametrize("between", [b"", b" ", b"\t"])
def test_several_objects_on_one_line_are_all_loaded(path: Path, between: bytes) -> None:
    both = between.join((line("a", None), line("ü", "a"), line("c", "ü")))
    with opened(write(path, header(), both, line("d", "c"))) as session:
        assert found(session) == [(2, "several-objects", False)]
        assert ids_of(session) == ["a", "ü", "c", "d"]
        assert session.raw("c") == line("c", "ü")
        assert {node.line for node in session.nodes()} == {2, 3}


def test_the_header_may_share_its_line_with_an_entry(path: Path) -> None:
    with opened(write(path, header() + line("a", None), line("b", "a"))) as session:
        assert found(session) == [(1, "several-objects", False)]
        assert session.read_only is None
        assert ids_of(session) == ["a", "b"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\r"])
def test_other_line_separators_between_objects_are_reported_and_read(path: Path, separator: str) -> None:
    both = line("a", None) + separator.encode() + line("b", "a")
    with opened(write(path, header(), both)) as session:
        assert found(session) == [(2, "line-separator", False)]
        assert ids_of(session) == ["a", "b"]


def test_line_separators_inside_text_are_text(path: Path) -> None:
    text = "one\u2028two\u2029three\x85four"
    with opened(write(path, header(), line("a", None, message={"role": "user", "content": text}))) as session:
        assert found(session) == []
        assert session.entry("a").message.content == text  # type: ignore[union-attr]


def test_carriage_returns_at_line_ends_are_harmless(path: Path) -> None:
    write(path, header(), line("a", None), line("b", "a"))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with opened(path) as session:
        assert found(session) == []
        assert ids_of(session) == ["a", "b"]


def test_blank_lines_and_a_byte_order_mark_are_harmless(path: Path) -> None:
    with opened(write(path, b"\xef\xbb\xbf" + header(), b"", b"  ", line("a", None), b"")) as session:
        assert found(session) == []
        assert session.header.id == HEADER["id"]
        assert session.node("a").line == 4


def test_a_file_without_header_is_read_but_not_continued(path: Path) -> None:
    with opened(write(path, line("a", None), line("b", "a"))) as session:
        assert found(session) == [(1, "missing-header", False)]
        assert ids_of(session) == ["a", "b"]
        assert session.read_only is not None
        assert str(path) in session.read_only
        assert "Fork" in session.read_only
        with pytest.raises(SessionReadOnly):
            session.append(said("next"))


def test_a_header_behind_entries_describes_them_and_does_not_make_the_file_sound(path: Path) -> None:
    with opened(write(path, line("a", None), header(cwd="/elsewhere"), line("b", "a"))) as session:
        assert found(session) == [(1, "missing-header", False)]
        assert session.header.cwd == "/elsewhere"
        assert ids_of(session) == ["a", "b"]
        assert session.read_only is not None


def test_a_foreign_first_line_makes_the_file_read_only(path: Path) -> None:
    with opened(write(path, b'{"type":"summary","leafUuid":"x"}', line("a", None))) as session:
        assert found(session) == [(1, "foreign-header", False)]
        assert ids_of(session) == ["a"]
        assert session.read_only is not None


def test_a_second_header_is_reported_and_ignored(path: Path) -> None:
    with opened(write(path, header(), line("a", None), header(id="other"), line("b", "a"))) as session:
        assert found(session) == [(3, "second-header", False)]
        assert session.header.id == HEADER["id"]
        assert ids_of(session) == ["a", "b"]
        assert session.read_only is None


def test_a_newer_version_is_read_but_not_continued(path: Path) -> None:
    with opened(write(path, header(version=4), line("a", None))) as session:
        assert found(session) == [(1, "newer-version", False)]
        assert ids_of(session) == ["a"]
        assert session.read_only is not None
        assert "version 4" in session.read_only


def test_an_entry_whose_parent_is_missing_counts_as_a_root(path: Path) -> None:
    with opened(write(path, header(), line("a", None), line("b", "gone"), line("c", "b"))) as session:
        assert found(session) == [(3, "orphan", False)]
        assert [node.id for node in session.children(None)] == ["a", "b"]
        assert [node.id for node in session.branch().nodes] == ["b", "c"]


def test_a_parent_further_down_is_found(path: Path) -> None:
    with opened(write(path, header(), line("b", "a"), line("c", "b"), line("a", None))) as session:
        assert found(session) == []
        assert [node.id for node in session.branch("c").nodes] == ["a", "b", "c"]
        assert [node.depth for node in session.nodes()] == [1, 2, 0]


def test_both_entries_of_one_id_are_kept_and_children_belong_to_the_nearer(path: Path) -> None:
    lines = (line("a", None), line("b", "a"), line("a", "b", novel=1), line("c", "a"), line("a", "c"), line("d", "a"))
    with opened(write(path, header(), *lines)) as session:
        assert found(session) == [(4, "id-collision", False), (6, "id-collision", False)]
        assert ids_of(session) == ["a", "b", "a~2", "c", "a~3", "d"]
        assert [node.id for node in session.branch().nodes] == ["a", "b", "a~2", "c", "a~3", "d"]
        assert [node.parent_id for node in session.nodes()] == [None, "a", "b", "a~2", "c", "a~3"]
        assert session.entry("a~2").id == "a~2"
        assert session.raw("a~2") == line("a", "b", novel=1)


@pytest.mark.parametrize("target", ["a", "a~2", "a~3"])
def test_continuing_from_any_of_several_equal_ids_survives_a_reload(path: Path, target: str) -> None:
    lines = (line("a", None), line("b", "a"), line("a", "b"), line("a", "a"))
    with opened(write(path, header(), *lines)) as session:
        session.navigate(target)
        (added,) = session.append(said("next"))
        assert added.parent_id == session.branch().nodes[-2].id
        expected = [node.id for node in session.branch().nodes]
    with opened(path) as session:
        assert [node.id for node in session.branch().nodes] == expected
        assert target in expected


def test_the_newest_of_several_equal_ids_is_referred_to_by_the_plain_id(path: Path) -> None:
    with opened(write(path, header(), line("a", None), line("a", None))) as session:
        (added,) = session.append(said("next"))
        assert added.parent_id == "a~2"
        assert b'"parentId":"a"' in session.raw(added.id)


def test_links_to_one_of_several_equal_ids_mean_the_nearest_above(path: Path) -> None:
    edit = {"type": "context_edit", "targetId": "a", "replacement": None}
    lines = (line("a", None), line("e", "a", **edit), line("a", "e"), line("f", "a", **edit), line("a", "f"))
    with opened(write(path, header(), *lines)) as session:
        assert session.entry("e").target_id == "a"  # type: ignore[union-attr]
        assert session.entry("f").target_id == "a~2"  # type: ignore[union-attr]


def test_a_cycle_is_broken_at_its_first_entry(path: Path) -> None:
    with opened(write(path, header(), line("x", None), line("a", "c"), line("b", "a"), line("c", "b"))) as session:
        assert found(session) == [(3, "cycle", False)]
        assert [node.id for node in session.branch().nodes] == ["a", "b", "c"]


def test_an_entry_that_is_its_own_parent_counts_as_a_root(path: Path) -> None:
    with opened(write(path, header(), line("a", "a"), line("b", "a"))) as session:
        assert found(session) == [(2, "cycle", False)]
        assert [node.id for node in session.branch().nodes] == ["a", "b"]


def test_an_overlong_line_is_reported_and_read(path: Path, tmp_path: Path) -> None:
    text = "x" * (scan.LONG_LINE + 1)
    long = line("b", "a", message={"role": "user", "content": text})
    with opened(write(path, header(), line("a", None), long, line("c", "b"))) as session:
        assert found(session) == [(3, "overlong-line", False)]
        assert ids_of(session) == ["a", "b", "c"]
        assert session.entry("b").message.content == text  # type: ignore[union-attr]


def test_a_line_too_long_for_memory_is_skipped_and_the_rest_is_read() -> None:
    chunks = [header() + b"\n" + line("a", None) + b'\n{"x":"', *[b"y" * (1 << 20)] * 257, b'"}\n' + line("c", "a")]
    scanner = scan.Scanner()
    records = list(scanner.records(chunks))
    assert [record.head.id for record in records] == ["s", "a", "c"]
    assert [(p.line, p.kind, p.lost) for p in scanner.problems] == [(3, "overlong-line", True)]
    assert b"".join(chunks)[records[-1].offset :] == line("c", "a")
    assert records[-1].line == 4


def test_invalid_utf8_is_read_with_replacement(path: Path) -> None:
    bad = line("a", None).replace(b"text of a", b"text \xff\xfe")
    with opened(write(path, header(), bad, line("b", "a"))) as session:
        assert found(session) == [(2, "invalid-utf8", False)]
        assert session.entry("a").message.content == "text \ufffd\ufffd"  # type: ignore[union-attr]
        assert session.raw("a") == bad


def test_lone_surrogate_escapes_are_no_damage(path: Path) -> None:
    odd = line("a", None).replace(b"text of a", b"text \\ud83d")
    with opened(write(path, header(), odd, line("b", "a"))) as session:
        assert found(session) == []
        assert session.entry("a").message.content == "text \ufffd"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("junk", "kind"),
    [
        (b"not json at all", "not-json"),
        (b'{"type":"mess', "not-json"),
        (b"[1,2]", "not-an-object"),
        (b"7", "not-an-object"),
    ],
)
def test_unreadable_lines_are_reported_and_stay_in_the_file(path: Path, junk: bytes, kind: str) -> None:
    with opened(write(path, header(), line("a", None), junk, line("b", "a"))) as session:
        assert found(session) == [(3, kind, True)]
        assert ids_of(session) == ["a", "b"]
        session.append(said("next"))
    assert junk + b"\n" in path.read_bytes()


def test_an_entry_behind_a_torn_one_on_the_same_line_is_found(path: Path) -> None:
    call = {"type": "toolCall", "id": "nested", "name": "read", "arguments": {}}
    torn = line("b", "a", message={"role": "assistant", "content": [call, call]})[:-8]
    with opened(write(path, header(), line("a", None), torn + line("c", "a"))) as session:
        assert found(session) == [(3, "not-json", True)]
        assert ids_of(session) == ["a", "c"]


def test_entries_without_ids_get_ones_that_stay_the_same(path: Path) -> None:
    write(path, header(), line("a", None), line(None, None), line(None, None), line("d", "a"))
    with opened(path) as session:
        assert found(session) == [(3, "missing-id", False), (4, "missing-id", False)]
        first = ids_of(session)
        assert [node.parent_id for node in session.nodes()] == [None, "a", first[1], "a"]
        session.navigate(first[2])
        session.append(said("next"))
        expected = [node.id for node in session.branch().nodes]
    with opened(path) as session:
        assert [node.id for node in session.branch().nodes] == expected


def test_ids_of_other_types_are_read_as_text(path: Path) -> None:
    with opened(write(path, header(), line("a", None, id=7), line("b", "x", parentId=7))) as session:
        assert found(session) == []
        assert [node.id for node in session.branch().nodes] == ["7", "b"]


def test_an_entry_without_a_type_is_kept_as_unknown(path: Path) -> None:
    with opened(write(path, header(), b'{"id":"a","parentId":null}', line("b", "a"))) as session:
        assert found(session) == [(2, "invalid-entry", False)]
        assert isinstance(session.entry("a"), UnknownEntry)
        assert [node.id for node in session.branch().nodes] == ["a", "b"]


@pytest.mark.parametrize("content", [b"hello\nworld\n", b"\0" * 100, b'{"a":1}\n{"b":2}\n', b"\n", b"[]\n"])
def test_a_file_without_anything_of_a_session_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(SessionUnreadable, match="no session"):
        opened(path)
    assert path.read_bytes() == content
    with opened(write(path, header())) as session:  # the refused opening did not keep its lock
        assert session.read_only is None


def test_an_empty_file_becomes_a_new_session_in_place(path: Path) -> None:
    path.touch()
    with Session.open(path, clock=FakeClock(), ids=SequentialIds(), cwd="/project") as session:
        assert session.header.cwd == "/project"
        assert path.read_bytes() == b""
        session.append(said("first"))
    with opened(path) as session:
        assert session.header.cwd == "/project"
        assert (found(session), len(session)) == ([], 1)


def over(content: bytes) -> Session:
    new = new_header("s", 0, "/project", None)
    return Session.over(MemoryStore(content), new, clock=FakeClock(), ids=SequentialIds())


LINES = [header(), line("a", None), line("b\u2028ü", "a"), line("c", "b\u2028ü")]
WHOLE = b"".join(each + b"\n" for each in LINES)


@pytest.mark.parametrize("cut", range(len(LINES[0]) + 1, len(WHOLE) + 1))
def test_a_file_cut_at_any_byte_loses_only_the_entry_it_was_cut_in(cut: int) -> None:
    session = over(WHOLE[:cut])
    ends = [len(b"\n".join(LINES[: count + 1])) for count in range(len(LINES))]
    whole = sum(1 for end in ends if end <= cut) - 1
    assert ids_of(session) == ["a", "b\u2028ü", "c"][:whole]
    torn = cut not in ends and WHOLE[cut - 1 : cut] != b"\n"
    assert [problem.kind for problem in session.problems] == (["torn-tail"] if torn else [])
    before = ids_of(session)
    (added,) = session.append(said("next"))
    again = over(b"".join(session.chunks()))
    assert ids_of(again) == [*before, added.id]
    assert again.problems == ()


@settings(max_examples=200)
@given(st.data())
def test_no_bytes_make_opening_raise_anything_but_unreadable(data: st.DataObject) -> None:
    spoilt = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(spoilt)))
        length = data.draw(st.integers(0, 30))
        spoilt[at : at + length] = data.draw(
            st.binary(max_size=20) | st.sampled_from([b"\n", b"\0\0", b'"', b"{", b"}"])
        )
    try:
        session = over(bytes(spoilt))
    except SessionUnreadable:
        return
    for node in session.nodes():
        session.entry(node.id)
    depth = {node.id: node.depth for node in session.nodes()}
    assert len(depth) == len(session)
    assert all(node.depth == (depth[node.parent_id] + 1 if node.parent_id else 0) for node in session.nodes())


def test_checking_reports_without_touching_anything(path: Path) -> None:
    bad = line("b", "a", message={"role": "user", "content": {}, "timestamp": []}, type="label")
    write(path, header(), line("a", None), bad, line("c", "gone"), b'{"type":"me', end=b"")
    before, entries = path.read_bytes(), sorted(path.parent.iterdir())
    report = check(path)
    assert [(p.line, p.kind) for p in report.problems] == [(3, "invalid-entry"), (4, "orphan"), (5, "torn-tail")]
    assert (report.entries, report.branches, report.leaf, report.version) == (3, 2, "c", 3)
    assert (report.readable, report.exit_code) == (True, 1)
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == (before, entries)


def test_checking_tells_sound_and_unreadable_files_apart(path: Path) -> None:
    assert check(write(path, header(), line("a", None), line("b", "a", type="hologram"))).exit_code == 0
    path.write_bytes(b"")
    assert check(path).exit_code == 0
    path.write_bytes(b"junk\n")
    assert (check(path).exit_code, check(path).readable) == (2, False)


def test_checking_works_while_the_session_is_in_use(path: Path) -> None:
    with opened(write(path, header(), line("a", None))) as session:
        assert check(path).exit_code == 0
        session.append(said("next"))
    assert check(path).entries == 2
