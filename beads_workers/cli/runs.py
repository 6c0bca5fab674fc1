"""The command ``runs``, and the search for a run by its id or a prefix of its id.

``runs`` lists the newest run first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import find_state_directory
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_UNKNOWN, EXIT_USAGE
from beads_workers.runtime.endings import how_it_ended
from beads_workers.ui.time_text import moment

if TYPE_CHECKING:
    from beads_workers.runtime.run_directory import RunDirectory


SHOWN_DEFAULT = 20
LISTED_MAX = 8
"""Maximum number of runs that the error message about an unknown or ambiguous id names."""

COUNTS = ("closed", "failed", "quarantined")


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("runs", epilog="Example: beads-workers runs -n 5")(runs)


def runs(
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Only the last so many; default 20.")
    ] = SHOWN_DEFAULT,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """List the runs of this project: when, how long, how each ended.

    The newest run is listed first; 'report RUN' shows everything about one run.
    """
    from beads_workers.runtime.run_directory import RunDirectory

    directory = RunDirectory(find_state_directory(state_dir))
    found = list(islice(listed(directory), number))
    if as_json:
        print(json.dumps({"runs": found}))
        return
    if not found:
        raise CommandError("nothing has run here yet", "'beads-workers start' runs a fleet")
    for row in found:
        print(_line(row))


def listed(directory: RunDirectory) -> Iterator[dict[str, Any]]:
    """Yield the runs as ``runs --json`` lists them, newest first."""
    return _rows(directory, _running(directory))


def _running(directory: RunDirectory) -> str:
    info = directory.read_info()
    return info.run_id if info is not None and directory.is_locked() else ""


def _rows(directory: RunDirectory, running: str) -> Iterator[dict[str, Any]]:
    for run_id in reversed(directory.run_ids()):
        ending = how_it_ended(directory.run(run_id))
        if ending is None:
            continue
        is_running = run_id == running
        if ending["exit_code"] is None and not is_running:
            ending |= _figures_of_killed(directory, run_id)
        yield {
            "run_id": run_id,
            "running": is_running,
            "began_at": ending["began_at"],
            "ended_at": None if is_running else ending["ended_at"],
            "seconds": round(
                (time.time() if is_running else ending["ended_at"]) - ending["began_at"], 3
            ),
            "ending": "running" if is_running else ending["ending"],
            "exit_code": ending["exit_code"],
            "closed": ending["closed"],
            "failed": ending["failed"],
            "quarantined": ending["quarantined_here"],
            "spent_usd": ending["spent_usd"],
            "night": ending["night"]["first"],
        }


def _figures_of_killed(directory: RunDirectory, run_id: str) -> dict[str, Any]:
    """Return the figures of a killed run with what later runs settled of it, and found out."""
    from beads_workers.ui.findings import figures
    from beads_workers.views.histories import read_history

    found = figures(read_history(directory, run_id))
    return found | {"quarantined_here": found["quarantined"]}


def _line(row: dict[str, Any]) -> str:
    from beads_workers.core.base.text import printable

    began = moment(row["began_at"], seconds=False)
    minutes, seconds = divmod(round(row["seconds"]), 60)
    hours, minutes = divmod(minutes, 60)
    counts = ", ".join(f"{name} {row[name]}" for name in COUNTS)
    counts += f", ${row['spent_usd']:.2f}" if row["spent_usd"] else ""
    how = printable(row["ending"], 80)
    return f"{row['run_id']}  {began}  {hours:3}:{minutes:02}:{seconds:02}  {counts}  {how}"


def find_run(directory: Path, prefix: str | None) -> Path:
    """Return the folder of the run whose id is ``prefix``, or begins with ``prefix``.

    ``prefix``: None for the last run. Raise ``CommandError`` with the exit status 4 if no run
    matches, 2 if several runs match, 1 if nothing has run.
    """
    from beads_workers.runtime.run_directory import RunDirectory

    runs = RunDirectory(directory)
    run_ids = runs.run_ids()
    if not run_ids:
        raise CommandError("nothing has run here yet", "'beads-workers start' runs a fleet")
    if prefix in run_ids:
        return runs.run(prefix)
    found = [run_id for run_id in run_ids if run_id.startswith(prefix or runs.last_run())]
    if not found:
        raise CommandError(f"no run {prefix}", f"there are: {_named(run_ids)}", EXIT_UNKNOWN)
    if len(found) > 1:
        raise CommandError(f"{prefix} is not one run", f"say which: {_named(found)}", EXIT_USAGE)
    return runs.run(found[0])


def _named(run_ids: list[str]) -> str:
    older = len(run_ids) - LISTED_MAX
    more = [f"and {older} older"] if older > 0 else []
    return ", ".join([*reversed(run_ids[-LISTED_MAX:]), *more])
