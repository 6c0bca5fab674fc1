"""Projects in git repositories whose fleets find the real claude and codex, which ask the stub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.bd import NEW, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.real_agents import CLAUDE, CODEX, AgentHome, git, program

AGENTS = {"claude": CLAUDE, "codex": CODEX}
CODEX_KEY = "chatgpt-test"
"""The account of codex at the stub; that of claude is the key of its home."""


class AgentProject(EmbeddedProject):
    """An embedded tracker in a git repository, and agents that ask the stub."""

    def __init__(self, folder: Path, home: AgentHome) -> None:
        super().__init__(folder)
        git(self.folder, "init", "-q", "-b", "main")
        _begin(self.folder)
        self.environment |= _environment(folder, home, self.environment)

    def issues(self, *scripts: str) -> None:
        """One issue for each script of the stub."""
        self.create_many([{"description": f"[[stub: {script}]]"} for script in scripts])

    def statuses(self) -> list[str]:
        """Of all issues, by their ids."""
        found = self.read_all()
        return [found[issue_id][0] for issue_id in sorted(found)]


class AgentBdProject(BdProject):
    """The same with a real ``bd``."""

    def __init__(self, folder: Path, home: AgentHome, version: str = NEW) -> None:
        super().__init__(folder, version)
        _begin(self.folder)
        self.environment |= _environment(folder, home, self.environment)


def _begin(folder: Path) -> None:
    (folder / "README").write_text("a shop\n")
    git(folder, "add", "README")
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    git(folder, *identity, "commit", "-q", "-m", "begin")


def _environment(folder: Path, home: AgentHome, own: dict[str, Any]) -> dict[str, str]:
    path = ":".join(str(program(name, version).parent) for name, version in AGENTS.items())
    return {
        **home.environment,
        "PATH": f"{path}:{own['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"),
        "STUB_KEY": CODEX_KEY,
    }
