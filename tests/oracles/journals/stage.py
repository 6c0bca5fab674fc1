"""The place where a history comes about: a project on a real tracker, its fleets and its agents."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents_api import ModelApi
from tests.oracles.journals import HOST
from tests.support.agent_projects import AgentBdProject, AgentProject
from tests.support.bd import NEW, OLD, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call, until
from tests.support.hero_client import HeroPlace
from tests.support.peers import Redis
from tests.support.real_agents import AgentHome
from tests.support.repository import IDENTITY, git

BUILT_IN, BD_OLD, BD_NEW, HERO = "built-in", OLD, NEW, "hero"
DATE = "2026-01-02T03:04:05Z"
QUICK = ("--retry-delay", "0.1s", "--poll", "0.2s")
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One history: ``play`` has it happen on a stage with this tracker.

    ``agents``: the project is a git repository whose fleets find claude and codex.
    """

    tracker: str
    play: Callable[[Stage], None]
    agents: bool = False


class Stage:
    """A fresh project and everything that was started in it; ``close`` ends what is left."""

    project: Any

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.folder = folder
        self.tracker = scenario.tracker
        self.fleets: list[Fleet] = []
        self._open = ExitStack()
        if scenario.agents:
            self.api = self._open.enter_context(ModelApi())
            self.home = AgentHome(self.api)
            self._open.callback(self.home.close)
            bd = scenario.tracker != BUILT_IN
            kind = AgentBdProject if bd else AgentProject
            self.project = kind(folder, self.home)
        elif scenario.tracker == BUILT_IN:
            self.project = EmbeddedProject(folder)
        elif scenario.tracker == HERO:
            self.redis = Redis(folder)
            self._open.callback(self.redis.close)
            self.project = HeroPlace(folder, self.redis)
        else:
            self.project = BdProject(folder, scenario.tracker)
        self.project.environment |= {"BEADS_WORKERS_HOST": HOST, "STAGE": str(folder)}

    @property
    def state(self) -> Path:
        """The state directory."""
        return Path(self.project.folder) / ".beads-workers"

    def exported(self) -> str:
        """Return the tracker's issues, a line for each; nothing of a queue."""
        if self.tracker == HERO:
            return ""
        return self.call("export") if self.tracker == BUILT_IN else str(self.project.bd("export"))

    def close(self) -> None:
        """End the fleets, then the agents' service."""
        for fleet in self.fleets:
            fleet.end()
        self._open.close()

    def issues(self, *titles: str, each: Callable[[int], dict[str, Any]] | None = None) -> Any:
        """Create one issue for each title; ``each``: more of its fields, by its number from 1."""
        rows = [
            {"title": title} | (each(number) if each else {})
            for number, title in enumerate(titles, 1)
        ]
        return self.project.create_many(rows)

    def repository(self) -> None:
        """Make the project a git repository with one commit on ``main``."""
        project = self.project
        project.environment |= IDENTITY
        git(project.folder, "init", "--quiet", "--initial-branch=main")
        git(project.folder, "symbolic-ref", "HEAD", "refs/heads/main")
        (project.folder / ".gitignore").write_text(".beads-workers/\n.beads/\n.beads.gate.lock\n")
        git(project.folder, "add", ".")
        git(project.folder, "commit", "--quiet", "-m", "first")

    def start(self, *arguments: str) -> Fleet:
        """Start a fleet and wait until it works."""
        self.fleets.append(Fleet(self.project, *arguments))
        return self.fleets[-1].started()

    def run(self, *arguments: str, status: int = 0) -> Fleet:
        """Run a fleet to its end, which must have this exit status."""
        fleet = self.start(*arguments)
        self.ended(fleet, status)
        return fleet

    def ended(self, fleet: Fleet, status: int = 0) -> None:
        """Wait for the fleet's end, which must have this exit status."""
        found = fleet.wait(PATIENCE)
        assert found == status, (found, fleet.said())

    def call(self, *arguments: str, status: int = 0) -> str:
        """Run a command as a person would, and return what it printed."""
        done = call(self.project, *arguments)
        assert done.returncode == status, (arguments, done.stdout, done.stderr)
        return str(done.stdout)

    def kill(self, fleet: Fleet) -> None:
        """Kill the orchestrator as ``kill -9`` does, and wait until its workers have left."""
        run_id = fleet.run_id
        os.kill(fleet.pid, signal.SIGKILL)
        fleet.process.wait()
        until(lambda: not fleet.token_holders(), what=f"workers of {run_id} still live")

    def there(self, name: str) -> bool:
        """Return whether a task has made this file of the stage."""
        return (self.folder / name).exists()

    def open(self, name: str = "gate") -> None:
        """Let go what waits for this file."""
        (self.folder / name).touch()


def after(number: int, *others: int) -> dict[str, Any]:
    """Return the fields with which an issue waits for these others."""
    rows = [
        {"issue_id": f"bw-{number}", "depends_on_id": f"bw-{other}", "type": "blocks"}
        for other in others
    ]
    made = {"created_at": DATE, "created_by": "tester"}
    return {"dependencies": [row | made for row in rows]}


def stub(script: str, **fields: Any) -> dict[str, Any]:
    """Return the fields of an issue on which the agents' service plays this script."""
    return {"description": f"[[stub: {script}]]", **fields}
