"""Words of a script as the shell would pass them: quotes, expansions, braces, tilde, globs.

A word is put together as marked text: quoted specials and unknown parts are written as private-use characters, so that
what is left unmarked is active.
"""

import re
from typing import TYPE_CHECKING

from branchwork.policy.shell_judge import Judge
from branchwork.policy.shell_state import Glob, Pipe, State, Unknown

if TYPE_CHECKING:
    from tree_sitter import Node

    from branchwork.policy.shell_walk import Walker

UNKNOWN, BREAK, NOTHING, PLAIN, PIPE, DATA = "\ue0ff", "\ue0fe", "\ue0fd", "\ue0fc", "\ue0fb", "\ue0fa"
_SPECIAL = "*?[]{},~()@!+."
_QUOTE = {ord(char): chr(0xE000 + index) for index, char in enumerate(_SPECIAL)}
_UNQUOTE = {0xE000 + index: char for index, char in enumerate(_SPECIAL)} | {ord(NOTHING): None}
_SHOW = {ord(UNKNOWN): "$…", ord(PLAIN): "$…", ord(PIPE): "/dev/fd/…", ord(DATA): "$(…)"}
_INACTIVE_VALUE = {ord(char): _QUOTE[ord(char)] for char in "{},~()@!+."}
MARKS = re.compile("[\ue000-\ue0ff]")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:=+%^,@-]*\Z")
_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_DOUBLE = re.compile(r'\\([$`"\\\n])')
_ANSI = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ANSI_NAMES = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SIMPLE_NAME = re.compile(r"\$\{?([A-Za-z_]\w*)\}?\Z")
_DEFAULTED = re.compile(r"\$\{([A-Za-z_]\w*):?[-=]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})\Z")
EVALUATED = re.compile(r"\w\[.*(\$|`)", re.DOTALL)
"""Text that runs a command when the shell evaluates it as arithmetic or as the name of an array element."""


def quoted(text: str) -> str:
    return NOTHING + text.translate(_QUOTE)


def ansi(text: str) -> str:
    """The value of the inside of `$'...'`. Bash ends the text at a NUL."""

    def one(match: re.Match[str]) -> str:
        hexa, four, eight, octal, control, other = match.groups()
        if hexa or four or eight:
            code = int(hexa or four or eight, 16)
        elif octal:
            code = int(octal, 8) & 0xFF
        elif control:
            code = ord(control) & 0x1F
        else:
            return _ANSI_NAMES.get(other, other if other in "\\'\"?" else "\\" + other)
        return chr(code) if 0 < code <= 0x10FFFF and not MARKS.match(chr(code)) else UNKNOWN

    return _ANSI.sub(one, text)


