"""Built-in extensions: everything beyond the loop, written against the API that users get."""

BUILTIN: tuple[str, ...] = (
    "branchwork.extensions.session_commands",
    "branchwork.extensions.context_report",
    "branchwork.extensions.modes",
    "branchwork.extensions.readonly",
)
"""Modules with a function `extension(api)`, in the order in which they are loaded."""
