"""`-p`: one prompt, three forms of output, an exit code that means something."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import msgspec

from branchwork.agent.agent import SessionAgent
from branchwork.agent.events import AgentEvent, Diagnosed, RetryScheduled, RunFinished
from branchwork.agent.run import Limits
from branchwork.frontends.console import Console
from branchwork.frontends.outcome import DONE, ERROR, INTERRUPTED, LastReply, outcome_of, result_object
from branchwork.host.attachments import Prompt
from branchwork.host.host import Host
from branchwork.session.codec import encode_object

OutputForm: TypeAlias = Literal["text", "json", "stream-json"]
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_headless(host: Host, prompt: Prompt, console: Console, *, form: OutputForm, limits: Limits) -> int:
    """Submit `prompt` and print in the given form; the exit code of the command line.

    The first SIGINT, SIGTERM or SIGHUP aborts the run, which saves the session; a second one ends at once.
    """
    reply = LastReply()
    host.subscribe(reply)
    host.subscribe(_diagnostics(console))
    if form == "stream-json":
        host.subscribe(json_lines(console))
    try:
        with ending_signals(lambda: host.agent.abort()):
            await host.start()
            submitted = await host.submit(prompt.text, prompt.images, source="program", limits=limits)
        if submitted.finished is None:
            return _said(host, submitted.say, console, form)
        return _report(host.agent, submitted.finished, reply.text, console, form)
    except BrokenPipeError:
        return _reader_gone(console)
    finally:
        await host.aclose()


def _said(host: Host, text: str | None, console: Console, form: OutputForm) -> int:
    """A command was run instead of the model."""
    if form == "text" and text:
        console.print(text)
    elif form != "text":
        path = host.agent.session.path
        answer = {
            "kind": "command_answered",
            "result": text,
            "session_id": host.agent.session.header.id,
            "session_file": str(path) if path else None,
        }
        console.print(encode_object(answer).decode())
    console.out.flush()
    return DONE


def _report(agent: SessionAgent, finished: RunFinished, text: str, console: Console, form: OutputForm) -> int:
    outcome = outcome_of(finished, text, model_failed=agent.failure is not None)
    if form == "json":
        console.print(encode_object(result_object(agent, finished, text)).decode())
    elif form == "text" and text:
        console.print(text)
    if outcome.complaint:
        console.warn(outcome.complaint)
    console.out.flush()
    return outcome.code


def json_lines(console: Console) -> Callable[[AgentEvent], None]:
    """A subscriber that writes one event a line and waits for a slow reader."""
    encoder = msgspec.json.Encoder()

    def write(event: AgentEvent) -> None:
        try:
            line = encoder.encode(event)
        except UnicodeEncodeError:  # half of a character in some tool's output
            line = encode_object(msgspec.to_builtins(event))
        console.out.write(line.decode() + "\n")
        console.out.flush()

    return write


def _diagnostics(console: Console) -> Callable[[AgentEvent], None]:
    def show(event: AgentEvent) -> None:
        if isinstance(event, Diagnosed) and event.level != "info":
            console.warn(f"{event.source}: {event.message}")
        elif isinstance(event, RetryScheduled):
            console.warn(f"{event.error}; trying again in {event.delay_s:g} s ({event.attempt}/{event.max_attempts})")

    return show


@contextmanager
def ending_signals(abort: Callable[[], None]) -> Iterator[None]:
    """Within the block the first ending signal calls `abort`, the second ends the process with 130."""
    loop = asyncio.get_running_loop()
    received = 0

    def handle() -> None:
        nonlocal received
        received += 1
        if received > 1:
            import os

            os._exit(INTERRUPTED)
        abort()

    for number in ENDING_SIGNALS:
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in ENDING_SIGNALS:
            loop.remove_signal_handler(number)


def _reader_gone(console: Console) -> int:
    """Standard output was closed: the interpreter must not complain about it again at exit."""
    import os

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, console.out.fileno())
    os.close(null)
    return ERROR