class Words:
    """Reads words of one script in one state. Commands inside them are judged on the way, by `walker`."""

    def __init__(self, walker: "Walker", judge: Judge) -> None:
        self.walker = walker
        self.judge = judge

    def of(self, node: "Node", state: State) -> list[str]:
        """The words that one node expands to."""
        kind = node.type
        if kind in ("word", "number") and not node.child_count:
            text = self.walker.text(node)
            if _PLAIN_WORD.match(text):
                return [text]
        elif kind == "raw_string":
            return [self.walker.text(node)[1:-1]]
        return finish(self.mark(node, state), self.judge, state)

    def one(self, node: "Node", state: State) -> str:
        """As for an assignment or a redirect: neither split nor expanded to several."""
        words = finish(self.mark(node, state).replace(BREAK, " "), self.judge, state, braces=False)
        return words[0] if len(words) == 1 else "" if not words else Unknown.of(" ".join(words))

    def mark(self, node: "Node", state: State, *, double: bool = False) -> str:
        kind, text = node.type, self.walker.text(node)
        if kind in ("word", "number", "extglob_pattern", "variable_name", "special_variable_name", "test_operator"):
            if node.child_count:
                self.walker.visit(node, state)
                return UNKNOWN
            return _ESCAPED.sub(_escaped, text) if "\\" in text else text
        if kind == "raw_string":
            return quoted(text[1:-1])
        if kind == "ansi_c_string":
            return quoted(ansi(text[2:-1]))
        if kind in ("string", "translated_string"):
            return self._string(node, state)
        if kind in ("concatenation", "command_name"):
            children = [child for child in node.children if child.type != "$" or node.child_count == 1]
            return "".join([self.mark(child, state) for child in children])
        if kind in ("simple_expansion", "expansion"):
            self.judge.enter()
            marked = self._expansion(node, text, state, double)
            self.judge.leave()
            return marked
        if kind == "command_substitution":
            return self.walker.substitution(node, state, double=double)
        if kind == "process_substitution":
            self.walker.inner(node, state)
            return PIPE
        if kind == "arithmetic_expansion":
            self.walker.arithmetic(node, state)
            return "0"
        if kind == "brace_expression":
            return text
        self.walker.visit(node, state)
        return UNKNOWN if node.child_count else text

    def _string(self, node: "Node", state: State) -> str:
        """Blanks at the borders of a part belong to no node, so the text between nodes counts, too."""
        parts = [NOTHING]
        source, position = self.walker.source, node.start_byte
        for child in node.children:
            if child.start_byte > position:
                parts.append(_double(source[position : child.start_byte].decode("utf-8", "surrogateescape")))
            position = child.end_byte
            if child.type == "string_content":
                parts.append(_double(self.walker.text(child)))
            elif child.type not in ('"', '$"') and not (child.type == "$" and child.start_byte == node.start_byte):
                parts.append(
                    self.mark(child, state, double=True) if child.is_named else quoted(self.walker.text(child))
                )
        return "".join(parts)

    def _expansion(self, node: "Node", text: str, state: State, double: bool) -> str:
        name = _SIMPLE_NAME.match(text)
        if name:
            return self.value(name[1], state, double)
        if text in ("$$", "$?", "$#", "$!", "${#}", "${?}", "${$}", "${$$}") or text.startswith("${#"):
            self.walker.visit(node, state)
            return "0" if text in ("$$", "$?", "$#", "$!") else PLAIN
        if text == "$":
            return quoted("$")
        default = _DEFAULTED.match(text)
        if default:
            return self._default(node, default[1], state, double)
        if "@P" in text:
            self.judge.flag("S", "prompt-expansion", "`${name@P}` runs what the variable holds.")
        self.walker.visit(node, state)
        return DATA

    def _default(self, node: "Node", name: str, state: State, double: bool) -> str:
        parts, after = [], False
        for child in node.children:
            if after and child.type != "}":
                parts.append(self.mark(child, state, double=double))
            elif child.type in (":-", "-", ":=", "="):
                after = True
        known = self.lookup(name, state)
        if known is None and name not in self.judge.tables.words["env.usual"]:
            return "".join(parts)
        if known is not None and not isinstance(known, Unknown) and known:
            return self.value(name, state, double)
        return DATA

    def lookup(self, name: str, state: State) -> str | None:
        """The value of a variable, `Unknown`, or None when nothing says that it is set."""
        value = state.variables.get(name)
        if value is not None:
            return value
        settings = self.judge.settings
        if settings.env is not None and name in settings.env:
            return settings.env[name]
        if name == "HOME":
            return settings.home or Unknown("$HOME")
        if name == "PWD":
            (cwd, *more) = state.cwds
            return Unknown("$PWD") if cwd is None or more else cwd
        if name == "TMPDIR":
            return settings.tmp or Unknown("$TMPDIR")
        if name == "PATH":
            return "/usr/bin:/bin"
        return None

    def value(self, name: str, state: State, double: bool) -> str:
        """Marked text of `$name`; outside double quotes it is split into words."""
        if name in self.judge.tables.words["env.digits"] and name not in state.variables:
            return "0"
        value = self.lookup(name, state)
        if value is None:
            return UNKNOWN
        if isinstance(value, Unknown):
            if value.plain:
                return value.prefix.translate(_QUOTE) + PLAIN
            return value.prefix.translate(_QUOTE) + (DATA if value.data else UNKNOWN)
        if MARKS.search(value):
            return UNKNOWN
        if double:
            return value.translate(_INACTIVE_VALUE) if isinstance(value, Glob) else value.translate(_QUOTE)
        if not self.judge.split_plainly:
            return UNKNOWN
        return re.sub(r"[ \t\n]+", BREAK, value.translate(_INACTIVE_VALUE))


