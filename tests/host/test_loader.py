"""Where extensions are found, which one wins, and how each is switched off."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from branchwork.errors import UserError
from branchwork.host.extension import ExtensionAPI
from branchwork.host.host import Host
from branchwork.host.loader import Loaded
from branchwork.models.scripted import says
from tests.host.workshop import BASIC, Workshop, say

SOURCE = """
async def where(arguments, ctx):
    return {place!r}

def extension(api):
    api.add_command("where", where, description="Where it was found")
"""


def put(folder: Path, name: str, place: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(SOURCE.format(place=place))
    return path


def found(host: Host, name: str) -> list[Loaded]:
    return [loaded for loaded in host.extensions if loaded.name == name]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A folder on `sys.path` with a distribution that brings the extension `where`."""
    folder = tmp_path / "site"
    info = folder / "where_dist-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: where-dist\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[branchwork.extensions]\nwhere = where_dist:extension\n")
    (folder / "where_dist.py").write_text(SOURCE.format(place="installed"))
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("where_dist", None)


async def test_the_nearest_of_a_name_wins_and_the_others_are_told_to_give_way(workshop: Workshop, site: Path) -> None:
    given = put(workshop.home.parent / "given", "where", "given")
    project = put(workshop.project / ".branchwork" / "extensions", "where", "project")
    settings = put(workshop.home / "more", "where", "settings")
    user = put(workshop.extensions, "where", "user")
    (workshop.home / "settings.toml").write_text(f"[extensions]\npaths = ['{settings}']\n")
    expected = ["given", "project", "settings", "user", "installed"]
    host = await workshop.open(trust=True, extension_paths=(given,))
    assert [loaded.source for loaded in found(host, "where")] == expected
    assert [loaded.state for loaded in found(host, "where")] == ["loaded"] + ["shadowed"] * 4
    assert await say(host, "/where") == "given"
    for path in (project, settings, user):
        assert any(str(path) in text and "gives way" in text for text in workshop.told("where"))
    for path, winner in ((given, "project"), (project, "settings"), (settings, "user"), (user, "installed")):
        path.unlink()
        if path is settings:
            (workshop.home / "settings.toml").unlink()
        host = await workshop.open(trust=True)
        assert await say(host, "/where") == winner


async def test_a_package_with_modules_of_its_own_is_an_extension(workshop: Workshop) -> None:
    package = workshop.extensions / "big.one"
    package.mkdir()
    (package / "inner.py").write_text("async def where(arguments, ctx):\n    return 'inner'\n")
    (package / "__init__.py").write_text(
        "from .inner import where\ndef extension(api):\n    api.add_command('where', where, description='x')\n"
    )
    host = await workshop.open()
    assert found(host, "big.one")[0].state == "loaded"
    assert await say(host, "/where") == "inner"
    (package / "inner.py").write_text("async def where(arguments, ctx):\n    return 'newer'\n")
    await say(host, "/reload")
    assert await say(host, "/where") == "newer"


