"""Reads options the way getopt does, with abbreviations and combined letters, and judges the dangerous ones."""

import re

from msgspec import Struct

from branchwork.policy.shell_judge import Judge
from branchwork.policy.shell_paths import depth_below
from branchwork.policy.shell_state import Glob, State, Unknown
from branchwork.policy.shell_tables import (
    CREATE,
    DANGEROUS,
    DIR,
    FLAG,
    INPLACE,
    OPAQUE,
    REFUSE,
    RUN,
    SAFE,
    TAKES_VALUE,
    WRITE,
    Spec,
)  # fmt: skip


class Option(Struct, frozen=True):
    name: str
    kind: str
    value: str | None


class Scan(Struct):
    options: list[Option]
    operands: list[str]

    def has(self, *names: str) -> bool:
        return any(option.name in names for option in self.options)

    def kind(self, kind: str) -> list[Option]:
        return [option for option in self.options if option.kind == kind]

    def values(self, *names: str) -> list[str]:
        return [option.value for option in self.options if option.name in names and option.value is not None]


def scan(words: list[str], spec: Spec, *, permute: bool = True) -> Scan:
    """`permute`: options may follow operands. An option that no table knows takes no value."""
    found = Scan([], [])
    index, count = 0, len(words)
    kinds = spec.kinds
    while index < count:
        word = words[index]
        index += 1
        if word == "--" and not isinstance(word, Unknown):
            found.operands.extend(words[index:])
            break
        if len(word) < 2 or word[0] != "-" or (isinstance(word, Unknown) and not word.prefix):
            found.operands.append(word)
            if not permute:
                found.operands.extend(words[index:])
                break
            continue
        if word[1] == "-" or spec.single:
            index = _long(word, words, index, spec, found)
        elif len(word) > 2 and word in kinds and kinds[word] in DANGEROUS | {SAFE}:
            found.options.append(Option(word, kinds[word], None))
        else:
            index = _short(word, words, index, kinds, found)
    return found


def _long(word: str, words: list[str], index: int, spec: Spec, found: Scan) -> int:
    name, equals, value = word.partition("=")
    if spec.single and name.startswith("--") and name not in spec.kinds:
        name = name[1:]
    kind = spec.kinds.get(name)
    if kind is None:
        if spec.single:
            kind = _glued(name, spec, found)
            if kind is None:
                return index
        else:
            full = next((option for option in spec.longs if option.startswith(name)), None)
            name, kind = (full, spec.kinds[full]) if full else (name, FLAG)
    if equals:
        found.options.append(Option(name, kind, _like(word, value)))
    elif kind in TAKES_VALUE and index < len(words):
        found.options.append(Option(name, kind, words[index]))
        index += 1
    else:
        found.options.append(Option(name, kind, None))
    return index


def _glued(name: str, spec: Spec, found: Scan) -> str | None:
    """`-ofile` of programs whose options have one dash."""
    short = name[:2]
    if len(name) > 2 and spec.kinds.get(short) in (WRITE, DIR, RUN, OPAQUE):
        found.options.append(Option(short, spec.kinds[short], name[2:]))
        return None
    return FLAG


def _short(word: str, words: list[str], index: int, kinds: dict[str, str], found: Scan) -> int:
    for position in range(1, len(word)):
        name = "-" + word[position]
        kind = kinds.get(name, FLAG)
        if kind in TAKES_VALUE:
            rest = word[position + 1 :]
            if rest:
                found.options.append(Option(name, kind, _like(word, rest)))
            elif index < len(words):
                found.options.append(Option(name, kind, words[index]))
                index += 1
            else:
                found.options.append(Option(name, kind, None))
            break
        found.options.append(Option(name, kind, (word[position + 1 :] or None) if kind in (INPLACE, CREATE) else None))
        if kind in (INPLACE, CREATE):
            break
    return index


def _like(word: str, value: str) -> str:
    """A part of a word is as unknown as the word."""
    if isinstance(word, Unknown):
        cut = len(word) - len(value)
        return Unknown.of(value, word.prefix[cut:], plain=word.plain)
    return value.removeprefix("=") if not isinstance(word, Glob) else Glob(value)


def judge_options(judge: Judge, name: str, found: Scan, state: State) -> None:
    """Rate what options write and run."""
    for option in found.options:
        match option.kind:
            case "write" | "create":
                shown = f"`{name} {option.name}`"
                if option.value is None and option.kind == CREATE:
                    judge.write(".", state, rule(name, option.name), shown, destroys=True)
                elif option.value is not None and option.value != "-":
                    judge.write(option.value.removeprefix("="), state, rule(name, option.name), shown)
                elif option.value is None and option.kind == WRITE:
                    judge.flag("B", rule(name, option.name), f"{shown} writes a file.")
            case "refuse":
                judge.flag("B", rule(name, option.name), f"`{name} {option.name}` writes or runs something.")
            case "opaque":
                judge.flag("S", rule(name, option.name), f"What `{name} {option.name}` does cannot be seen here.")
            case "run":
                if not harmless(judge, option.value):
                    judge.flag("B", rule(name, option.name), f"`{name} {option.name}` runs another program.")
            case _:
                pass


