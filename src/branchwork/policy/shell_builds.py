"""Programs with subcommands, and programs that run a project's own scripts."""

import re
from collections.abc import Callable

from branchwork.policy.shell_call import Call, Commands
from branchwork.policy.shell_options import judge_options, judge_unknown_words, scan
from branchwork.policy.shell_state import Unknown
from branchwork.policy.shell_tables import Spec, spec

_FIXES = re.compile(
    r"--(fix|write|apply|in-?place|update|updateSnapshot|update-snapshots?|snapshot-update|output|out-?dir|out-?file)\b|-u\Z|-w\Z|-i\Z|-o"
)


def verbs(run: Commands, call: Call, own: Spec) -> None:
    """The first word that is no option decides, for some programs the second, too."""
    judge, name = run.judge, own.name
    table = judge.tables.verbs.get(name)
    args = [word for word in call.args if not (name == "cargo" and word.startswith("+"))]
    where = name
    while table is not None:
        found = scan(args, table.spec, permute=False)
        judge_options(judge, where.replace(" ", "-"), found, call.state)
        operands = args if table.dashed else found.operands
        if not operands:
            if table.bare != "A" and not ({"--version", "-v", "-V", "--help", "-h"} & set(args)):
                judge.flag("B", f"{where}-writes".replace(" ", "-"), f"`{where}` alone changes things.")
            return
        verb, args = operands[0], operands[1:]
        if isinstance(verb, Unknown):
            judge.flag("B", f"{name}-unknown-verb", f"The subcommand of `{name}` is known only when it runs.")
            return
        lower = verb if table.dashed else verb.lower()
        deeper = judge.tables.verbs.get(f"{name} {lower}") if where == name else None
        if deeper is None:
            rating = (
                table.ratings.get(lower) or (_dashed(lower, table.ratings) if table.dashed else None) or table.other
            )
            if rating != "A":
                what = "changes things" if rating == "B" else "runs code that cannot be seen here"
                judge.flag(
                    "B" if rating == "B" else "S", f"{where}-{lower}".replace(" ", "-"), f"`{where} {verb}` {what}."
                )
            _arguments(run, call, f"{name} {lower}", args, "*" in table.project or lower in table.project)
        table, where = deeper, f"{name} {lower}"


def _dashed(verb: str, ratings: dict[str, str]) -> str | None:
    """`pacman -Qi` is `-Q` with a letter more; letters that change things are never among them."""
    return ratings.get(verb[:2]) if verb[:2] == "-Q" and not set(verb[2:]) & set("RSUDy") else None


def _arguments(run: Commands, call: Call, verb: str, args: list[str], project: bool) -> None:
    judge = run.judge
    label = verb.replace(" ", "-")
    if project:
        for word in args:
            if _FIXES.match(word):
                judge.flag("B", f"{label}-fixes", f"`{verb} {word!s}` asks a script of the project to write.")
    known = _ARGUMENTS.get(verb)
    if known is not None:
        found = scan(args, known)
        judge_options(judge, label, found, call.state)
        judge_unknown_words(judge, verb, args)


_GO_WRITES = (
    "-o -coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile -trace -outputdir "
    "-test.coverprofile -test.outputdir"
)
_GO = "-toolexec -exec -vettool -overlay -modfile"
_ARGUMENTS = {
    "go test": spec("go", {"single": True, "opaque": _GO, "write": _GO_WRITES}),
    "go build": spec("go", {"single": True, "opaque": _GO, "write": "-o", "refuse": "-i"}),
    "go vet": spec("go", {"single": True, "opaque": _GO, "refuse": "-fix"}),
    "go list": spec("go", {"single": True, "opaque": _GO}),
    "cargo clippy": spec("cargo", {"refuse": "--fix", "opaque": "--config"}),
    "cargo check": spec("cargo", {"opaque": "--config"}),
    "cargo build": spec("cargo", {"opaque": "--config", "write": "--artifact-dir --out-dir --target-dir"}),
    "cargo test": spec("cargo", {"opaque": "--config", "write": "--target-dir"}),
    "cargo doc": spec("cargo", {"opaque": "--config --open", "write": "--target-dir"}),
    "cargo bench": spec("cargo", {"opaque": "--config", "write": "--target-dir"}),
    "docker cp": spec("docker", {"refuse": "-"}),
    "docker logs": spec("docker", {}),
    "npm audit": spec("npm", {"refuse": "--fix"}),
    "npm pack": spec("npm", {"safe": "--dry-run"}),
    "npm docs": spec("npm", {"opaque": "--browser"}),
    "gh api": spec("gh", {}),
    "gh browse": spec("gh", {"safe": "-n --no-browser"}),
    "hg diff": spec("hg", {"write": "-o --output", "opaque": "--config --extcmd"}),
    "hg cat": spec("hg", {"write": "-o --output", "opaque": "--config"}),
    "svn diff": spec("svn", {"run": "--diff-cmd", "opaque": "--config-option --config-dir"}),
    "pip list": spec("pip", {"write": "--log"}),
    "pip check": spec("pip", {"write": "--log"}),
    "pip show": spec("pip", {"write": "--log"}),
    "pip freeze": spec("pip", {"write": "--log"}),
    "biome check": spec("biome", {"refuse": "--write --apply --apply-unsafe --fix --unsafe"}),
    "biome lint": spec("biome", {"refuse": "--write --apply --apply-unsafe --fix --unsafe"}),
    "7z l": spec("7z", {}),
    "kubectl diff": spec("kubectl", {}),
    "kubectl cluster-info": spec("kubectl", {"write": "--output-directory"}),
    "docker-compose config": spec("docker", {"write": "-o --output"}),
    "docker compose config": spec("docker", {"write": "-o --output"}),
}  # fmt: skip


