"""Programs whose argument is code. sed is read in full; of the others only plainly harmless code rates A."""

import re
from collections.abc import Callable

from branchwork.policy.shell_call import Call, Commands
from branchwork.policy.shell_options import judge_options, judge_spec, judge_unknown_words, scan
from branchwork.policy.shell_sed import Unreadable, sed_effects
from branchwork.policy.shell_state import Unknown
from branchwork.policy.shell_tables import Spec, spec

_SED = spec(
    "sed",
    {
        "value": "-e -f -l --expression --file --line-length",
        "inplace": "-i --in-place",
        "safe": "--version --help",
    },
)


def sed(run: Commands, call: Call, _: Spec) -> None:
    judge, state = run.judge, call.state
    words = list(call.args)
    found = scan(words, _SED)
    scripts = found.values("-e", "--expression")
    files = found.values("-f", "--file")
    longs = [option.name for option in found.options if option.name.startswith("--")]
    scripts += [
        o.value for o in found.options if o.value and o.name not in _SED.kinds and "--expression".startswith(o.name)
    ]
    operands = found.operands
    inplace = bool(found.kind("inplace")) or any(
        re.match(r"-[nEruszb]*[iI]", word) for word in words if word[:2] != "--"
    )
    if not scripts and not files and not any(len(n) > 2 and "--file".startswith(n) for n in longs):
        if inplace and operands[:1] == [""]:
            operands = operands[1:]
        scripts, operands = operands[:1], operands[1:]
    if files or any(len(n) > 2 and "--file".startswith(n) for n in longs):
        judge.flag("S", "sed-script-file", "The commands of a sed script in a file cannot be seen here.")
    judge_unknown_words(judge, "sed", [w for w in call.args if w not in scripts])
    if inplace:
        for operand in operands:
            judge.write(operand, state, "sed-in-place", "`sed -i`")
    if any(isinstance(text, Unknown) for text in scripts):
        judge.flag("S", "sed-dynamic-script", "The sed script is known only when it runs.")
        return
    try:
        effects = sed_effects("\n".join(scripts))
    except Unreadable:
        judge.flag("S", "sed-unreadable", "The sed script cannot be followed.")
        return
    if effects.runs:
        judge.flag("B", "sed-runs", "The sed script runs commands.")
    for target in effects.writes:
        judge.write(target, state, "sed-writes", "The sed script")


_AWK = spec(
    "awk",
    {
        "value": "-v -F --assign --field-separator",
        "opaque": "-f -E -l --file --exec --load --include -D --debug -i",
        "create": "-o -p -d --pretty-print --profile --dump-variables",
    },
)


def awk(run: Commands, call: Call, _: Spec) -> None:
    judge = run.judge
    found = scan(call.args, _AWK, permute=False)
    judge_options(judge, "awk", found, call.state)
    texts = [*found.operands[:1], *found.values("-e", "--source")]
    if found.has("-e", "--source") or any(len(o.name) > 3 and "--source".startswith(o.name) for o in found.options):
        judge.flag("S", "awk-program", "An awk program in several parts is not followed.")
    for index, word in enumerate(call.args):
        if word in ("-i", "--include") and call.args[index + 1 : index + 2] == ["inplace"]:
            for operand in call.args[index + 3 :]:
                judge.write(operand, call.state, "awk-in-place", "`awk -i inplace`")
    for text in texts:
        if isinstance(text, Unknown) or not plain_awk(text):
            judge.flag("S", "awk-program", "The awk program may write or run something.")


def plain_awk(text: str) -> bool:
    """Nothing after a `print` that could be a redirect, no pipe, no `system`, no `@`. Strings count as code."""
    if re.search(r"system|getline|@|\\\n", text):
        return False
    first = re.search(r"print", text)
    rest = text[first.end() :] if first else ""
    if ">" in rest or "|" in rest.replace("||", ""):
        return False
    return re.search(r"(?<!\|)\|(?!\|)&", text) is None


_PERL_WORD = re.compile(r"[A-Za-z_]\w*")
_PERL_SUBSTITUTE = re.compile(
    r"""(?: \bs(?P<a>[/|#,!])(?:(?!(?P=a))[^\n\\]|\\.)*(?P=a)(?:(?!(?P=a))[^\n\\]|\\.)*(?P=a)[gimsx]*
    | \b(?:y|tr)(?P<b>[/|#,!])(?:(?!(?P=b))[^\n\\]|\\.)*(?P=b)(?:(?!(?P=b))[^\n\\]|\\.)*(?P=b)[cdsr]*
    | (?<![\w)$])/(?:[^/\n\\]|\\.)*/[gimsx]* )
    (?=\s*(?:[;})]|$|and\b|or\b|if\b|unless\b|&&|\|\|))""",
    re.VERBOSE,
)


