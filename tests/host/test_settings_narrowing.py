"""Whatever a project writes, nothing becomes possible that the person's own settings do not allow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from branchwork.host.settings import Layer, Settings
from branchwork.host.settings_schema import CoreSettings, Layering, Setting, settings_of


class Fence(Struct, frozen=True, kw_only=True):
    """A table with every way of narrowing."""

    tools: Annotated[tuple[str, ...] | None, Layering.INTERSECT] = None
    hosts: Annotated[tuple[str, ...], Layering.INTERSECT] = ("a",)
    refused: Annotated[tuple[str, ...], Layering.UNION] = ()
    read_only: Annotated[bool, Layering.TRUE_WINS] = False
    network: Annotated[bool, Layering.FALSE_WINS] = True
    children: Annotated[int, Layering.SMALLEST] = 3
    writes: Annotated[Literal["refuse", "rehearse", "free"], Layering.FIRST_WINS] = "rehearse"
    key_command: Annotated[str | None, Layering.USER_ONLY] = None


WORDS = ("a", "b", "c", "d")
NAMES = (*WORDS, "", "aa", "ab", "ba", "bb")
"""All there are; `WORDS` are those that come up often."""
ORDER = ("refuse", "rehearse", "free")


def allowed(key: str, setting: Setting, value: Any) -> set[Any]:
    """What may be done under this value of the setting."""
    match setting.layering:
        case Layering.INTERSECT:
            return set(NAMES) if value is None else set(value)
        case Layering.UNION:
            return set(NAMES) - set(value)
        case Layering.TRUE_WINS:
            return set() if value else {key}
        case Layering.FALSE_WINS:
            return {key} if value else set()
        case Layering.SMALLEST:
            return set(range(value))
        case Layering.FIRST_WINS:
            return set(ORDER[: ORDER.index(value) + 1])
        case _:
            return {value}


LISTS = st.lists(st.sampled_from(WORDS), unique=True)
RUBBISH: st.SearchStrategy[Any] = st.one_of(
    st.integers(-3, 3), st.text("ab", max_size=2), st.booleans(), st.lists(st.integers()), st.just({})
)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "tools": LISTS,
    "hosts": LISTS,
    "refused": LISTS,
    "read_only": st.booleans(),
    "network": st.booleans(),
    "children": st.integers(0, 6),
    "writes": st.sampled_from(ORDER),
    "key_command": st.sampled_from(WORDS),
    "allow": LISTS,
    "exclude": LISTS,
    "disabled": LISTS,
}


def tables(kind: type[Struct]) -> st.SearchStrategy[dict[str, Any]]:
    keys = [key for key, setting in settings_of(kind).items() if setting.layering.narrows]
    return st.fixed_dictionaries({}, optional={key: VALUES[key] | RUBBISH for key in keys})


def value_of(kind: type[Struct], name: str, *raws: dict[str, Any]) -> Struct:
    names: tuple[Literal["user", "project"], ...] = ("user", "project")
    layers = tuple(
        Layer(layer, Path(layer), tomlkit.dumps({"fence": raw}), {"fence": raw}, Path("/home/me"))
        for layer, raw in zip(names, raws, strict=False)
    )
    return Settings(layers=layers).table(name, kind).value


SAFETY_TABLES = [Fence] + [
    setting.table
    for setting in settings_of(CoreSettings).values()
    if setting.table and any(inner.layering.narrows for inner in settings_of(setting.table).values())
]


@pytest.mark.parametrize("kind", SAFETY_TABLES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_project_never_widens_what_the_person_allows(kind: type[Struct], data: st.DataObject) -> None:
    user, project = data.draw(tables(kind)), data.draw(tables(kind))
    own, merged = value_of(kind, "fence", user), value_of(kind, "fence", user, project)
    for key, setting in settings_of(kind).items():
        if setting.layering.narrows:
            before, after = (allowed(key, setting, getattr(each, key)) for each in (own, merged))
            assert after <= before, key


@given(user=st.fixed_dictionaries({key: VALUES[key] for key in Fence.__struct_fields__}), data=st.data())
def test_a_project_gets_the_narrower_value_it_asks_for(user: dict[str, Any], data: st.DataObject) -> None:
    project = data.draw(st.fixed_dictionaries({key: VALUES[key] for key in Fence.__struct_fields__}))
    merged = value_of(Fence, "fence", user, project)
    for key, setting in settings_of(Fence).items():
        if setting.layering is not Layering.USER_ONLY:
            wanted = allowed(key, setting, project[key]) & allowed(key, setting, user[key])
            assert allowed(key, setting, getattr(merged, key)) == wanted, key


def test_the_tables_of_this_program_are_among_those_checked() -> None:
    assert {kind.__name__ for kind in SAFETY_TABLES} == {"Fence", "ToolSettings", "ExtensionSettings"}
