"""Which table or handler judges a simple command, and what assignments do to the commands after them."""

import re
from collections.abc import Callable

from branchwork.policy import shell_builds, shell_builtins, shell_code, shell_files, shell_git, shell_wrappers
from branchwork.policy.shell_call import Call, blurred
from branchwork.policy.shell_judge import Find, Judge
from branchwork.policy.shell_options import harmless, judge_spec
from branchwork.policy.shell_paths import place
from branchwork.policy.shell_state import Flow, Glob, State, Unknown
from branchwork.policy.shell_tables import Spec
from branchwork.policy.shell_words import EVALUATED

RESERVED = frozenset(
    [
        "{",
        "}",
        "(",
        ")",
        "((",
        "[[",
        "!",
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "in",
        ";",
    ]
)
_VERSION = re.compile(r"[\d.]+\Z|[.-].*\Z")
_COMPILERS = frozenset(
    ["gcc", "cc", "clang", "g++", "c++", "clang++", "tcc", "ld", "ar", "node", "python", "python3", "make"]
)

MAX_VALUE = 4096
"""Longer values are not followed: a few doublings would fill the memory."""

HANDLERS: dict[str, Callable[["Runner", Call, Spec], None]] = {
    **shell_builds.HANDLERS,
    **shell_code.HANDLERS,
    **shell_files.HANDLERS,
    **shell_wrappers.HANDLERS,
    "git": shell_git.git,
}


class Runner:
    """Judges simple commands whose words are known."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.prefixed: State | None = None
        """The state with the assignments before the command's name; only what evaluates text sees it."""

    def call(self, words: list[str], state: State, stdin: str | None = None) -> Flow:
        self.judge.enter()
        try:
            return self._call(words, state, stdin)
        finally:
            self.judge.leave()

    def _call(self, words: list[str], state: State, stdin: str | None) -> Flow:
        judge, tables, first = self.judge, self.judge.tables, words[0]
        if isinstance(first, (Unknown, Glob)):
            judge.flag("S", "dynamic-command", f"The name of the command is {str(first)!r}, known only when it runs.")
            return blurred(state), blurred(state)
        if first in RESERVED:
            judge.flag("S", "reserved-word", f"{first!r} in the place of a command.")
            return blurred(state), blurred(state)
        if first in judge.functions:
            return blurred(state), blurred(state)
        base = first.rsplit("/", 1)[-1]
        if "/" in first:
            self._located(first, base)
        call = Call(base, words[1:], state, stdin, self.prefixed or state)
        builtin = shell_builtins.HANDLERS.get(first)
        if builtin is None and base.lower() in ("env", "xargs", "cd", "eval", "command", "exec"):
            builtin = shell_builtins.HANDLERS[base.lower()]
        if builtin is not None:
            return builtin(self, call)
        name = base.lower()
        wrapper = tables.wrappers.get(name)
        if wrapper is not None:
            return shell_wrappers.wrapped(self, call, wrapper)
        if name in tables.words["shells.names"]:
            shell_wrappers.shell(self, call)
            return state, state
        found = self.find(name)
        if found is not None:
            call.name = found.name
            handler = HANDLERS.get(found.handler)
            if handler is not None:
                handler(self, call, found)
            elif found.subs:
                shell_builds.verbs(self, call, found)
            else:
                judge_spec(judge, found, found.name, call.args, state)
        return state, state

    def find(self, name: str) -> Spec | None:
        """The entry of a program; `python3.12` is that of `python`, `mkfs.ext4` that of `mkfs`."""
        commands = self.judge.tables.commands
        found = commands.get(name)
        if found is None and name and name not in commands:
            shorter = _VERSION.sub("", name)
            found = commands.get(shorter) or commands.get(shorter.rstrip("0123456789.")) if shorter else None
        return found

    def _located(self, path: str, base: str) -> None:
        """A program given by its path is the one of that name only in the usual places."""
        words = self.judge.tables.words
        folder = path[: -len(base)].rstrip("/") or "/"
        if folder in words["trusted.directories"] or (path in ("./gradlew", "./mvnw")):
            return
        relative = path.removeprefix("./")
        scratch = self.judge.tmp is not None and path.startswith(self.judge.tmp)
        project = any(part in f"/{relative}" for part in ("/node_modules/.bin/", "/.venv/bin/", "/venv/bin/"))
        if project and not scratch and ".." not in path:
            return
        self.judge.flag("S", "program-by-path", f"What {path!r} does cannot be seen from its name.")

    def script(self, text: str, state: State) -> None:
        """Judge a text that a shell is going to read."""
        from branchwork.policy.shell import judge_script

        if isinstance(text, Unknown):
            self.judge.flag("S", "dynamic-script", f"A shell reads {str(text)!r}, known only when it runs.")
            return
        judge, outer = self.judge, self.judge.current
        judge.enter()
        try:
            judge_script(judge, text, state)
        finally:
            judge.leave()
            judge.current = outer

    def would_write(self, words: list[str], state: State) -> bool:
        """Whether these words as a command rate B, without adding to what was found."""
        inner = Judge(self.judge.settings, self.judge.tables)
        inner.left, inner.depth = self.judge.left, self.judge.depth
        inner.current = Find(words)
        Runner(inner).call(words, state)
        self.judge.left = inner.left
        return inner.verdict == "B"

    # ---- assignments ----

    def environment(self, name: str, value: str, state: State) -> State:
        """The state after `name=value`, once the assignment is judged."""
        judge, words = self.judge, self.judge.tables.words
        known = not isinstance(value, Unknown)
        if name in words["env.inject"] or name.startswith(judge.tables.prefixes):
            if not (known and (value == "" or (name.startswith("GIT_TRACE") and value in ("0", "1", "2", "true")))):
                judge.flag("B", "environment-injection", f"`{name}=` makes other programs run or write something.")
        elif name in words["env.program"]:
            self._program(name, value)
        elif name in words["env.places"] or name in ("HOME", "XDG_CONFIG_HOME"):
            self._places(name, value)
        elif name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR"):
            judge.write(value, state, "environment-injection", f"`{name}=`")
        elif name == "IFS":
            judge.split_plainly = False
        elif name == "NODE_OPTIONS" and not (known and re.fullmatch(r"[ ]*(--max-old-space-size=\d+)?[ ]*", value)):
            judge.flag("B", "environment-injection", "`NODE_OPTIONS=` can make node run another file.")
        self.evaluated(name, value)
        return state.having(name, value if len(value) <= MAX_VALUE else Unknown("$" + name))

    def evaluated(self, name: str, value: str) -> None:
        if EVALUATED.search(value):
            self.judge.flag(
                "S", "evaluated-text", f"`{name}` holds a command that the shell may run as it evaluates it."
            )

    def _program(self, name: str, value: str) -> None:
        if name in ("LESS", "MORE", "MANOPT", "MANROFFOPT"):
            if isinstance(value, Unknown) or not re.fullmatch(r"[-A-NP-Za-np-zO#=\d ]*", value) or "O" in value:
                self.judge.flag("S", "environment-injection", f"`{name}=` can make a pager run or write something.")
        elif not harmless(self.judge, value) and not (
            not isinstance(value, Unknown)
            and value.rsplit("/", 1)[-1] in _COMPILERS | self.judge.tables.words["shells.names"]
        ):
            self.judge.flag("B", "environment-injection", f"`{name}=` makes other programs run {str(value)!r}.")

    def _places(self, name: str, value: str) -> None:
        if isinstance(value, Unknown):
            self.judge.flag("S", "environment-place", f"`{name}=` names a place known only when it runs.")
            return
        for entry in value.split(":"):
            inside = place(entry, frozenset(("/",)), self.judge.tmp) in ("scratch", "scratch-root") if entry else False
            if inside or (name == "PATH" and not entry.startswith("/")):
                self.judge.flag("S", "environment-place", f"`{name}=` makes programs or settings come from {entry!r}.")


