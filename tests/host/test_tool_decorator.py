"""`@tool`: from an async function to a tool, with a clear error when something is missing."""

from dataclasses import dataclass
from typing import Any

import pytest

from branchwork.agent.toolset import Effect, ToolArgs, ToolContext, ToolOutput, text_output
from branchwork.host.extension import ExtensionAPI
from branchwork.host.tool_decorator import tool
from branchwork.models.scripted import calls, says
from tests.host.workshop import EchoArgs, Workshop, texts


@dataclass
class Plain:
    text: str
    times: int = 1


async def run(workshop: Workshop, made: Any, *script: Any) -> list[str]:
    workshop.add("one", lambda api: api.add_tool(made))
    host = await workshop.open([*script, says("done")])
    finished = (await host.submit("go")).finished
    assert finished is not None
    assert finished.end == "done"
    return texts(host)


def test_name_description_snippet_and_effects_come_from_the_function() -> None:
    @tool(effects={Effect.WRITE}, guidelines=["Use shout sparingly."], sequential=True)
    async def shout(args: EchoArgs, ctx: ToolContext) -> str:
        """Say it loud.

        Louder than that.
        """
        return args.text.upper()

    assert (shout.name, shout.snippet) == ("shout", "Say it loud.")
    assert shout.description.endswith("Louder than that.")
    assert shout.effects == frozenset({Effect.WRITE})
    assert (shout.guidelines, shout.sequential) == (("Use shout sparingly.",), True)
    assert shout.spec.parameters["required"] == ["text"]


async def test_a_dataclass_serves_as_arguments(workshop: Workshop) -> None:
    @tool(effects=())
    async def plain(args: Plain, ctx: ToolContext) -> str:
        """Say it."""
        return " ".join([args.text] * args.times)

    said = await run(workshop, plain, calls("plain", text="a", times="2") + calls("plain", times=3))
    assert said[0] == "a a"
    assert said[1].startswith("Invalid arguments for plain")
    assert "times" in plain.spec.parameters["properties"]


async def test_text_none_and_outputs_are_results_and_anything_else_is_an_error(workshop: Workshop) -> None:
    answers: dict[str, Any] = {"text": "said", "none": None, "output": text_output("out"), "number": 5}

    @tool(effects=())
    async def answer(args: EchoArgs, ctx: ToolContext) -> Any:
        """Answer."""
        return answers[args.text]

    steps = [calls("answer", text=name) for name in answers]
    assert await run(workshop, answer, *steps) == [
        "said",
        "Done.",
        "out",
        "answer failed: TypeError: returned int instead of text or ToolOutput",
    ]


async def test_arguments_that_make_an_extensions_code_fail_refuse_the_call_only(workshop: Workshop) -> None:
    class Sharp:
        """Quacks like a pydantic model, and cuts."""

        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return {"type": "object"}

        @classmethod
        def model_validate(cls, arguments: Any) -> Any:
            raise ZeroDivisionError("sharp")

    @tool(effects=())
    async def cut(args: Sharp, ctx: ToolContext) -> ToolOutput:
        """Cut."""
        raise AssertionError

    (said,) = await run(workshop, cut, calls("cut"))
    assert "ZeroDivisionError: sharp" in said


def test_what_is_missing_is_named_when_the_tool_is_made() -> None:
    async def silent(args: EchoArgs, ctx: ToolContext) -> str:
        return ""

    def blocking(args: EchoArgs, ctx: ToolContext) -> str:
        """Block."""
        return ""

    async def bare(args, ctx):  # type: ignore[no-untyped-def] # what an author may write
        """Bare."""

    async def lonely(args: EchoArgs) -> str:
        """Lonely."""
        return ""

    for function, why in (
        (silent, "'silent' needs a docstring"),
        (blocking, "'blocking' must be an async function"),
        (bare, "'bare' must take"),
        (lonely, "'lonely' must take"),
    ):
        with pytest.raises(TypeError, match=why):
            tool(effects=())(function)  # type: ignore[arg-type] # on purpose


async def test_only_tools_can_be_added(workshop: Workshop) -> None:
    def extension(api: ExtensionAPI) -> None:
        api.add_tool(print)  # type: ignore[arg-type] # on purpose

    workshop.add("one", extension)
    host = await workshop.open()
    assert "add_tool takes a Tool (see @tool), not builtin_function_or_method" in (host.extensions[0].reason or "")


class Nothing(ToolArgs, frozen=True):
    pass


async def test_a_tool_without_arguments_needs_none(workshop: Workshop) -> None:
    @tool(effects=())
    async def ping(args: Nothing, ctx: ToolContext) -> str:
        """Ping."""
        return "pong"

    assert await run(workshop, ping, calls("ping")) == ["pong"]
