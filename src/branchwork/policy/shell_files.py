"""Programs that copy, fetch and pack files, where the place of the writing needs more than a table."""

import re
from collections.abc import Callable

from branchwork.policy.shell_call import Call, Commands
from branchwork.policy.shell_options import Scan, judge_options, judge_unknown_words, scan
from branchwork.policy.shell_paths import place
from branchwork.policy.shell_state import Glob, Unknown
from branchwork.policy.shell_tables import Spec, spec


def dd(run: Commands, call: Call, _: Spec) -> None:
    for word in call.args:
        if word.startswith("of="):
            target: str = Unknown.of(word[3:], word.prefix[3:]) if isinstance(word, Unknown) else word[3:]
            run.judge.write(target, call.state, "dd-writes", "`dd`")
        elif isinstance(word, Unknown) and not word.prefix:
            run.judge.flag("S", "unknown-argument", "`dd` gets an argument that may name its output.")


_MKTEMP = spec("mktemp", {"value": "-p --suffix", "dir": "-p"})


def mktemp(run: Commands, call: Call, _: Spec) -> None:
    """Without a template the file is below TMPDIR; a template alone is below the working directory."""
    judge, state = run.judge, call.state
    found = scan(call.args, _MKTEMP)
    options = [option for option in found.options if option.name == "--tmpdir" or "--tmpdir".startswith(option.name)]
    folders = [*found.values("-p"), *(option.value or judge.tmp or "" for option in options)]
    unknown = [word for word in call.args if isinstance(word, Unknown)]
    if found.has("-u", "--dry-run"):
        judge.flag("S", "mktemp-dry-run", "`mktemp -u` makes a name, not a file.")
    for folder in folders:
        judge.write(folder, state, "mktemp-writes", "`mktemp`")
    for template in found.operands:
        if "/" in template and (folders or found.has("-t")) and not template.startswith("/"):
            judge.write(f"{folders[0] if folders else judge.tmp}/{template}", state, "mktemp-writes", "`mktemp`")
        elif not folders and not found.has("-t"):
            judge.write(template, state, "mktemp-writes", "`mktemp`")
    if judge.tmp is None or unknown:
        judge.flag("B", "mktemp-writes", "`mktemp` makes a file in a place that is not known.")


_COPY = spec(
    "cp",
    {
        "value": "-S -m -o -g --suffix --mode --owner --group --context",
        "dir": "-t --target-directory",
        "run": "--strip-program",
    },
)


def copy(run: Commands, call: Call, own: Spec) -> None:
    """`cp`, `mv`, `install`, `ln`. What `mv` takes away counts as written; a link to the outside is a way out."""
    judge, state, name = run.judge, call.state, call.name.removeprefix("g")
    found = scan(call.args, _COPY)
    folder = [
        option.value or ""
        for option in found.options
        if "--target-directory".startswith(option.name) and len(option.name) > 4
    ]
    folder += found.values("-t")
    judge_options(judge, name, found, state)
    operands = found.operands
    sources, targets = (operands, folder) if folder else (operands[:-1], operands[-1:])
    if name == "install" and found.has("-d", "--directory"):
        sources, targets = [], operands
    if name == "ln" and not folder and len(operands) == 1:
        sources, targets = operands, ["."]
    for target in targets:
        judge.write(target, state, f"{name}-writes", f"`{name}`")
    if name == "mv":
        for source in sources:
            judge.write(source, state, "mv-writes", "`mv`", destroys=True)
    linking = name == "ln" or (name == "cp" and _links(found))
    for source in sources if linking else ():
        if ".." in source or place(source, state.cwds | {judge.tmp}, judge.tmp) not in ("scratch", "scratch-root"):
            judge.flag(
                "B", "link-leads-out", f"A link to {str(source)!r} would let later writes leave the scratch directory."
            )
    if len(operands) > 1 or folder:
        judge_unknown_words(judge, name, operands)


def _links(found: Scan) -> bool:
    return found.has("-l", "-s") or any(
        len(option.name) > 3 and ("--link".startswith(option.name) or "--symbolic-link".startswith(option.name))
        for option in found.options
    )


