"""What is known about a shell at one point of a script: directories it may be in, values of variables."""

from collections.abc import Iterable

Cwds = frozenset[str | None]


class Unknown(str):
    """A word whose text is known only at run time; the string is for display.

    `prefix` is the part before the first unknown character. `plain`: the unknown part holds neither a slash nor a dot.
    `root`: the word is a path at or below this one. `data`: the text may be anything, an option included; not so for
    variables that nothing here sets and for names of files.
    """

    prefix: str = ""
    plain: bool = False
    root: str | None = None
    data: bool = True

    @classmethod
    def of(cls, shown: str, prefix: str = "", *, plain: bool = False, root: str | None = None) -> "Unknown":
        word = cls(shown)
        word.prefix, word.plain, word.root = prefix, plain, root
        return word


class Glob(str):
    """A pattern that the shell replaces by names of files."""


class Pipe(str):
    """The name of a pipe made by `<(...)` or `>(...)`."""


class State:
    """Copied before it is changed; two states that are one object are equal."""

    __slots__ = ("cwds", "variables")

    def __init__(self, cwds: Cwds, variables: dict[str, str]) -> None:
        self.cwds = cwds
        self.variables = variables

    def at(self, cwds: Cwds) -> "State":
        return State(cwds, self.variables)

    def having(self, name: str, value: str) -> "State":
        return State(self.cwds, {**self.variables, name: value})

    def forgetting(self, names: Iterable[str]) -> "State":
        return State(self.cwds, {**self.variables, **{name: Unknown("$" + name) for name in names}})


Flow = tuple[State | None, State | None]
"""The states after success and after failure; None: that way is not taken."""


def merge(one: State | None, two: State | None) -> State | None:
    """What holds when either may have happened."""
    if one is two or two is None:
        return one
    if one is None:
        return two
    variables = one.variables
    if variables is not two.variables and variables != two.variables:
        names = {*variables, *two.variables}
        variables = {name: _either(name, variables.get(name), two.variables.get(name)) for name in names}
    return State(one.cwds | two.cwds, variables)


def _either(name: str, one: str | None, two: str | None) -> str:
    if one is not None and one == two and type(one) is type(two) and not isinstance(one, Unknown):
        return one
    return Unknown("$" + name)
