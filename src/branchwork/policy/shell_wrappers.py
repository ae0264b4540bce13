"""Programs that run other programs: the command they run is judged in their place."""

import re
from collections.abc import Callable

from branchwork.policy.shell_call import Call, Commands, child, joined
from branchwork.policy.shell_options import Scan, judge_options, judge_unknown_words, scan
from branchwork.policy.shell_paths import resolve
from branchwork.policy.shell_state import Flow, Glob, State, Unknown
from branchwork.policy.shell_tables import FLAG, SAFE, Spec, Wrapper, spec

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)\Z", re.DOTALL)
_XARGS = spec(
    "xargs",
    {"value": "-I -L -n -P -d -E -s -a --max-args --max-procs --max-chars --delimiter --arg-file --process-slot-var"},
)
_FIND_WRITES = frozenset(("-fprint", "-fprint0", "-fprintf", "-fls"))
_FIND_RUNS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def wrapped(run: Commands, call: Call, wrapper: Wrapper) -> Flow:
    """A wrapper with its options, then a command."""
    judge, state = run.judge, call.state
    found = scan(call.args, wrapper.spec, permute=False)
    judge_options(judge, call.name, found, state)
    if wrapper.floor == "S" and call.args:
        judge.flag("S", f"{call.name}-opaque", f"`{call.name}` changes where and as whom a command runs.")
    if found.kind(SAFE):
        return state, state
    words = found.operands
    if wrapper.lock:
        return _flock(run, call, found)
    words = words[wrapper.skip :]
    if wrapper.assigns:
        words, state = _assigned(run, words, state)
    if words and wrapper.script:
        run.script(joined(words), child(state))
    elif words:
        _, failure = run.call(words, state, call.stdin)
        _value_taken_for_command(run, found, words, state)
        if call.name in ("time", "coproc", "busybox", "toybox") and words[0] in ("cd", "eval", "source", "."):
            return state.at(state.cwds | {None}), failure
    return call.state, call.state


def _flock(run: Commands, call: Call, found: Scan) -> Flow:
    for script in found.values("-c", "--command"):
        run.script(script, child(call.state))
    if found.operands and not found.operands[0].isdigit():
        run.judge.write(found.operands[0], call.state, "flock-writes", "`flock`")
    rest = found.operands[1:]
    if rest[:1] in (["-c"], ["--command"]):
        run.script(joined(rest[1:2]), child(call.state))
    elif rest:
        run.call(rest, call.state, call.stdin)
    return call.state, call.state


def _assigned(run: Commands, words: list[str], state: State) -> tuple[list[str], State]:
    for index, word in enumerate(words):
        match = _ASSIGNMENT.match(word)
        if match is None:
            return words[index:], state
        run.environment(match[1], Unknown(match[2]) if isinstance(word, Unknown) else match[2], state)
    return [], state


def env(run: Commands, call: Call) -> Flow:
    """`env` splits the value of -S itself, with quotes and `${NAME}`; a shell reads it the same or more widely."""
    args, state = list(call.args), call.state
    found = scan(args, _ENV_SPEC, permute=False)
    for option in found.options:
        if option.name in ("-S", "--split-string") and option.value is not None:
            rest = [_quote(word) for word in found.operands]
            text = joined([option.value.removeprefix("="), *rest])
            run.script(text if not isinstance(text, Unknown) else Unknown(text), child(state))
            return state, state
        if option.name in ("-C", "--chdir") and option.value is not None:
            state = state.at(frozenset(resolve(cwd, option.value) for cwd in state.cwds))
    words, state = _assigned(run, found.operands[1:] if found.operands[:1] == ["-"] else found.operands, state)
    if words:
        run.call(words, state, call.stdin)
        _value_taken_for_command(run, found, words, state)
    return call.state, call.state


