"""What it costs a frame of ``status`` that branches wait."""

from __future__ import annotations

import time
from collections.abc import Callable

from beads_workers.core.records.journal import Checkpointed, Entry, LandingTip, Record, WorkerJoined
from beads_workers.core.records.landing import Add
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status

BRANCHES = 300
WORKERS = 30
TIMES = 7


def cost() -> float:
    """Milliseconds of one frame, the best of some times: a figure to print, never to assert."""
    adds = [
        Add(f"s-{n}", 1, "run", f"{n:040x}", "0" * 40, f"bw/s-{n}/1", "a title")
        for n in range(BRANCHES)
    ]
    records: list[Record] = [LandingTip("0" * 40, "main")]
    records += [WorkerJoined(f"W{n}", n + 1) for n in range(WORKERS)]
    records += [Checkpointed(f"s-{n}", "a title", landing=add) for n, add in enumerate(adds)]
    board = Board()
    for record in records:
        board.apply(Entry(record, 1.0, 0.0))
    waiting = status(board, 1.0)["landing"]["waiting_to_land"]
    assert len(waiting) == BRANCHES, "they wait"
    return _milliseconds(lambda: status(board, 1.0))


def _milliseconds(call: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return min(once() for _ in range(TIMES)) * 1000
