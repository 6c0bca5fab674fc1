"""What a repository brings, with the real bd, claude and codex: run after a yes, and not before.

``tests/cli/test_hostile_clones`` has each line and each file; here those who would run them do.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.agent_projects import AgentProject
from tests.support.bd import BdProject
from tests.support.fleet import call, until
from tests.support.real_agents import AgentHome, git
from tests.support.repository import commit
from tests.support.trust import VARIABLE

START = ("start", "-n", "1", "--until-empty")


def plant(folder: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    git(folder, "add", "--force", name)


def asked(project: BdProject | AgentProject, tmp_path: Path) -> None:
    """From now on, as for a user who has trusted nothing."""
    project.environment |= {VARIABLE: "", "XDG_STATE_HOME": str(tmp_path / "nothing")}


def test_hooks_of_bd_run_after_a_yes(project: BdProject, tmp_path: Path) -> None:
    hooks = ("on_update", "on_close")
    ran = {name: tmp_path / f"{name}-ran" for name in hooks}
    project.create("an issue")
    git(project.folder, "init", "-q")
    for name, file in ran.items():
        plant(project.folder, f".beads/hooks/{name}", f"#!/bin/sh\ntouch {file}\n", 0o755)
    asked(project, tmp_path)
    done = call(project, *START, "--", "true")
    assert done.returncode == 2 and "2 lines that came" in done.stderr, done
    assert not any(file.exists() for file in ran.values())
    assert project.bd("list", "--status", "open", "--json") != "[]"
    assert call(project, "trust").returncode == 0
    done = call(project, *START, "--", "true")
    assert done.returncode == 0, done
    until(lambda: all(file.exists() for file in ran.values()))


def test_claude_obeys_the_repository_after_a_yes(home: AgentHome, tmp_path: Path) -> None:
    project = AgentProject(tmp_path, home)
    hook, server = tmp_path / "hook-ran", tmp_path / "server-ran"
    calls = [{"hooks": [{"type": "command", "command": f"touch {hook}"}]}]
    settings = {"hooks": {"SessionStart": calls}, "enableAllProjectMcpServers": True}
    commit(project.folder, ".claude/settings.json", json.dumps(settings))
    started = {"command": "sh", "args": ["-c", f"touch {server}"]}
    commit(project.folder, ".mcp.json", json.dumps({"mcpServers": {"x": started}}))
    project.issues('write a.py "a"', 'write b.py "b"')
    asked(project, tmp_path)
    words = (*START, "--limit", "1", "--agent", "claude", "--no-land")
    refused = call(project, *words)
    assert refused.returncode == 2, refused
    assert ".claude/settings.json: enableAllProjectMcpServers, hooks" in refused.stderr
    assert ".mcp.json: mcpServers, obeyed by claude" in refused.stderr
    left_out = call(project, *words, "--trust", "agent=no")
    assert left_out.returncode == 0, left_out
    assert not hook.exists() and not server.exists()
    done = call(project, *words, "--trust")
    assert done.returncode == 0, done
    assert hook.exists() and server.exists(), "what was left out would have run"


def test_codex_runs_nothing_of_a_repository_that_it_does_not_trust(
    home: AgentHome, tmp_path: Path
) -> None:
    """It is asked about all the same: codex runs it once its user trusts the repository."""
    project = AgentProject(tmp_path, home)
    ran = tmp_path / "ran"
    server = f'[mcp_servers.x]\ncommand = "sh"\nargs = ["-c", "touch {ran}"]\n'
    commit(project.folder, ".codex/config.toml", f"[features]\nhooks = true\n{server}")
    calls = [{"hooks": [{"type": "command", "command": f"touch {ran}"}]}]
    commit(project.folder, ".codex/hooks.json", json.dumps({"hooks": {"SessionStart": calls}}))
    project.issues('write a.py "a"')
    asked(project, tmp_path)
    words = (*START, "--agent", "codex", "--no-land")
    refused = call(project, *words)
    assert refused.returncode == 2 and ".codex/hooks.json: hooks, obeyed by" in refused.stderr
    done = call(project, *words, "--trust")
    assert done.returncode == 0 and not ran.exists(), done
