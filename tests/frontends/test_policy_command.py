"""`branchwork policy check`: what it prints for people and for programs."""

import argparse
import io
import json
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.frontends.commands import policy
from branchwork.frontends.console import Console


def run(tmp_path: Path, *argv: str, stdin: str = "") -> tuple[int, str]:
    parser = argparse.ArgumentParser()
    policy.configure(parser)
    out = io.StringIO()
    console = Console(
        out=out, err=io.StringIO(), stdin=io.StringIO(stdin), env={"HOME": "/home/u"}, cwd=Path("/w"), home=tmp_path
    )
    return policy.run(parser.parse_args(argv), console), out.getvalue()


def test_a_person_sees_verdict_rule_and_the_commands(tmp_path: Path) -> None:
    code, out = run(tmp_path, "check", "ls | tee a")
    assert code == 0
    first, *rest = out.splitlines()
    assert first.startswith("B (writes or escapes), rule tee-writes: ")
    assert rest == ["  A  ls", "  B  tee a  [tee-writes]"]


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    _, out = run(tmp_path, "check", "echo $'\\e[2J' > \x1b[31m")
    assert "\x1b" not in out


def test_json_is_one_document(tmp_path: Path) -> None:
    _, out = run(tmp_path, "check", "--json", "rm a")
    found = json.loads(out)
    assert (found["verdict"], found["rule"]) == ("B", "rm-writes")
    assert found["commands"] == [{"words": ["rm", "a"], "verdict": "B", "rule": "rm-writes"}]


def test_the_directories_are_those_asked_for(tmp_path: Path) -> None:
    assert json.loads(run(tmp_path, "check", "--json", "--cwd", "/tmp/a", "touch x")[1])["verdict"] == "A"
    assert json.loads(run(tmp_path, "check", "--json", "--tmp", "/s", "touch /tmp/x")[1])["verdict"] == "B"


def test_lines_are_answered_in_their_order_and_bad_ones_in_place(tmp_path: Path) -> None:
    lines = [
        '{"command": "ls"}',
        "not json",
        '{"command": 5}',
        '{"command": "touch x", "cwd": "/s/a", "tmp": "/s", "home": "/h"}',
        '{"command": "echo \\ud83d \\u0000"}',
        "",
        '{"command": "python3 -c 1"}',
    ]
    code, out = run(tmp_path, "check", "--jsonl", "-", stdin="".join(line + "\n" for line in lines))
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer.get("verdict", "error") for answer in answers] == ["A", "error", "error", "A", "error", "error", "S"]
    assert set(answers[0]) == {"verdict", "rule", "commands"}
    assert set(answers[1]) == {"error"}
    assert code == 1


def test_a_file_of_lines_is_read(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_bytes(b'{"command": "ls"}\n{"command": "rm \xff"}\n{"command": "rm a"}\n')
    code, out = run(tmp_path, "check", "--jsonl", str(file))
    assert [json.loads(line).get("verdict") for line in out.splitlines()] == ["A", None, "B"]
    assert code == 1


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        run(tmp_path, "check", "--jsonl", str(tmp_path / "none"))


@pytest.mark.parametrize("argv", [["check"], ["check", "ls", "--jsonl", "-"]])
def test_either_a_command_or_lines(tmp_path: Path, argv: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        run(tmp_path, *argv)
    assert caught.value.exit_code == 2
