"""Builtins of the shell that move it, evaluate text, or run other commands."""

import re
from collections.abc import Callable

from branchwork.policy.shell_call import Call, Commands, blurred, child, joined
from branchwork.policy.shell_paths import resolve
from branchwork.policy.shell_state import Flow, Unknown
from branchwork.policy.shell_words import EVALUATED
from branchwork.policy.shell_wrappers import env, xargs

_NAME = re.compile(r"[A-Za-z_]\w*\Z")


def _cd(run: Commands, call: Call) -> Flow:
    state = call.state
    options = [word for word in call.args if word[:1] == "-" and len(word) > 1 and word != "--"]
    targets = [word for word in call.args if word not in options and word != "--"]
    physical = any("P" in option for option in options)
    if call.name not in ("cd", "pushd") or len(targets) > 1 or targets[:1] == ["-"] or physical:
        return blurred(state).at(state.cwds | {None}), state
    target = targets[0] if targets else run.judge.settings.home or Unknown("~")
    known = state.variables.get("HOME") if not targets else None
    if known is not None:
        target = known
    cwds = frozenset(resolve(cwd, target) for cwd in state.cwds)
    if "CDPATH" in state.variables or target == "":
        cwds = cwds | {None}
    moved = state.at(cwds)
    surely = target in (run.judge.tmp, "/") and not isinstance(target, Unknown)
    return moved, None if surely else state


def _eval(run: Commands, call: Call) -> Flow:
    run.script(joined(call.args), call.prefixed)
    return blurred(call.state), blurred(call.state)


def _trap(run: Commands, call: Call) -> Flow:
    words = [word for word in call.args if word not in ("--", "-p", "-l")]
    if len(words) > 1 and words[0] not in ("-", ""):
        run.script(words[0], blurred(call.state))
    return call.state, call.state


def _source(run: Commands, call: Call) -> Flow:
    if call.args and call.args[0] != "/dev/null":
        run.judge.flag("S", "source", "The commands of a file that is read in cannot be seen here.")
    return blurred(call.state), blurred(call.state)


def _alias(run: Commands, call: Call) -> Flow:
    for word in call.args:
        name, equals, value = word.partition("=")
        if isinstance(word, Unknown):
            run.judge.flag("S", "dynamic-alias", "An alias whose text is not known.")
        elif equals:
            if name in run.judge.tables.words["builtins.names"]:
                run.judge.flag("S", "alias-shadows-builtin", f"An alias named {name!r} changes what the script means.")
            run.script(f'{value} "$@"' if re.fullmatch(r"[\w./ =-]+", value) else value, call.state)
    return call.state, call.state


def _assigns(run: Commands, call: Call) -> Flow:
    """`read x`, `mapfile a`, `getopts`, `let`, `printf -v`: variables get values that are not known."""
    names: list[str] = []
    for index, word in enumerate(call.args):
        if isinstance(word, Unknown) and call.name in ("let", "read", "getopts", "mapfile", "readarray", "local"):
            run.judge.flag("S", "evaluated-text", f"`{call.name}` evaluates a text known only when it runs.")
        if EVALUATED.search(word):
            run.judge.flag("S", "evaluated-text", f"{str(word)!r} holds a command that the shell would run.")
        if call.name in ("mapfile", "readarray") and word.startswith("-") and "C" in word:
            text = word.partition("C")[2] or "".join(call.args[index + 1 : index + 2])
            run.script(Unknown(text) if isinstance(word, Unknown) else text, call.state)
            run.judge.flag("S", "callback", f"`{call.name} -C` runs a command for the lines that it reads.")
        name = re.match(r"[A-Za-z_]\w*", word)
        if name:
            names.append(name[0])
    if call.name == "let":
        for name_ in {found for word in call.args for found in re.findall(r"[A-Za-z_]\w*", word)}:
            if name_ in call.state.variables and isinstance(call.state.variables[name_], Unknown):
                run.judge.flag("S", "arithmetic-value", f"Arithmetic evaluates what ${name_} holds.")
    if not names:
        names = ["REPLY", "MAPFILE"]
    state = call.state
    for name_ in names:
        state = run.environment(name_, _read(name_), state)
    return state, state


def _read(name: str) -> Unknown:
    value = Unknown("$" + name)
    value.data = True
    return value


def _printf(run: Commands, call: Call) -> Flow:
    if call.args[:1] and call.args[0].startswith("-v"):
        name = call.args[0][2:] or "".join(call.args[1:2])
        rest = Call("read", [name], call.state, call.stdin, call.prefixed)
        return _assigns(run, rest)
    return call.state, call.state


