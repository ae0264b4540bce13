"""Whether a value is of a type as one writes it in an annotation; for what crosses between extensions."""

from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin


def fits(value: object, kind: Any) -> bool:
    """Classes, unions, `None`, `Any`, `Literal` and `Annotated` are judged fully; of generic containers only the
    container is (`list[str]` means a list). An int is a float, as type checkers have it."""
    if kind is Any or kind is object:
        return True
    if kind is None or kind is NoneType:
        return value is None
    origin = get_origin(kind)
    if origin is Annotated:
        return fits(value, get_args(kind)[0])
    if origin is Union or origin is UnionType:
        return any(fits(value, option) for option in get_args(kind))
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in get_args(kind))
    plain = origin or kind
    if plain is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, plain)


def result_type(kind: type, base: type) -> Any:
    """The argument that `kind` or a class above it gave to the generic `base`.

    Raises TypeError when there is none that can be checked at run time.
    """
    for each in kind.__mro__:
        for parent in getattr(each, "__orig_bases__", ()):
            arguments = get_args(parent)
            if get_origin(parent) is base and arguments and not isinstance(arguments[0], TypeVar | ForwardRef | str):
                return _checkable(kind, arguments[0])
    name = base.__name__
    raise TypeError(f"{kind.__name__} must name what it is answered with: class {kind.__name__}({name}[Answer])")


def _checkable(kind: type, answer: Any) -> Any:
    try:
        fits(object(), answer)
    except TypeError as error:
        raise TypeError(f"{kind.__name__}: no value can be checked against {type_name(answer)}") from error
    return answer


def type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
