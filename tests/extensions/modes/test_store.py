"""Texts of plans: never changed, never lost while a session refers to them, whoever else writes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.extensions.modes.store import KEPT_S, MAX_BYTES, PlanStore, PlanUnavailable

OLD = time.time() - KEPT_S - 60


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "sessions" / "--p--").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def store(home: Path) -> PlanStore:
    return PlanStore(home)


def aged(store: PlanStore, text: str) -> str:
    stored = store.save(text)
    os.utime(stored.path, (OLD, OLD))
    return stored.id


# ---- saving and reading ---------------------------------------------------------------------------


def test_a_text_is_found_by_its_id_and_is_private(store: PlanStore) -> None:
    stored = store.save("# My Plan: à la carte!\n\ntext\n")
    assert store.read(stored.id) == "# My Plan: à la carte!\n\ntext\n"
    assert stored.id.startswith("my-plan-la-carte-")
    assert stored.path == store.folder / f"{stored.id}.md"
    assert stored.path.stat().st_mode & 0o777 == 0o600
    assert store.folder.stat().st_mode & 0o777 == 0o700


def test_one_text_has_one_id_and_another_text_another(store: PlanStore) -> None:
    assert store.save("# P\na") == store.save("# P\na")
    assert store.save("# P\nb") != store.save("# P\na")


@pytest.mark.parametrize(
    ("text", "why"), [("", "empty"), (" \n", "empty"), ("x" * (MAX_BYTES + 1), "262,144"), ("\ud800", "no text")]
)
def test_what_is_no_plan_is_not_saved(store: PlanStore, text: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        store.save(text)
    assert not store.folder.exists()


def test_the_longest_text_is_saved(store: PlanStore) -> None:
    text = "é" * (MAX_BYTES // 2)
    assert store.read(store.save(text).id) == text


def test_a_text_that_was_changed_by_hand_is_refused(store: PlanStore) -> None:
    stored = store.save("# P\na")
    stored.path.write_text("# P\nb")
    with pytest.raises(PlanUnavailable, match="changed"):
        store.read(stored.id)
    store.save("# P\na")
    assert store.read(stored.id) == "# P\na"


def test_a_link_in_place_of_a_text_is_not_followed(store: PlanStore, tmp_path: Path) -> None:
    stored = store.save("# P\na")
    secret = tmp_path / "secret"
    secret.write_text("# P\na")
    stored.path.unlink()
    stored.path.symlink_to(secret)
    with pytest.raises(PlanUnavailable):
        store.read(stored.id)
    store.save("# P\na")
    assert not stored.path.is_symlink()
    assert secret.read_text() == "# P\na"


def test_a_linked_folder_is_no_store(store: PlanStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    store.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="link"):
        store.save("# P")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("plan_id", "recorded"),
    [("../../etc/passwd", ""), ("x", "/etc/passwd"), ("x", "relative.md"), ("x", ""), ("", "."),
     ("x-0123456789abcdef", "/etc/passwd"),
     ("a/b-0123456789abcdef", ""), ("x", "{foreign}/s/../../secret.md"), ("x", "{foreign}/.s/x.md")],
)  # fmt: skip
def test_nothing_else_is_read_whatever_a_session_says(home: Path, plan_id: str, recorded: str) -> None:
    foreign = home / "foreign"
    (foreign / ".s").mkdir(parents=True)
    (foreign / ".s" / "x.md").write_text("secret")
    (home / "secret.md").write_text("secret")
    with pytest.raises(PlanUnavailable):
        PlanStore(home, [foreign]).read(plan_id, recorded.replace("{foreign}", str(foreign)))


def test_plans_of_the_npm_package_are_read_from_their_place(home: Path) -> None:
    folder = home / "foreign" / "session-1"
    folder.mkdir(parents=True)
    (folder / "plan-1.md").write_text("# Old plan")
    assert PlanStore(home, [home / "foreign"]).read("plan-1", str(folder / "plan-1.md")) == "# Old plan"


WRITER = """
import sys
from pathlib import Path
from branchwork.extensions.modes.store import PlanStore
store = PlanStore(Path(sys.argv[1]))
for number in range(5):
    store.save("# Shared\\n" + "x" * 20000)
    store.save(f"# Own {sys.argv[2]} {number}\\n")
    print(store.read(store.save("# Shared\\n" + "x" * 20000).id)[:8])
    store.collect(keep=(), now_s=0.0)
