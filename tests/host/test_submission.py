"""Every built-in command through `Host.submit`, and what is no command."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from branchwork.agent.events import CompactionFinished
from branchwork.errors import UserError
from branchwork.host import points
from branchwork.host.extension import ExtensionAPI
from branchwork.host.host import Host
from branchwork.host.registry import Completion
from branchwork.models.scripted import calls, hangs, says
from branchwork.session.entries import MessageEntry, UserMessage, text_of
from tests.host.workshop import Workshop, say

LONG = "word " * 20_000
BUILT_IN = {
    "new", "resume", "name", "session", "tree", "label", "fork", "clone", "compact", "export", "import", "model",
    "thinking", "settings", "reload", "help", "context", "hotkeys", "quit",
}  # fmt: skip


def prompts(host: Host) -> list[str]:
    entries = host.agent.session.branch().entries()
    messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
    return [text_of(message.content) for message in messages if isinstance(message, UserMessage)]


def prompt_ids(host: Host) -> list[str]:
    return [node.id for node in host.agent.session.nodes() if node.role == "user"]


@pytest.fixture
def talk() -> Callable[[Any], Any]:
    return lambda request: says("An answer.")


async def two_prompts(workshop: Workshop, talk: Any) -> Host:
    host = await workshop.open(talk)
    await host.submit("first")
    await host.submit("second")
    return host


async def test_help_lists_every_command_and_explains_one(workshop: Workshop) -> None:
    host = await workshop.open()
    listed = {line.split()[0].removeprefix("/") for line in (await say(host, "/help")).splitlines()}
    assert listed >= BUILT_IN
    assert {command.name for command in host.commands()} == BUILT_IN
    assert (await say(host, "/help /fork")).startswith("/fork [ENTRY]")
    with pytest.raises(UserError, match="no command /frok"):
        await host.submit("/help frok")


async def test_new_begins_an_empty_session_and_the_old_one_is_kept(workshop: Workshop, talk: Any) -> None:
    host = await two_prompts(workshop, talk)
    old = host.agent.session.path
    assert await say(host, "/new") == "New session."
    assert prompts(host) == []
    assert old is not None
    assert old.exists()
    assert host.agent.session.path != old


async def test_resume_goes_to_another_session_also_from_one_that_was_never_written(
    workshop: Workshop, talk: Any
) -> None:
    host = await two_prompts(workshop, talk)
    session_id = host.tree.session_id
    assert await say(host, f"/resume {session_id}") == "that is this session already"
    await say(host, "/new")
    assert await say(host, f"/resume {session_id}") == "Resumed."
    assert prompts(host) == ["first", "second"]
    with pytest.raises(UserError, match="needs an id or a path"):
        await host.submit("/resume")
    assert "nowhere" in await say(host, "/resume nowhere")
    assert prompts(host) == ["first", "second"], "what cannot be resumed leaves everything as it is"


async def test_name_shows_and_sets(workshop: Workshop) -> None:
    host = await workshop.open()
    assert "no name" in await say(host, "/name")
    assert await say(host, "/name  my   work ") == "my work"
    assert await say(host, "/name") == "my work"


async def test_session_tells_counts_and_spending(workshop: Workshop) -> None:
    host = await workshop.open([calls("ls"), says("done")])
    await host.submit("go")
    told = await say(host, "/session")
    assert "1 of yours, 2 replies, 1 tool results" in told
    assert str(workshop.project) in told
    assert "scripted/demo" in told


async def test_tree_shows_prompts_and_goes_to_one(workshop: Workshop, talk: Any) -> None:
    host = await workshop.open(talk)
    assert await say(host, "/tree") == "The session is empty."
    await host.submit("first")
    leaf = host.tree.leaf_id
    await host.submit("second")
    told = await say(host, "/tree")
    assert [line.split(maxsplit=2)[-1] for line in told.splitlines()] == ["first", "second"]
    assert await say(host, f"/tree {leaf}") == f"Going on from {leaf}."
    await host.submit("third")
    assert prompts(host) == ["first", "third"]
    assert [line[0] for line in (await say(host, "/tree")).splitlines()] == [">", " ", ">"]
    for wrong, why in (("zzzz", "no entry"), (f"{leaf} nots", "/tree ENTRY notes")):
        with pytest.raises(UserError, match=why):
            await host.submit(f"/tree {wrong}")


async def test_tree_with_notes_leaves_notes_about_what_is_left(workshop: Workshop, talk: Any) -> None:
    host = await workshop.open([says("one"), says("two"), says("What happened there."), says("three")])
    await host.submit("first")
    leaf = host.tree.leaf_id
    await host.submit("second")
    await say(host, f"/tree {leaf} notes mind the gap")
    assert "mind the gap" in workshop.asked()
    await host.submit("third")
    assert "What happened there." in workshop.asked()


async def test_label_puts_lists_and_removes_a_bookmark(workshop: Workshop, talk: Any) -> None:
    host = await two_prompts(workshop, talk)
    first = prompt_ids(host)[0]
    assert await say(host, "/label") == "No labels."
    await say(host, f"/label {first} start here")
    assert await say(host, "/label") == f"{first}  start here"
    assert "[start here] first" in await say(host, "/tree")
    await say(host, f"/label {first}")
    assert await say(host, "/label") == "No labels."


async def test_fork_goes_on_before_a_prompt_and_gives_it_back_for_the_editor(workshop: Workshop, talk: Any) -> None:
    host = await two_prompts(workshop, talk)
    old = host.agent.session.path
    await say(host, f"/fork {prompt_ids(host)[1]}")
    assert (prompts(host), host.draft) == (["first"], "second")
    assert host.agent.session.path != old
    await say(host, "/new")
    assert host.draft is None


async def test_fork_at_a_reply_keeps_it(workshop: Workshop, talk: Any) -> None:
    positions: list[str] = []
    workshop.add("watcher", lambda api: api.decide(points.FORKING, lambda fork, _: positions.append(fork.position)))
    host = await two_prompts(workshop, talk)
    reply = next(node.id for node in host.agent.session.nodes() if node.role == "assistant")
    await say(host, f"/fork {reply}")
    assert (prompts(host), host.draft) == (["first"], None)
    await say(host, f"/fork {prompt_ids(host)[0]}")
    assert positions == ["at", "before"]


@pytest.mark.parametrize("command", ["/fork", "/clone"])
async def test_fork_without_an_entry_and_clone_copy_the_branch(workshop: Workshop, talk: Any, command: str) -> None:
    host = await two_prompts(workshop, talk)
    old = host.tree.session_id
    assert "this is the copy" in await say(host, command)
    assert prompts(host) == ["first", "second"]
    assert host.tree.session_id != old


async def test_compact_says_what_it_gained_or_an_event_says_why_not(workshop: Workshop) -> None:
    (workshop.home / "settings.toml").write_text("[compaction]\nkeep_recent_tokens = 10\n")
    host = await workshop.open([says("one"), says("two"), says("The notes.")])
    await host.submit("first")
    await host.submit(LONG)
    assert "became notes" in await say(host, "/compact keep the names")
    assert "keep the names" in workshop.asked()
    await say(host, "/compact")
    assert workshop.of(CompactionFinished)[-1].success is False


async def test_export_writes_a_page_or_lines_and_import_brings_lines_back(workshop: Workshop, talk: Any) -> None:
    host = await two_prompts(workshop, talk)
    assert await say(host, "/export out.html") == f"Written to {workshop.project / 'out.html'}"
    assert "second" in (workshop.project / "out.html").read_text()
    await say(host, "/export out.jsonl")
    assert json.loads((workshop.project / "out.jsonl").read_text().splitlines()[0])["type"] == "session"
    await say(host, "/new")
    await say(host, "/import out.jsonl")
    assert prompts(host) == ["first", "second"]
    with pytest.raises(UserError, match="needs a session file"):
        await host.submit("/import")


async def test_model_and_thinking_show_and_choose(workshop: Workshop) -> None:
    (workshop.home / "models.toml").write_text(
        '[providers.local]\napi = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
        '[[providers.local.models]]\nid = "m"\nthinking = ["low", "high"]\n'
    )
    host = await workshop.open()
    assert await say(host, "/model") == "scripted/demo, thinking off"
    assert (await say(host, "/thinking low")).startswith("thinking low")
    assert await say(host, "/model local/m:high") == "local/m, thinking high"
    with pytest.raises(UserError, match="no thinking level 'huge'"):
        await host.submit("/thinking huge")
    with pytest.raises(UserError, match="nowhere"):
        await host.submit("/model nowhere/x")
    assert await say(host, "/model") == "local/m, thinking high"
    assert [each.value for each in host.completions("/thinking h")] == ["high"]
    assert Completion("local/m", "") in host.completions("/model loc")


async def test_settings_tell_a_value_and_its_line(workshop: Workshop) -> None:
    path = workshop.home / "settings.toml"
    path.write_text("\n[retry]\nmax_retries = 7\n")
    host = await workshop.open()
    assert str(path) in await say(host, "/settings")
    assert await say(host, "/settings retry.max_retries") == f"retry.max_retries = 7 ({path}:3)"
    assert await say(host, "/settings repeat_stop") == "repeat_stop = 12 (default)"
    with pytest.raises(UserError):
        await host.submit("/settings retry.max_retrys")


async def test_context_tells_who_fills_the_window(workshop: Workshop, talk: Any) -> None:
    workshop.add("poet", lambda api: api.add_section("poem", lambda _: "Roses are red. " * 50))
    host = await two_prompts(workshop, talk)
    told = await say(host, "/context")
    for part in ("section poem (poet)", "section preamble", "your messages", "replies and calls", "tools", "200,000"):
        assert part in told


async def test_hotkeys_list_the_keys_of_extensions(workshop: Workshop) -> None:
    async def press(ctx: Any) -> None:
        return None

    host = await workshop.open()
    assert "No keys" in await say(host, "/hotkeys")
    workshop.add("keys", lambda api: api.add_shortcut("Ctrl+Shift+R", press, description="Review"))
    await say(host, "/reload")
    assert "ctrl+shift+r" in await say(host, "/hotkeys")
    assert "Review" in await say(host, "/hotkeys")


async def test_quit_tells_the_front_end(workshop: Workshop) -> None:
    host = await workshop.open()
    await host.submit("/quit")
    assert host.quitting


async def test_skills_and_templates_become_prompts(workshop: Workshop, talk: Any) -> None:
    skill = workshop.home / "skills" / "sew"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: sew\ndescription: Sews.\n---\nThread the needle.")
    (workshop.home / "prompts").mkdir()
    (workshop.home / "prompts" / "wash.md").write_text("---\ndescription: Washes.\n---\nWash $1 in $2.")
    host = await workshop.open(talk)
    await host.submit("/skill:sew a button")
    assert "Thread the needle." in prompts(host)[0]
    assert "a button" in prompts(host)[0]
    await host.submit('/wash socks "cold water"')
    assert prompts(host)[1] == "Wash socks in cold water."
    assert {"wash", "skill:sew"} <= {each.value for each in host.completions("/")}
    with pytest.raises(UserError, match=r"no command /skill:sow \(did you mean /skill:sew\?\)"):
        await host.submit("/skill:sow")


@pytest.mark.parametrize("text", ["/etc/hosts is broken", "/usr/bin", "// a comment", "/ x", "a /new b", "/9lives"])
async def test_what_only_looks_like_a_command_is_a_prompt(workshop: Workshop, talk: Any, text: str) -> None:
    host = await workshop.open(talk)
    assert (await host.submit(text)).kind == "ran"
    assert prompts(host) == [text]


async def test_an_unknown_command_names_the_nearest(workshop: Workshop) -> None:
    host = await workshop.open()
    with pytest.raises(UserError, match=r"no command /reslume \(did you mean /resume\?\)") as caught:
        await host.submit("/reslume x")
    assert caught.value.exit_code == 2
    assert workshop.model.seen == []


async def test_during_a_run_prompts_steer_and_commands_wait_unless_they_may(workshop: Workshop) -> None:
    host = await workshop.open([hangs()])
    answers: list[Any] = []

    async def meanwhile() -> None:
        answers.append((await host.submit("and quickly")).kind)
        answers.append((await host.submit("/session")).kind)
        for command in ("/new", "/reload", "/compact"):
            try:
                await host.submit(command)
            except UserError as error:
                answers.append(str(error))
        host.agent.abort()

    tasks: list[Any] = []

    def begin(event: Any) -> None:
        if event.__struct_config__.tag == "request_started":
            tasks.append(asyncio.ensure_future(meanwhile()))

    host.subscribe(begin)
    await host.submit("go")
    await tasks[0]
    assert answers[:2] == ["queued", "handled"]
    assert len(answers) == 5
    assert all("must wait until the run is over" in text for text in answers[2:])


async def test_a_command_that_sends_starts_a_run_and_its_answer_is_kept(workshop: Workshop, talk: Any) -> None:
    async def ask(arguments: str, ctx: Any) -> str:
        ctx.send(f"Please {arguments}")
        return "Asked."

    def extension(api: ExtensionAPI) -> None:
        api.add_command("ask", ask, description="Ask")

    workshop.add("asker", extension)
    host = await workshop.open(talk)
    submitted = await host.submit("/ask nicely")
    assert (submitted.kind, submitted.say) == ("ran", "Asked.")
    assert prompts(host) == ["Please nicely"]
