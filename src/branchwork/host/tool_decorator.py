"""`@tool`: from an async function to a `Tool`."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, get_type_hints

import msgspec

from branchwork.agent.toolset import (
    Effect,
    Tool,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolRun,
    inline_schema,
    text_output,
)
from branchwork.session.entries import JSONObject

ToolFunction = Callable[[Any, ToolContext], Awaitable[Any]]


def tool(
    *,
    effects: Iterable[Effect],
    name: str | None = None,
    snippet: str | None = None,
    guidelines: Iterable[str] = (),
    touches: Callable[[Any], tuple[str, ...]] | None = None,
    sequential: bool = False,
) -> Callable[[ToolFunction], Tool]:
    """Make a tool of `async def f(args: Args, ctx: ToolContext) -> str | ToolOutput`.

    The name is the function's, the description its docstring, the parameters those of `Args`: a
    `msgspec.Struct` (best a `ToolArgs`), a dataclass or a pydantic model. `effects` says what running it can
    do; an empty one says: nothing outside the session. Raises TypeError when something is missing.
    """

    def build(function: ToolFunction) -> Tool:
        called = name or function.__name__
        description = inspect.getdoc(function)
        if not description:
            raise TypeError(f"tool {called!r} needs a docstring: the model reads it")
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"tool {called!r} must be an async function")
        args = _args_type(function, called)
        return Tool(
            name=called,
            description=description,
            args=args,
            run=_runner(function),
            effects=frozenset(effects),
            sequential=sequential,
            snippet=snippet or description.splitlines()[0],
            guidelines=tuple(guidelines),
            touches=touches,
            schema=_schema(args),
            convert=_converter(args),
        )

    return build


def _args_type(function: ToolFunction, called: str) -> type[Any]:
    parameters = list(inspect.signature(function).parameters)
    hints = get_type_hints(function)
    annotation = hints.get(parameters[0]) if len(parameters) == 2 else None
    if not isinstance(annotation, type):
        raise TypeError(f"tool {called!r} must take (args: SomeStruct, ctx: ToolContext), both annotated")
    return annotation


def _runner(function: ToolFunction) -> ToolRun[Any]:
    async def run(args: Any, ctx: ToolContext) -> ToolOutput:
        result = await function(args, ctx)
        if isinstance(result, ToolOutput):
            return result
        if result is None or isinstance(result, str):
            return text_output(result or "Done.")
        raise TypeError(f"returned {type(result).__name__} instead of text or ToolOutput")

    return run


def _is_pydantic(args: type[Any]) -> bool:
    return hasattr(args, "model_validate") and hasattr(args, "model_json_schema")


def _schema(args: type[Any]) -> JSONObject | None:
    if not _is_pydantic(args):
        return None
    schema = args.model_json_schema()
    found: JSONObject = inline_schema(schema, schema.pop("$defs", {}))
    return found


def _converter(args: type[Any]) -> Callable[[JSONObject], Any] | None:
    """How arguments are validated that are no `msgspec.Struct`. It raises `ToolError`."""
    if issubclass(args, msgspec.Struct):
        return None
    validate = args.model_validate if _is_pydantic(args) else partial(msgspec.convert, type=args, strict=False)

    def convert(arguments: JSONObject) -> Any:
        try:
            return validate(arguments)
        except ValueError as error:
            raise ToolError(str(error)) from None

    return convert
