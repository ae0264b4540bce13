"""The `edit` tool: replaces passages of a file and leaves every other byte alone."""

import codecs
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from branchwork import data
from branchwork.agent.toolset import Effect, Tool, ToolArgs, ToolContext, ToolError, ToolOutput, text_output
from branchwork.session.entries import JSONObject
from branchwork.tools.files import BINARY_PROBE, INLINE_BYTES, off_loop, open_regular, replace_file
from branchwork.tools.paths import failed, resolve, shown
from branchwork.tools.truncate import format_size

if TYPE_CHECKING:
    from branchwork.tools.diff import Block

MAX_EDIT_BYTES = 50 * 1000 * 1000

_SPELLINGS = {"old_text": "oldText", "new_text": "newText", "old_string": "oldText", "new_string": "newText"}


class OneEdit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    old_text: Annotated[str, Meta(description="The text to replace: exactly as in the file, and only once in it")]
    new_text: Annotated[str, Meta(description="The text to put in its place")]


class EditArgs(ToolArgs, frozen=True, kw_only=True):
    path: Annotated[str, Meta(description="File to edit, absolute or relative to the working directory")]
    edits: Annotated[
        tuple[OneEdit, ...],
        Meta(min_length=1, description="Replacements, all matched against the file as it is; none may overlap"),
    ]


class _Edited(Struct, frozen=True, kw_only=True):
    data: bytes
    details: dict[str, Any]
    text: str


class _Encoding(Struct, frozen=True, kw_only=True):
    bom: bytes
    codec: str
    errors: str


def edit_tool() -> Tool:
    return Tool(
        name="edit",
        description=data.text("tools/edit.md").strip(),
        args=EditArgs,
        run=edit,
        effects=frozenset({Effect.READ, Effect.WRITE}),
        snippet="Replace exact passages of a file",
        guidelines=(
            "Use edit for changes to existing files. Put several changes to one file into one edit call, "
            "each oldText just long enough to be unique.",
        ),
        prepare=prepare,
        touches=lambda args: (args.path,),
    )


def prepare(arguments: JSONObject) -> JSONObject:
    """Accepts what models send instead: one edit at the top level, one object or JSON text for `edits`, and
    the spellings of other programs' parameters. What it does not understand is left for validation."""
    top = {_SPELLINGS.get(name, name): value for name, value in arguments.items()}
    edits = _decoded(top.pop("edits", None))
    found = list(edits) if isinstance(edits, list) else [] if edits is None else [edits]
    single = {name: top.pop(name) for name in ("oldText", "newText") if name in top}
    if single:
        found.append(single)
    if found or edits is not None:
        top["edits"] = [_renamed(_decoded(item)) for item in found]
    return top


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _renamed(item: Any) -> Any:
    return {_SPELLINGS.get(name, name): value for name, value in item.items()} if isinstance(item, dict) else item


async def edit(args: EditArgs, ctx: ToolContext) -> ToolOutput:
    path = resolve(args.path, ctx, similar=True)
    try:
        path.stat()  # before the lock, which resolves the path and cannot tell what is wrong with it
    except FileNotFoundError as error:
        raise ToolError(f"{failed('edit', path, args.path, error)} write creates files.") from error
    except OSError as error:
        raise failed("edit", path, args.path, error) from error
    async with ctx.locks.hold(path):
        try:
            with open_regular(path, "edit", args.path) as file:
                size = os.fstat(file.fileno()).st_size
                if size > MAX_EDIT_BYTES:
                    raise ToolError(
                        f"Cannot edit {shown(args.path)}: {format_size(size)} is over the limit of "
                        f"{MAX_EDIT_BYTES // 1_000_000} MB. Use sed or a short script with bash."
                    )
                before = file.readall()
        except OSError as error:
            raise failed("edit", path, args.path, error) from error
        edited = await off_loop(len(before) > INLINE_BYTES, _edit, before, args)
        replace_file(path, edited.data, "edit", args.path)
    return text_output(edited.text, details=edited.details)


