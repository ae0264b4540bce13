"""The command line. Reads the words, imports only what they ask for, ends with one line when it must."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from typing import NoReturn

    from branchwork.frontends.console import Console

COMMANDS = ("auth", "demo", "doctor", "export", "extensions", "models", "policy", "sessions", "trust")
"""Each is a module of `branchwork.frontends.commands`."""

YOUNG_OBJECTS = 150_000
"""Objects that make the cyclic garbage collector look for garbage (Python's own figure is 700).

Starting makes 50,000 and resuming a session of 20,000 entries as many again, all of them to stay: looking at them
again and again takes as long as reading them. What reference counting leaves behind is little here (tracebacks,
finished tasks).
"""

LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


def run() -> "NoReturn":
    """The program as a process: `main`, and then out at once.

    What was registered for the end has its turn and the streams are flushed; only the freeing of each object of a
    long session, which takes longer than starting did, is left to the system.
    """
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # a reader that is gone, or a stream that was closed: the usual way out knows both
        sys.exit(code)
    import atexit
    import os

    atexit._run_exitfuncs()
    os._exit(code)


def main(argv: list[str] | None = None) -> int:
    """Run the program with `argv` (default: the process's own) and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--version"], ["-V"]):
        from branchwork import __version__

        sys.stdout.write(f"branchwork {__version__}\n")
        return 0
    _tune_collector()
    from branchwork.errors import UserError
    from branchwork.frontends.console import system_console

    console = system_console()
    try:
        if words and words[0] in COMMANDS:
            return _command(words[0], words[1:], console)
        return _main(words, console)
    except UserError as error:
        if "--debug" in words:
            raise
        console.warn(str(error))
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if "--debug" in words:
            raise
        console.warn(f"internal error: {type(error).__name__}: {error} (run again with --debug for the traceback)")
        return 1


def _tune_collector() -> None:
    import atexit
    import gc

    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
    atexit.register(gc.freeze)  # else Python's end searches for garbage in memory that the system takes back anyway


def _command(name: str, words: list[str], console: "Console") -> int:
    import argparse
    import importlib

    module = importlib.import_module(f"branchwork.frontends.commands.{name}")
    parser = argparse.ArgumentParser(prog=f"branchwork {name}", description=module.SUMMARY, allow_abbrev=False)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    module.configure(parser)
    code: int = module.run(parser.parse_args(words), console)
    return code


def _main(words: list[str], console: "Console") -> int:
    from branchwork.errors import UserError

    args, rest = _parser().parse_known_intermixed_args(words)
    args.flags = [word for word in rest if word.startswith("--")]
    if args.mode is not None:
        args.flags.append(f"--mode={args.mode}")
    if args.readonly:
        args.flags.append("--readonly")
    unknown = [word for word in rest if not word.startswith("--")]
    if unknown:
        raise UserError(f"unknown option {unknown[0]} (branchwork --help)", exit_code=2)
    from branchwork.frontends.start import start

    return start(args, console)


def _parser() -> "argparse.ArgumentParser":
    import argparse

    parser = argparse.ArgumentParser(
        prog="branchwork",
        description="A terminal coding agent that keeps you in charge.",
        epilog=f"Commands: {', '.join(COMMANDS)} (branchwork COMMAND --help).",
        allow_abbrev=False,
    )
    parser.add_argument("prompt", nargs="*", metavar="PROMPT", help="what to do; @FILE attaches a file or an image")
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    parser.add_argument("-p", "--print", action="store_true", help="answer on standard output and exit")
    output = parser.add_argument_group("output")
    output.add_argument("--output", choices=("text", "json", "stream-json"), default="text")
    output.add_argument("--debug", action="store_true", help="show tracebacks")
    model = parser.add_argument_group("model")
    model.add_argument("--model", metavar="PROVIDER/ID[:LEVEL]")
    model.add_argument("--thinking", choices=LEVELS)
    model.add_argument("--api-key", metavar="KEY", help="for this run only; others can read it in the process list")
    session = parser.add_argument_group("session")
    session.add_argument("-c", "--continue", dest="continue_", action="store_true", help="go on with the latest one")
    session.add_argument("-r", "--resume", metavar="ID|PATH", help="go on with this one")
    session.add_argument("--fork", metavar="ID|PATH", help="copy its branch into a new session and go on there")
    session.add_argument("--no-session", action="store_true", help="keep nothing")
    session.add_argument("-n", "--name", help="name the session")
    tools = parser.add_argument_group("tools and limits")
    tools.add_argument("--tools", metavar="A,B", help="only these tools (an empty list: none)")
    tools.add_argument("--exclude-tools", metavar="A,B", help="all but these tools")
    tools.add_argument("--mode", metavar="off|discuss|plan|build|review|design", help="begin in this workflow mode")
    tools.add_argument("--readonly", action="store_true", help="nothing of the project may be changed")
    tools.add_argument("--cwd", metavar="DIR", help="work in this folder")
    tools.add_argument("--max-turns", type=_positive_int, metavar="N")
    tools.add_argument("--time-limit", type=_positive_float, metavar="SECONDS")
    extend = parser.add_argument_group("extensions and project")
    extend.add_argument("-e", "--extension", metavar="PATH", action="append", default=[], help="load this one too")
    extend.add_argument("--no-extensions", action="store_true", help="load none but those of -e")
    extend.add_argument("--disable", metavar="NAME", action="append", default=[], help="do not load this extension")
    extend.add_argument("--skill", metavar="PATH", action="append", default=[], help="offer this skill too")
    extend.add_argument("--trust", action="store_true", default=None, help="load what the project brings, this time")
    extend.add_argument("--no-trust", dest="trust", action="store_false", help="do not load it, this time")
    prompt = parser.add_argument_group("prompt")
    prompt.add_argument("--system-prompt", metavar="TEXT|FILE", help="instead of the built-in preamble")
    prompt.add_argument("--append-system-prompt", metavar="TEXT|FILE", action="append", default=[])
    prompt.add_argument("--no-context-files", action="store_true", help="do not read AGENTS.md and its relatives")
    return parser


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


_positive_int.__name__ = "positive number"
_positive_float.__name__ = "positive number"


if __name__ == "__main__":
    run()