def _value_taken_for_command(run: Commands, found: Scan, words: list[str], state: State) -> None:
    """An option that no table knows may have a value, and then the command starts one word later."""
    if len(words) < 2 or not found.options or found.options[-1].kind != FLAG or found.options[-1].value is not None:
        return
    name = str(words[0]).rsplit("/", 1)[-1].lower()
    known = run.find(name) or name in run.judge.tables.wrappers or name in run.judge.tables.words["shells.names"]
    if not known and not isinstance(words[1], (Unknown, Glob)) and words[1][:1] != "-":
        run.call(words[1:], state)


_ENV_SPEC = spec("env", {"value": "-u -a -P --unset --argv0", "dir": "-C -S --chdir --split-string"})


def _quote(word: str) -> str:
    if isinstance(word, Unknown):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def shell(run: Commands, call: Call) -> None:
    """`sh -c TEXT`, a script by its name, or commands from standard input."""
    judge, args = run.judge, call.args
    index, text = 0, None
    while index < len(args):
        word = args[index]
        if isinstance(word, Unknown):
            judge.flag("S", "dynamic-script", f"A shell reads {str(word)!r}, known only when it runs.")
            return
        if len(word) < 2 or word[0] not in "-+" or word in ("-", "--"):
            index += word in ("--", "-")
            break
        index += 1
        if word in ("--rcfile", "--init-file"):
            judge.flag("S", "shell-startup-file", f"`{call.name} {word}` reads commands from a file.")
            index += 1
        elif word in ("--version", "--help"):
            return
        elif not word.startswith("--"):
            index += 1 if word[-1] in "oO" else 0
            if "c" in word[1:]:
                text = True
    rest = args[index:]
    if text:
        if rest:
            run.script(rest[0], child(call.state))
        return
    if "-s" in args or not rest:
        _from_input(run, call)
    else:
        judge.flag("S", "script-file", f"The commands in {str(rest[0])!r} cannot be seen here.")


def _from_input(run: Commands, call: Call) -> None:
    if call.stdin is None:
        run.judge.flag("S", "interactive-shell", f"`{call.name}` reads commands that are not on the command line.")
    elif isinstance(call.stdin, Unknown):
        run.judge.flag("S", "piped-script", f"`{call.name}` runs what another program prints.")
    else:
        run.script(call.stdin, child(call.state))


def xargs(run: Commands, call: Call) -> Flow:
    judge, state = run.judge, call.state
    found = scan(call.args, _XARGS, permute=False)
    words = found.operands
    if not words:
        return state, state
    stdin = Unknown("<") if found.has("-a", "--arg-file") else call.stdin
    data = (isinstance(stdin, Unknown) and stdin.data) or found.has("-a", "--arg-file")
    marker = next(iter(found.values("-I", "--replace")), "{}" if found.has("-i", "--replace") else None)
    text = stdin if stdin is not None and not isinstance(stdin, Unknown) and "\\" not in stdin else None
    items = text.replace("'", "").replace('"', "").split() if text is not None else []
    unknown = Unknown("xargs…")
    unknown.data = data
    if marker is not None:
        value: str = items[0] if len(items) == 1 else unknown
        filled = [_replace(word, marker, value) for word in words]
    else:
        filled = [*words, *(items if text is not None else [unknown])]
    command = run.find(str(words[0]).rsplit("/", 1)[-1].lower())
    if (
        command is not None
        and (command.subs or command.handler in ("git", "wget"))
        and len(words) == 1
        and text is None
    ):
        judge.flag("B", "xargs-unknown-verb", f"`{words[0]}` gets a subcommand that is not known.")
    run.call(filled, state, unknown)
    return state, state


def _replace(word: str, marker: str, value: str) -> str:
    if marker not in word or not marker:
        return word
    before, _, _ = word.partition(marker)
    if isinstance(value, Unknown):
        filled = Unknown.of(word, before)
        filled.data = value.data
        return filled
    return word.replace(marker, value)


