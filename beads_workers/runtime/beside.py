"""Programs of ours beside the orchestrator, in sessions of their own: the lander, the pool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from beads_workers.core.plain import to_plain
from beads_workers.core.settings import Worktrees
from beads_workers.runtime import sessions
from beads_workers.runtime.processes import say

LEAVES_SECONDS = 10.0
"""How long one may take to end what it does."""


def start(
    module: str, run_id: str, name: str, log: Path, output: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a program of ours beside the orchestrator; raises ``OSError``.

    It runs in a session of its own and carries the run's token under this ``name``, like a worker:
    what it starts is found and ended with the run. It ends with its stdin. ``output``: where its
    stdout goes, to ``log`` else, as its complaints do.
    """
    with log.open("ab") as file:
        return subprocess.Popen(
            # -P: what lies in the project's folder is never imported.
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=file if output is None else output,
            stderr=file,
            start_new_session=True,
            env={**os.environ, "BW_RUN_ID": run_id, "BW_WORKER_ID": name},
        )


def end(process: subprocess.Popen[bytes], run_id: str, name: str) -> None:
    """Its stdin is closed: see to it that it ends, with all that it has started."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVES_SECONDS)
    if process.returncode is None:
        process.kill()
        process.wait()
    sessions.sweep(run_id, name)


# --- pool ----------------------------------------------------------------------------------------
# What makes worktrees ahead (``worktrees.pool``), seen from the fleet.


MODULE = "beads_workers.worktrees.pool"
POOL = "pool"
"""Its name among the workers of a run: part of the token."""


class PoolProcess:
    """The process that makes worktrees ahead of attempts: ends with ``close``, and with this one.

    Attempts wake it by themselves, and go without where it has died.
    """

    def __init__(self, worktrees: Worktrees, run_id: str, log: Path) -> None:
        self._run_id = run_id
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = start(MODULE, run_id, POOL, log)
        except OSError as error:
            say(POOL, f"no worktrees are made ahead: {error.strerror or error}")
            return
        assert self._process.stdin is not None
        told = {"worktrees": to_plain(worktrees), "run_id": run_id}
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
        end(process, self._run_id, POOL)
