"""A guard: files that the settings name are not written, whatever the model asks for.

[keep-out]
names = [".env", "*.lock"]
"""

from fnmatch import fnmatch
from pathlib import PurePath

from msgspec import Struct

from branchwork import ExtensionAPI, ExtensionContext, points


class KeepOut(Struct, frozen=True, kw_only=True):
    names: tuple[str, ...] = (".env", "*.pem")
    """Patterns for file names."""


def extension(api: ExtensionAPI) -> None:
    settings = api.settings("keep-out", KeepOut)

    def guard(checked: points.CallChecked, ctx: ExtensionContext) -> points.Block | None:
        if checked.call.name not in ("write", "edit"):
            return None
        name = PurePath(str(checked.arguments.get("path", ""))).name
        for pattern in settings.names:
            if fnmatch(name, pattern):
                return points.Block(reason=f"{name} is the person's own ({pattern}). Ask them to change it.")
        return None

    api.decide(points.TOOL_CALL, guard)
