"""What attempts had printed that were killed together with their workers.

Such output never became the attempt's log. It lies in the file of the worker until the next one of
that name keeps it under another name (docs/OPERATIONS.md, "The run directory").
"""

from __future__ import annotations

from pathlib import Path

from beads_workers.executors.files import output_file

CLOCK_SECONDS = 0.05
"""The kernel stamps files with the time of its last tick, and the journal rounds its own."""


def left_outputs(folder: Path, worker_id: str, began: float, ended: float) -> list[Path]:
    """Files below the run's ``folder``, for an attempt between these times (epoch seconds).

    No file says whose it is, but it was last written while its attempt was under way, and a worker
    has one at a time.
    """
    output = Path(output_file(str(folder), worker_id))
    found = []
    for path in (*sorted(output.parent.glob(f"lost{output.name}.*.log")), output):
        try:
            status = path.lstat()
        except OSError:
            continue
        if status.st_size and began - CLOCK_SECONDS <= status.st_mtime <= ended + CLOCK_SECONDS:
            found.append(path)
    return found
