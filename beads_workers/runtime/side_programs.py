"""Programs of ours beside the orchestrator, in sessions of their own: the lander and the pool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.runtime import sessions
from beads_workers.runtime.processes import say

LEAVES_SECONDS = 10.0
"""Seconds that a program may take to finish once its stdin is closed."""


def start(
    module: str, run_id: str, name: str, log: Path, output: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a program of ours beside the orchestrator; raises ``OSError``.

    The program runs in a session of its own and, like a worker, carries the run's token under this
    ``name``: the processes it starts are found and killed with the run. The program ends when its
    stdin closes. ``output``: descriptor for its stdout; None: ``log``, which gets its stderr in any
    case.
    """
    with log.open("ab") as file:
        return subprocess.Popen(
            # -P: modules in the project's folder are never imported.
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=file if output is None else output,
            stderr=file,
            start_new_session=True,
            env={**os.environ, "BW_RUN_ID": run_id, "BW_WORKER_ID": name},
        )


def end(process: subprocess.Popen[bytes], run_id: str, name: str) -> None:
    """Wait until the program, whose stdin is closed, has ended; kill it if it takes longer than
    ``LEAVES_SECONDS``, and then every process it started."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(LEAVES_SECONDS)
    if process.returncode is None:
        process.kill()
        process.wait()
    sessions.sweep(run_id, name)


# --- pool ----------------------------------------------------------------------------------------
# The process that creates worktrees ahead (``worktrees.pool``), seen from the fleet.


MODULE = "beads_workers.worktrees.pool"
POOL = "pool"
"""Name of the pool among the workers of a run: part of the token."""


class PoolProcess:
    """The process that creates worktrees ahead of attempts; ends with ``close``, or with this
    process.

    Attempts wake the pool themselves, and do without it if it has died.
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
        fields = {"worktrees": to_plain(worktrees), "run_id": run_id}
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(fields).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Close the pool's stdin and wait until the process has ended."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        with suppress(BrokenPipeError):
            process.stdin.close()
        end(process, self._run_id, POOL)
