"""Agent definitions: `agents/NAME.md`, a role that a part of the work can be given to.

Only found and read here: which keys a role has, and whether they make sense, is for the part that runs it.
"""

from collections.abc import Iterable

from branchwork.host.places import Place
from branchwork.host.problems import Problem
from branchwork.host.templates import Definition, describe, keep_first, read_folder


class AgentFile(Definition, frozen=True, kw_only=True):
    pass


def find_agents(where: Iterable[Place]) -> tuple[tuple[AgentFile, ...], tuple[Problem, ...]]:
    """By name; the first of a name wins. Folders are not searched further down. Nothing in them raises."""
    problems: list[Problem] = []
    found: dict[str, AgentFile] = {}
    for read in read_folder(where, "agent", problems):
        given = read.head.metadata.get("name")
        agent = AgentFile(
            name=given.strip() if isinstance(given, str) and given.strip() else read.path.stem,
            description=describe(read.head),
            path=read.path,
            source=read.source,
            metadata=read.head.metadata,
        )
        keep_first(found, agent, "agent", problems)
    return tuple(sorted(found.values(), key=lambda each: each.name)), tuple(problems)