_TAR = spec(
    "tar",
    {
        "value": "-b -C -H -K -L -N -T -V -X --exclude --directory --format --transform --xform --strip-components"
        " --files-from --exclude-from --owner --group --mode --mtime --newer --label"
        " --blocking-factor --record-size --hole-detection --starting-file",
        "write": "--index-file -g --listed-incremental --volno-file",
        "run": "-F -I --use-compress-program --to-command --checkpoint-action"
        " --rmt-command --rsh-command --info-script --new-volume-script",
        "refuse": "--remove-files --absolute-names -P",
        "dir": "-f --file",
    },
)


def tar(run: Commands, call: Call, _: Spec) -> None:
    """`x` writes where -C says, `c`, `r`, `u`, `A` write the archive, others read; the first word may lack its dash."""
    judge, args = run.judge, list(call.args)
    if args and re.fullmatch(r"[A-Za-z]+", args[0]) and not isinstance(args[0], Unknown):
        args = _old_style(args)
    state = call.state
    found = scan(args, _TAR)
    judge_options(judge, "tar", found, state)
    judge_unknown_words(judge, "tar", args)
    if any(isinstance(word, Glob) and word[0] in "*?[" for word in args):
        judge.flag("S", "tar-wildcard", "`tar` may take the name of a file for an option; `./*` cannot be one.")
    letters = {option.name for option in found.options}
    longs = [name for name in letters if name.startswith("--") and len(name) > 3]

    def mode(short: str, *names: str) -> bool:
        return short in letters or any(full.startswith(name) for name in longs for full in names)

    archives = found.values("-f", "--file")
    if any(":" in archive and not archive.startswith("/") for archive in archives) and "--force-local" not in letters:
        judge.flag("S", "tar-remote", "`tar` reaches an archive on another machine by running a program.")
    folders = [word for i, word in enumerate(args) if i and args[i - 1] in ("-C", "--directory", "--cd")]
    folders += found.values("-C", "--directory")
    if mode("-x", "--extract", "--get") and not mode("-O", "--to-stdout"):
        for folder in folders or ["."]:
            judge.write(folder, state, "tar-extracts", "`tar`")
    if (
        mode("-c", "--create")
        or mode("-r", "--append")
        or mode("-u", "--update")
        or mode("-A", "--catenate", "--concatenate", "--delete")
    ):
        for archive in archives:
            if archive != "-":
                judge.write(archive, state, "tar-writes", "`tar`")


def _old_style(args: list[str]) -> list[str]:
    """`tar xfC a.tar dir`: letters first, their values after them in order."""
    letters, rest = args[0], args[1:]
    words: list[str] = []
    for letter in letters:
        words.append("-" + letter)
        if "-" + letter in ("-f", "-C", "-b", "-T", "-X", "-I", "-F", "-g", "-H", "-K", "-L", "-N", "-V") and rest:
            words.append(rest.pop(0))
    return words + rest


def curl(run: Commands, call: Call, own: Spec) -> None:
    judge, state = run.judge, call.state
    found = scan(call.args, own)
    folders = found.values("--output-dir")
    targets = found.values("-o", "--output")
    for option in found.options:
        if option.name in ("-o", "--output"):
            for target in [option.value] if option.value not in (None, "-") else ():
                place_of = _inside(folders[-1], target) if folders and not target.startswith("/") else target
                judge.write(place_of, state, "curl-output", "`curl -o`")
    judge_options(judge, "curl", Scan([o for o in found.options if o.name not in ("-o", "--output")], []), state)
    longs = [option.name for option in found.options if option.name.startswith("--")]
    remote = found.has("-O", "--remote-name", "--remote-name-all") or any(n.startswith("--remote-n") for n in longs)
    if remote or (found.has("-J") and not targets):
        for folder in folders or ["."]:
            judge.write(folder, state, "curl-output", "`curl -O`")
    judge_unknown_words(judge, "curl", [w for w in call.args if not w.startswith("xargs")])
    if any(word.startswith(("file:", "scp:", "sftp:")) and found.has("-T", "--upload-file") for word in found.operands):
        judge.flag("B", "curl-upload-file", "`curl -T` writes to a file: address.")


def _inside(folder: str, name: str) -> str:
    return (
        Unknown(f"{folder}/{name}") if isinstance(folder, Unknown) or isinstance(name, Unknown) else f"{folder}/{name}"
    )


