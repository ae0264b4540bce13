"""Reads a sed script as GNU sed does, to find what it writes and runs."""

from msgspec import Struct


class Unreadable(Exception):
    """The script is not one that this reader follows."""


class Effects(Struct):
    writes: list[str]
    runs: bool = False


def sed_effects(script: str) -> Effects:
    """Raises `Unreadable`. A `;` after a label starts a command here, so that nothing can hide behind a label."""
    effects = Effects([])
    index, size = 0, len(script)
    while index < size:
        while index < size and script[index] in " \t\n;{}":
            index += 1
        if index >= size:
            break
        if script[index] == "#":
            index = _line_end(script, index)
            continue
        index = _addresses(script, index)
        if index >= size:
            raise Unreadable
        index = _command(script, index, effects)
    return effects


def _line_end(script: str, index: int) -> int:
    end = script.find("\n", index)
    return len(script) if end < 0 else end


def _addresses(script: str, index: int) -> int:
    size = len(script)
    while index < size:
        char = script[index]
        if char.isdigit() or char in "$,~+! \t":
            index += 1
        elif char in "/\\":
            if char == "\\":
                index += 1
                if index >= size:
                    raise Unreadable
            index = _delimited(script, index + 1, script[index], brackets=True)
            while index < size and script[index] in "IM":
                index += 1
        else:
            break
    return index


def _delimited(script: str, index: int, delimiter: str, *, brackets: bool) -> int:
    """The index after the closing delimiter."""
    if delimiter in "\n\\":
        raise Unreadable
    size = len(script)
    while index < size:
        char = script[index]
        if char == "\\":
            index += 2
        elif char == "[" and brackets:
            index = _bracket(script, index)
        elif char == delimiter:
            return index + 1
        elif char == "\n" and brackets:
            raise Unreadable
        else:
            index += 1
    raise Unreadable


def _bracket(script: str, index: int) -> int:
    """A bracket expression hides the delimiter; one that is not closed on its line is just a character."""
    start = index + 1
    if script[start : start + 1] == "^":
        start += 1
    if script[start : start + 1] == "]":
        start += 1
    position = start
    while position < len(script) and script[position] != "\n":
        if script[position] == "[" and script[position + 1 : position + 2] in (".", ":", "="):
            end = script.find(script[position + 1] + "]", position + 2)
            if end < 0:
                raise Unreadable
            position = end + 2
        elif script[position] == "]":
            return position + 1
        else:
            position += 1
    raise Unreadable


def _command(script: str, index: int, effects: Effects) -> int:
    name = script[index]
    index += 1
    if name in "{}":
        return index
    if name in "=dDgGhHnNpPxzF":
        return _after(script, index)
    if name in "lLqQ":
        return _after(script, _skip(script, index, "0123456789 \t"))
    if name in "btT:":
        end = index
        while end < len(script) and script[end] not in ";\n}":
            end += 1
        return end
    if name in "aic":
        return _text_end(script, index)
    if name in "rR":
        return _line_end(script, index)
    if name in "wW":
        end = _line_end(script, index)
        effects.writes.append(script[index:end].strip())
        return end
    if name == "e":
        effects.runs = True
        return _line_end(script, index)
    if name == "s":
        return _substitute(script, index, effects)
    if name == "y":
        delimiter = script[index : index + 1] or "\n"
        middle = _delimited(script, index + 1, delimiter, brackets=False)
        return _after(script, _delimited(script, middle, delimiter, brackets=False))
    raise Unreadable


def _skip(script: str, index: int, chars: str) -> int:
    while index < len(script) and script[index] in chars:
        index += 1
    return index


def _after(script: str, index: int) -> int:
    index = _skip(script, index, " \t")
    if index < len(script) and script[index] not in ";\n}#":
        raise Unreadable
    return index


def _text_end(script: str, index: int) -> int:
    """Text goes on after a line that ends in a backslash."""
    index = _skip(script, index, " \t")
    while True:
        end = _line_end(script, index)
        backslashes = len(script[index:end]) - len(script[index:end].rstrip("\\"))
        if backslashes % 2 == 0 or end >= len(script):
            return end
        index = end + 1


def _substitute(script: str, index: int, effects: Effects) -> int:
    delimiter = script[index : index + 1] or "\n"
    middle = _delimited(script, index + 1, delimiter, brackets=True)
    index = _delimited(script, middle, delimiter, brackets=False)
    while index < len(script):
        flag = script[index]
        if flag == "w":
            end = _line_end(script, index)
            effects.writes.append(script[index + 1 : end].strip())
            return end
        if flag in "eE":
            effects.runs = True
        elif flag not in "gpiImM0123456789":
            break
        index += 1
    return _after(script, index)
