"""From what a model sent to what a tool takes."""

from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from branchwork.agent.toolset import Tool, ToolError
from branchwork.session.entries import JSONObject, ToolCall

RECEIVED_LIMIT = 2_000
"""Characters of the received arguments quoted back to the model."""


def arguments_for(tool: Tool, call: ToolCall) -> Any:
    """The validated arguments of `call`.

    Models often send numbers as strings, one value where a list is wanted, or null for "not given"; those
    are understood. Anything else raises `ToolError` with the problem and what was received.
    """
    if call.arguments_text is not None:
        raise ToolError(
            f"The arguments of {tool.name} were not one JSON object. Send the call again.\n"
            f"Received: {_quote(call.arguments_text)}"
        )
    arguments = tool.prepare(dict(call.arguments)) if tool.prepare else call.arguments
    try:
        if tool.convert is not None:
            return tool.convert(arguments)
        return msgspec.convert(_shaped(arguments, tool.args), tool.args, strict=False)
    except (msgspec.ValidationError, ToolError) as error:
        received = _quote(msgspec.json.encode(call.arguments).decode())
        raise ToolError(f"Invalid arguments for {tool.name}: {error}\nReceived: {received}") from None


def _shaped(arguments: JSONObject, args: type[Any]) -> JSONObject:
    """Drop nulls of optional fields, wrap single values for list fields."""
    shaped: JSONObject = {}
    fields = {info.encode_name: info for info in msgspec.structs.fields(args)}
    for name, value in arguments.items():
        info = fields.get(name)
        if info is None:
            if value is not None:  # an invented null parameter says nothing
                shaped[name] = value
            continue
        if value is None and not info.required:
            continue
        shaped[name] = [value] if _wants_list(info.type) and not isinstance(value, list) else value
    return shaped


def _wants_list(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return any(_wants_list(option) for option in get_args(annotation))
    if origin is not None and hasattr(annotation, "__metadata__"):
        return _wants_list(get_args(annotation)[0])
    return origin in (list, tuple)


def _quote(text: str) -> str:
    return text if len(text) <= RECEIVED_LIMIT else f"{text[:RECEIVED_LIMIT]}… ({len(text)} characters)"
