"""``report --json``: a history and what follows from it, as docs/CLI.md describes it.

Additive changes only. Seconds are rounded to milliseconds; times are seconds of the run.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from beads_workers.core import findings
from beads_workers.core.history import Attempt, Fate, History


def report(history: History) -> dict[str, Any]:
    """The whole account as one JSON object."""
    width, buckets = findings.throughput(history)
    waste = findings.waste(history)
    told: dict[str, Any] = _rounded(
        {
            "run_id": history.run_id,
            "project": history.project,
            "source": history.source,
            "version": history.version,
            "pid": history.pid,
            "workers_asked": history.workers_asked,
            "state": history.state,
            "how": findings.how_it_ended(history),
            "exit_code": history.exit_code,
            "settled": history.settled,
            "began_at": history.began_at,
            "ended_at": None if history.state == "running" else history.began_at + history.seconds,
            "seconds": history.seconds,
            "issues_by_fate": {fate.value: len(history.with_fate(fate)) for fate in Fate},
            "attempts_by_outcome": by_outcome(history.attempts),
            "durations": {
                "all": asdict(findings.durations(history.attempts)),
                "done": asdict(findings.durations(done(history))),
            },
            "waste": asdict(waste),
            "tracker": tracker(history),
            "failures": [asdict(failure) for failure in findings.failures(history)],
            "throughput": {"step_seconds": width, "steps": [asdict(b) for b in buckets]},
            "slowest": [i.issue_id for i in findings.slowest(history)],
            "next": [asdict(step) for step in findings.next_steps(history)],
            "issues": [asdict(i) | {"fate": i.fate.value} for i in history.issues],
            "attempts": [asdict(attempt) for attempt in history.attempts],
            "workers": [asdict(row) for row in findings.busy(history)],
            "worker_spans": [asdict(span) for span in history.workers],
            "troubles": [asdict(span) for span in history.troubles],
            "pauses": [asdict(span) for span in history.pauses],
            "dropped": dropped(history),
            "notes": [asdict(note) for note in history.notes],
        }
    )
    return told


def dropped(history: History) -> dict[str, Any] | None:
    """What is only counted of a run whose journal has lost its beginning."""
    if history.dropped is None:
        return None
    counts = asdict(history.dropped)
    del counts["segment"]
    return {"seconds": history.dropped_seconds, **counts}


def done(history: History) -> list[Attempt]:
    """The attempts that succeeded."""
    return [a for a in history.attempts if a.outcome == "success"]


def by_outcome(attempts: tuple[Attempt, ...]) -> dict[str, int]:
    """How many attempts ended how; only outcomes that occurred."""
    counts: dict[str, int] = {}
    for attempt in attempts:
        counts[attempt.outcome] = counts.get(attempt.outcome, 0) + 1
    return counts


def tracker(history: History) -> dict[str, Any]:
    """What asking the tracker has cost; ``per_closed`` is None where nothing was closed."""
    closed = len(history.with_fate(Fate.CLOSED))
    troubled = sum(
        (history.seconds if span.ended is None else span.ended) - span.began
        for span in history.troubles
    )
    return {
        "calls": history.tracker_calls,
        "seconds": history.tracker_seconds,
        "calls_per_closed": history.tracker_calls / closed if closed else None,
        "seconds_per_closed": history.tracker_seconds / closed if closed else None,
        "trouble_seconds": troubled,
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value
