"""Settings that run something or weaken a protection: one table, also in docs/TRUST.md.

``python -m beads_workers.checks.risky`` prints it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from beads_workers import registry
from beads_workers.core.base.model import value
from beads_workers.options import AgentTable, RiskyLine, as_toml

TEXT_CHARS = 4000


@value
class Risk:
    """Reason why the user is asked about a key.

    ``when``: returns whether to ask, from the value and the file's folder. ``only``: the same in
    words.
    """

    why: str
    when: Callable[[Any, Path], bool] = lambda value, folder: True
    only: str = ""


def _is_set(value: Any, folder: Path) -> bool:
    return bool(value)


def _is_off(value: Any, folder: Path) -> bool:
    return value is False


def _is_outside(value: Any, folder: Path) -> bool:
    # A link of the repository may lead out of the project, too.
    inside = folder.resolve()
    return not (inside / Path(value).expanduser()).resolve().is_relative_to(inside)


def _is_foreign(value: Any, folder: Path) -> bool:
    return value not in ("bd", "sqlite")


def _is_wide(value: Any, folder: Path) -> bool:
    return bool(value != "writers")


def _is_take(value: Any, folder: Path) -> bool:
    return bool(value == "take")


def _is_pr(value: Any, folder: Path) -> bool:
    return bool(value == "pr")


def _merges(value: Any, folder: Path) -> bool:
    return bool(value != "never")


def _is_none(value: Any, folder: Path) -> bool:
    return bool(value == "none")


def _is_push(value: Any, folder: Path) -> bool:
    return bool(value == "push")


_RUN, _OUTSIDE = "is run", "if it lies outside of the project"

RISKY: Mapping[str, Risk] = {
    "command": Risk("is run for each issue"),
    "agent": Risk("is run for each issue, with what it may do"),
    "review": Risk("is run for each attempt"),
    "verify": Risk("is run after each attempt, and as the gate"),
    "worktree_setup": Risk("is run in each worktree"),
    "worktree_world": Risk("is run before each attempt and gate"),
    "worktree_teardown": Risk("is run after each attempt and gate"),
    "worktree_env": Risk("sets variables of agents and of the check", _is_set),
    "landing_after": Risk("is run after each landing"),
    "landing_tools": Risk("is run before each gate"),
    "notify": Risk("is run when something happens"),
    "executor": Risk("is run, and gets all requests"),
    "on": Risk("has everything run on other machines", _is_set),
    "places": Risk("names other machines, and programs that are run for them", _is_set),
    "issue_commands": Risk("has commands run that issues bring", _is_set),
    "allow_module": Risk("has functions called that issues name", _is_set),
    "skip_check": Risk("starts although a condition fails", _is_set),
    "skip_base_check": Risk("starts although the check fails", _is_set),
    "shared_checkout": Risk("lets several agents work in the checkout", _is_set),
    "worktree": Risk("lets tasks work in the checkout", _is_off, "if it is false"),
    "web_control": Risk("lets the page steer the fleet", _is_set),
    "web_hosts": Risk("lets the page be asked for under other names", _is_set),
    "overage": Risk("spends beyond limits", _is_set),
    "discovered": Risk("runs issues that agents file, unseen", _is_take, 'if it is "take"'),
    "land_into": Risk("moves a branch of the user's"),
    "landing_signoff": Risk("signs off in the user's name", _is_set),
    "landing_remote": Risk("pushes to another place"),
    "land_via": Risk("pushes to the remote, and opens pull requests", _is_pr, 'if it is "pr"'),
    "forge_merge": Risk("merges pull requests", _merges, 'if it is not "never"'),
    "forge_checks": Risk("merges without checks", _is_none, 'if it is "none"'),
    "forge_guarded": Risk("says which files CI obeys", _is_set),
    "landing_submodules": Risk("pushes to submodules' remotes", _is_push, 'if it is "push"'),
    "source": Risk("gets work from elsewhere", _is_foreign, 'if it is not "bd" or "sqlite"'),
    "issues_from": Risk(
        "lets agents read what strangers wrote", _is_wide, 'if it is not "writers"'
    ),
    "trusted": Risk("lets agents read what these wrote", _is_set),
    "passed": Risk("gives agents tokens", _is_set),
    "tracker_before": Risk("is run before issues are taken"),
    "tracker_after": Risk("is run after issues were closed"),
    "state_dir": Risk("is written to", _is_outside, _OUTSIDE),
    "log_dir": Risk("is written to", _is_outside, _OUTSIDE),
    "worktree_folder": Risk("is written to", _is_outside, _OUTSIDE),
    "prompt": Risk("is read, and sent to an agent's provider", _is_outside, _OUTSIDE),
    **{table: Risk("says whose work is run, and how") for table in registry.TABLES},
}
"""Keys of ``beads-workers.toml`` about which the user is asked."""

RISKY_OF_AGENTS: Mapping[str, Risk] = {
    "argv": Risk(_RUN),
    "arguments": Risk("says what an agent may do"),
    "adapter": Risk("says what is run, and what it may do"),
    "prices": Risk("decides what a budget counts"),
    "escalate": Risk("has a dearer model, or another agent, work"),
}
"""Keys of ``[agents.NAME]`` about which the user is asked."""


@value
class Risky:
    """A line of a settings file, and the key or the agent that is dropped without it."""

    line: RiskyLine
    key: str
    agent: str = ""


@value
class SettingsFile:
    """The content of ``file``: its values, and its agents."""

    values: Mapping[str, Any]
    agents: Mapping[str, AgentTable]
    file: Path

    def risky(self) -> tuple[Risky, ...]:
        """Return the lines that run something, or weaken a protection."""
        folder = self.file.parent
        found = [
            Risky(_line(folder, f"{key} = {as_toml(value)}"), key)
            for key, value in self.values.items()
            if key in RISKY and RISKY[key].when(value, folder)
        ]
        for name, table in self.agents.items():
            for key in RISKY_OF_AGENTS:
                if value := getattr(table, key):
                    text = f"agents.{as_toml(name)}.{key} = {as_toml(value)}"
                    found.append(Risky(_line(folder, text), key, name))
        return tuple(found)

    def without(
        self, lines: tuple[Risky, ...]
    ) -> tuple[Mapping[str, Any], Mapping[str, AgentTable]]:
        """Return values and agents without these lines; an agent is dropped as a whole."""
        keys = {each.key for each in lines if not each.agent}
        names = {each.agent for each in lines}
        return (
            {key: value for key, value in self.values.items() if key not in keys},
            {name: table for name, table in self.agents.items() if name not in names},
        )


def _line(folder: Path, text: str) -> RiskyLine:
    return RiskyLine(
        folder, text, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    )


def table() -> str:
    """Return the table, as docs/TRUST.md has it."""
    from beads_workers.options import KEYS

    def name(key: str) -> str:
        within = KEYS[key].table
        return f"`[{within[0]}] {within[1]}`" if within else f"`{key}`"

    rows = [(name(key), risk) for key, risk in RISKY.items()]
    rows += [(f"`[agents.NAME] {key}`", risk) for key, risk in RISKY_OF_AGENTS.items()]
    lines = (f"| {key} | {risk.why} | {risk.only or '-'} |\n" for key, risk in rows)
    return "| key | it | asked about |\n|---|---|---|\n" + "".join(lines)


if __name__ == "__main__":
    print(table(), end="")
