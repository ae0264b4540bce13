"""What the API registers reaches the model, the person and other extensions."""

from collections.abc import Sequence
from typing import Any

import pytest

from branchwork.cli import _parser
from branchwork.errors import UserError
from branchwork.host import points
from branchwork.host.bus import Note, Request
from branchwork.host.context import ExtensionContext
from branchwork.host.extension import ExtensionAPI
from branchwork.host.registry import OWN_FLAGS, OWN_SECTIONS, Completion
from branchwork.models.scripted import calls, says
from branchwork.session.entries import CustomMessageEntry, SystemMessage
from tests.host.workshop import Workshop, echo, say


async def test_sections_stand_in_their_order_and_are_stored_once_while_contexts_are_not_stored(
    workshop: Workshop,
) -> None:
    def extension(api: ExtensionAPI) -> None:
        api.add_section("late", lambda _: "Late section.", order=900)
        api.add_section("early", lambda _: "Early section.", order=100)
        api.add_section("empty", lambda _: None)
        api.add_context(lambda ctx: f"Turn {len(ctx.tree.branch().nodes)}.")

    workshop.add("talker", extension)
    host = await workshop.open([calls("ls"), says("x")])
    await host.submit("go")
    system = workshop.model.seen[-1].system
    assert system.index("Early section.") < system.index("Late section.")
    assert [len(seen.messages) for seen in workshop.model.seen] == [2, 4]
    assert "Turn" in repr(workshop.model.seen[0].messages[-1])
    assert not any(isinstance(entry, CustomMessageEntry) for entry in host.tree.branch().entries())
    entries = host.tree.branch().entries()
    assert sum(isinstance(getattr(entry, "message", None), SystemMessage) for entry in entries) == 1


async def test_a_section_that_changes_is_patched(workshop: Workshop) -> None:
    texts = ["Be merry.", "Be grave."]
    workshop.add("talker", lambda api: api.add_section("mood", lambda _: texts[0]))
    host = await workshop.open([says("x"), says("y")])
    await host.submit("go")
    texts.pop(0)
    await host.submit("go")
    assert "Be grave." in workshop.model.seen[-1].system
    assert "Be merry." not in workshop.model.seen[-1].system


class Sum(Request[int], frozen=True):
    numbers: tuple[int, ...]


class Summed(Note, frozen=True):
    total: int


async def test_extensions_ask_and_tell_each_other_over_the_bus(workshop: Workshop) -> None:
    heard: list[int] = []

    async def add(arguments: str, ctx: ExtensionContext) -> str:
        total = await ctx.bus.request(Sum(tuple(map(int, arguments.split()))))
        ctx.bus.publish(Summed(total))
        return str(total)

    workshop.add("adder", lambda api: api.serve(Sum, lambda request: sum(request.numbers)))
    workshop.add("caller", lambda api: api.add_command("sum", add, description="Add"))
    workshop.add("listener", lambda api: api.subscribe(Summed, lambda note: heard.append(note.total)))
    workshop.add("second", lambda api: api.serve(Sum, lambda request: 0))
    host = await workshop.open()
    assert await say(host, "/sum 1 2 3") == "6"
    assert heard == [6]
    assert "adder does already" in workshop.told("second")[0]


async def test_completions_offer_names_and_then_what_the_command_offers(workshop: Workshop) -> None:
    async def go(arguments: str, ctx: Any) -> None:
        return None

    def complete(prefix: str, ctx: ExtensionContext) -> Sequence[Completion]:
        return [Completion(word) for word in ("left", "right") if word.startswith(prefix)]

    workshop.add("walker", lambda api: api.add_command("go", go, description="Go", complete=complete))
    host = await workshop.open()
    assert Completion("go", "Go") in host.completions("/g")
    assert host.completions("/go r") == (Completion("right"),)
    assert host.completions("/unknown x") == host.completions("go") == host.completions("/new x") == ()


