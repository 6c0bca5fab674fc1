"""``clean``: remove what old runs left; never what is alive, owed or remembered."""

from __future__ import annotations

import json
import shutil
from typing import Annotated

import typer

from beads_workers.cli.client import find_state_directory
from beads_workers.cli.running import StateDir

KEEP = 3


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("clean", epilog="Example: beads-workers clean --dry-run")(clean)


def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    keep: Annotated[
        int, typer.Option(min=1, help="So many of the last runs stay, with their logs.")
    ] = KEEP,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Remove old runs with their logs, and dead sockets of ours in /tmp."""
    from beads_workers.edge.listener import dead_sockets
    from beads_workers.edge.run_directory import RunDirectory

    directory = RunDirectory(find_state_directory(state_dir))
    old = [
        directory.run(run_id)
        for run_id in directory.run_ids()[:-keep]
        # What the tracker is still owed is told by these files alone.
        if directory.is_settled(run_id) and not directory.is_alive(run_id)
    ]
    sockets = dead_sockets()
    if not dry_run:
        for folder in old:
            shutil.rmtree(folder)
        for path in sockets:
            path.unlink(missing_ok=True)
    found = [str(path) for path in (*old, *sockets)]
    if as_json:
        print(json.dumps({"removed": [] if dry_run else found, "found": found}))
        return
    for name in found:
        print(f"{'would remove' if dry_run else 'removed'} {name}")
    if not found:
        print("nothing to clean")