def find(run: Commands, call: Call, _: Spec) -> None:
    judge, state, args = run.judge, call.state, call.args
    judge_unknown_words(judge, "find", args)
    start = next((i for i, word in enumerate(args) if word[:1] not in ("-",) and word not in ("(", "!", ",")), 0)
    roots: list[str] = []
    for word in args[start:]:
        if word[:1] == "-" or word in ("(", "!", ")", ","):
            break
        roots.append(word)
    roots = roots or ["."]
    if {"-L", "-follow", "-H"} & set(args):
        roots = [Unknown("find -L")]
    index = 0
    while index < len(args):
        word = args[index]
        index += 1
        if word in _FIND_WRITES:
            for target in args[index : index + 1]:
                judge.write(target, state, f"find-{word[1:]}", f"`find {word}`")
        elif word == "-delete":
            for root in roots:
                judge.write(root, state, "find-delete", "`find -delete`", destroys=True)
        elif word in _FIND_RUNS:
            command: list[str] = []
            while index < len(args) and args[index] != ";" and not (args[index] == "+" and command[-1:] == ["{}"]):
                command.append(args[index])
                index += 1
            index += 1
            inner = state.at(frozenset((None,))) if word.endswith("dir") else state
            for root in roots:
                _run_found(run, command, root, inner)
        elif word == "-files0-from":
            roots = [Unknown("-files0-from")]


def _run_found(run: Commands, command: list[str], root: str, state: State) -> None:
    known = not isinstance(root, (Unknown, Glob)) and None not in state.cwds
    found = Unknown.of("{}", root=root) if known else Unknown("{}")
    words: list[str] = []
    for word in command:
        if word == "{}":
            words.append(found)
        elif "{}" in word:
            words.append(Unknown.of(word, word.partition("{}")[0]))
        else:
            words.append(word)
    if words:
        run.call(words, state)


def fd(run: Commands, call: Call, _: Spec) -> None:
    for index, word in enumerate(call.args):
        command: list[str] = []
        if re.fullmatch(r"-[A-Za-z]*[xX]", word) or word in ("--exec", "--exec-batch"):
            command = call.args[index + 1 :]
        elif word.startswith(("--exec=", "--exec-batch=")):
            command = [word.partition("=")[2], *call.args[index + 1 :]]
        elif re.match(r"-[A-Za-wyzA-WYZ]*[xX]\w", word) and not word.startswith("--"):
            command = [re.split(r"[xX]", word, maxsplit=1)[1], *call.args[index + 1 :]]
        elif word.startswith("--ex") and not word.startswith(("--exclude", "--extension")):
            command = [Unknown(word)]
        if command:
            words = [Unknown("{}") if word.startswith("{") else word for word in command]
            run.call([*words, Unknown("{}")], call.state)
            return


def su(run: Commands, call: Call, _: Spec) -> None:
    found = scan(call.args, _SU)
    for text in found.values("-c", "--command", "--session-command"):
        run.script(text, State(frozenset((None,)), {}))
    if not found.values("-c", "--command", "--session-command"):
        run.judge.flag("S", "interactive-shell", "`su` starts a shell whose commands are not on the command line.")


_SU = spec("su", {"value": "-c -s -g -G -w -T --command --session-command --shell --group"})


def script(run: Commands, call: Call, _: Spec) -> None:
    """`script -c COMMAND FILE`: the file is `typescript` by default."""
    found = scan(call.args, _SCRIPT)
    judge_options(run.judge, "script", found, call.state)
    for text in found.values("-c", "--command"):
        run.script(text, child(call.state))
    if not found.values("-c", "--command"):
        run.judge.flag("S", "interactive-shell", "`script` starts a shell.")
    run.judge.write(found.operands[0] if found.operands else "typescript", call.state, "script-writes", "`script`")


_SCRIPT = spec(
    "script", {"value": "-c -E -m -o --command", "write": "-B -I -O -T -t --log-in --log-out --log-io --log-timing"}
)


