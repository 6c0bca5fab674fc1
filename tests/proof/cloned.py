"""What strangers' repositories would run, with real trackers and agents: nothing before it is
trusted. Then it runs, which shows that the attack is one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tests.agents_api import ModelApi
from tests.cli.test_hostile_clones import CLAUDE, SETTINGS
from tests.support import warm
from tests.support.agent_projects import AgentProject
from tests.support.bd import NEW, OLD, BdProject
from tests.support.real_agents import AgentHome, git
from tests.support.trust import VARIABLE

START = ("start", "-n", "1", "--until-empty", "--max-attempts", "1", "--no-land")
WHO = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
SECONDS_MAX = 120.0
HOOKS = ("on_update", "on_close")


class Clone:
    """A project in a repository in which a stranger commits, and a user who trusts nothing yet."""

    def __init__(self, project: Any, place: Path) -> None:
        self.folder, self.place = project.folder, place
        self._state = place / "trusted"
        told = {VARIABLE: "", "XDG_STATE_HOME": str(self._state)}
        self._environment = {**project.environment, **told}
        if not (self.folder / ".git").exists():
            git(self.folder, "init", "-q")
        git(self.folder, *WHO, "commit", "-q", "--allow-empty", "-m", "theirs")
        self._begin = git(self.folder, "rev-parse", "HEAD")

    def commits(self, name: str, text: str) -> None:
        """What has come with the last pull."""
        git(self.folder, "reset", "-q", "--hard", self._begin)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        git(self.folder, "add", "--force", name)
        git(self.folder, *WHO, "commit", "-q", "-m", "come in")

    def run(self, *words: str) -> tuple[int, str]:
        """Its exit code, and all that it said."""
        ran = warm.run(words, self.folder, self._environment, SECONDS_MAX, safe=True)
        return ran.returncode, ran.stderr + ran.stdout

    def refuses(self, name: str, *words: str) -> list[str]:
        """What is wrong with a start that must not begin, and names ``name``."""
        before = self._beside()
        code, said = self.run(*START, *words)
        broken = [] if code == 2 and name in said else [f"exit {code}: {said[-300:]}"]
        new = self._beside() - before
        return [*broken, *(f"it has made {each}" for each in sorted(new))]

    def _beside(self) -> set[str]:
        return {str(path) for path in self.place.rglob("*") if not path.is_relative_to(self.folder)}


def settings(clone: Callable[[], Clone], place: Path, key: str) -> list[str]:
    """A line of a settings file."""
    here = clone()
    here.commits("beads-workers.toml", SETTINGS[key] + "\n")
    return here.refuses(f"{key} = ", "--source", "bd", "--", "true")


def hook(place: Path, version: str, name: str) -> list[str]:
    """A hook of bd."""
    project, mark = BdProject(place, version), place / "ran"
    project.create_many([{}])
    clone = Clone(project, place)
    clone.commits(f".beads/hooks/{name}", f"#!/bin/sh\ntouch {mark}\n")
    broken = clone.refuses(f".beads/hooks/{name}", "--", "true")
    clone.run("trust")
    code, said = clone.run(*START, "--", "true")
    return (
        broken if code == 0 and mark.exists() else [*broken, f"not run if trusted: {said[-300:]}"]
    )


def agent(place: Path, name: str, file: str, leaves_out: bool) -> list[str]:
    """A file that an agent obeys; ``leaves_out``: it can be told not to."""
    mark = place / "ran"
    with ModelApi(script="write a.txt x") as api, ExitStack() as stack:
        home = AgentHome(api)
        stack.callback(home.close)
        project = AgentProject(place, home)
        project.issues("write a.txt x", "write b.txt x")
        clone = Clone(project, place)
        trusted = f'\n[projects."{clone.folder}"]\ntrust_level = "trusted"\n'
        with (home.folder / ".codex/config.toml").open("a") as config:
            config.write(trusted)
        clone.commits(file, _text(file, mark))
        words = ("--agent", name, "--skip-check", "agent")
        broken = clone.refuses(f"{file}: ", *words)
        if leaves_out:
            code, said = clone.run(*START, *words, "--trust", "agent=no", "bw-1")
            if code != 0 or mark.exists():
                broken.append(f"agent=no: exit {code}, ran {mark.exists()}: {said[-300:]}")
        code, said = clone.run(*START, *words, "--trust")
        return broken if mark.exists() else [*broken, f"not run if trusted: {said[-300:]}"]


def _text(file: str, mark: Path) -> str:
    if file.endswith(".toml"):
        return f'[mcp_servers.x]\ncommand = "touch"\nargs = ["{mark}"]\n'
    return json.dumps(CLAUDE[file]).replace("../ran", str(mark))


def cases(stack: ExitStack) -> Mapping[str, Callable[[Path], list[str]]]:
    """By name; ``stack`` ends what several of them share."""
    found: dict[str, Callable[[Path], list[str]]] = {}
    for file in CLAUDE:
        found[f"claude, {file}"] = partial(agent, name="claude", file=file, leaves_out=True)
    toml = ".codex/config.toml"
    found[f"codex, {toml}"] = partial(agent, name="codex", file=toml, leaves_out=False)
    for version in (OLD, NEW):
        for name in HOOKS:
            found[f"bd {version}, hook {name}"] = partial(hook, version=version, name=name)
    for version in (OLD, NEW):
        shared = _Shared(version, stack)
        for key in SETTINGS:
            found[f"bd {version}, {key}"] = partial(_of_shared, shared=shared, key=key)
    return found


class _Shared:
    """One project for all settings of a version."""

    def __init__(self, version: str, stack: ExitStack) -> None:
        self._version, self._stack = version, stack
        self._made: Clone | None = None

    def clone(self) -> Clone:
        """Made at first."""
        if self._made is None:
            import tempfile

            folder = tempfile.TemporaryDirectory(prefix="beads-workers-proof-")
            place = Path(self._stack.enter_context(folder))
            project = BdProject(place, self._version)
            project.create_many([{}])
            self._made = Clone(project, place)
        return self._made


def _of_shared(place: Path, shared: _Shared, key: str) -> list[str]:
    return settings(shared.clone, place, key)