"""


@pytest.mark.slow
def test_twenty_processes_save_at_once_and_nothing_is_torn(home: Path, store: PlanStore) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(home), str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(20)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    assert set("".join(outputs).splitlines()) == {"# Shared"}
    bodies = sorted(store.folder.glob("*.md"))
    assert len(bodies) == 101
    assert all(store.read(path.stem) for path in bodies)
    assert not list(store.folder.glob(".*.tmp"))


# ---- collecting -----------------------------------------------------------------------------------


def collect(store: PlanStore, **options: object) -> tuple[list[str], str | None]:
    done = store.collect(keep=options.pop("keep", ()), now_s=time.time(), **options)  # type: ignore[arg-type]
    return [path.stem for path in done.deleted], done.stopped


def test_old_texts_that_nobody_mentions_go_and_the_rest_stays(home: Path, store: PlanStore) -> None:
    gone, kept, in_use = aged(store, "# Gone"), aged(store, "# Kept"), aged(store, "# In use")
    young = store.save("# Young").id
    pinned = store.save("# Pinned", pinned=True)
    os.utime(pinned.path, (OLD, OLD))
    (store.folder / "notes.md").write_text("not ours")
    os.utime(store.folder / "notes.md", (OLD, OLD))
    (home / "sessions" / "--p--" / "s.jsonl").write_text(f'{{"planId":"{kept}"}}\n')
    assert collect(store, keep=[in_use]) == ([gone], None)
    assert {path.stem for path in store.folder.glob("*.md")} == {kept, in_use, young, pinned.id, "notes"}


@pytest.mark.parametrize("name", ["--p--/a.jsonl", "--p--/deep/er/b.jsonl", "loose", "--other--/c.jsonl.bak"])
def test_a_mention_in_any_file_below_sessions_counts(home: Path, store: PlanStore, name: str) -> None:
    plan = aged(store, "# P")
    path = home / "sessions" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\xff{torn" + b"x" * ((1 << 20) - 40) + plan.encode() + b'"}')
    assert collect(store) == ([], None)


def test_a_mention_across_two_pieces_of_a_file_counts(home: Path, store: PlanStore) -> None:
    plan = aged(store, "# P")
    for cut in range(1, len(plan)):
        path = home / "sessions" / "s.jsonl"
        path.write_bytes(b"x" * ((1 << 20) - cut) + plan.encode())
        assert collect(store) == ([], None), cut


def test_nothing_goes_while_a_session_cannot_be_read(home: Path, store: PlanStore) -> None:
    aged(store, "# P")
    (home / "sessions" / "--p--" / "s.jsonl").symlink_to(home / "nowhere")
    deleted, stopped = collect(store)
    assert deleted == []
    assert stopped is not None
    assert "s.jsonl" in stopped


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_nothing_goes_while_a_folder_cannot_be_read(home: Path, store: PlanStore) -> None:
    aged(store, "# P")
    (home / "sessions" / "--p--").chmod(0)
    try:
        assert collect(store)[0] == []
    finally:
        (home / "sessions" / "--p--").chmod(0o700)


def test_nothing_goes_while_the_folder_of_sessions_is_none(home: Path, store: PlanStore) -> None:
    plan = aged(store, "# P")
    (home / "sessions" / "--p--").rmdir()
    (home / "sessions").rmdir()
    (home / "sessions").write_text("what is this?")
    deleted, stopped = collect(store)
    assert deleted == []
    assert stopped is not None
    (home / "sessions").unlink()
    assert collect(store) == ([plan], None)


def test_folders_that_link_to_each_other_are_searched_once(home: Path, store: PlanStore) -> None:
    plan = aged(store, "# P")
    (home / "sessions" / "--p--" / "round").symlink_to(home / "sessions")
    assert collect(store) == ([plan], None)


def test_sessions_behind_a_link_are_searched(home: Path, store: PlanStore, tmp_path: Path) -> None:
    plan = aged(store, "# P")
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "s.jsonl").write_text(plan)
    (home / "sessions" / "linked").symlink_to(tmp_path / "disk")
    assert collect(store) == ([], None)


def test_an_interrupted_search_deletes_nothing(home: Path, store: PlanStore) -> None:
    aged(store, "# P")
    (home / "sessions" / "s.jsonl").write_text("x")
    deleted, stopped = collect(store, stop=lambda: True)
    assert (deleted, stopped) == ([], "it was interrupted")


def test_reading_a_plan_keeps_it(store: PlanStore) -> None:
    plan = aged(store, "# P")
    store.read(plan)
    assert collect(store) == ([], None)


def test_a_plan_that_is_saved_anew_during_the_search_stays(home: Path, store: PlanStore) -> None:
    plan = aged(store, "# P")
    (home / "sessions" / "s.jsonl").write_text("x")

    def save_meanwhile() -> bool:
        store.save("# P")
        return False

    assert collect(store, stop=save_meanwhile) == ([], None)
    assert store.read(plan) == "# P"


def test_what_a_crash_left_is_cleared_after_a_day(store: PlanStore) -> None:
    store.save("# P")
    for name, age in ((".a.md.1.tmp", 2), (".b.md.2.tmp", 0)):
        path = store.folder / name
        path.write_text("half")
        os.utime(path, (time.time() - age * 86_400,) * 2)
    collect(store)
    assert [path.name for path in store.folder.glob(".*.tmp")] == [".b.md.2.tmp"]
