"""Snapshots as a real board makes them, for what draws them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from beads_workers.core.base.wire import Progress
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status

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


def agents_at_work() -> list[rec.Record]:
    """A fleet of two agents with a budget; one of two workers is at it, and has used something."""
    run = replace(BEGAN, budget="$20", agents=("claude", "codex"))
    working = Progress("app-1", None, "editing shop/cart.py", 12_300, 0.41, 0.5)
    return [
        run,
        rec.RunChanged("running"),
        *fleet(2),
        rec.Claimed("app-1", "Mend the cart"),
        rec.Started("app-1", "W1", 1, "r1", "Mend the cart", agent="claude"),
        rec.AsideHeard("W1", working),
    ]


def to_decide() -> list[rec.Record]:
    """A question of one agent, and a finished branch that awaits approval."""
    asks = Receipt(agent="claude", question="FOO or BAR?\nFOO is shorter.")
    head = "0123456789abcdef0123456789abcdef01234567"
    done = Receipt(
        agent="codex", head=head, branch="bw/app-2/1", diffstat="3 files changed", verified=True
    )
    return [
        *fleet(3, busy=2),
        ended("app-1", outcome="question", verdict="asked", error="FOO or BAR?", receipt=asks),
        rec.SettledRecord("app-1", "ask", "applied"),
        ended("app-2", "W2", verdict="land", receipt=done, awaits=True),
        rec.LandingEnded("app-2", "shelve"),
        rec.SettledRecord("app-2", "shelve", "applied"),
    ]


def closed(trouble: str = "limited", why: str = "5-hour limit", todo: str = "") -> rec.Record:
    """The account of claude takes no work for 41 minutes from ``EPOCH`` on."""
    until = 0.0 if trouble == "needs_person" else EPOCH + 41 * 60
    return rec.AccountClosed("c1", "claude", trouble, why, "", until, EPOCH + 2500, EPOCH, todo)


def ended(issue_id: str, worker_id: str = "W1", **fields: Any) -> rec.Finished:
    """An attempt that ended; as it went well unless said otherwise."""
    said = {"outcome": "success", "verdict": "finish", "duration_ms": 4200} | fields
    return rec.Finished(issue_id, worker_id, 1, "r", **said)