async def test_renderers_and_shortcuts_wait_for_front_ends_that_can_use_them(workshop: Workshop) -> None:
    async def press(ctx: ExtensionContext) -> None:
        ctx.send("pressed")

    def extension(api: ExtensionAPI) -> None:
        api.add_renderer("note", lambda entry: [f"note: {entry.data}"])
        api.add_shortcut("Ctrl+N", press, description="Note")

    workshop.add("painter", extension)
    host = await workshop.open()
    renderer = host.registry.renderers.get("note")
    shortcut = host.registry.shortcuts.get("ctrl+n")
    assert renderer is not None
    assert shortcut is not None
    assert renderer.render(host.tree.entry(host.tree.record("note", 5))) == ["note: 5"]
    assert host.registry.renderers.owner("note") == "painter"


async def test_a_context_knows_its_surroundings(workshop: Workshop) -> None:
    found: dict[str, Any] = {}

    async def look(arguments: str, ctx: ExtensionContext) -> None:
        for name in ("owner", "home", "cwd", "front_end", "trusted", "running", "thinking", "tools"):
            found[name] = getattr(ctx, name)
        found["model"] = ctx.model.ref
        found["size"] = ctx.size.exact
        found["resources"] = ctx.resources.templates
        found["setting"] = ctx.settings.repeat_stop

    workshop.add("looker", lambda api: api.add_command("look", look, description="Look"))
    host = await workshop.open(front="library")
    await host.submit("/look")
    assert found.pop("tools") == tuple(tool.name for tool in host.agent.tools)
    assert found == {
        "owner": "looker", "home": workshop.home, "cwd": workshop.project, "front_end": "library", "trusted": False,
        "running": False, "thinking": "off", "model": "scripted/demo", "size": False, "resources": (), "setting": 12,
    }  # fmt: skip


async def test_a_request_on_the_side_is_no_part_of_the_conversation(workshop: Workshop) -> None:
    async def title(arguments: str, ctx: ExtensionContext) -> str:
        return (await ctx.complete("Give a title.", "A talk about hens.")).text

    workshop.add("titler", lambda api: api.add_command("title", title, description="Title"))
    host = await workshop.open([says("Hens"), says("x")])
    assert await say(host, "/title") == "Hens"
    await host.submit("go")
    assert "hens" not in workshop.asked()


async def test_a_limit_takes_away_and_a_registered_one_is_listed(workshop: Workshop) -> None:
    workshop.add("guard", lambda api: api.add_limit(lambda ctx: None))
    host = await workshop.open()
    assert host.registry.shelves()["limits"].names_of("guard") == ("guard",)


def test_the_programs_own_options_are_the_ones_an_extension_cannot_have() -> None:
    words = {word for action in _parser()._actions for word in action.option_strings if word.startswith("--")}
    handed_on = {"mode", "readonly"}  # written with a space too, but flags of built-in extensions
    assert {word.removeprefix("--") for word in words} - handed_on == OWN_FLAGS


async def test_the_programs_own_sections_are_the_ones_an_extension_cannot_have(workshop: Workshop) -> None:
    (workshop.project / "AGENTS.md").write_text("Use tabs.")
    skill = workshop.home / "skills" / "sew"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: sew\ndescription: Sews.\n---\nSew.")
    host = await workshop.open([says("x")])
    await host.submit("go")
    used = set(host.agent.context.projection.prompt.sections)
    assert used <= OWN_SECTIONS
    assert OWN_SECTIONS - used <= {"addendum"}


async def test_a_hook_can_have_a_budget_of_its_own_and_a_wrong_one_is_refused(workshop: Workshop) -> None:
    for name, budget in (("zero", 0), ("endless", float("inf")), ("nan", float("nan"))):

        def extension(api: ExtensionAPI, budget: float = budget) -> None:
            api.observe(points.SETTLED, lambda *_: None, budget=budget)

        workshop.add(name, extension)
    host = await workshop.open()
    assert [loaded.state for loaded in host.extensions if loaded.source == "user"] == ["failed"] * 3


async def test_a_tool_of_an_extension_is_listed_for_the_model_and_can_be_left_out(workshop: Workshop) -> None:
    workshop.add("parrot", lambda api: api.add_tool(echo))
    host = await workshop.open([says("x")])
    await host.submit("go")
    assert "- echo: Say it again." in workshop.model.seen[0].system
    host = await workshop.open([says("x")], exclude_tools=("echo",))
    await host.submit("go")
    assert "echo" not in [spec.name for spec in workshop.model.seen[0].tools]
    with pytest.raises(UserError, match="unknown tool ecko"):
        await workshop.open(tools=("ecko",))