@pytest.fixture
def compiling() -> Iterator[None]:
    """Python leaves compiled files, as it does for most people."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    yield
    sys.dont_write_bytecode = before


async def test_a_change_of_the_same_second_and_length_is_seen_by_a_reload(workshop: Workshop, compiling: None) -> None:
    put(workshop.extensions, "where", "one")
    host = await workshop.open()
    assert await say(host, "/where") == "one"
    put(workshop.extensions, "where", "two")
    await say(host, "/reload")
    assert await say(host, "/where") == "two"


async def test_no_compiled_files_are_left_in_the_folder(workshop: Workshop, compiling: None) -> None:
    put(workshop.extensions, "where", "user")
    await workshop.open()
    assert [path.name for path in workshop.extensions.iterdir()] == ["where.py"]


async def test_hidden_and_private_files_and_plain_folders_are_no_extensions(workshop: Workshop) -> None:
    put(workshop.extensions, "_private", "x")
    put(workshop.extensions, ".hidden", "x")
    (workshop.extensions / "folder").mkdir()
    (workshop.extensions / "notes.txt").write_text("x")
    host = await workshop.open()
    assert {loaded.source for loaded in host.extensions} == {"built-in"}


async def test_a_project_that_is_not_trusted_brings_no_extension_and_that_is_said(workshop: Workshop) -> None:
    put(workshop.project / ".branchwork" / "extensions", "where", "project")
    host = await workshop.open()
    assert found(host, "where") == []
    assert any(".branchwork/extensions" in text and "not trusted" in text for text in workshop.told("trust"))
    host = await workshop.open(trust=False)
    assert found(host, "where") == []


async def test_a_file_that_is_reached_twice_counts_once_and_nobody_is_told(workshop: Workshop) -> None:
    path = put(workshop.extensions, "where", "user")
    host = await workshop.open(extension_paths=(path,))
    assert [loaded.source for loaded in found(host, "where")] == ["given"]
    assert workshop.told("where") == []


@pytest.mark.parametrize("how", ["flag", "settings", "project"])
async def test_an_extension_is_switched_off_by_name(workshop: Workshop, how: str) -> None:
    put(workshop.extensions, "where", "user")
    text = '[extensions]\ndisabled = ["where"]\n'
    if how == "settings":
        (workshop.home / "settings.toml").write_text(text)
    if how == "project":
        (workshop.project / ".branchwork").mkdir()
        (workshop.project / ".branchwork" / "settings.toml").write_text(text)
    host = await workshop.open(disabled=("where",) if how == "flag" else (), trust=True)
    assert found(host, "where")[0].state == "disabled"
    with pytest.raises(UserError, match="no command /where"):
        await host.submit("/where")


async def test_an_unknown_name_to_switch_off_is_told(workshop: Workshop) -> None:
    await workshop.open(disabled=("nothing",))
    assert "no extension is called nothing" in workshop.told("extensions")[0]


async def test_without_extensions_only_given_ones_are_loaded(workshop: Workshop, site: Path) -> None:
    put(workshop.extensions, "where", "user")
    given = put(workshop.home.parent / "given", "mine", "given")
    host = await workshop.open([says("x")], extensions=False, extension_paths=(given,))
    assert [loaded.name for loaded in host.extensions] == ["mine"]
    assert await say(host, "/where") == "given"
    assert (await host.submit("hello")).kind == "ran"


async def test_without_discovery_the_persons_extensions_are_not_read(workshop: Workshop, site: Path) -> None:
    put(workshop.extensions, "where", "user")
    settings = put(workshop.home / "more", "other", "settings")
    (workshop.home / "settings.toml").write_text(f"[extensions]\npaths = ['{settings}']\n")
    host = await workshop.open(discover=False)
    assert {loaded.source for loaded in host.extensions} == {"built-in"}
    assert len(host.extensions) == len(BASIC)


async def test_a_built_in_one_is_replaced_by_its_name_and_that_is_told(workshop: Workshop) -> None:
    put(workshop.extensions, "context-report", "user")
    host = await workshop.open()
    assert [loaded.state for loaded in found(host, "context-report")] == ["loaded", "shadowed"]
    assert any("gives way" in text for text in workshop.told("context-report"))
    assert host.registry.commands.get("context") is None


async def test_a_path_that_leads_nowhere_is_a_failed_extension(workshop: Workshop) -> None:
    for name in ("missing.py", "missing", "text.txt"):
        path = workshop.home / name
        host = await workshop.open([says("x")], extension_paths=(path,))
        assert found(host, path.stem if path.suffix == ".py" else path.name)[0].state == "failed"
        assert (await host.submit("hello")).kind == "ran"


@pytest.mark.parametrize(
    ("target", "state"),
    [("where_dist:extension", "loaded"), ("where_dist", "loaded"), ("where_dist:SOURCE", "failed"), ("gone", "failed")],
)
async def test_an_entry_point_names_the_function_or_its_module(
    workshop: Workshop, site: Path, target: str, state: str
) -> None:
    info = next(site.glob("*.dist-info"))
    (info / "entry_points.txt").write_text(f"[branchwork.extensions]\nwhere = {target}\n")
    host = await workshop.open()
    (loaded,) = found(host, "where")
    assert (loaded.source, loaded.where, loaded.state) == ("installed", "where-dist 1.2", state)


async def test_an_extensions_function_may_be_async(workshop: Workshop) -> None:
    async def slow(api: ExtensionAPI) -> None:
        await asyncio.sleep(0)
        api.add_section("slow", lambda _: "slow")

    workshop.add("slow", slow)
    host = await workshop.open()
    assert found(host, "slow")[0].state == "loaded"
    assert host.registry.sections.owner("slow") == "slow"


async def test_settings_tables_of_extensions_are_read_explained_and_unknown_ones_told(workshop: Workshop) -> None:
    workshop.write(
        "lamp",
        "from msgspec import Struct\n"
        "class Lamp(Struct, frozen=True, kw_only=True):\n    color: str = 'red'\n"
        "async def lamp(arguments, ctx):\n    return COLOR\n"
        "def extension(api):\n    global COLOR\n    COLOR = api.settings('lamp', Lamp).color\n"
        "    api.add_command('lamp', lamp, description='x')\n",
    )
    (workshop.home / "settings.toml").write_text('[lamp]\ncolor = "blue"\nwidth = 1\n[lanp]\nx = 1\n')
    host = await workshop.open()
    assert await say(host, "/lamp") == "blue"
    assert "lamp.color = 'blue'" in await say(host, "/settings lamp.color")
    assert "settings.toml:2" in await say(host, "/settings lamp.color")
    assert any("width" in text and "settings.toml:3" in text for text in workshop.told("lamp"))
    assert any("lanp" in text and "lamp" in text for text in workshop.told("settings"))


async def test_an_extension_sees_the_flags_of_the_command_line(workshop: Workshop) -> None:
    async def show(arguments: str, ctx: Any) -> str:
        return f"{ctx.flag('loud')} {ctx.flag('color')}"

    def extension(api: ExtensionAPI) -> None:
        api.add_flag("loud", help="Be loud")
        api.add_flag("--color", help="Which colour", default="red")
        api.add_command("show", show, description="Show")

    path = workshop.add("flags", extension)
    assert await say(await workshop.open(), "/show") == "False red"
    host = await workshop.open(flags=("--loud", "--color=blue=green"))
    assert await say(host, "/show") == "True blue=green"
    for word, why in (("--quiet", "unknown option --quiet"), ("--loud=1", "takes no value"), ("--color", "a value")):
        with pytest.raises(UserError, match=why) as caught:
            await workshop.open(flags=(word,))
        assert caught.value.exit_code == 2
    path.unlink()
    await say(host, "/reload")
    assert any("--loud is no option any more" in text for text in workshop.told("extensions"))
