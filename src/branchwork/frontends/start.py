"""From parsed options to a run: which front end, which session, which prompt."""

import argparse
import asyncio
from pathlib import Path

from branchwork import __version__
from branchwork.agent.run import Limits
from branchwork.clock import RandomIds, SystemClock
from branchwork.errors import UserError
from branchwork.extensions import BUILTIN
from branchwork.frontends.console import Console
from branchwork.frontends.headless import run_headless
from branchwork.frontends.stray import stray_output
from branchwork.host.assembly import AgentRequest, SessionChoice, Surroundings
from branchwork.host.attachments import build_prompt
from branchwork.host.host import Front, Host
from branchwork.host.prompt_sections import PromptOptions


def start(args: argparse.Namespace, console: Console) -> int:
    """Run one prompt headless and return the exit code. Raises `UserError`."""
    if args.version:
        console.print(f"branchwork {__version__}")
        return 0
    piped = None if console.stdin.isatty() else console.stdin.read()
    interactive = piped is None and console.out.isatty()
    if interactive and not args.print:
        raise UserError("this version has no screen yet: use -p PROMPT (branchwork --help)", exit_code=2)
    cwd = working_folder(args.cwd, console)
    prompt = build_prompt(args.prompt, piped, cwd)
    world = Surroundings(
        home=console.home,
        cwd=cwd,
        cwd_given=args.cwd is not None,
        env=console.env,
        clock=SystemClock(),
        ids=RandomIds(),
    )
    limits = Limits(max_turns=args.max_turns, time_limit_s=args.time_limit)

    async def run() -> int:
        front = Front(name="print" if args.output == "text" else args.output, builtin=BUILTIN)
        host = await Host.open(agent_request(args, cwd), world, front)
        return await run_headless(host, prompt, console, form=args.output, limits=limits)

    with stray_output(console):
        return asyncio.run(run())


def working_folder(given: str | None, console: Console) -> Path:
    if given is None:
        return console.cwd
    path = (console.cwd / Path(given).expanduser()).absolute()
    if not path.is_dir():
        raise UserError(f"--cwd {given}: not a folder", exit_code=2)
    return path


def agent_request(args: argparse.Namespace, cwd: Path) -> AgentRequest:
    return AgentRequest(
        session=session_choice(args),
        model=args.model,
        api_key=args.api_key,
        thinking=args.thinking,
        tools=_names(args.tools),
        exclude_tools=_names(args.exclude_tools) or (),
        prompt=PromptOptions(
            replace=_text_or_file(args.system_prompt, cwd) if args.system_prompt is not None else None,
            append=tuple(_text_or_file(text, cwd) for text in args.append_system_prompt),
        ),
        read_context_files=not args.no_context_files,
        skill_paths=tuple(cwd / Path(path).expanduser() for path in args.skill),
        extension_paths=tuple(cwd / Path(path).expanduser() for path in args.extension),
        disabled=tuple(args.disable),
        extensions=not args.no_extensions,
        trust=args.trust,
        flags=tuple(args.flags),
    )


def session_choice(args: argparse.Namespace) -> SessionChoice:
    given = {
        "--continue": args.continue_,
        "--resume": args.resume is not None,
        "--fork": args.fork is not None,
        "--no-session": args.no_session,
    }
    chosen = [name for name, is_set in given.items() if is_set]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} exclude each other; give one", exit_code=2)
    if args.continue_:
        return SessionChoice(kind="continue", name=args.name)
    if args.resume is not None:
        return SessionChoice(kind="resume", target=args.resume, name=args.name)
    if args.fork is not None:
        return SessionChoice(kind="fork", target=args.fork, name=args.name)
    return SessionChoice(kind="none" if args.no_session else "new", name=args.name)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _text_or_file(value: str, cwd: Path) -> str:
    """The text itself, or what the file of that name holds."""
    path = cwd / Path(value).expanduser() if len(value) < 4096 and "\n" not in value else None
    try:
        if path is not None and path.is_file():
            return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text ({error})", exit_code=2) from None
    return value
