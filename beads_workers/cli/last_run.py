"""The last run, for ``status`` and ``wait`` without a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beads_workers.runtime.endings import how_it_ended


def last_run(directory: Path) -> dict[str, Any] | None:
    """Return how the last run ended, as JSON; None if there never was one."""
    runs = directory / "runs"
    try:
        folders = sorted((p for p in runs.iterdir() if p.is_dir()), reverse=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return next((ending for run in folders if (ending := how_it_ended(run)) is not None), None)


def night_of(directory: Path, last: dict[str, Any]) -> dict[str, Any] | None:
    """Return the figures of the night that this run ends; None for a night of one run.

    They are those of ``report``: the same runs are added up.
    """
    if last["night"]["runs"] < 2:
        return None
    from beads_workers.runtime.run_directory import RunDirectory
    from beads_workers.ui.findings import figures
    from beads_workers.views.histories import read_night

    return figures(read_night(RunDirectory(directory), last["run_id"]))
