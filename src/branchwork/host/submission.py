"""From what was typed to what the model is asked: commands, hooks, skills, templates, in this order."""

import re
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from branchwork.agent.events import RunFinished
from branchwork.errors import UserError
from branchwork.host.budget import contained, run_within
from branchwork.host.hooks import BUDGET_S
from branchwork.host.points import Handled, Input, InputContext, InputSource
from branchwork.host.registry import Completion
from branchwork.host.skills import expand_skill
from branchwork.host.templates import expand_template
from branchwork.session.entries import Image

if TYPE_CHECKING:
    from branchwork.host.host import Host

COMMAND = re.compile(r"/([a-z][a-z0-9_-]*(?::[a-z0-9_-]+)?)(?:\s+(.*))?\Z", re.DOTALL)
"""A path such as `/etc/hosts` is no command: its name is followed by a slash."""


class Submitted(Struct, frozen=True, kw_only=True):
    """What became of an input."""

    kind: Literal["ran", "queued", "handled", "ready"]
    say: str | None = None
    """For the person: a command's answer."""
    finished: RunFinished | None = None
    prompt: Input | None = None
    """`ready`: what the model is to be asked."""


async def prepare(host: "Host", text: str, images: tuple[Image, ...], source: InputSource) -> Submitted:
    """Run a command, or get a prompt ready. Raises `UserError` for a command that does not exist or fails."""
    said = await _command(host, text.strip())
    if said is not None:
        return said
    running = host.agent.activity != "idle"
    value: Input | Handled = Input(text=text, images=images)
    payload = InputContext(source=source, running=running)
    value = await host.transform_input(payload, value)
    if isinstance(value, Handled):
        return Submitted(kind="handled", say=value.say)
    return Submitted(kind="ready", prompt=Input(text=_expanded(host, value.text), images=value.images))


async def _command(host: "Host", text: str) -> Submitted | None:
    match = COMMAND.match(text)
    if match is None:
        return None
    name, arguments = match.group(1), match.group(2) or ""
    command = host.registry.commands.get(name)
    if command is None:
        if _is_resource(host, name):
            return None
        raise UserError(f"no command /{name}{_nearest(host, name)}; /help lists them", exit_code=2)
    if host.agent.activity != "idle" and not command.while_running:
        raise UserError(f"/{name} must wait until the run is over: abort it, or wait")
    owner = host.registry.commands.owner(name) or "an extension"
    try:
        said = await contained(command.handler, arguments, host.command_context(owner))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"/{name} of {owner} failed: {type(error).__name__}: {error}") from error
    if said is not None and not isinstance(said, str):
        raise UserError(f"/{name} of {owner} failed: it returned {type(said).__name__} instead of text")
    return Submitted(kind="handled", say=said)


def completions(host: "Host", text: str) -> tuple[Completion, ...]:
    """How a command line may go on: names after `/`, then what the command itself offers. `value` is what takes the
    place of the word after the slash, or of the arguments."""
    name, space, arguments = text.removeprefix("/").partition(" ")
    if not text.startswith("/"):
        return ()
    if not space:
        offered = [Completion(command.name, command.description) for command in host.commands()]
        offered += [Completion(template.name, template.description) for template in host.resources.templates]
        offered += [Completion(f"skill:{skill.name}", skill.description) for skill in host.resources.skills]
        return tuple(sorted((each for each in offered if each.value.startswith(name)), key=lambda each: each.value))
    command = host.registry.commands.get(name)
    if command is None or command.complete is None:
        return ()
    owner = host.registry.commands.owner(name) or "an extension"
    try:
        found = tuple(run_within(BUDGET_S, command.complete, arguments.lstrip(), host.context_for(owner)))
        if not all(isinstance(each, Completion) for each in found):
            raise TypeError("something in it is no Completion")
    except Exception as error:  # noqa: BLE001 - boundary: an extension's code
        host.note("warning", owner, f"completion of /{name} failed: {type(error).__name__}: {error}")
        return ()
    return found


def _is_resource(host: "Host", name: str) -> bool:
    kind, _, skill = name.partition(":")
    if kind == "skill" and skill:
        return host.resources.skill(skill) is not None
    return host.resources.template(name) is not None


def _expanded(host: "Host", text: str) -> str:
    match = COMMAND.match(text.strip())
    if match is None:
        return text
    name, arguments = match.group(1), match.group(2) or ""
    kind, _, skill_name = name.partition(":")
    skill = host.resources.skill(skill_name) if kind == "skill" else None
    if skill is not None:
        return expand_skill(skill, arguments)
    template = host.resources.template(name)
    return expand_template(template, arguments) if template is not None else text


def _nearest(host: "Host", name: str) -> str:
    import difflib

    names = [command.name for command in host.registry.commands.values()]
    names += [template.name for template in host.resources.templates]
    names += [f"skill:{skill.name}" for skill in host.resources.skills]
    near = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean /{near[0]}?)" if near else ""
