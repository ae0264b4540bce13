"""docs/events.md says what the types say."""

from pathlib import Path
from typing import get_args

from branchwork.agent import events
from branchwork.agent.events_doc import render

PAGE = Path(__file__).parents[2] / "docs" / "events.md"


def test_the_page_is_the_one_that_the_types_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m branchwork.agent.events_doc > docs/events.md"


def test_every_event_is_described_and_has_a_tag_of_its_own() -> None:
    kinds = get_args(events.AgentEvent)
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags)
    assert all(kind.__doc__ for kind in kinds)
    declared = {
        value for value in vars(events).values() if isinstance(value, type) and issubclass(value, events._Event)
    }
    assert declared - {events._Event} == set(kinds)
