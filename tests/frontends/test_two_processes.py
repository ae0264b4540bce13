"""Two programs on one session: the second is told, changes nothing, and may fork."""

import json
from pathlib import Path

from branchwork.testing.faults import Hang
from branchwork.testing.script import Reply, Text, replies
from branchwork.testing.server import FakeModelServer
from tests.frontends.support import Program


def test_the_second_program_on_a_session_reads_only_and_may_fork(tmp_path: Path) -> None:
    script = replies(
        Reply(parts=(Text("first"),)), Reply(parts=(Text("x"),), fault=Hang(0)), Reply(parts=(Text("forked"),))
    )
    with FakeModelServer(script) as server:
        branchwork = Program(tmp_path, openai=server.openai_url)
        session_id = branchwork.run("-p", "one", "--output", "json").json["session_id"]
        (path,) = branchwork.session_files()
        holder = branchwork.start("-p", "two", "--continue", "--output", "stream-json")
        assert holder.stdout is not None
        for line in holder.stdout:
            if json.loads(line)["kind"] == "request_started":
                break
        held = path.read_bytes()
        refused = branchwork.run("-p", "three", "--resume", session_id)
        assert (refused.code, refused.out) == (1, "")
        assert "Fork it" in refused.err.strip().splitlines()[-1]
        assert path.read_bytes() == held
        forked = branchwork.run("-p", "three", "--fork", session_id)
        assert (forked.code, forked.out) == (0, "forked\n"), forked.err
        assert path.read_bytes() == held
        assert len(branchwork.session_files()) == 2
        holder.terminate()
        holder.communicate(timeout=30)
        assert branchwork.run("-p", "four", "--resume", session_id).code == 0
