"""``status``: the board as the JSON that docs/CLI.md describes. Additive changes only."""

from __future__ import annotations

from typing import Any

from beads_workers.core import records as rec
from beads_workers.core.board import Board, WorkerRow
from beads_workers.core.journal_lines import Entry

SHOWN_STATES = {
    "recovering": "running",
    "running": "running",
    "paused": "paused",
    "draining": "draining",
    "stopping": "stopping",
    "settling": "stopping",
    "ended": "stopping",
}


def status(board: Board, elapsed: float) -> dict[str, Any]:
    """The JSON of ``status --json``; ``elapsed``: seconds of the run now."""
    run = board.run
    rate = _rate_per_minute(board, elapsed)
    ready = sum(board.listed.by_priority) + len(board.unsent)
    left = ready + len(board.running) + len(board.retrying) + board.listed.blocked
    return {
        "running": board.ended is None,
        "pid": run.pid if run else None,
        "run_id": run.run_id if run else None,
        "socket": run.socket if run else None,
        "control_socket": run.control_socket if run else None,
        "project": run.project if run else None,
        "source": run.source if run else None,
        "state": SHOWN_STATES[board.state],
        "uptime_seconds": round(elapsed, 3),
        "workers": [_worker(row, elapsed) for row in _in_order(board)],
        "queue": {
            "ready": ready,
            "ready_more": board.listed.more,
            "by_priority": list(board.listed.by_priority),
            "running": len(board.running),
            "retrying": len(board.retrying),
            "blocked": board.listed.blocked,
            "set_aside": len(board.set_aside),
            "withheld": len(board.withheld),
            "not_closed": len(board.not_closed) + len(board.closing),
        },
        "set_aside": [
            {"issue_id": issue_id, "attempts": attempts, "error": error}
            for issue_id, (attempts, error) in board.set_aside.items()
        ],
        "totals": dict(board.totals),
        "source_state": _source_state(board, elapsed),
        "rate_per_minute": rate,
        "eta_seconds": round(left / rate * 60.0, 1) if rate and left else None,
        "source_calls": {
            "count": board.spent.calls,
            "seconds": round(board.spent.seconds, 3),
            "per_done": _ratio(board.spent.calls, board.totals["done"]),
        },
        "recent": [{"at": e.at, "level": n.level, "text": n.text} for e, n in _notes(board)],
    }


def _notes(board: Board) -> list[tuple[Entry, rec.Noted]]:
    return [(e, e.record) for e in board.notes if isinstance(e.record, rec.Noted)][-10:]


def _in_order(board: Board) -> list[WorkerRow]:
    return sorted(board.workers.values(), key=lambda row: int(row.worker_id[1:]))


def _worker(row: WorkerRow, elapsed: float) -> dict[str, Any]:
    return {
        "worker_id": row.worker_id,
        "pid": row.pid,
        "state": row.state,
        "issue_id": row.issue_id,
        "title": row.title,
        "attempt": row.attempt,
        "elapsed_seconds": round(elapsed - row.since, 3) if row.issue_id else None,
        "done": row.done,
        "failed": row.failed,
        "own": row.own,
    }


def _source_state(board: Board, elapsed: float) -> dict[str, Any]:
    trouble = board.trouble
    if trouble is None:
        return {"state": "ok", "error": None, "since_seconds": None, "retry_in_seconds": None}
    return {
        # One failure may be a hiccup; from the third on a person should look.
        "state": "failing" if trouble.failures >= 3 else "backing_off",
        "error": trouble.error,
        "hint": trouble.hint,
        "since_seconds": round(elapsed - trouble.since, 1),
        "retry_in_seconds": round(max(0.0, trouble.retry_at - elapsed), 1),
    }


def _rate_per_minute(board: Board, elapsed: float) -> float:
    recent = board.recent_done
    if not recent:
        return 0.0
    # Over the last 200 completions, but at least ten seconds: the first one is not a rate.
    return round(len(recent) * 60.0 / max(elapsed - recent[0], 10.0), 1)


def _ratio(part: float, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def last_words(board: Board, run_id: str) -> dict[str, Any]:
    """How a run ended: the ``last_run`` of ``status --json``, but for ``settled``."""
    shown = status(board, board.elapsed)
    ended = board.ended
    how = f"ended: {ended.reason or 'as asked'}" if ended else "ended without a word (killed?)"
    return {
        "run_id": run_id,
        "how": how,
        "began_at": round(board.began_at, 3),
        "ended_at": round(board.began_at + board.elapsed, 3),
        "exit_code": ended.exit_code if ended else None,
        "closed": shown["totals"]["done"],
        "failed": shown["totals"]["failed"],
        "set_aside": shown["set_aside"],
        "not_closed": shown["queue"]["not_closed"],
    }
