"""Agent definitions: name, description, metadata and body, unchecked."""

from pathlib import Path

from branchwork.host.agent_files import find_agents
from branchwork.host.places import Place


def test_an_agent_keeps_whatever_its_frontmatter_says(tmp_path: Path) -> None:
    text = (
        "---\nname: scout\ndescription: Looks around\ntools: [read, grep]\nreadonly: yes\nmax_turns: 5\n---\nYou look."
    )
    (tmp_path / "explorer.md").write_text(text)
    (tmp_path / "plain.md").write_text("You do things.\nMore.")
    (plain, scout), problems = find_agents([Place(tmp_path, "package")])
    assert problems == ()
    assert (scout.name, scout.description, scout.source) == ("scout", "Looks around", "package")
    assert scout.metadata["tools"] == ["read", "grep"]
    assert (scout.metadata["readonly"], scout.metadata["max_turns"]) == ("yes", 5)
    assert scout.body() == "You look."
    assert (plain.name, plain.description, plain.metadata) == ("plain", "You do things.", {})


def test_the_first_of_a_name_wins_and_wrong_frontmatter_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/x.md").write_text("---\nname: [\n---\nBody stays.")
    (tmp_path / "b/y.md").write_text("---\nname: x\n---\nLoses.")
    (agent,), problems = find_agents([Place(tmp_path / "a", "user"), Place(tmp_path / "b", "project")])
    assert agent.body() == "Body stays."
    assert [problem.path.name for problem in problems] == ["x.md", "y.md"]
    assert str(problems[1]).endswith(f"the agent `x` is not used: {tmp_path}/a/x.md comes first")
