"""Snapshots as a real board makes them, for what draws them."""

from __future__ import annotations

from typing import Any

from beads_workers.core import journal as rec
from beads_workers.core.journal import Entry
from beads_workers.core.snapshot import Board
from beads_workers.core.status import status

EPOCH = 1_700_000_000.0
BEGAN = rec.RunStarted("20261121-031500.000-abcdef", 4242, "a", "bd", "/home/you/project", "s", "c")


def after(*records: rec.Record, elapsed: float = 10.0) -> dict[str, Any]:
    """What is shown after these, a tenth of a second apart."""
    board = Board()
    for number, record in enumerate((BEGAN, rec.RunChanged("running"), *records)):
        board.apply(Entry(record, EPOCH + number / 10, number / 10))
    return status(board, elapsed)


def fleet(workers: int, busy: int = 0, title: str = "Say what went wrong") -> list[rec.Record]:
    """So many workers, the first ones with an issue each."""
    records: list[rec.Record] = []
    for number in range(1, workers + 1):
        records += [
            rec.WorkerStarted(f"W{number}", 9000 + number),
            rec.WorkerJoined(f"W{number}", 9000 + number),
        ]
    for number in range(1, busy + 1):
        issue_id = f"app-{number}"
        records += [
            rec.Claimed(issue_id, title),
            rec.Started(issue_id, f"W{number}", 1, f"r{number}", title),
        ]
    return records


def ended(issue_id: str, worker_id: str = "W1", **fields: Any) -> rec.Finished:
    """An attempt that ended; as it went well unless said otherwise."""
    said = {"outcome": "success", "verdict": "finish", "duration_ms": 4200} | fields
    return rec.Finished(issue_id, worker_id, 1, "r", **said)
