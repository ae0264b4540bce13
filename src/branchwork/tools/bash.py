"""The `bash` tool: one shell command, the end of its output, and how it ended."""

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from branchwork import data
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.tools.process import MAX_TIMEOUT, Launch, ProcessRun, Shown, run_process
from branchwork.tools.truncate import Truncation, format_size


class BashSettings(Struct, frozen=True, kw_only=True):
    """How commands are run."""

    shell: str | None = None
    """A program that takes `-c COMMAND`. None is the first `bash` on the PATH of the command, else `sh`."""
    prefix: str | None = None
    """Shell lines that run before every command, in the same shell."""
    wrap: Callable[[tuple[str, ...]], tuple[str, ...]] | None = None
    """Turns the argument list into the one that is run, e.g. inside a sandbox."""


class BashArgs(ToolArgs, frozen=True, kw_only=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="Shell command, may have several lines")]
    timeout: Annotated[float | None, Meta(description="Seconds after which the command is stopped")] = None


DEFAULT_SETTINGS = BashSettings()


def bash_tool(settings: BashSettings = DEFAULT_SETTINGS) -> Tool:
    """The tool. Its result's details are `exit_code`, `signal` (null unless one ended the shell), `timed_out`,
    `held_open`, `truncation`, `full_output_path` (null when everything is shown) and `wall_time_s`."""

    async def run(args: BashArgs, ctx: ToolContext) -> ToolOutput:
        return await _run(args, ctx, settings)

    return Tool(
        name="bash",
        description=data.text("tools/bash.md").strip(),
        args=BashArgs,
        run=run,
        effects=frozenset({Effect.EXECUTE}),
        command=lambda args: args.command,
        snippet="Run shell commands",
    )


def shell_argv(command: str, settings: BashSettings, env: Mapping[str, str]) -> tuple[str, ...]:
    """The argument list that runs `command` under the settings. Raises ToolError when there is no shell."""
    import shutil  # brings the compression modules along

    shell = settings.shell or shutil.which("bash", path=env.get("PATH")) or shutil.which("sh", path=env.get("PATH"))
    if shell is None:
        shell = next((path for path in ("/bin/bash", "/bin/sh") if Path(path).exists()), None)
    if shell is None:
        raise ToolError("No shell found: neither `bash` nor `sh` is on PATH or in /bin")
    argv = (shell, "-c", f"{settings.prefix}\n{command}" if settings.prefix else command)
    return settings.wrap(argv) if settings.wrap else argv


async def _run(args: BashArgs, ctx: ToolContext, settings: BashSettings) -> ToolOutput:
    _check(args, ctx)
    launch = Launch(
        argv=shell_argv(args.command, settings, ctx.env),
        cwd=ctx.cwd,
        env=ctx.env,
        scratch=ctx.scratch,
        timeout=args.timeout,
        name="bash",
    )

    def show(shown: Shown) -> None:
        ctx.progress(_progress(shown))

    try:
        run = await run_process(launch, show)
    except OSError as error:
        raise ToolError(_start_failure(error, launch)) from error
    except UnicodeEncodeError as error:
        raise ToolError(
            f"The command holds a character that cannot be passed on: {error.object[error.start]!a}"
        ) from error
    return _result(run, args)


def _check(args: BashArgs, ctx: ToolContext) -> None:
    if "\0" in args.command:
        raise ToolError("The command holds a NUL character, which no program can be given; write it as `\\0` in printf")
    if args.timeout is not None and not 0 < args.timeout <= MAX_TIMEOUT:
        raise ToolError(f"timeout must be above 0 and at most {MAX_TIMEOUT} seconds, not {args.timeout!r}")
    if not ctx.cwd.is_dir():
        raise ToolError(
            f"The working directory {str(ctx.cwd)!r} does not exist any more; create it again to run commands"
        )


def _start_failure(error: OSError, launch: Launch) -> str:
    if error.errno == errno.E2BIG:
        size = format_size(sum(len(arg.encode("utf-8", "surrogateescape")) for arg in launch.argv))
        return f"The command ({size}) is too long for the system; write it to a file and run that"
    reason = error.strerror or str(error)
    if error.filename == str(launch.cwd):
        return f"Cannot run commands in {str(launch.cwd)!r}: {reason}"
    return f"Cannot start {launch.argv[0]!r}: {reason}"


def _result(run: ProcessRun, args: BashArgs) -> ToolOutput:
    cut = _cut_notice(run.truncation, run.full_output, run.spill_error)
    notes = [cut] if cut else []
    if run.held_open:
        notes.append(
            "[A process that the command started still runs and holds its output, which nobody reads any more. "
            "Redirect the output of background processes to a file.]"
        )
    if run.timed_out:
        notes.append(f"Command timed out after {args.timeout:.10g} s and was stopped")
    elif run.signal:
        notes.append(f"Command was ended by {run.signal} (exit code {run.exit_code})")
    elif run.exit_code:
        notes.append(f"Command exited with code {run.exit_code}")
    details = {
        "exit_code": run.exit_code,
        "signal": run.signal,
        "timed_out": run.timed_out,
        "held_open": run.held_open,
        **_output_details(run.truncation, run.full_output),
        "wall_time_s": round(run.wall_time_s, 3),
    }
    failed = run.timed_out or run.exit_code != 0
    return text_output(_with_notes(run.output or "(no output)", notes), details=details, is_error=failed)


def _progress(shown: Shown) -> ToolOutput:
    """What a screen shows while the command runs, or what is left of a cancelled one."""
    cut = _cut_notice(shown.truncation, shown.full_output, shown.spill_error) if shown.final else None
    details = _output_details(shown.truncation, shown.full_output)
    return text_output(_with_notes(shown.text, [cut] if cut else []), details=details)


def _output_details(truncation: Truncation, full_output: Path | None) -> dict[str, Any]:
    return {
        "truncation": msgspec.to_builtins(truncation),
        "full_output_path": None if full_output is None else str(full_output),
    }


def _with_notes(text: str, notes: list[str]) -> str:
    return "\n\n".join([text.removesuffix("\n") if notes else text, *notes])


def _cut_notice(cut: Truncation, full_output: Path | None, spill_error: str | None) -> str | None:
    """Which part is shown and where the rest is; None when nothing is missing."""
    if not cut.truncated:
        return None
    if cut.partial:
        part = f"the last {format_size(cut.kept_bytes)} of line {cut.last_line}"
    else:
        part = f"lines {cut.first_line}-{cut.last_line} of {cut.total_lines}"
    part += f" ({format_size(cut.kept_bytes)} of {format_size(cut.total_bytes)})"
    if full_output is None:
        return f"[Showing {part}. The full output could not be saved: {spill_error}]"
    if spill_error is not None:
        return f"[Showing {part}. Only the beginning of the output could be saved, in {full_output}: {spill_error}]"
    if cut.partial:
        # A line of this length is beyond what `read` shows at once.
        how = f"cut parts out of it with `tail -c +START {full_output} | head -c COUNT`"
    else:
        how = "page through it with `read`, `offset` and `limit`"
    return f"[Showing {part}. Full output: {full_output} ({how})]"