def perl(run: Commands, call: Call, own: Spec) -> None:
    """perl and ruby. `-i` writes the operands; code is followed only when it is plain."""
    judge, args = run.judge, call.args
    codes: list[str] = []
    operands: list[str] = []
    inplace = False
    index = 0
    while index < len(args):
        word = args[index]
        index += 1
        if word == "--":
            operands += args[index:]
            break
        if word[:1] != "-" or len(word) < 2:
            operands.append(word)
            if not codes:
                operands += args[index:]
                break
            continue
        if word in ("--version", "-v", "--help", "-h"):
            return
        letters = re.match(r"-([A-Za-z0-9]*)", word)
        body = letters[1] if letters else ""
        for position, letter in enumerate(body):
            if letter == "i":
                inplace = True
                break
            if letter in "eE":
                codes.append(word[position + 2 :] or "".join(args[index : index + 1]))
                index += 0 if word[position + 2 :] else 1
                break
            if letter in "IMmxrCSsdD" and not (letter == "s" and own.name == "perl"):
                judge.flag("S", f"{own.name}-option", f"`{own.name} -{letter}` loads other code.")
                break
    if inplace:
        for operand in operands:
            judge.write(operand, call.state, f"{own.name}-in-place", f"`{own.name} -i`")
    if not codes:
        judge.flag("S", f"{own.name}-script", f"The code that `{own.name}` runs cannot be seen here.")
    if any(isinstance(word, Unknown) or re.search(r"[|<>]", word) for word in operands) and codes:
        judge.flag("S", f"{own.name}-operand", f"`{own.name}` may take the name of a file for a command.")
    for code in codes:
        _inline(
            run, call, own.name, code, plain=own.name == "perl" and plain_perl(code, judge.tables.words["perl.words"])
        )


def plain_perl(code: str, known: frozenset[str]) -> bool:
    if isinstance(code, Unknown) or (
        re.search(r"[`@<>&|]|\$\{|\(\?\??\{|\bq[qxwr]?\b|=~\s*s|\*|e\w*\s*$", code.replace("print", ""))
        and code not in ("print", "1")
    ):
        return False
    rest = _PERL_SUBSTITUTE.sub(" ", code)
    rest = re.sub(r'"[^"$@\\]*"|\$[\w.,;/]', " ", rest)
    return all(word in known for word in _PERL_WORD.findall(rest)) and "/" not in rest


def _inline(run: Commands, call: Call, name: str, code: str, *, plain: bool = False) -> None:
    """Code of another language. Some of it is a shell command in disguise, which is worth a clear answer."""
    if plain:
        return
    plain_words = not isinstance(code, Unknown) and re.fullmatch(r"[A-Za-z][\w-]*( +[\w./~-]+)+", code)
    if plain_words and run.would_write(code.split(), call.state):
        run.judge.flag("B", "inline-shell-command", f"`{name}` gets a command that writes.")
    run.judge.flag("S", f"{name}-code", f"What the code given to `{name}` does cannot be seen.")


def interpreter(run: Commands, call: Call, own: Spec) -> None:
    judge_spec(run.judge, own, own.name, call.args, call.state)
    if not call.args:
        run.judge.flag("S", f"{own.name}-opaque", f"The code that `{own.name}` runs cannot be seen here.")
    if own.name == "node" and call.args[:1] in (["--test"], ["--check"], ["-c"]):
        return
    verbs = run.judge.tables.verbs.get(own.name)
    if verbs is not None:
        return
    for index, word in enumerate(call.args):
        if word in ("-e", "-r", "-c", "-p", "--eval", "--print"):
            for code in call.args[index + 1 : index + 2]:
                _inline(run, call, own.name, code)


def python(run: Commands, call: Call, own: Spec) -> None:
    judge, args = run.judge, call.args
    index = 0
    while index < len(args) and args[index][:1] == "-" and args[index] != "-":
        word = args[index]
        if word in ("--version", "-V", "-VV", "--help", "-h"):
            return
        if word.startswith("-m") or (re.fullmatch(r"-[A-Za-z]*m", word) is not None):
            module = word[2:] if len(word) > 2 and word.startswith("-m") else "".join(args[index + 1 : index + 2])
            rest = args[index + (1 if len(word) > 2 and word.startswith("-m") else 2) :]
            _module(run, call, module, rest)
            return
        if "c" in word[1:] and not word.startswith("--"):
            code = word.partition("c")[2] or "".join(args[index + 1 : index + 2])
            _inline(run, call, "python", code)
            judge.flag("S", "python-code", "What the code given to `python` does cannot be seen.")
            return
        index += 2 if word in ("-W", "-X", "--check-hash-based-pycs") else 1
    judge.flag("S", "python-script", "The code that `python` runs cannot be seen here.")