def make(run: Commands, call: Call, own: Spec) -> None:
    """Targets by name: those that build and check are run for research, others are not known."""
    judge = run.judge
    found = scan(call.args, _MAKE)
    judge_options(judge, "make", found, call.state)
    judge_unknown_words(judge, "make", call.args)
    allowed = judge.tables.words["make.targets"]
    for word in found.operands:
        if word not in allowed or isinstance(word, Unknown):
            judge.flag("S", "make-target", f"What `make {word!s}` does is not on the command line.")
    for folder in found.values("-C", "--directory", "-f", "--file", "--makefile", "-I", "--include-dir"):
        if judge.place(folder, call.state) != "outside" or folder in ("-", "/dev/stdin"):
            judge.flag("S", "make-file", f"The rules in {folder!s} cannot be trusted.")
    if any(judge.place(".", call.state) != "outside" for _ in (0,)):
        judge.flag("S", "make-file", "Rules in the scratch directory cannot be trusted.")


_MAKE = spec(
    "make",
    {
        "value": "-C -f -I -l -o -W --directory --file --makefile --include-dir"
        " --old-file --assume-old --what-if --new-file --assume-new",
        "refuse": "--eval -E",
        "opaque": "-e --environment-overrides -t --touch",
    },
)


def build_tool(run: Commands, call: Call, own: Spec) -> None:
    """gradle, maven and their like: goals that check, no file of settings from elsewhere."""
    judge = run.judge
    allowed = judge.tables.words["make.goals"]
    goals = [word for word in call.args if word[:1] != "-"]
    for word in call.args:
        if re.match(r"(-I|-b|-c|-f|-s|-D\w*exec|--init-script|--build-file|--settings|--project-cache-dir|-e\b)", word):
            judge.flag("S", f"{own.name}-option", f"`{own.name} {word!s}` may run other code.")
    if any(word not in allowed and word.rsplit(":", 1)[-1] not in allowed for word in goals):
        judge.flag("S", f"{own.name}-goal", f"What `{own.name}` does is not on the command line.")
    elif not goals and not ({"--version", "-v", "-version", "--help", "-h"} & set(call.args)):
        judge.flag("S", f"{own.name}-goal", f"What `{own.name}` does alone is not on the command line.")


def tsc(run: Commands, call: Call, own: Spec) -> None:
    judge = run.judge
    words = [word.lower() for word in call.args]
    judge_options(judge, "tsc", scan(call.args, _TSC), call.state)
    if not any(word in ("--noemit", "-noemit", "--version", "-v", "--help", "-h", "--showconfig") for word in words):
        judge.flag("S", "tsc-emits", "`tsc` writes what it compiles; `--noEmit` only checks.")
    elif "--noemit" in words and words[words.index("--noemit") + 1 : words.index("--noemit") + 2] == ["false"]:
        judge.flag("B", "tsc-emits", "`tsc --noEmit false` writes what it compiles.")


_TSC = spec("tsc", {"refuse": "--init --generateTrace --generateCpuProfile --incremental --tsBuildInfoFile"})


def ruff(run: Commands, call: Call, _: Spec) -> None:
    judge = run.judge
    found = scan(call.args, _RUFF)
    judge_options(judge, "ruff", found, call.state)
    verb = found.operands[0] if found.operands else ""
    if verb in ("format",) and not found.has("--check", "--diff") and not ({"-"} & set(found.operands)):
        judge.flag("B", "ruff-format", "`ruff format` rewrites files; `--check` and `--diff` only read.")
    elif verb == "clean":
        judge.flag("B", "ruff-clean", "`ruff clean` removes files.")
    judge_unknown_words(judge, "ruff", call.args)


_RUFF = spec(
    "ruff",
    {
        "refuse": "--fix --fix-only --add-noqa",
        "write": "-o --output-file --cache-dir",
        "value": "--select --ignore --extend-select --config --line-length --target-version --format --output-format",
    },
)

HANDLERS: dict[str, Callable[[Commands, Call, Spec], None]] = {
    "make": make, "build-tool": build_tool, "tsc": tsc, "ruff": ruff,
}  # fmt: skip
