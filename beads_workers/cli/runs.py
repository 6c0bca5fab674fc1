"""Which run is meant: by its id, by how that begins, or the last one."""

from __future__ import annotations

from pathlib import Path

from beads_workers.cli.errors import EXIT_UNKNOWN, EXIT_USAGE, CommandError

LISTED_MAX = 8
"""So many runs are named where the asked one is unknown."""


def find_run(directory: Path, said: str | None) -> Path:
    """The folder of a run, by its id or the beginning of it; raises ``CommandError`` (exit 4)."""
    from beads_workers.runtime.run_directory import RunDirectory

    runs = RunDirectory(directory)
    run_ids = runs.run_ids()
    if not run_ids:
        raise CommandError("nothing has run here yet", "'beads-workers start' runs a fleet")
    if said in run_ids:
        return runs.run(said)
    found = [run_id for run_id in run_ids if run_id.startswith(said or runs.last_run())]
    if not found:
        raise CommandError(f"no run {said}", f"there are: {_named(run_ids)}", EXIT_UNKNOWN)
    if len(found) > 1:
        raise CommandError(f"{said} is not one run", f"say which: {_named(found)}", EXIT_USAGE)
    return runs.run(found[0])


def _named(run_ids: list[str]) -> str:
    older = len(run_ids) - LISTED_MAX
    more = [f"and {older} older"] if older > 0 else []
    return ", ".join([*reversed(run_ids[-LISTED_MAX:]), *more])