def harmless(judge: Judge, value: str | None) -> bool:
    """Whether a program given as the value of an option or variable only shows text."""
    if value is None or isinstance(value, Unknown):
        return False
    words = value.split()
    return not words or (
        words[0] in judge.tables.words["env.harmless"] and all(re.fullmatch(r"-[A-Za-z]{1,6}", w) for w in words[1:])
    )


def rule(name: str, option: str) -> str:
    """`sort` and `-o` give `sort-option-o`."""
    return f"{name}-option-{option.lstrip('-')}" if option.strip("-") else f"{name}-option"


def judge_unknown_words(judge: Judge, name: str, words: list[str]) -> None:
    """A word that a program printed may be an option of a program that has dangerous ones."""
    for word in words:
        if word == "--" and not isinstance(word, Unknown):
            return
        if isinstance(word, Unknown) and not word.prefix and not word.plain and word.root is None and word.data:
            judge.flag("S", "unknown-argument", f"{str(word)!r} may be an option with which `{name}` writes.")
            return


def judge_spec(judge: Judge, spec: Spec, name: str, words: list[str], state: State) -> None:
    """Rate one use of a program by its table entry; `words` are those after its name."""
    found = scan(words, spec)
    judge_options(judge, name, found, state)
    if spec.dangerous:
        judge_unknown_words(judge, name, words)
    if found.kind(SAFE):
        return
    if found.operands and spec.kinds.get(found.operands[0]) == REFUSE:
        judge.flag("B", f"{name}-{found.operands[0]}", f"`{name} {found.operands[0]}` changes things.")
    rating = spec.verdict if words else spec.bare
    if rating in ("B", "S") and words != ["--help"] and words != ["--version"]:
        flat(judge, name, rating)
    if found.kind(INPLACE):
        for operand in found.operands:
            judge.write(operand, state, f"{name}-in-place", f"`{name}`")
        return
    judge_operands(judge, spec, name, found, state)


def flat(judge: Judge, name: str, rating: str) -> None:
    """Rate any use of a program."""
    if rating == "B":
        judge.flag("B", f"{name}-writes", f"`{name}` changes things.")
    else:
        judge.flag("S", f"{name}-opaque", f"What `{name}` does cannot be seen from its command line.")


def judge_operands(judge: Judge, spec: Spec, name: str, found: Scan, state: State) -> None:
    operands, label, shown = found.operands, f"{name}-writes", f"`{name}`"
    match spec.operands:
        case "write" | "fmt":
            for operand in operands:
                judge.write(operand, state, label, shown, destroys=name == "touch")
        case "destroy":
            recursive = found.has("-r", "-R", "--recursive")
            for operand in operands:
                judge.write(operand, state, label, shown, destroys=True)
                if recursive and not operand.startswith(f"{judge.tmp}/mktemp.") and depth_below(operand, judge.tmp) > 0:
                    judge.flag("B", f"{name}-through-link", f"{str(operand)!r} may lead out of the scratch directory.")
        case "mode":
            for operand in operands if found.has("--reference") else _after_mode(found, words=operands):
                judge.write(operand, state, label, shown, destroys=True)
        case "last" | "rest":
            for operand in operands[-1:] if spec.operands == "last" else operands[1:]:
                judge.write(operand, state, label, shown)
        case "first-write":
            for operand in operands[:1]:
                if operand != "-":
                    judge.write(operand, state, label, shown)
        case "second":
            for operand in operands[1:]:
                if operand != "-":
                    judge.write(operand, state, label, shown)
        case "split":
            for operand in operands[1:] or ([] if found.kind(RUN) else ["x"]):
                judge.write(operand, state, label, shown)
        case "cwd":
            if operands:
                for folder in [option.value or "." for option in found.kind(DIR)] or ["."]:
                    judge.write(folder, state, label, shown)
        case "B" | "S" as rating:
            if operands:
                flat(judge, name, rating)
        case _:
            pass


def _after_mode(found: Scan, words: list[str]) -> list[str]:
    """`chmod -x file`: what looks like options is the mode, so no operand is one."""
    modes = [option for option in found.options if option.name[1:2] in tuple("rwxXst")]
    return words if modes else words[1:]