def _module(run: Commands, call: Call, module: str, rest: list[str]) -> None:
    judge, words = run.judge, run.judge.tables.words
    if isinstance(module, Unknown):
        judge.flag("S", "python-module", "The module is known only when it runs.")
    elif module in words["python.commands"]:
        run.call([module, *rest], call.state, call.stdin)
    elif module in words["python.writing"]:
        if not (module in ("zipfile", "tarfile") and rest[:1] and rest[0] in ("-l", "--list", "-t", "--test")):
            judge.flag("B", f"python-{module}", f"`python -m {module}` writes files.")
    elif module == "json.tool":
        for target in [word for word in rest if word[:1] != "-"][1:]:
            judge.write(target, call.state, "python-json.tool", "`python -m json.tool`")
    elif module not in words["python.modules"]:
        judge.flag("S", "python-module", f"What `python -m {module}` does is not known.")


_SQL_READS = re.compile(
    r"\s*(select|explain|show|pragma\s+\w+(\(\w+\))?\s*;?\s*$|values|\\d|\\l|\\conninfo|\\dt)", re.IGNORECASE
)
_SQL_RISKY = re.compile(
    r"writefile|readfile|load_extension|edit\s*\(|\binto\b|;.*\S|lo_export|pg_\w*(file|terminate|reload)|dblink|copy|\\[gowci!]|\n\s*[.\\]|\||`|program",
    re.IGNORECASE | re.DOTALL,
)
_SQL_WRITES = re.compile(
    r"\s*(insert|update|delete|drop|create|alter|replace|vacuum|reindex|attach|truncate|grant|revoke)\b", re.IGNORECASE
)
_DOT_READS = re.compile(
    r"\s*\.(tables|schema|fullschema|indexes|indices|databases|dbinfo|dump|headers?|mode|width|show|stats|help|quit|exit|separator|nullvalue|timer|echo)\b[^|>`]*\Z",
    re.IGNORECASE,
)


def _sql(run: Commands, name: str, text: str, place: str) -> None:
    """Rate one statement."""
    judge = run.judge
    if isinstance(text, Unknown):
        judge.flag("S", f"{name}-sql", f"What `{name}` runs is known only then.")
    elif _SQL_WRITES.match(text):
        judge.flag("B", f"{name}-sql", f"{text[:40]!r} changes {place}.")
    elif (_DOT_READS.match(text) and name == "sqlite3" and "\n" not in text) or (
        _SQL_READS.match(text) and not _SQL_RISKY.search(text.rstrip().rstrip(";"))
    ):
        return
    else:
        judge.flag("S", f"{name}-sql", f"What {text[:40]!r} does is not known.")


def sqlite(run: Commands, call: Call, own: Spec) -> None:
    words = call.args
    operands: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        if word[:1] == "-" and len(word) > 1:
            name = word.lstrip("-")
            if name in (
                "init",
                "A",
                "archive",
                "vfs",
                "zip",
                "deserialize",
                "append",
                "interactive",
            ) or name.startswith("A"):
                run.judge.flag("S", "sqlite3-option", f"`sqlite3 {word}` runs what is not on the command line.")
            if name in ("version", "help"):
                return
            skip = name in ("cmd", "separator", "nullvalue", "newline", "init", "vfs", "maxsize", "mmap")
            if name == "cmd":
                for text in words[words.index(word) + 1 : words.index(word) + 2]:
                    _sql(run, "sqlite3", text, "the database")
        else:
            operands.append(word)
    for text in operands[1:]:
        _sql(run, "sqlite3", text, "the database")
    if len(operands) < 2:
        run.judge.flag("S", "sqlite3-input", "`sqlite3` reads statements that are not on the command line.")


_PSQL = spec(
    "psql",
    {
        "value": "-c -d -h -p -U -v -P -F -R -T --command --dbname --host --port --username --set --variable --pset",
        "write": "-o -L --output --log-file",
        "opaque": "-f --file",
        "safe": "-l --list -V --version --help",
    },
)


def psql(run: Commands, call: Call, _: Spec) -> None:
    found = scan(call.args, _PSQL)
    judge_options(run.judge, "psql", found, call.state)
    texts = found.values("-c", "--command")
    for text in texts:
        _sql(run, "psql", text, "the database")
    if not texts and not found.kind("safe"):
        run.judge.flag("S", "psql-input", "`psql` reads statements that are not on the command line.")


def pager(run: Commands, call: Call, own: Spec) -> None:
    """`less +CMD` types CMD; only places to start at are plain."""
    for word in call.args:
        if word.startswith("+") and not re.fullmatch(r"\+{1,2}(\d*[GgF]?|/[^\n]*)", word):
            run.judge.flag("S", "less-keys", f"`{own.name} {word!s}` types commands.")
    judge_spec(run.judge, own, own.name, call.args, call.state)


HANDLERS: dict[str, Callable[[Commands, Call, Spec], None]] = {
    "sed": sed, "awk": awk, "perl": perl, "interpreter": interpreter, "python": python, "sqlite": sqlite, "psql": psql,
    "pager": pager,
}  # fmt: skip
