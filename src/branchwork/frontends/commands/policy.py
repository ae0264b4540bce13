"""`branchwork policy`: what the rules say about a command, without running it."""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from branchwork.errors import UserError
from branchwork.frontends.console import Console
from branchwork.policy.verdicts import Judgement, SimpleCommand, Verdict

SUMMARY = "ask the policy about a shell command"

MEANINGS = {"A": "only reads", "B": "writes or escapes", "S": "cannot be seen through"}


class Question(Struct, frozen=True):
    """One line of `--jsonl`."""

    command: str
    cwd: str | None = None
    tmp: str | None = None
    home: str | None = None


class Answer(Struct, frozen=True):
    verdict: Verdict
    rule: str
    commands: tuple[SimpleCommand, ...]


class Report(Struct, frozen=True):
    """`--json`."""

    verdict: Verdict
    rule: str
    reason: str
    commands: tuple[SimpleCommand, ...]


class Failure(Struct, frozen=True):
    error: str


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    _configure_check(verbs.add_parser("check", help="rate a shell command: A, B or S", allow_abbrev=False))


def _configure_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", metavar="COMMAND", nargs="?", help="the text a shell would get")
    parser.add_argument("--cwd", metavar="DIR", help="where it would run (default: here)")
    parser.add_argument("--tmp", metavar="DIR", help="the scratch directory (default: TMPDIR or /tmp)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--jsonl", metavar="FILE", help="one question a line, - for standard input; one answer a line")


def run(args: argparse.Namespace, console: Console) -> int:
    verbs: dict[str, Callable[[argparse.Namespace, Console], int]] = {"check": _check}
    return verbs[args.verb](args, console)


def _check(args: argparse.Namespace, console: Console) -> int:
    if (args.command is None) == (args.jsonl is None):
        raise UserError("policy check takes either a COMMAND or --jsonl FILE", exit_code=2)
    cwd = str((console.cwd / args.cwd) if args.cwd else console.cwd)
    tmp = str(console.cwd / (args.tmp or console.env.get("TMPDIR") or "/tmp"))
    home = console.env.get("HOME")
    if args.jsonl is not None:
        with _lines(args.jsonl, console) as lines:
            return _stream(lines, Question("", cwd, tmp, home), console)
    found = _judged(Question(args.command, cwd, tmp, home))
    if args.json:
        report = Report(found.verdict, found.rule, found.reason, found.commands)
        console.print(msgspec.json.encode(_clean(report)).decode())
        return 0
    console.print(f"{found.verdict} ({MEANINGS[found.verdict]}), rule {found.rule}: {_shown(found.reason)}")
    for command in found.commands:
        words = " ".join(map(_shown, command.words)) or "(no words)"
        console.print(f"  {command.verdict}  {words}" + (f"  [{command.rule}]" if command.verdict != "A" else ""))
    return 0


def _judged(question: Question) -> Judgement:
    from branchwork.policy.shell import judge

    return judge(question.command, cwd=question.cwd or "/", tmp=question.tmp, home=question.home)


def _shown(word: str) -> str:
    """A word on one line of a terminal, without control characters."""
    return word if word.isprintable() else repr(word)


def _clean(value: Report | Answer) -> object:
    """Words may hold surrogates, which JSON cannot."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        commands = [
            {"words": [w.encode("utf-8", "replace").decode() for w in c.words], "verdict": c.verdict, "rule": c.rule}
            for c in value.commands
        ]
        return {**msgspec.structs.asdict(value), "commands": commands}
    return value


@contextmanager
def _lines(name: str, console: Console) -> Iterator[Iterable[str]]:
    if name == "-":
        yield console.stdin
        return
    try:
        file = (console.cwd / Path(name)).open(encoding="utf-8", errors="surrogateescape", newline="\n")
    except OSError as error:
        raise UserError(f"cannot read {name!r}: {os.strerror(error.errno or 0)}") from None
    with file:
        yield file


def _stream(lines: Iterable[str], defaults: Question, console: Console) -> int:
    """Answers keep the order of the questions; a bad line gets an error in its place and makes the exit code 1."""
    decoder = msgspec.json.Decoder(Question)
    encoder = msgspec.json.Encoder()
    code = 0
    for line in lines:
        answer: object
        try:
            asked = decoder.decode(line.encode("utf-8", "surrogateescape"))
        except (msgspec.DecodeError, UnicodeError) as error:
            answer, code = Failure(str(error)), 1
        else:
            found = _judged(
                Question(
                    asked.command,
                    asked.cwd if asked.cwd is not None else defaults.cwd,
                    asked.tmp if asked.tmp is not None else defaults.tmp,
                    asked.home if asked.home is not None else defaults.home,
                )
            )
            answer = _clean(Answer(found.verdict, found.rule, found.commands))
        console.out.write(encoder.encode(answer).decode() + "\n")
    console.out.flush()
    return code
