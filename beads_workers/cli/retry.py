"""The command ``retry``: try quarantined issues again, whether or not a fleet runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import connect_if_running, find_state_directory
from beads_workers.cli.completion import causes, quarantined
from beads_workers.cli.decisions import not_retried, reopen
from beads_workers.cli.fleet import report
from beads_workers.cli.waiting import waiting
from beads_workers.core.base.causes import NO_SUCH_CAUSE, is_of
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_UNKNOWN, EXIT_USAGE


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("retry", epilog="Example: beads-workers retry proj-a1b, or retry --all")(retry)


def retry(
    issues: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ISSUE]...", help="Issues to try again.", autocompletion=quarantined
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are quarantined.")] = False,
    cause: Annotated[
        str | None,
        typer.Option(
            "--cause",
            metavar="TEXT",
            help="All that are quarantined for this error; a part of it is enough.",
            autocompletion=causes,
        ),
    ] = None,
    source: Annotated[str | None, typer.Option(help="bd or sqlite.")] = None,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Try issues again that were quarantined or on hold.

    You can also name issues that wait for a retry.
    """
    ways = {"issues": bool(issues), "--all": everything, "--cause": cause is not None}
    chosen = [name for name, given in ways.items() if given]
    if len(chosen) != 1 or (cause is not None and not cause.strip()):
        message = f"{' and '.join(chosen)} at once" if len(chosen) > 1 else "which issues?"
        hint = "'beads-workers retry ID' tries one again, 'beads-workers retry --all' all"
        raise CommandError(message, f"{hint}, 'retry --cause TEXT' all of one cause", EXIT_USAGE)
    directory = find_state_directory(state_dir)
    if (client := connect_if_running(directory)) is None:
        asked = issues or _quarantined(directory, cause or "")
        done, wrong = reopen(directory, asked, source) if asked else ([], [])
        if as_json:
            print(json.dumps({"reopened": done, "not": [s.settlement.issue_id for s in wrong]}))
        elif done or not asked:
            print(f"will be retried: {', '.join(done)}" if done else "nothing is quarantined")
        if wrong:
            raise not_retried(wrong)
        return
    wanted = {"issue_ids": issues} if issues else {"quarantined": True, "cause": cause or ""}
    report(client.ask("bw.retry", wanted), as_json=as_json)


def _quarantined(directory: Path, cause: str) -> list[str]:
    """Return the issues that earlier runs quarantined, for this cause if any."""
    found = {row["issue_id"]: row["error"] for row in waiting(directory).quarantined}
    alike = [each for each, error in found.items() if not cause or is_of(cause, error, each)]
    if found and not alike:
        raise CommandError(NO_SUCH_CAUSE, "'beads-workers status' names the causes", EXIT_UNKNOWN)
    return alike
