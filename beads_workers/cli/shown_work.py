"""What a fleet runs, in words."""

from __future__ import annotations

import shlex

from beads_workers.cli.allowing import shown_functions
from beads_workers.cli.executing import shown_executors
from beads_workers.core.settings import Work


def shown_command(work: Work) -> str:
    """What is run, as one would type it."""
    if work.executors:
        return shown_executors(work)
    if work.contexts:
        return ", ".join(f"{c.name}: {shlex.join(c.command)}" for c in work.contexts)
    argv = work.command or (work.agent.argv if work.agent else ())
    shown = shlex.join(argv) if argv else "each issue's own command"
    functions = shown_functions(work)
    return f"{functions}, or {shown}" if functions else shown
