"""Any of the built-in extensions can be switched off, alone and together: the rest works."""

import random

import pytest

from branchwork.errors import UserError
from branchwork.extensions import BUILTIN
from branchwork.models.scripted import calls, says
from tests.host.workshop import Workshop, say, texts

NAMES = tuple(module.rpartition(".")[2].replace("_", "-") for module in BUILTIN)


def subsets() -> list[tuple[str, ...]]:
    """None, each alone, all but each, all, and some more that are the same in every run."""
    chance = random.Random(7)
    found: list[tuple[str, ...]] = [(), NAMES, *((name,) for name in NAMES)]
    found += [tuple(name for name in NAMES if name != one) for one in NAMES]
    found += [tuple(name for name in NAMES if chance.random() < 0.5) for _ in range(6)]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("off", subsets(), ids="+".join)
async def test_a_run_help_and_a_reload_work_without_them(workshop: Workshop, off: tuple[str, ...]) -> None:
    (workshop.project / "a.txt").write_text("hello")
    host = await workshop.open([calls("read", path="a.txt"), says("done")], builtin=BUILTIN, disabled=off)
    assert {loaded.name for loaded in host.extensions if loaded.state == "disabled"} == set(off)
    assert [loaded for loaded in host.extensions if loaded.state == "failed"] == []
    finished = (await host.submit("go")).finished
    assert finished is not None
    assert finished.end == "done"
    assert "hello" in texts(host)[0]
    if "session-commands" in off:
        with pytest.raises(UserError, match="no command /help"):
            await host.submit("/help")
    else:
        assert ("/context" in await say(host, "/help")) == ("context-report" not in off)
    await host.reload()
    assert [tool.name for tool in host.agent.tools]
    assert workshop.told() == []
