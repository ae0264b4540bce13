"""Extensions through the real program: `-p` in its three forms, and `branchwork extensions`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from branchwork.testing.script import Call, Reply, Text, replies, says
from branchwork.testing.server import FakeModelServer
from tests.frontends.support import Program

RECORDER = """
import json
from branchwork import points

def extension(api):
    for point in points.ALL:
        add = {"Observe": api.observe, "Transform": api.transform, "Decide": api.decide}[type(point).__name__]
        def note(payload, *rest, point=point):
            ctx = rest[-1]
            with open(ctx.home / "seen.jsonl", "a") as file:
                file.write(json.dumps([point.name, ctx.owner, ctx.front_end]) + "\\n")
        add(point, note)
"""

ECHO = """
from branchwork import ToolArgs, ToolContext, tool

class Args(ToolArgs, frozen=True):
    text: str

@tool(effects=())
async def echo(args: Args, ctx: ToolContext) -> str:
    "Say it again."
    return args.text

async def shout(arguments, ctx):
    return arguments.upper()

async def press(ctx):
    pass

def extension(api):
    api.add_tool(echo)
    api.add_command("shout", shout, description="Say it loud", arguments="TEXT")
    api.add_flag("loud", help="Be loud")
    api.add_shortcut("ctrl+e", press, description="Echo")
    api.add_section("echo", lambda ctx: "There is an echo." if ctx.flag("loud") else None)
    api.add_context(lambda ctx: "Echo: ready.")
    api.add_renderer("echo", lambda entry: ["echo"])
    from branchwork import points
    api.observe(points.SETTLED, lambda *_: None)
