"""Options that mean nothing where work is of another kind: refused before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from beads_workers.cli.errors import EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from beads_workers.cli.options import Options


def of_trackers(options: Options, issues: tuple[str, ...]) -> dict[str, object]:
    """What only means something to a tracker of issues, by its name: what was said of it."""
    return {
        "ISSUE": issues,
        "--label": options.label,
        "--label-any": options.label_any,
        "--exclude-label": options.exclude_label,
        "--type": options.type,
        "--priority": options.priority,
        "--parent": options.parent,
        **of_agents(options),
    }


def of_agents(options: Options) -> dict[str, object]:
    """What only means something where commands or agents work on issues."""
    return {
        "--agent": options.agent,
        "--worktree": options.worktree,
        "--bd-calls worker": options.bd_calls == "worker",
    }


def refuse(said: Mapping[str, object], message: str, hint: str = "leave it out") -> None:
    """Raises ``CommandError`` for the first that was said; ``message`` names it at its ``{}``."""
    for name, value in said.items():
        if value:
            raise CommandError(message.format(name), hint, EXIT_USAGE)
