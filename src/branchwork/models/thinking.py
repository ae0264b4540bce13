"""Thinking levels: fitting a wish to a model, and token budgets for servers that count in tokens."""

from branchwork.models.base import THINKING_LEVELS, ModelInfo
from branchwork.session.entries import ThinkingLevel

BUDGETS: dict[ThinkingLevel, int] = {
    "minimal": 1_024,
    "low": 2_048,
    "medium": 8_192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 65_536,
}
"""Thinking tokens per level, for servers that take a budget in place of a level."""

ANSWER_TOKENS = 1_024
"""What a budget leaves for the answer at least; also the smallest budget that servers accept."""


def is_level(text: str) -> bool:
    return text in THINKING_LEVELS


def clamp(level: ThinkingLevel, info: ModelInfo) -> ThinkingLevel:
    """The supported level closest to `level`: itself, else the next higher, else the next lower.

    `off` stays `off`, and is all that a model without thinking has.
    """
    if level == "off" or not info.thinking:
        return "off"
    wanted = THINKING_LEVELS.index(level)
    higher = [each for each in THINKING_LEVELS[wanted:] if each in info.thinking]
    if higher:
        return higher[0]
    lower = [each for each in THINKING_LEVELS[1:wanted] if each in info.thinking]
    return lower[-1] if lower else "off"


def budget(level: ThinkingLevel, max_tokens: int) -> int:
    """Thinking tokens out of `max_tokens` for `level`; 0 means that there is no room, or no wish, to think."""
    if level == "off":
        return 0
    allowed = min(BUDGETS[level], max_tokens - ANSWER_TOKENS)
    return allowed if allowed >= ANSWER_TOKENS else 0
