"""A worker that was written from docs/PROTOCOL.md alone, and does as the files in a folder say.

    python -m tests.support.foreign_worker FOLDER CONNECTIONS

``socket`` holds the path of the orchestrator's socket; it is read anew for each connection. Each
slot works on its issue ID until ``done-ID`` is there. ``drop-ID``: it closes its connection and
works on. ``back-ID``: it lets go of its issue, connects anew and says READY. It takes no notice of
SHUTDOWN, nor of the end of its stream. What it has begun is in ``begun``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

LOOK_SECONDS = 0.02


class Slot:
    """One connection after the other, with a task of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket: socket.socket | None = None
        self._lines: Any = None

    def run(self) -> None:
        """For ever."""
        self._connect()
        while True:
            line = self._lines.readline()
            if not line:
                time.sleep(LOOK_SECONDS)  # Its end: it has nothing to do, and stays.
                continue
            message = json.loads(line)
            if message["type"] == "WAIT":
                time.sleep(0.2)
                self._say("READY")
            elif message["type"] == "TASK":
                self._work(message["issue_id"])

    def _connect(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect((self._folder / "socket").read_text())
        self._lines = self._socket.makefile("r")
        self._say("READY")

    def _say(self, kind: str, **fields: Any) -> None:
        message = {"type": kind, "worker_id": "W1", "timestamp": time.time(), **fields}
        try:
            assert self._socket is not None
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    def _work(self, issue_id: str) -> None:
        with (self._folder / "begun").open("a") as begun:
            begun.write(f"{issue_id}\n")
        while not self._told("done", issue_id):
            if self._told("drop", issue_id) and self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
                self._socket = None
            if self._told("back", issue_id):
                (self._folder / f"back-{issue_id}").unlink()
                self._connect()
                return
            time.sleep(LOOK_SECONDS)
        self._say("DONE", issue_id=issue_id, duration_ms=1)
        self._say("READY")

    def _told(self, what: str, issue_id: str) -> bool:
        return (self._folder / f"{what}-{issue_id}").exists()


if __name__ == "__main__":
    place, count = Path(sys.argv[1]), int(sys.argv[2])
    for _ in range(count):
        threading.Thread(target=Slot(place).run, daemon=True).start()
    parent = os.getppid()
    while os.getppid() == parent:  # It outlives no test.
        time.sleep(0.1)
