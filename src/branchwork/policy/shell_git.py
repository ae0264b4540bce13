"""git: its own options, settings on the command line, and subcommands of which only some uses read."""

import re
from typing import Any

from branchwork.policy.shell_call import Call, Commands
from branchwork.policy.shell_options import judge_options, judge_unknown_words, scan
from branchwork.policy.shell_paths import resolve
from branchwork.policy.shell_state import State, Unknown
from branchwork.policy.shell_tables import Spec, spec

_GLOBAL = spec(
    "git",
    {
        "value": "-C -c --git-dir --work-tree --namespace --super-prefix --config-env --attr-source --list-cmds",
        "refuse": "--exec-path --config-env",
    },
)
_CONFIG_READS = frozenset(
    [
        "-l",
        "--list",
        "--get",
        "--get-all",
        "--get-regexp",
        "--get-urlmatch",
        "--get-color",
        "--get-colorbool",
        "--show-origin",
        "--show-scope",
    ]
)
_CONFIG = spec(
    "git config",
    {
        "value": "-f --file --blob --type --default",
        "refuse": "--add --unset --unset-all --replace-all --rename-section --remove-section -e --edit",
    },
)
_BRANCH_WRITES = (
    "-d -D -m -M -c -C -f -u -t --delete --move --copy --force --set-upstream-to --unset-upstream --track --no-track "
    "--edit-description --create-reflog --recurse-submodules"
)
_BRANCH = spec(
    "git branch",
    {
        "value": "--contains --no-contains --merged --no-merged --sort --points-at --format",
        "refuse": _BRANCH_WRITES,
        "safe": "-l --list -a --all -r --remotes --show-current -v -vv --verbose",
    },
)
_TAG = spec(
    "git tag",
    {
        "value": "--contains --no-contains --merged --no-merged --sort --points-at --format",
        "refuse": "-a -s -u -d -f -m -F -e --annotate --sign --local-user --delete --force --message --file --edit "
        "--cleanup",
        "safe": "-l --list -v --verify -n",
    },
)


def git(run: Commands, call: Call, _: Spec) -> None:
    judge, state = run.judge, call.state
    found = scan(call.args, _GLOBAL, permute=False)
    judge_options(judge, "git", found, state)
    for option in found.options:
        if option.name == "-C" and option.value is not None:
            state = state.at(frozenset(resolve(cwd, option.value) for cwd in state.cwds))
        elif option.name == "-c":
            _setting(run, option.value)
        elif option.name in ("--git-dir", "--work-tree") and option.value is not None:
            _folder(run, option.value, state)
    if not found.operands:
        return
    verb, args = found.operands[0], found.operands[1:]
    if isinstance(verb, Unknown):
        judge.flag("B", "git-unknown-verb", f"The subcommand of git is {str(verb)!r}, known only when it runs.")
        return
    tables = judge.tables
    special = _SPECIAL.get(verb)
    if special is not None:
        special(run, args)
    elif verb in tables.git_mixed:
        _mixed(run, verb, args, tables.git_mixed[verb])
    elif verb in tables.words["git.read"]:
        used = tables.git_verbs.get(verb) or tables.git_verbs[""]
        judge_options(judge, f"git-{verb}", scan(args, used), state)
        judge_unknown_words(judge, f"git {verb}", args)
    else:
        judge.flag("B", f"git-{verb}", f"`git {verb}` changes the repository, or is not known to only read.")
        return
    if any("::" in word or word.startswith("--output") for word in args) and verb in ("ls-remote", "remote", "archive"):
        judge.flag("B", "git-transport", "An address with `::` makes git run a program.")
    if verb not in ("version", "help", "var", "check-ref-format") and any(_scratch(run, cwd) for cwd in state.cwds):
        judge.flag(
            "S", "git-settings-in-scratch", "A repository in the scratch directory may have settings that run programs."
        )


def _scratch(run: Commands, cwd: str | None) -> bool:
    tmp = run.judge.tmp
    return tmp is not None and cwd is not None and (cwd == tmp or cwd.startswith(tmp.rstrip("/") + "/"))