def shell_words(run: Commands, call: Call, _: Spec) -> None:
    """`hyperfine 'a' 'b'`: each word is a script; so are the values of its hooks."""
    for word in call.args:
        if word[:1] != "-":
            run.script(word, child(call.state))
        elif word.startswith(("--export", "--out")):
            run.judge.flag("B", "hyperfine-writes", "`hyperfine` writes its figures to a file.")


def parallel(run: Commands, call: Call, _: Spec) -> None:
    """The words up to `:::` and one argument each make a line for a shell."""
    words = call.args
    while words and words[0][:1] == "-":
        if words[0].startswith(("--results", "--joblog", "--tmpdir", "--compress-program", "--res", "--jobl")):
            run.judge.flag("B", "parallel-writes", "`parallel` writes files.")
        words = words[2 if words[0] in ("-j", "-n", "-N", "-I", "-a", "--jobs", "-d", "-P") else 1 :]
    template = list(words)
    values: list[str] = []
    for index, word in enumerate(words):
        if word.startswith(":::"):
            template, values = words[:index], [value for value in words[index + 1 :] if not value.startswith(":::")]
            break
    text = joined(template)
    if not template:
        for value in values:
            run.script(value, child(call.state))
        run.judge.flag("S", "piped-script", "`parallel` runs lines that it reads.")
        return
    if isinstance(text, Unknown):
        run.script(text, call.state)
        return
    run.script(re.sub(r"\{[^{} ]*\}", '"$@"', text) if "{" in text else f'{text} "$@"', child(call.state))
    if any(not re.fullmatch(r"[\w./-]+", value) or value.startswith("-") for value in values) or "sh" in template:
        run.judge.flag("S", "parallel-arguments", "`parallel` puts its arguments into a script.")


def entr(run: Commands, call: Call, _: Spec) -> None:
    words = call.args
    script_wanted = False
    while words and words[0][:1] == "-":
        script_wanted = script_wanted or "s" in words[0]
        words = words[1:]
    if script_wanted:
        run.script(joined(words[:1]), child(call.state))
    elif words:
        run.call([Unknown("/_") if word == "/_" else word for word in words], call.state)


def ip(run: Commands, call: Call, own: Spec) -> None:
    words = [word for word in call.args if word[:1] != "-" or len(word) < 2]
    if words[:1] and "netns".startswith(words[0]) and words[1:2] and "exec".startswith(words[1]):
        run.judge.flag("S", "ip-opaque", "`ip netns exec` runs a command elsewhere.")
        if words[3:]:
            run.call(call.args[call.args.index(words[3]) :], call.state)
        return
    if set(words[1:2]) & run.judge.tables.words["ip.writes"]:
        run.judge.flag("B", "ip-writes", "`ip` changes the network.")
    if any(word.startswith(("-b", "-batch", "-fo")) for word in call.args) or "-force" in call.args:
        run.judge.flag("S", "ip-opaque", "`ip -batch` reads commands from a file.")
    if any(word.startswith(("-n", "-netns")) and "exec" in words for word in call.args):
        run.judge.flag("S", "ip-opaque", "`ip` runs a command elsewhere.")


def perf(run: Commands, call: Call, own: Spec) -> None:
    verb, rest = (call.args[0], call.args[1:]) if call.args else ("", [])
    if verb in run.judge.tables.words["perf.writes"]:
        run.judge.flag("B", "perf-writes", f"`perf {verb}` writes a file.")
    found = scan(rest, _PERF, permute=False)
    judge_options(run.judge, "perf", found, call.state)
    if verb == "stat" and found.operands:
        run.call(found.operands, call.state)


_PERF = spec("perf", {"write": "-o --output", "value": "-e -p -t -C -r -i --event"})

HANDLERS: dict[str, Callable[[Commands, Call, Spec], None]] = {
    "find": find, "fd": fd, "su": su, "script": script, "shell-words": shell_words, "parallel": parallel,
    "entr": entr, "ip": ip, "perf": perf,
}  # fmt: skip