def _escaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else NOTHING + match[1].translate(_QUOTE)


def _double(text: str) -> str:
    if "\\" in text:
        text = _DOUBLE.sub(lambda match: "" if match[1] == "\n" else match[1], text)
    return text.translate(_QUOTE)


def finish(marked: str, judge: Judge, state: State, *, braces: bool = True) -> list[str]:
    """Words from marked text."""
    texts = _expand(marked) if braces and "{" in marked else [marked]
    words: list[str] = []
    for text in texts:
        for piece in text.split(BREAK) if BREAK in text else (text,):
            words.extend([_word(piece, judge, state)] if piece else [])
    return words


def _expand(text: str, limit: int = 64) -> list[str]:
    """Brace expansion; more than `limit` words become one that is unknown."""
    done: list[str] = []
    pending = [text]
    while pending:
        current = pending.pop()
        found = next((match for match in _BRACES.finditer(current) if _choices(match[1])), None)
        if found is None:
            done.append(current)
        else:
            head, tail = current[: found.start()], current[found.end() :]
            pending.extend(head + choice + tail for choice in reversed(_choices(found[1])))
        if len(done) + len(pending) > limit:
            return [UNKNOWN]
    return done


def _choices(inside: str) -> list[str]:
    if "," in inside:
        return inside.split(",")
    numbers = _RANGE.match(inside)
    if numbers:
        low, high = sorted((int(numbers[1]), int(numbers[2])))
        return [str(number) for number in range(low, high + 1)] if high - low < 64 else [UNKNOWN]
    return [UNKNOWN] if ".." in inside else []


def _word(text: str, judge: Judge, state: State) -> str:
    if text.startswith("~"):
        text = _tilde(text, judge, state)
    first = re.search(f"[{UNKNOWN}{PLAIN}{PIPE}{DATA}]", text)
    if first:
        if text == PIPE:
            return Pipe("/dev/fd/63")
        plain = PIPE not in text and UNKNOWN not in text and DATA not in text
        return _unknown(text, first.start(), plain)
    active = any(char in text for char in "*?[")
    value = text.translate(_UNQUOTE)
    return Glob(value) if active else value


def _unknown(text: str, start: int, plain: bool) -> Unknown:
    """A plain unknown is judged by the text with a digit in its place, so it needs the rest of the word, too."""
    if plain:
        shown = text.translate(_UNQUOTE).translate(_SHOW)
        whole = text.replace(PLAIN, "0").translate(_UNQUOTE)
        if any(char in text for char in "*?[") or re.search(r"(^|/)0(/|$)", text.replace(PLAIN, "0")) is None:
            return Unknown.of(shown, whole, plain=True)
        return Unknown.of(shown, text[:start].translate(_UNQUOTE))
    word = Unknown.of(text.translate(_UNQUOTE).translate(_SHOW), text[:start].translate(_UNQUOTE))
    word.data = DATA in text
    return word


def _tilde(text: str, judge: Judge, state: State) -> str:
    name, slash, rest = text.partition("/")
    if name == "~":
        home = state.variables.get("HOME", judge.settings.home)
        return UNKNOWN + slash + rest if home is None or isinstance(home, Unknown) else quoted(home) + slash + rest
    if name == "~+":
        (cwd, *more) = state.cwds
        return UNKNOWN + slash + rest if cwd is None or more else quoted(cwd) + slash + rest
    return UNKNOWN + slash + rest