def _folder(run: Commands, value: str, state: State) -> None:
    if any(path is None or _scratch(run, path) for path in (resolve(cwd, value) for cwd in state.cwds)):
        run.judge.flag("S", "git-settings-in-scratch", "A repository there may have settings that run programs.")


def _setting(run: Commands, value: str | None) -> None:
    """`-c KEY=VALUE`: known harmless keys only, because any other may name a program."""
    if value is None:
        return
    key, equals, rest = value.partition("=")
    text = f"{key.lower()}{equals}{rest}"
    safe = not isinstance(value, Unknown) and any(
        text == good
        or (good.endswith(".") and text.startswith(good))
        or ("=" not in good and key.lower().startswith(good))
        for good in run.judge.tables.config
    )
    if key.lower().startswith(("log.", "status.", "diff.")) and key.lower().count(".") > 1:
        safe = False
    if not safe:
        run.judge.flag("B", "git-setting", f"`git -c {value!s}` may make git run a program.")


def _mixed(run: Commands, verb: str, args: list[str], entry: dict[str, Any]) -> None:
    operands = [word for word in args if word[:1] != "-"]
    first = operands[0] if operands else None
    if first is None:
        good = entry.get("bare", False) and not any(word.startswith(("-d", "--delete", "-m")) for word in args)
    elif isinstance(first, Unknown):
        good = False
    else:
        good = (
            first in entry["read"].split()
            or (entry.get("other", False) and first not in entry.get("write", "").split())
            or (
                entry.get("single", False) and len(operands) == 1 and not any(w.startswith(("-d", "--d")) for w in args)
            )
        )
    if not good:
        run.judge.flag("B", f"git-{verb}", f"`git {verb} {first or ''}`".rstrip() + " changes the repository.")
    judge_options(run.judge, f"git-{verb}", scan(args, run.judge.tables.git_verbs[""]), State(frozenset((None,)), {}))


def _branch(run: Commands, args: list[str]) -> None:
    """A name without a listing option before it makes a branch."""
    _listing(
        run,
        "branch",
        args,
        _BRANCH,
        frozenset(
            [
                "-l",
                "--list",
                "-a",
                "--all",
                "-r",
                "--remotes",
                "--show-current",
                "-v",
                "-vv",
                "--contains",
                "--no-contains",
                "--merged",
                "--no-merged",
                "--points-at",
            ]
        ),
    )


def _tag(run: Commands, args: list[str]) -> None:
    _listing(
        run,
        "tag",
        args,
        _TAG,
        frozenset(
            ["-l", "--list", "-v", "--verify", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at"]
        ),
    )


def _listing(run: Commands, verb: str, args: list[str], own: Spec, listing: frozenset[str]) -> None:
    found = scan(args, own)
    judge_options(run.judge, f"git-{verb}", found, State(frozenset((None,)), {}))
    operands = [word for word in args if word[:1] != "-"]
    before = args[: args.index(operands[0])] if operands else args
    lists = any(word.partition("=")[0] in listing or re.fullmatch(r"-n\d*|-[arvl]+", word) for word in before)
    if verb == "branch" and {"-v", "-vv", "-r", "-a"} >= set(before) and found.operands and before:
        lists = False
    if found.operands and not lists:
        run.judge.flag("B", f"git-{verb}", f"`git {verb} {found.operands[0]!s}` makes a {verb}.")


def _config(run: Commands, args: list[str]) -> None:
    found = scan(args, _CONFIG)
    judge_options(run.judge, "git-config", found, State(frozenset((None,)), {}))
    operands, names = found.operands, {option.name for option in found.options}
    if names & _CONFIG_READS or (operands[:1] and operands[0] in ("get", "list")):
        return
    unknown = any(isinstance(word, Unknown) for word in operands)
    if (
        len(operands) > 1
        or unknown
        or (operands[:1] and operands[0] in ("set", "unset", "edit", "rename-section", "remove-section"))
    ):
        run.judge.flag("B", "git-config", "`git config` with a value changes a setting.")
    if any(name.startswith(("--ad", "--uns", "--rep", "--ren", "--rem", "--ed")) for name in names):
        run.judge.flag("B", "git-config", "`git config` changes a setting.")


_SPECIAL = {"branch": _branch, "tag": _tag, "config": _config}