def _edit(before: bytes, args: EditArgs) -> _Edited:
    from branchwork.tools.diff import render
    from branchwork.tools.edit_match import Wanted, apply, plan

    name = shown(args.path)
    encoding = _encoding(before, name)
    raw = before[len(encoding.bom) :].decode(encoding.codec, encoding.errors)
    wanted = [Wanted(_without_bom(one.old_text), _without_bom(one.new_text)) for one in args.edits]
    if encoding.errors == "surrogateescape" and any("\ufffd" in one.new for one in wanted):
        raise ToolError(
            f"Nothing was changed in {name}: it is not UTF-8, and a newText holds U+FFFD, which would destroy "
            "the byte that it stands for. Choose passages without such characters."
        )
    found = plan(raw, wanted, name)
    after = encoding.bom + _encoded(apply(raw, found.replacements), encoding, name)
    if after == before:
        raise ToolError(f"Nothing was changed in {name}: the edits leave it as it is.")
    diff = render(name, _blocks(raw, [(part.start, part.end, part.text) for part in found.replacements]))
    return _Edited(data=after, details=diff.details(), text=_summary(name, args, found.fuzzy, encoding, diff.details()))


def _encoding(content: bytes, name: str) -> _Encoding:
    """How to decode `content` without loss. Raises `ToolError` for what is not text."""
    for bom, codec in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if content.startswith(bom) and not content.startswith(codecs.BOM_UTF32_LE):
            if len(content) % 2:
                raise ToolError(f"Cannot edit {name}: it begins like UTF-16 but has an odd number of bytes.")
            return _Encoding(bom=bom, codec=codec, errors="surrogatepass")
    if b"\0" in content[:BINARY_PROBE]:
        raise ToolError(f"Cannot edit {name}: it is binary.")
    bom = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    try:
        content.decode()
    except UnicodeDecodeError:
        return _Encoding(bom=bom, codec="utf-8", errors="surrogateescape")
    return _Encoding(bom=bom, codec="utf-8", errors="strict")


def _encoded(text: str, encoding: _Encoding, name: str) -> bytes:
    try:
        return text.encode(encoding.codec, encoding.errors)
    except UnicodeEncodeError:
        raise ToolError(f"Nothing was changed in {name}: a newText holds half of a character.") from None


def _without_bom(text: str) -> str:
    return text.removeprefix("\ufeff")


def _blocks(raw: str, parts: Sequence[tuple[int, int, str]]) -> "list[Block]":
    """The lines around the replacements (start, end, text), before and after; near ones share a block."""
    from branchwork.tools.diff import CONTEXT, Block, split

    groups: list[tuple[int, int, list[tuple[int, int, str]]]] = []
    for part in parts:
        start, end = _lines_before(raw, part[0], CONTEXT), _lines_after(raw, part[1], CONTEXT)
        if groups and start <= groups[-1][1]:
            first, _, members = groups.pop()
            groups.append((first, end, [*members, part]))
        else:
            groups.append((start, end, [part]))
    blocks = []
    line, shift, counted = 1, 0, 0
    for start, end, members in groups:
        line += raw.count("\n", counted, start)
        counted = start
        old, new = split(raw[start:end]), split(_replaced(raw, start, end, members))
        blocks.append(Block(old_first=line, new_first=line + shift, old=old, new=new))
        shift += len(new) - len(old)
    return blocks


def _replaced(raw: str, start: int, end: int, members: Sequence[tuple[int, int, str]]) -> str:
    pieces: list[str] = []
    for first, last, text in members:
        pieces += (raw[start:first], text)
        start = last
    return "".join([*pieces, raw[start:end]])


def _lines_before(raw: str, position: int, count: int) -> int:
    for _ in range(count + 1):
        position = raw.rfind("\n", 0, position)
        if position < 0:
            return 0
    return position + 1


def _lines_after(raw: str, position: int, count: int) -> int:
    for _ in range(count + 1):
        position = raw.find("\n", position) + 1
        if position == 0:
            return len(raw)
    return position


def _summary(name: str, args: EditArgs, fuzzy: Sequence[int], encoding: _Encoding, details: dict[str, Any]) -> str:
    count = "1 edit" if len(args.edits) == 1 else f"{len(args.edits)} edits"
    text = (
        f"Edited {name}: {count}, +{details['added']} -{details['removed']} lines, "
        f"first change at line {details['firstChangedLine']}."
    )
    if fuzzy:
        which = ", ".join(f"edits[{index}]" for index in fuzzy)
        text += f" {which} matched only after making quotes, dashes and spaces plain."
    if encoding.errors == "surrogateescape":
        text += " The file is not UTF-8; all other bytes were kept."
        if not all(one.new_text.isascii() for one in args.edits):
            text += " The characters of newText beyond ASCII were written as UTF-8."
    return text
