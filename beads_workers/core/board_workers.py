"""The workers of a board: a row for each, and their order."""

from __future__ import annotations

from dataclasses import dataclass, field

from beads_workers.core import records as rec


@dataclass(slots=True)
class WorkerRow:
    """One worker. ``since``: elapsed seconds of the run at which its task began; ``began``: the
    same for its process. ``finished``: attempts that ended, in whatever way. ``ahead``: what it was
    sent beside its task, with the same for each."""

    worker_id: str
    pid: int | None = None
    state: str = "starting"
    issue_id: str | None = None
    title: str | None = None
    attempt: int | None = None
    since: float = 0.0
    done: int = 0
    failed: int = 0
    own: bool = True
    connected: bool = False
    began: float = 0.0
    finished: int = 0
    ahead: list[tuple[rec.Started, float]] = field(default_factory=list)

    def has(self, started: rec.Started, since: float) -> None:
        """It was sent this one."""
        if self.issue_id is not None and self.issue_id != started.issue_id:
            self.ahead.append((started, since))
            return
        self.state, self.since = "busy", since
        self.issue_id, self.title, self.attempt = started.issue_id, started.title, started.attempt

    def has_not(self, issue_id: str) -> None:
        """It ended this one, or gave it back."""
        if self.issue_id != issue_id:
            self.ahead = [sent for sent in self.ahead if sent[0].issue_id != issue_id]
            return
        self.issue_id = self.title = self.attempt = None
        if self.ahead:
            stopping = self.state == "stopping"
            self.has(*self.ahead.pop(0))
            self.state = "stopping" if stopping else self.state
        elif self.state == "busy":
            self.state = "idle"

    def left(self) -> None:
        """Its connection is over."""
        self.connected, self.state, self.ahead = False, "stopping", []
        self.issue_id = self.title = self.attempt = None


def worker_order(worker_id: str) -> tuple[int, int, str]:
    """Sorts W2 before W2.2 and that before W10, and behind them all what a damaged journal calls
    a worker."""
    number, _, slot = worker_id[1:].partition(".")
    return (_small(number), _small(slot) if slot else 0, worker_id)


def _small(number: str) -> int:
    known = number.isdecimal() and len(number) < 10
    return int(number) if known else 1 << 30
