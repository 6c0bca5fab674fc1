"""The hand that kills a worker in the middle of a demo, as anybody could from another terminal."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from typing import Any

from beads_workers.cli.client import connect
from beads_workers.cli.demo.backlog import Item
from beads_workers.cli.errors import CommandError
from beads_workers.edge import sessions
from beads_workers.edge.run_directory import RunDirectory

AT_WORK_SECONDS = 4.0
"""So long it has been at work: long enough that everybody has seen it work."""


@dataclass(frozen=True, slots=True)
class Killed:
    """Who was killed, at work on which issue."""

    worker_id: str
    pid: int
    issue_id: str


class Hand(threading.Thread):
    """Watches the fleet; KILLs the first worker of the victim. Then ``killed`` says whom it hit."""

    def __init__(self, state: RunDirectory, victim: Item) -> None:
        super().__init__(name="the hand that kills", daemon=True)
        self._state = state
        self._victim = victim
        self.killed: Killed | None = None

    def run(self) -> None:
        """See the module text; ends with the fleet."""
        try:
            client = connect(self._state.root)
        except CommandError:
            return  # The fleet has ended already; the demo says what was not seen.
        client.send("bw.watch")
        for message in client.follow():
            if self.killed is None and "snapshot" in message:
                self._look(message["snapshot"])

    def _look(self, snapshot: dict[str, Any]) -> None:
        for worker in snapshot["workers"]:
            at_work = worker["elapsed_seconds"] or 0.0
            if worker["issue_id"] == self._victim.issue_id and at_work >= AT_WORK_SECONDS:
                self._kill(worker)

    def _kill(self, worker: dict[str, Any]) -> None:
        info, started = self._state.read_info(), sessions.start_time(worker["pid"])
        if info is None or started is None:
            return
        # Every process of a fleet, and no other, holds its run's lock open: it is ours to kill.
        alive = self._state.run(info.run_id) / "alive"
        if sessions.holds(worker["pid"], alive) and sessions.kill(
            worker["pid"], started, signal.SIGKILL
        ):
            self.killed = Killed(worker["worker_id"], worker["pid"], self._victim.issue_id)
