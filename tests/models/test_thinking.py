"""Thinking levels fit the model they are asked of."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchwork.models.base import THINKING_LEVELS, ModelInfo
from branchwork.models.thinking import ANSWER_TOKENS, BUDGETS, budget, clamp, is_level
from branchwork.session.entries import ThinkingLevel

LEVELS = st.sampled_from(THINKING_LEVELS)
SUPPORTED = st.sets(st.sampled_from(THINKING_LEVELS[1:])).map(tuple)


def model(*levels: ThinkingLevel) -> ModelInfo:
    return ModelInfo(provider="p", id="m", api="openai-chat", thinking=levels)


def test_a_supported_level_stays() -> None:
    assert clamp("medium", model("low", "medium", "high")) == "medium"


def test_the_next_higher_level_comes_before_the_next_lower() -> None:
    assert clamp("medium", model("low", "xhigh", "max")) == "xhigh"
    assert clamp("max", model("low", "medium")) == "medium"
    assert clamp("minimal", model("high", "low")) == "low"


def test_off_is_never_raised_and_models_without_thinking_stay_off() -> None:
    assert clamp("off", model("high")) == "off"
    assert clamp("max", model()) == "off"


@given(LEVELS, SUPPORTED)
def test_the_result_is_always_supported_and_no_supported_level_is_closer_above(
    level: ThinkingLevel, supported: tuple[ThinkingLevel, ...]
) -> None:
    got = clamp(level, model(*supported))
    assert got == "off" or got in supported
    if level != "off" and supported:
        assert got != "off"
        between = THINKING_LEVELS[THINKING_LEVELS.index(level) : THINKING_LEVELS.index(got)]
        assert not set(between) & set(supported)


def test_every_level_but_off_has_a_budget_and_they_grow() -> None:
    assert list(BUDGETS) == [level for level in get_args(ThinkingLevel) if level != "off"]
    assert [BUDGETS[level] for level in THINKING_LEVELS[1:5]] == [1024, 2048, 8192, 16384]
    assert list(BUDGETS.values()) == sorted(BUDGETS.values())


@given(LEVELS, st.integers(1, 200_000))
def test_a_budget_leaves_room_for_the_answer_or_is_nothing(level: ThinkingLevel, max_tokens: int) -> None:
    tokens = budget(level, max_tokens)
    assert tokens == 0 or (tokens >= 1024 and max_tokens - tokens >= ANSWER_TOKENS)
    assert (tokens > 0) == (level != "off" and max_tokens >= 2048)


@pytest.mark.parametrize(("text", "expected"), [("high", True), ("off", True), ("8b", False), ("", False)])
def test_levels_are_told_from_other_words(text: str, expected: bool) -> None:
    assert is_level(text) is expected