def standard_input(find: Find | None, judge: Judge) -> str:
    """What a command of a pipeline passes on: its text when it is plain `echo` or `printf`."""
    unknown = Unknown("|")
    if find is None or not find.words:
        unknown.data = True
        return unknown
    name, *words = find.words
    unknown.data = name not in judge.tables.words["substitution.lists"]
    if any(isinstance(word, (Unknown, Glob)) for word in words):
        unknown.data = unknown.data or any(isinstance(word, Unknown) for word in words)
        return unknown
    if name == "echo":
        while words and re.fullmatch(r"-[neE]+", words[0]):
            words = words[1:]
        text = " ".join(words)
        unknown.data = unknown.data or "\\" in text
        return unknown if "\\" in text else text
    if name == "printf" and words:
        return _printf(words)
    return unknown


def _printf(words: list[str]) -> str:
    text = words[0].replace("\\n", "\n").replace("\\t", "\t").replace("\\0", " ")
    directives = text.count("%s")
    if "\\" in text or text.replace("%s", "").count("%") or words[0].startswith("-"):
        unknown = Unknown("|")
        unknown.data = True
        return unknown
    values = words[1:]
    if not directives:
        return text
    rounds = max(1, -(-len(values) // directives))
    pieces = (text * rounds).split("%s")
    padded = [*values, *[""] * (len(pieces) - 1 - len(values))]
    return "".join(piece + value for piece, value in zip(pieces, [*padded, ""], strict=True))
