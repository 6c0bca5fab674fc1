"""The end of the log of a worker's attempt, for the dashboard: read again only when it grew."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from beads_workers.core.text import as_shown
from beads_workers.dashboard.look import Log, Look, chosen_worker
from beads_workers.executors.files import log_file, output_file

TAIL_BYTES = 64 << 10
"""More than a screen can show."""


class LogTail:
    """``run_folder``: run id -> the folder of that run."""

    def __init__(self, run_folder: Callable[[str], Path]) -> None:
        self._run_folder = run_folder
        self._known: tuple[object, ...] = ()
        self._log: Log | None = None

    def read(self, look: Look, snapshot: Mapping[str, Any], rows: int) -> Log:
        """The log of the chosen worker: of what it runs, or of what it ran last."""
        worker = chosen_worker(look, snapshot)
        if worker is None:
            return Log("no worker, so no log")
        found = self._find(worker, snapshot)
        if found is None:
            return Log(f"{worker['worker_id']} has run nothing yet")
        title, path = found
        try:
            stat = path.stat()
        except FileNotFoundError:
            return Log(f"{title}: nothing printed yet")
        seen = (title, path, stat.st_ino, stat.st_size, stat.st_mtime_ns, rows)
        if self._log is None or seen != self._known:
            self._known, self._log = seen, Log(f"{title}: {path.name}", _tail(path, rows))
        return self._log

    def _find(
        self, worker: Mapping[str, Any], snapshot: Mapping[str, Any]
    ) -> tuple[str, Path] | None:
        folder = str(self._run_folder(snapshot["run_id"]))
        worker_id = worker["worker_id"]
        if (issue_id := worker["issue_id"]) is not None:
            attempt = worker["attempt"]
            # An attempt whose first step has printed has its own log already.
            log = Path(log_file(folder, issue_id, attempt))
            path = log if log.exists() else Path(output_file(folder, worker_id))
            return f"{worker_id} runs {issue_id}, attempt {attempt}", path
        for outcome in reversed(snapshot["outcomes"]):
            if outcome["worker_id"] == worker_id:
                issue_id, attempt = outcome["issue_id"], outcome["attempt"]
                title = f"{worker_id} last ran {issue_id}, attempt {attempt}"
                return title, Path(log_file(folder, issue_id, attempt))
        return None


def _tail(path: Path, rows: int) -> tuple[str, ...]:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        data = file.read(TAIL_BYTES)
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    # A cut first line is no line.
    whole = lines[1:] if size > TAIL_BYTES and len(lines) > 1 else lines
    return tuple(as_shown(line) for line in whole[-rows:])
