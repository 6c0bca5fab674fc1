"""After the end of a fleet: whether any process of its run is still there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

GONE_SECONDS = 2.0
"""What was killed with the last breath of the fleet is gone well within this."""
LOOK_SECONDS = 0.05
COMMAND_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that outlived its fleet; ``command`` is its command line, cut."""

    pid: int
    command: str


def leftovers(state_directory: Path, run_id: str) -> list[Leftover]:
    """Who still holds the run's lock, or carries its token; waits a moment for them to go."""
    from beads_workers.edge import sessions
    from beads_workers.edge.run_directory import RunDirectory

    alive = RunDirectory(state_directory).run(run_id) / "alive"
    deadline = time.monotonic() + GONE_SECONDS
    while pids := sessions.living(run_id, alive):
        if time.monotonic() > deadline:
            return [Leftover(pid, _command(pid)) for pid in pids]
        time.sleep(LOOK_SECONDS)
    return []


def _command(pid: int) -> str:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(argv).decode("utf-8", "replace").strip()[:COMMAND_CHARS_MAX]
