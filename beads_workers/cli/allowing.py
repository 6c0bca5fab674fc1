"""``--allow-module``: whether functions could be called as it says, before a fleet is started."""

from __future__ import annotations

import sys
from pathlib import Path

from beads_workers.cli.errors import EXIT_USAGE, CommandError
from beads_workers.cli.options import Options
from beads_workers.core.jobs import COMMAND, FUNCTION
from beads_workers.core.settings import Work


def check_modules(options: Options, folder: Path) -> None:
    """Raises ``CommandError`` where they could not: each call would set its issue aside."""
    from beads_workers.executors.functions.places import is_there

    if options.allow_module and options.worktree:
        raise CommandError(
            "--allow-module and --worktree do not go together",
            "functions are called in the project's own folder; start two fleets",
            EXIT_USAGE,
        )
    for module in options.allow_module or ():
        if not is_there(module, str(folder)):
            raise CommandError(
                f"--allow-module {module}: there is no such module in {folder}",
                f"nor is it installed for {sys.executable}",
                EXIT_USAGE,
            )


def shown_functions(work: Work) -> str:
    """What of an issue's functions is called; "" where none is."""
    modules = ", ".join(work.allow_modules)
    return f"the function of {modules} that an issue names" if modules else ""


def to_bring(work: Work) -> tuple[str, ...]:
    """What an issue must bring, any of it, for a fleet that has nothing of its own to run: others
    are not for it, and are left alone."""
    if work.executors:
        return () if work.function else (FUNCTION,)
    if work.command or work.agent or work.contexts:
        return ()
    return (FUNCTION, COMMAND) if work.allow_modules else (COMMAND,)
