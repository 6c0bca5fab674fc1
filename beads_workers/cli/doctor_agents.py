"""What ``doctor`` looks at where agents work: each of them, the reviewer, guards, and verify."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from beads_workers.attempts.guards import GUARDED
from beads_workers.core.settings import Agent
from beads_workers.core.text import printable
from beads_workers.doctor import agents as doctor_agents
from beads_workers.doctor.rules import Check, Grade, ok, warn
from beads_workers.doctor.verify import propose, shown
from beads_workers.doctor.work import ask

Look = tuple[str, Callable[[], Any]]


def looks(agents: Sequence[Agent], review: Agent | None, folder: Path) -> list[Look]:
    """The checks of a fleet's agents, each with its name while it is waited for."""

    def of_one(given: Agent) -> Callable[[], list[Check]]:
        return lambda: doctor_agents.agent(given, folder)

    found: list[Look] = [(f"agent {each.name}", of_one(each)) for each in agents]
    if review is not None:
        found.append(("review", lambda: _review(review, agents, folder)))
    everyone = [*agents, *([review] if review is not None and review not in agents else [])]
    found.append(("guards", lambda: doctor_agents.guards(everyone, _tools(folder))))
    return found


def _review(review: Agent, agents: Sequence[Agent], folder: Path) -> list[Check]:
    if review in agents:
        return [ok("review", f"{review.name} looks at the work, in a session of its own")]
    checks = doctor_agents.agent(review, folder, name="review")
    return [
        Check(each.name, each.status, f"{each.text}; it looks at the work", each.remedy)
        if each.name == "review" and each.status is Grade.OK
        else each
        for each in checks
    ]


def _tools(folder: Path) -> doctor_agents.Tools:
    guarded = tuple(name for name in GUARDED if shutil.which(name))
    if shutil.which("git") is None:
        return doctor_agents.Tools("", guarded)
    said = ask(["git", "--version"], folder=folder, seconds=5.0).stdout
    match = re.search(r"\d+(?:\.\d+)+", said)
    return doctor_agents.Tools(match[0] if match else "", guarded)


def unverified(folder: Path, *, agents: bool, review: str, edit: str) -> Check | None:
    """What is said where no ``--verify`` is set; ``edit`` leads to the settings file."""
    found = propose(folder)
    if not agents:
        return ok("verify", f"none is set; proposed: {shown(found)}") if found else None
    who = f"only {printable(review, 40)} looks at the work" if review else "nothing is verified"
    if found is None:
        text = f"{who}: what an agent calls done is closed. No command that checks was recognised"
        return warn("verify", text, edit)
    return warn("verify", f"{who}; proposed: {shown(found)}", "beads-workers config verify --write")
