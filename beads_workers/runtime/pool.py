"""The process that makes worktrees ahead of attempts, seen from the fleet: started, and ended.

Attempts wake it by themselves, and go without where it has died.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from beads_workers.core.settings import Worktrees
from beads_workers.runtime import beside
from beads_workers.runtime.processes import say

MODULE = "beads_workers.worktrees.pool"
POOL = "pool"
"""Its name among the workers of a run: part of the token."""


class PoolProcess:
    """Ends with ``close``, and with this process."""

    def __init__(self, worktrees: Worktrees, run_id: str, log: Path) -> None:
        self._run_id = run_id
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = beside.start(MODULE, run_id, POOL, log)
        except OSError as error:
            say(POOL, f"no worktrees are made ahead: {error.strerror or error}")
            return
        assert self._process.stdin is not None
        told = {"worktrees": asdict(worktrees), "run_id": run_id}
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(told).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Let it end, and see to it that it does."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with suppress(BrokenPipeError):
            process.stdin.close()
        beside.end(process, self._run_id, POOL)