"""

IN_A_RUN = {
    "discovering", "session_started", "input", "run_starting", "request_starting", "tool_call", "tool_result",
    "turn_ended", "run_ended", "settled", "session_ending",
}  # fmt: skip

WORK = replies(Reply(parts=(Call("ls", {}),)), Reply(parts=(Text("The answer."),)))


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    with FakeModelServer(WORK) as server:
        made = Program(tmp_path, openai=server.openai_url)
        (made.home / "extensions").mkdir()
        yield made


def write(program: Program, name: str, source: str) -> Path:
    path = program.home / "extensions" / f"{name}.py"
    path.write_text(source)
    return path


@pytest.mark.parametrize(("form", "front"), [("text", "print"), ("json", "json"), ("stream-json", "stream-json")])
def test_a_run_asks_the_hooks_in_every_form_of_output(program: Program, form: str, front: str) -> None:
    write(program, "recorder", RECORDER)
    ran = program.run("-p", "go", "--output", form)
    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in (program.home / "seen.jsonl").read_text().splitlines()]
    assert {point for point, _, _ in rows} == IN_A_RUN
    assert {(owner, name) for _, owner, name in rows} == {("recorder", front)}


def test_commands_answer_in_every_form_of_output(program: Program) -> None:
    write(program, "echo", ECHO)
    assert program.run("-p", "/shout hello").out == "HELLO\n"
    ran = program.run("-p", "/shout hello", "--output", "json")
    assert (ran.code, ran.json["kind"], ran.json["result"]) == (0, "command_answered", "HELLO")
    ran = program.run("-p", "/shout hello", "--output", "stream-json")
    assert (ran.events[0]["kind"], ran.events[-1]["result"]) == ("session_opened", "HELLO")


def test_the_commands_of_the_program_work_on_a_continued_session(program: Program) -> None:
    assert program.run("-p", "go").code == 0
    assert program.run("-p", "/name my work", "--continue").out == "my work\n"
    assert "my work" in program.run("-p", "/session", "--continue").out
    first = program.run("-p", "/tree", "--continue").out.split()[1]
    assert program.run("-p", f"/label {first} start", "--continue").code == 0
    assert "[start] go" in program.run("-p", "/tree", "--continue").out
    assert "your messages" in program.run("-p", "/context", "--continue").out
    assert program.run("-p", "/export out.html", "--continue").code == 0
    assert (program.project / "out.html").exists()
    assert "this is the copy" in program.run("-p", "/clone", "--continue").out
    assert len(program.session_files()) == 2
    assert "fake/m1" in program.run("-p", "/model", "--continue").out
    for command in ("/help", "/hotkeys", "/settings", "/thinking", "/reload", "/quit", "/new"):
        ran = program.run("-p", command, "--continue")
        assert (ran.code, ran.err) == (0, ""), command
    assert (len(program.session_files())) == 2


def test_an_unknown_command_is_a_usage_error_and_a_path_is_a_prompt(program: Program) -> None:
    ran = program.run("-p", "/nmae x")
    assert (ran.code, ran.out) == (2, "")
    assert "no command /nmae (did you mean /name?)" in ran.err
    assert program.run("-p", "/etc/hosts is broken").out == "The answer.\n"


def test_flags_of_extensions_are_options_of_the_program(program: Program) -> None:
    write(program, "echo", ECHO)
    assert program.run("-p", "go", "--loud").code == 0
    for words, why in ((["--lout"], "unknown option --lout"), (["--loud=yes"], "--loud takes no value")):
        ran = program.run("-p", "go", *words)
        assert ran.code == 2
        assert why in ran.err


def test_a_broken_extension_is_named_and_stops_nothing(program: Program) -> None:
    write(program, "broken", "def extension(api):\n    raise ValueError('ouch')\n")
    write(program, "echo", ECHO)
    ran = program.run("-p", "go")
    assert (ran.code, ran.out) == (0, "The answer.\n")
    assert "broken" in ran.err
    assert "ouch" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("deed", ["print('stray')", "sys.stdout.close()", "sys.stderr.close()", "sys.exit(0)"])
@pytest.mark.parametrize("place", ["import", "hook"])
def test_what_an_extension_does_to_the_streams_stays_out_of_the_answer(program: Program, place: str, deed: str) -> None:
    early, late = (deed, "pass") if place == "import" else ("pass", deed)
    write(
        program,
        "evil",
        f"import sys\n{early}\nfrom branchwork import points\ndef act(*_):\n    {late}\n"
        "def extension(api):\n    api.observe(points.SESSION_STARTED, act)\n",
    )
    ran = program.run("-p", "go", "--output", "json")
    assert ran.code == 0, ran.err
    assert ran.json["result"] == "The answer."
    assert ("stray" in ran.err) == ("stray" in deed)
    assert ("evil" in ran.err) == ("exit" in deed)


def test_the_list_says_where_each_comes_from_and_what_it_registered(program: Program) -> None:
    echo = write(program, "echo", ECHO)
    ran = program.run("extensions", "--json", "--disable", "context-report")
    assert ran.code == 0
    rows = {row["name"]: row for row in ran.json["extensions"]}
    assert rows["echo"] == {
        "name": "echo", "source": "user", "where": str(echo), "state": "loaded", "reason": None,
        "registered": {
            "tools": ["echo"], "commands": ["shout"], "flags": ["loud"], "shortcuts": ["ctrl+e"],
            "sections": ["echo"], "contributors": ["echo"], "renderers": ["echo"], "hooks": ["settled"],
        },
    }  # fmt: skip
    assert rows["context-report"]["state"] == "disabled"
    assert rows["session-commands"]["source"] == "built-in"
    text = program.run("extensions").out
    assert f"echo  loaded, user: {echo}" in text
    assert "commands: shout" in text


def test_a_failed_one_makes_the_list_exit_with_1(program: Program) -> None:
    given = program.project / "given.py"
    given.write_text("extension = 5\n")
    ran = program.run("extensions", "-e", "given.py")
    assert ran.code == 1
    assert "given  failed, given" in ran.out
    assert "TypeError" in ran.out
    assert program.session_files() == []


def test_given_disabled_and_no_extensions_on_the_command_line(program: Program) -> None:
    write(program, "echo", ECHO)
    given = program.project / "mine.py"
    given.write_text(ECHO.replace('"shout"', '"cry"').replace("api.add_tool(echo)", "pass").replace('"loud"', '"soft"'))
    assert program.run("-p", "/cry x", "-e", "mine.py", "--disable", "echo").out == "X\n"
    assert program.run("-p", "/shout x", "--disable", "echo").code == 2
    ran = program.run("-p", "/cry x", "-e", "mine.py", "--no-extensions")
    assert (ran.code, ran.out) == (0, "X\n")
    assert program.run("-p", "/help", "--no-extensions").code == 2
    assert program.run("-p", "go", "--no-extensions").out == "The answer.\n"


def test_an_installed_distribution_brings_an_extension(program: Program, tmp_path: Path) -> None:
    info = tmp_path / "site" / "echo_dist-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-dist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[branchwork.extensions]\necho = echo_dist:extension\n")
    (tmp_path / "site" / "echo_dist.py").write_text(ECHO)
    assert program.run("-p", "/shout x", PYTHONPATH=str(tmp_path / "site")).out == "X\n"


def test_a_project_brings_settings_and_extensions_only_when_it_is_trusted(program: Program) -> None:
    folder = program.project / ".branchwork" / "extensions"
    folder.mkdir(parents=True)
    (folder / "echo.py").write_text(ECHO)
    (program.project / ".branchwork" / "settings.toml").write_text("repeat_stop = 5\n")

    def state() -> tuple[int, str]:
        return program.run("-p", "/shout x").code, program.run("-p", "/settings repeat_stop").out.split(" (")[0]

    ran = program.run("-p", "go")
    assert ran.code == 0
    assert "is not trusted" in ran.err
    assert ".branchwork/extensions" in ran.err
    assert state() == (2, "repeat_stop = 12")
    assert program.run("-p", "/shout x", "--trust").out == "X\n"
    assert program.run("trust", str(program.project)).code == 0
    assert state() == (0, "repeat_stop = 5")
    assert program.run("-p", "/shout x", "--no-trust").code == 2
    assert program.run("trust", "--no", str(program.project)).code == 0
    assert state() == (2, "repeat_stop = 12")
    assert "not trusted" not in program.run("-p", "go").err
    assert program.run("trust", "--forget", str(program.project)).code == 0
    assert "is not trusted" in program.run("-p", "go").err


def test_branch_state_is_there_when_a_session_is_continued(tmp_path: Path, repository: Path) -> None:
    script = replies(
        Reply(parts=(Call("todo", {"do": "add", "item": "sew"}),)),
        Reply(parts=(Text("Noted."),)),
        Reply(parts=(Text("x"),)),
    )
    with FakeModelServer(script) as server:
        program = Program(tmp_path, openai=server.openai_url)
        (program.home / "extensions").mkdir()
        write(program, "todo", (repository / "examples" / "todo.py").read_text(encoding="utf-8"))
        assert program.run("-p", "remember to sew").code == 0
        assert program.run("-p", "/todo", "--continue").out == "sew\n"
        assert program.run("-p", "what is left?", "--continue").code == 0
        assert "Open todos: sew" in json.dumps(server.requests[-1].body)


def test_an_untouched_program_says_nothing(tmp_path: Path) -> None:
    with FakeModelServer(says("ok")) as server:
        ran = Program(tmp_path, openai=server.openai_url).run("-p", "go")
        assert (ran.code, ran.out, ran.err) == (0, "ok\n", "")
