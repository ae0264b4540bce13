"""Tools: what one is, what it gets, what it gives back.

A tool never asks for permission and never truncates silently; policy is the gate's matter, limits are
stated in the output. Expected failures are `ToolError`s, whose text the model reads and can act on.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from branchwork.models.base import ToolSpec
from branchwork.session.entries import Image, ResultPart, Text, Usage
from branchwork.session.handle import Tree


class Effect(Enum):
    """What running a tool can do to the world; policy decides by these."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"
    DELEGATE = "delegate"


class ToolOutput(Struct, frozen=True, kw_only=True):
    """`content` is for the model, `details` for people and extensions (plain JSON data)."""

    content: tuple[ResultPart, ...] = ()
    details: Any = None
    is_error: bool = False
    terminate: bool = False
    """Ends the run after the batch, if every result of the batch says so."""
    usage: Usage | None = None
    """Model work done inside the tool; added to the session's totals."""


def text_output(text: str, *, details: Any = None, is_error: bool = False) -> ToolOutput:
    return ToolOutput(content=(Text(text=text),), details=details, is_error=is_error)


class ToolError(Exception):
    """The call failed in a way the model can react to; `details` are kept beside the text."""

    def __init__(self, message: str, *, details: Any = None) -> None:
        super().__init__(message)
        self.details = details


class FileLocks:
    """Serialises read-modify-write on one file across tools of a process, keyed by its real path."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def hold(self, path: Path) -> AbstractAsyncContextManager[None]:
        return _Held(self._locks, os.path.realpath(path))


class _Held:
    def __init__(self, locks: dict[str, tuple[asyncio.Lock, int]], key: str) -> None:
        self._locks, self._key = locks, key

    async def __aenter__(self) -> None:
        lock, users = self._locks.get(self._key, (asyncio.Lock(), 0))
        self._locks[self._key] = (lock, users + 1)
        try:
            await lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._locks[self._key][0].release()
        self._leave()

    def _leave(self) -> None:
        lock, users = self._locks[self._key]
        if users == 1:
            del self._locks[self._key]
        else:
            self._locks[self._key] = (lock, users - 1)


class ToolContext(Struct, frozen=True, kw_only=True):
    """What a running tool may know and use."""

    call_id: str
    cwd: Path
    home: Path
    """The person's home directory, for `~` in paths."""
    env: Mapping[str, str]
    """The environment for child processes, session variables included."""
    scratch: Path
    """A directory of this session for spilled output; created by whoever writes there first."""
    locks: FileLocks
    progress: Callable[[ToolOutput], None]
    """Show intermediate output; the latest one is kept in the result if the call is cancelled."""
    images: bool
    """Whether the model accepts images."""
    tree: Tree
    """The session: for reading, and for state that follows the branch."""


class ToolArgs(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every argument struct. Field names are the parameter names the model sees;
    `Annotated[…, Meta(description=…)]` describes them."""


A_contra = TypeVar("A_contra", bound=ToolArgs, contravariant=True)


class ToolRun(Protocol[A_contra]):
    async def __call__(self, args: A_contra, ctx: ToolContext) -> ToolOutput: ...


class Tool(Struct, frozen=True, kw_only=True):
    """A tool. The description comes from `data/tools/NAME.md` for built-in ones."""

    name: str
    description: str
    args: type[Any]
    """A `ToolArgs`, or another type that `convert` knows to make."""
    run: ToolRun[Any]
    effects: frozenset[Effect]
    sequential: bool = False
    """True makes the whole batch that this tool is called in run one call after the other."""
    snippet: str | None = None
    """One line for the tool list of the system prompt; without it the tool is not listed there."""
    guidelines: tuple[str, ...] = ()
    """Bullets for the system prompt while the tool is active."""
    prepare: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Brings odd but understandable arguments into shape before they are validated."""
    touches: Callable[[Any], tuple[str, ...]] | None = None
    """The paths a call names, as written, for policy and display."""
    command: Callable[[Any], str] | None = None
    """The shell command that a call runs, for tools that run one."""
    schema: dict[str, Any] | None = None
    """The parameters as JSON Schema, where `args` is no msgspec type."""
    convert: Callable[[dict[str, Any]], Any] | None = None
    """Validates arguments, where `args` is no msgspec type; raises `ToolError`."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, parameters=self.schema or _schema(self.args))


_SCHEMAS: dict[type[Any], dict[str, Any]] = {}


def _schema(args: type[Any]) -> dict[str, Any]:
    """The JSON Schema of an argument struct: one inlined object, stable key order. Cached per type."""
    cached = _SCHEMAS.get(args)
    if cached is None:
        (ref,), components = msgspec.json.schema_components([args], ref_template="#/$defs/{name}")
        cached = inline_schema(ref, components)
        cached.pop("title", None)
        _SCHEMAS[args] = cached
    return cached


def inline_schema(node: Any, components: dict[str, Any]) -> Any:
    """A JSON Schema with every reference replaced by what it names (arguments are never recursive)."""
    if isinstance(node, list):
        return [inline_schema(item, components) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return inline_schema(components[node["$ref"].rsplit("/", 1)[-1]], components)
    plain = {key: inline_schema(value, components) for key, value in node.items() if key not in ("title", "properties")}
    if isinstance(properties := node.get("properties"), dict):  # its keys are parameter names, `title` among them
        plain["properties"] = {name: inline_schema(value, components) for name, value in properties.items()}
    options = [option for option in plain.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:  # "or null" only says that the parameter may be left out
        plain.pop("anyOf")
        plain = {**options[0], **plain}
        if plain.get("default", 0) is None:
            plain.pop("default")
    return plain


def with_image(data: str, mime_type: str, note: str) -> tuple[ResultPart, ...]:
    """The content of a result that shows an image."""
    return (Text(text=note), Image(data=data, mime_type=mime_type))
