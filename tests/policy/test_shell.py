"""Shell verdicts: the shared table, hostile commands, plain reading, and input meant to break the reader."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from branchwork.policy.shell import MAX_BYTES, judge
from branchwork.policy.verdicts import Judgement

DATA = Path(__file__).parent / "data"
BOUND = 0.5
"""Seconds of CPU time for the worst input."""


def verdict(command: str, cwd: str = "/w") -> Judgement:
    return judge(command, cwd=cwd, tmp="/tmp", home="/home/u")


def table() -> list[tuple[str, str, str]]:
    rows = [line.split("\t") for line in (DATA / "verdicts.tsv").read_text("utf-8").rstrip("\n").split("\n")[1:]]
    return [("/home/u" if cwd == "~" else cwd, want, command.replace("⏎", "\n")) for _, cwd, want, command in rows]


def listed(name: str) -> list[str]:
    lines = (DATA / name).read_text("utf-8").split("\n")
    return [line.replace("⏎", "\n") for line in lines if line and not line.startswith("# ")]


def test_every_row_of_the_shared_table_has_the_wanted_verdict() -> None:
    rows = table()
    assert len(rows) == 468
    wrong = [(want, verdict(command, cwd).verdict, command) for cwd, want, command in rows]
    assert [row for row in wrong if row[0] != row[1]] == []


def test_no_hostile_command_is_called_harmless() -> None:
    commands = listed("hostile.txt")
    assert len(commands) > 1000
    assert [command for command in commands if verdict(command).verdict == "A"] == []


def test_plain_reading_is_not_refused() -> None:
    commands = listed("reading.txt")
    assert len(commands) > 300
    assert [command for command in commands if verdict(command).verdict != "A"] == []


# ---- what a judgement says ----


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("echo x > a", "redirect-writes"),
        ("sort -o a b", "sort-option-o"),
        ("sort --out=a b", "sort-option-output"),
        ("rm a", "rm-writes"),
        ("git push", "git-push"),
        ("LD_PRELOAD=x ls", "environment-injection"),
        ("$X a", "dynamic-command"),
        ("echo 'x", "syntax-error"),
        ("ls", "reads"),
    ],
)
def test_the_rule_is_a_stable_name_of_what_was_found(command: str, rule: str) -> None:
    assert verdict(command).rule == rule


def test_each_simple_command_is_listed_with_its_own_verdict() -> None:
    found = verdict("ls 'a b' | sort; sudo sh -c 'rm x'")
    assert [(c.words, c.verdict) for c in found.commands] == [
        (("ls", "a b"), "A"),
        (("sort",), "A"),
        (("sudo", "sh", "-c", "rm x"), "A"),
        (("rm", "x"), "B"),
    ]


def test_the_reason_is_one_line_that_names_the_place() -> None:
    reason = verdict("echo x > 'a\nb'").reason
    assert "\n" not in reason
    assert "a\\nb" in reason


def test_without_a_scratch_directory_nothing_may_be_written() -> None:
    assert judge("touch /tmp/x", cwd="/w", tmp=None, home=None).verdict == "B"
    assert judge("rm $(mktemp)", cwd="/w", tmp=None, home=None).verdict == "B"


def test_known_environment_variables_are_followed() -> None:
    known = {"OUT": "/tmp/x", "FILE": "/w/x"}
    assert judge("echo > $OUT", cwd="/w", tmp="/tmp", home=None, env=known).verdict == "A"
    assert judge("echo > ${FILE:-/tmp/x}", cwd="/w", tmp="/tmp", home=None, env=known).verdict == "B"


def test_the_scratch_directory_is_the_one_given() -> None:
    assert judge("touch /tmp/x", cwd="/w", tmp="/scratch/s1", home=None).verdict == "B"
    assert judge("touch /scratch/s1/x", cwd="/w", tmp="/scratch/s1/", home=None).verdict == "A"
    assert judge("touch /scratch/s12", cwd="/w", tmp="/scratch/s1", home=None).verdict == "B"


def test_judging_looks_at_no_file(tmp_path: Path) -> None:
    """A link is judged by its name: only the sandbox knows where it leads."""
    (tmp_path / "out").symlink_to("/etc")
    before = {path: path.lstat().st_atime_ns for path in tmp_path.iterdir()}
    assert judge("touch out/x", cwd=str(tmp_path), tmp=str(tmp_path), home=None).verdict == "A"
    assert {path: path.lstat().st_atime_ns for path in tmp_path.iterdir()} == before


# ---- input meant to break the reader ----

NESTED = {
    "parentheses": ("(", "ls", ")"),
    "braces": ("{ ", "ls;", "}"),
    "substitutions": ("$(", "ls", ")"),
    "quoted substitutions": ('"$(echo ', "a", ')"'),
    "conditions": ("if true; then ", "ls;", " fi;"),
    "defaults": ("${x:-", "a", "}"),
    "functions": ("f() { ", "ls;", "};"),
    "arithmetic": ("$((1+", "1", "))"),
    "scripts": ("bash -c '", "ls", "'"),
    "wrappers": ("sudo ", "ls", ""),
    "evaluations": ("eval ", "ls", ""),
}


def bounded(command: str) -> Judgement:
    started = time.process_time()
    found = verdict(command)
    assert time.process_time() - started < BOUND
    return found


@pytest.mark.parametrize("kind", NESTED)
def test_a_thousand_levels_are_never_called_harmless(kind: str) -> None:
    opening, middle, closing = NESTED[kind]
    assert bounded(f"{opening * 1000}{middle}{closing * 1000}").verdict != "A"


@pytest.mark.parametrize(
    "command",
    [
        "a " * 500_000,
        "echo '" + "x" * 1_000_000,
        "ls\0; rm a",
        "ls \udcff\udcfe",
        "ls \ud800",
        "\0",
        "echo 'unfinished",
        'echo "unfinished',
        "echo $(unfinished",
        "echo `unfinished",
        "cat <<EOF",
        "ls\u00a0#; rm a",
        "ls\r#; rm a",
        "l\ue000s",
        "ls;" * 20_000,
        "<<" * 20_000,
        "<<a\n" * 12_000,
        "if x; then " * 4000,
        "`" * MAX_BYTES,
        "(" * MAX_BYTES,
        "x=a;" + "x=$x$x;" * 60 + "rm $x",
        "for a in 1 2 3 4 5 6 7 8; do " * 8 + "ls /;" + "done;" * 8,
        "echo {a,b}" + "{a,b}" * 200 + " > x",
    ],
    ids=range(23),
)
def test_bad_input_gets_a_verdict_in_bounded_time(command: str) -> None:
    assert bounded(command).verdict != "A"


PIECES = [*"ab $(){}[]<>|&;'\"`\\\n#=!*?~-0", "<<", "$((", "${", "\0", "\udc80", "if ", "rm "]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_gets_a_verdict(text: str) -> None:
    assert verdict(text).verdict in "ABS"


# ---- what must not change a verdict ----

WRITERS = [command for _, want, command in table() if want == "B" and "\n" not in command and "<<" not in command]
AROUND = [
    "{}; ls",
    "ls; {}",
    "ls && {}",
    "ls || {}",
    "true | {}",
    "({})",
    "{{ {}; }}",
    "if true; then {}; fi",
    "! {}",
    "for i in 1; do {}; done",
    "while read l; do {}; done",
    "case x in x) {};; esac",
    "f() {{ {}; }}; f",
    "echo $({})",
    'echo "$({})"',
    "cat <({})",
    "X=$({})",
    "{} &",
    "ls\n{}\nls",
    "ls # c\n{}",
    "{} # c",
    "cat <<E\n$({})\nE",
    "cat <<'E'\nx\nE\n{}",
    "until {}; do ls; done",
    "a=(1 $({}))",
    "[[ -n $({}) ]]",
    "export Y=$({})",
]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(WRITERS), st.lists(st.sampled_from(AROUND), min_size=1, max_size=3))
def test_a_write_stays_one_inside_harmless_code(command: str, around: list[str]) -> None:
    for frame in around:
        command = frame.format(command)
    assert verdict(command).verdict != "A", command


PLAIN_WRITERS = [
    "rm a.txt",
    "touch x",
    "git push origin main",
    "sed -i p a.txt",
    "sort -o x y",
    "sudo rm a",
    "npm install x",
]


def spelled(word: str, how: int) -> str:
    """The same word for the shell."""
    middle = len(word) // 2
    return [
        word,
        f"'{word}'",
        f'"{word}"',
        f"\\{word}",
        f"{word[:middle]}''{word[middle:]}",
        f'{word[:middle]}"{word[middle:]}"',
        "$'" + "".join(f"\\x{ord(char):02x}" for char in word) + "'",
        "$'" + "".join(f"\\{ord(char):03o}" for char in word) + "'",
        f"{word[:middle]}\\\n{word[middle:]}",
    ][how]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(PLAIN_WRITERS),
    st.lists(st.integers(0, 8), min_size=5, max_size=5),
    st.sampled_from(["", "/bin/", "/usr/bin/"]),
)
def test_quotes_and_the_path_of_a_program_change_nothing(command: str, ways: list[int], folder: str) -> None:
    words = command.split()
    words[0] = folder + words[0]
    text = " ".join(spelled(word, how) for word, how in zip(words, ways, strict=False))
    assert verdict(text).verdict == "B", text


WRAPPERS = [
    "sudo {}",
    "env {}",
    "env A=b {}",
    "nohup {}",
    "nice -n 5 {}",
    "timeout 5 {}",
    "timeout -k 1 5 {}",
    "stdbuf -oL {}",
    "setsid {}",
    "command {}",
    "exec {}",
    "time {}",
    "xargs {}",
    "busybox {}",
    "bash -c '{}'",
    "eval '{}'",
    "env -S '{}'",
    "trap '{}' EXIT",
    "su -c '{}'",
    "watch '{}'",
    "find . -exec {} \\;",
    "flock /tmp/l {}",
    "ionice -c 3 {}",
    "coproc {}",
    "strace {}",
    "echo '{}' | sh",
    "sh <<< '{}'",
    "parallel '{}' ::: 1",
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLAIN_WRITERS), st.lists(st.sampled_from(WRAPPERS), min_size=1, max_size=3))
def test_a_write_behind_wrappers_stays_one(command: str, wrappers: list[str]) -> None:
    for frame in wrappers:
        if "'" in frame and "'" in command:
            continue
        command = frame.format(command)
    assert verdict(command).verdict != "A", command


@pytest.mark.slow
def test_five_thousand_verdicts_a_second() -> None:
    rows = table()
    started = time.process_time()
    for _ in range(5):
        for cwd, _want, command in rows:
            verdict(command, cwd)
    speed = 5 * len(rows) / (time.process_time() - started)
    assert speed > (5000 if "CI" not in os.environ else 2500)
