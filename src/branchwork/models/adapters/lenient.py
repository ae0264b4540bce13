"""Reading what servers send when it is not quite what they promise."""

import json
from typing import Any, TypeVar, cast

import msgspec

from branchwork.models.conversation import clean_json

T = TypeVar("T")


def decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """`decoder` applied to `data`. Raises `msgspec.DecodeError`, of which a wrong type is one case.

    A lone surrogate escape (half of an emoji that a server cut in two) is legal JSON grammar and refused by
    msgspec; it costs that character, not the reply.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        if b"\\ud" not in data.lower():
            raise
        try:
            value = json.loads(data)
        except ValueError as error:
            raise msgspec.DecodeError(str(error)) from None
        return cast(T, msgspec.convert(clean_json(value), decoder.type))


def count(value: Any, *names: str) -> int:
    """The first of the fields `names` that holds a number, as a non-negative integer; 0 without one."""
    if isinstance(value, dict):
        for name in names:
            number = value.get(name)
            if isinstance(number, int | float) and not isinstance(number, bool):
                return max(0, int(number))
    return 0
