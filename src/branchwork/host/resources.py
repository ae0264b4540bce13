"""Everything that is found in files besides settings: skills, prompt templates, agents, context files."""

from msgspec import Struct

from branchwork.host.agent_files import AgentFile, find_agents
from branchwork.host.context_files import ContextFile, find_context_files
from branchwork.host.places import World, places
from branchwork.host.problems import Problem
from branchwork.host.skills import Skill, find_skills
from branchwork.host.templates import Template, find_templates


class Resources(Struct, frozen=True, kw_only=True):
    skills: tuple[Skill, ...] = ()
    templates: tuple[Template, ...] = ()
    agents: tuple[AgentFile, ...] = ()
    context_files: tuple[ContextFile, ...] = ()
    problems: tuple[Problem, ...] = ()
    """What was left out or is odd, and why. Nothing of it stops a start."""

    @classmethod
    def load(cls, world: World) -> "Resources":
        """Look now. Context files are read whole; of the others the frontmatter only, and the rest when it is used."""
        skills = find_skills(places("skills", world))
        templates, template_problems = find_templates(places("prompts", world))
        agents, agent_problems = find_agents(places("agents", world))
        files, file_problems = find_context_files(world.home, world.cwd) if world.context_files else ((), ())
        return cls(
            skills=skills.skills,
            templates=templates,
            agents=agents,
            context_files=files,
            problems=(*skills.problems, *template_problems, *agent_problems, *file_problems),
        )

    def skill(self, name: str) -> Skill | None:
        return next((each for each in self.skills if each.name == name), None)

    def template(self, name: str) -> Template | None:
        return next((each for each in self.templates if each.name == name), None)

    def agent(self, name: str) -> AgentFile | None:
        return next((each for each in self.agents if each.name == name), None)
