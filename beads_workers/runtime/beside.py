"""Programs of ours beside the orchestrator, in sessions of their own: the lander, the pool."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from beads_workers.runtime import sessions

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