_WGET_TARGETS = spec("wget", {"value": "-O --output-document -P --directory-prefix"})


def wget(run: Commands, call: Call, own: Spec) -> None:
    judge, state = run.judge, call.state
    merged = Spec(
        name="wget", kinds={**own.kinds, **_WGET_TARGETS.kinds}, longs=(*own.longs, *_WGET_TARGETS.kinds),
        dangerous=True,
    )  # fmt: skip
    found = scan(call.args, merged)
    judge_options(judge, "wget", found, state)
    documents = found.values("-O", "--output-document")
    if found.has("--spider", "--version", "-V", "--help", "-h"):
        return
    if any(word.startswith("xargs") for word in call.args):
        judge.flag("B", "wget-writes", "`wget` writes what it fetches into the working directory.")
    for document in documents:
        if document not in ("-", "/dev/stdout"):
            judge.write(document, state, "wget-writes", "`wget -O`")
    if not documents and call.args:
        for folder in found.values("-P", "--directory-prefix") or ["."]:
            judge.write(folder, state, "wget-writes", "`wget`")


_SSH_SETTINGS = re.compile(
    r"\s*(proxycommand|localcommand|permitlocalcommand|knownhostscommand|match|userknownhostsfile|controlpath|controlmaster|"
    r"include|proxyusefdpass|pkcs11provider|securitykeyprovider|xauthlocation|identityagent|streamlocalbind\w*|localforward)",
    re.IGNORECASE,
)


def ssh(run: Commands, call: Call, own: Spec) -> None:
    """What happens on the other machine is outside this contract; what ssh runs or makes here is not."""
    judge = run.judge
    found = scan(call.args, Spec(name="ssh", kinds={**own.kinds, "-L": "value", "-R": "value"}), permute=False)
    judge_options(judge, "ssh", found, call.state)
    for value in found.values("-o"):
        if isinstance(value, Unknown) or _SSH_SETTINGS.match(value):
            judge.flag("B", "ssh-option-o", f"`ssh -o {value!s}` runs or writes something here.")
    for value in found.values("-L", "-D"):
        if "/" in value or isinstance(value, Unknown):
            judge.flag("B", "ssh-forward", "`ssh -L` makes a socket file.")
    for host in found.operands[:1]:
        if host.startswith("-") or isinstance(host, Unknown):
            judge.flag("S", "unknown-argument", "The host that `ssh` gets may be an option.")


def sysctl(run: Commands, call: Call, own: Spec) -> None:
    judge_options(run.judge, "sysctl", scan(call.args, own), call.state)
    if any("=" in word for word in call.args):
        run.judge.flag("B", "sysctl-writes", "`sysctl` changes the kernel.")


def exiftool(run: Commands, call: Call, _: Spec) -> None:
    if any(
        re.match(r"-[\w:*]+[-+^<]?[=<]|-(o|w|W|tagsout|textout|config|@|geotag|overwrite|delete)", w)
        or (w[:1] != "-" and "=" in w)
        for w in call.args
    ):
        run.judge.flag("B", "exiftool-writes", "`exiftool` changes files.")
    if call.name == "exiv2" and call.args[:1] not in (["pr"], ["print"], ["-pa"]):
        run.judge.flag("B", "exiv2-writes", "`exiv2` changes files.")


def stdout_operand(run: Commands, call: Call, _: Spec) -> None:
    if call.args[-1:] != ["-"] and call.args not in ([], ["-v"]):
        run.judge.flag("B", "converter-writes", f"`{call.name}` writes a file; with `-` as its last word it prints.")


def socat(run: Commands, call: Call, _: Spec) -> None:
    text = " ".join(call.args).lower()
    if re.search(r"(exec|system|shell|open|create|file|gopen|unix|pipe|pty|tun|-l[fs])", text) or "/" in text:
        run.judge.flag("B", "socat-writes", "`socat` runs programs and writes files.")


HANDLERS: dict[str, Callable[[Commands, Call, Spec], None]] = {
    "dd": dd, "mktemp": mktemp, "copy": copy, "tar": tar, "curl": curl, "wget": wget, "ssh": ssh, "sysctl": sysctl,
    "exiftool": exiftool, "stdout-operand": stdout_operand, "socat": socat,
}  # fmt: skip