def _test(run: Commands, call: Call) -> Flow:
    """`test -v 'a[$(x)]'` and `[ -v ...` evaluate the subscript."""
    if "-v" in call.args or "-R" in call.args:
        for word in call.args:
            if EVALUATED.search(word) or (isinstance(word, Unknown) and word != "-v"):
                run.judge.flag("S", "evaluated-text", f"`{call.name} -v` evaluates {str(word)!r}.")
    return call.state, call.state


def _command(run: Commands, call: Call) -> Flow:
    args = call.args
    while args and args[0].startswith("-") and len(args[0]) > 1:
        option, args = args[0], args[1:]
        if option == "--":
            break
        if option.strip("-") and set(option[1:]) & {"v", "V"} and call.name == "command":
            return call.state, call.state
    return run.call(args, call.state, call.stdin) if args else (call.state, call.state)


def _exec(run: Commands, call: Call) -> Flow:
    args = call.args
    while args and args[0].startswith("-") and len(args[0]) > 1:
        option, args = args[0], args[1:]
        if option == "--":
            break
        if option.endswith("a"):
            args = args[1:]
    if not args:
        return call.state, call.state
    run.call(args, call.state, call.stdin)
    return None, call.state


def _exit(run: Commands, call: Call) -> Flow:
    """Two arguments are an error after which the script goes on."""
    if len(call.args) > 1 or any(isinstance(word, Unknown) for word in call.args):
        return call.state, call.state
    return None, None


def _unset(run: Commands, call: Call) -> Flow:
    for word in call.args:
        if EVALUATED.search(word):
            run.judge.flag("S", "evaluated-text", f"{str(word)!r} holds a command that the shell would run.")
    return call.state.forgetting([word for word in call.args if _NAME.match(word)]), call.state


def _opaque(run: Commands, call: Call) -> Flow:
    """Uses that load code, redefine commands, or edit and run the history."""
    words = call.args
    flags = "".join(word[1:] for word in words if word[:1] == "-")
    risky = {
        "hash": "p" in flags,
        "enable": "f" in flags or "n" in flags,
        "bind": bool(words) and not set(flags) <= set("lpPsSvVqX"),
        "complete": "C" in flags or "F" in flags,
        "compgen": bool(set(flags) & set("CFWX")),
        "fc": not set(flags) <= set("lnr") or not flags,
        "history": bool(set(flags) & set("awcdsp")),
        "shopt": any(word in ("expand_aliases", "lastpipe", "extdebug", "cdable_vars", "compat31") for word in words),
        "set": any(word in ("-k", "-P", "physical", "keyword") for word in words),
        "builtin": False,
    }.get(call.name, True)
    if risky or any(isinstance(word, Unknown) and not word.prefix for word in words if call.name != "set"):
        run.judge.flag("S", f"{call.name}-opaque", f"`{call.name}` changes what later commands mean.")
    return call.state, call.state


def _fields(run: Commands, call: Call) -> Flow:
    """`export`, `declare` and the like when they are not parsed as such, as in `command export X=1`."""
    state = call.state
    for word in call.args:
        name, equals, value = word.partition("=")
        if isinstance(word, Unknown) and not equals:
            run.judge.flag("S", "dynamic-declaration", f"{str(word)!r} may set any variable.")
        elif equals and _NAME.match(name):
            state = run.environment(name, Unknown(value) if isinstance(word, Unknown) else value, state)
        elif EVALUATED.search(word):
            run.judge.flag("S", "evaluated-text", f"{str(word)!r} holds a command that the shell would run.")
    return blurred(child(state)), state


HANDLERS: dict[str, Callable[[Commands, Call], Flow]] = {
    "cd": _cd, "pushd": _cd, "popd": _cd,
    "eval": _eval, "trap": _trap, "source": _source, ".": _source, "alias": _alias,
    "read": _assigns, "mapfile": _assigns, "readarray": _assigns, "getopts": _assigns, "let": _assigns,
    "printf": _printf, "test": _test, "[": _test,
    "command": _command, "builtin": _command, "exec": _exec, "exit": _exit, "unset": _unset,
    "hash": _opaque, "enable": _opaque, "bind": _opaque, "complete": _opaque, "compgen": _opaque, "fc": _opaque,
    "history": _opaque, "shopt": _opaque, "set": _opaque,
    "env": env, "xargs": xargs,
    "export": _fields, "declare": _fields, "typeset": _fields, "local": _fields, "readonly": _fields,
}  # fmt: skip
