"""Real agents for projects on forges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from tests.agents_api.server import ModelApi
from tests.support import agent_projects
from tests.support.real_agents import AgentHome

Project = TypeVar("Project", bound=Any)


@pytest.fixture
def home() -> Iterator[AgentHome]:
    with ModelApi() as api:
        made = AgentHome(api)
        yield made
        made.close()


def with_agents(project: Project, home: AgentHome) -> Project:
    """The project, whose fleets find the real agents now."""
    folder = project.folder.parent
    found = agent_projects._environment(folder, home, project.environment)
    token = project.environment["GITEA_TOKEN"]
    project.environment |= found | {"GITEA_TOKEN": token, "HOME": found["HOME"]}
    return project
