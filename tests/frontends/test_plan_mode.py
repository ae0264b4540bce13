"""`--mode=plan` and `--readonly` with the real program: nothing of the project changes, reading and trying work."""

from pathlib import Path

import pytest

from branchwork.testing.script import Call, Reply, Text, replies
from branchwork.testing.server import FakeModelServer
from tests.frontends.support import Program

COMMANDS = (
    "echo changed > README.md",
    "python3 -c \"open('README.md', 'w').write('changed')\"",
    "python3 -c \"import os; os.chmod('README.md', 0o777)\"",
    "sh -c \"$(printf 'rm README.md')\"",
    "cat README.md",
    'python3 -c "import tempfile; print(tempfile.mkdtemp())" && echo made',
)
STEPS = replies(
    Reply(parts=tuple(Call("bash", {"command": command}) for command in COMMANDS)),
    Reply(parts=(Call("write", {"path": "new.txt", "content": "x"}), Call("read", {"path": "README.md"}))),
    Reply(parts=(Text("Done."),)),
)


def results(server: FakeModelServer, request: int) -> list[str]:
    body = server.requests[request].body
    assert body is not None
    return [str(message["content"]) for message in body["messages"] if message["role"] == "tool"]


@pytest.mark.parametrize("flag", ["--mode plan", "--mode=discuss", "--readonly"])
def test_nothing_of_the_project_changes_and_reading_works(tmp_path: Path, flag: str) -> None:
    with FakeModelServer(STEPS) as server:
        branchwork = Program(tmp_path, openai=server.openai_url)
        readme = branchwork.project / "README.md"
        readme.write_text("as it was\n")
        before = readme.stat()
        ran = branchwork.run("-p", "look around", *flag.split())
        assert (ran.code, ran.out) == (0, "Done.\n"), ran.err
        after = readme.stat()
        assert readme.read_text() == "as it was\n"
        assert (after.st_mode, after.st_mtime_ns, after.st_ino) == (before.st_mode, before.st_mtime_ns, before.st_ino)
        assert sorted(path.name for path in branchwork.project.iterdir()) == ["README.md"]
        *_, reading, trying = results(server, 1)
        assert reading == "as it was\n"
        assert "made" in trying
        wrote, read = results(server, 2)[-2:]
        assert wrote.startswith("Refused by ")
        assert read == "as it was\n"


def test_without_a_mode_commands_run_as_the_person_would_run_them(tmp_path: Path) -> None:
    with FakeModelServer(STEPS) as server:
        branchwork = Program(tmp_path, openai=server.openai_url)
        (branchwork.project / "README.md").write_text("as it was\n")
        assert branchwork.run("-p", "change it").code == 0
        assert not (branchwork.project / "README.md").exists() or (branchwork.project / "new.txt").exists()
