"""What it costs a frame of ``status`` that branches wait, and how much of that is parsing texts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from beads_workers.core.journal import Checkpointed, Entry, LandingTip, Record, WorkerJoined
from beads_workers.core.landing import Add, add_from_text, add_to_text
from beads_workers.core.snapshot import Board
from beads_workers.core.status import status

BRANCHES = 300
WORKERS = 30
TIMES = 7


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of one frame, and what they would be if each text was parsed at its reading."""

    now: float
    parsed_once: float


def cost() -> Cost:
    """Measure both, the best of some times: a figure to print, never to assert."""
    texts = [
        add_to_text(Add(f"s-{n}", 1, "run", f"{n:040x}", "0" * 40, f"bw/s-{n}/1", "a title"))
        for n in range(BRANCHES)
    ]
    records: list[Record] = [LandingTip("0" * 40, "main")]
    records += [WorkerJoined(f"W{n}", n + 1) for n in range(WORKERS)]
    records += [Checkpointed(f"s-{n}", "a title", landing=text) for n, text in enumerate(texts)]
    board = Board()
    for record in records:
        board.apply(Entry(record, 1.0, 0.0))
    waiting = status(board, 1.0)["landing"]["waiting"]
    assert len(waiting) == BRANCHES, "they wait"
    whole = _milliseconds(lambda: status(board, 1.0))
    return Cost(whole, whole - _milliseconds(lambda: [add_from_text(text) for text in texts]))


def _milliseconds(call: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return min(once() for _ in range(TIMES)) * 1000
