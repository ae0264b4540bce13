"""Notes about a branch that is left: what the summarising model reads. Pure; the agent sends and stores."""

from branchwork import data
from branchwork.agent.compaction import bounded, conversation_text, summary_request
from branchwork.models.base import ModelRequest
from branchwork.session.entries import Message
from branchwork.session.projection import message_of
from branchwork.session.tree import Session


def left_behind(session: Session, target: str | None, *, window: int, instructions: str | None) -> ModelRequest | None:
    """The request for notes about what the current branch holds beyond its common part with `target`.

    None when it holds no messages there. The end of the branch matters most: of a text longer than `window`
    tokens the middle is left out.
    """
    branch = session.branch()
    common = branch.common_ancestor(session.branch(target))
    shared = 0 if common is None else next(n for n, node in enumerate(branch.nodes, 1) if node.id == common)
    messages: list[Message] = []
    for node in branch.nodes[shared:]:
        message = message_of(session.entry(node.id))
        if message is not None:
            messages.append(message)
    text = conversation_text(messages)
    if not text:
        return None
    system = data.text("prompts/branch_summary.md")
    if instructions:
        system += f"\n\nThe person adds: {instructions}"
    body = bounded(text, window)
    return summary_request(system, f"<conversation>\n{body}\n</conversation>", session.header.id)
