"""Descriptions of what a fleet runs."""

from __future__ import annotations

import shlex

from beads_workers.cli.kinds import need
from beads_workers.core.base.settings import Work

ISSUES_OWN = "each issue's own command"


def shown_command(work: Work) -> str:
    """Return what is run, as one would type it."""
    from beads_workers.cli.preparation import shown_functions  # ``--help`` does without.

    if work.executors:
        return str(need("executors").shown_executors(work))
    if work.contexts:
        return ", ".join(f"{c.name}: {shlex.join(c.command)}" for c in work.contexts)
    argv = work.command or (work.agent.argv if work.agent else ())
    shown = shlex.join(argv) if argv else ISSUES_OWN
    functions = shown_functions(work)
    return f"{functions}, or {shown}" if functions else shown
