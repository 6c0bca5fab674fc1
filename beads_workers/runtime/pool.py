"""The process that makes worktrees ahead of attempts, seen from the fleet: started, and ended.

It runs in a session of its own and carries the run's token, like a worker. Attempts wake it by
themselves, and go without where it has died.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from beads_workers.core.settings import Worktrees
from beads_workers.runtime import sessions
from beads_workers.runtime.processes import say

MODULE = "beads_workers.worktrees.pool"
POOL = "pool"
"""Its name among the workers of a run: part of the token."""
LEAVES_SECONDS = 10.0
"""How long it may take to remove what it has half made."""


class PoolProcess:
    """Ends with ``close``, and with this process."""

    def __init__(self, worktrees: Worktrees, run_id: str, log: Path) -> None:
        self._run_id = run_id
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with log.open("ab") as file:
                self._process = subprocess.Popen(
                    # -P: what lies in the project's folder is never imported.
                    [sys.executable, "-P", "-m", MODULE],
                    stdin=subprocess.PIPE,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                    env={**os.environ, "BW_RUN_ID": run_id, "BW_WORKER_ID": POOL},
                )
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
        with suppress(subprocess.TimeoutExpired):
            process.wait(LEAVES_SECONDS)
        if process.returncode is None:
            process.kill()
            process.wait()
        sessions.sweep(self._run_id, POOL)
