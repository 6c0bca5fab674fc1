"""From a board to the families of ``metrics``. docs/METRICS.md lists them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from beads_workers.core.board import Board
from beads_workers.core.board_workers import worker_order
from beads_workers.core.issues import Standing
from beads_workers.core.metrics.counters import BUCKETS, Durations
from beads_workers.core.metrics.exposition import Family, Sample, number
from beads_workers.core.status import SHOWN_STATES

PREFIX = "beads_workers_"
WORKER_STATES = ("starting", "idle", "busy", "stopping")
RUN_STATES = ("running", "paused", "draining", "stopping")


def families(board: Board, elapsed: float) -> Iterator[Family]:
    """Everything that the journal tells, worked out as it is asked for: a crowd of workers takes
    milliseconds. ``elapsed``: seconds of the run now.
    """
    yield from _run(board, elapsed)
    yield from _queue(board)
    yield from _attempts(board)
    yield from _workers(board)
    yield from _source(board)


def _run(board: Board, elapsed: float) -> list[Family]:
    run = board.run
    info = (("version", run.version), ("source", run.source)) if run else ()
    state = SHOWN_STATES.get(board.state, "running")
    return [
        _gauge("info", "Always 1; its labels say what runs.", Sample(1, info)),
        _gauge("start_time_seconds", "When the run began, in epoch seconds.", board.began_at),
        _gauge("uptime_seconds", "How long the run has lasted.", round(elapsed, 3)),
        _gauge(
            "state",
            "1 for the state that the fleet is in.",
            *_by("state", _only(RUN_STATES, state)),
        ),
        _gauge(
            "hindrances",
            "Conditions of the machine that stand in the way now.",
            len(board.hindrances),
        ),
    ]


def _queue(board: Board) -> list[Family]:
    depths = {str(priority): n for priority, n in enumerate(board.listed.by_priority)}
    jobs = {
        "ready": sum(board.listed.by_priority),
        "claimed": board.unsent + board.ahead(),
        "running": board.running - board.ahead(),
        "retrying": len(board.retrying),
        "blocked": board.listed.blocked,
        "set_aside": len(board.set_aside),
        "withheld": len(board.issues.standing(Standing.WITHHELD)),
        "not_closed": board.to_close,
    }
    return [
        _gauge(
            "queue_depth",
            "Jobs that could be taken, by priority (0 is the most urgent), as last listed.",
            *_by("priority", depths),
        ),
        _gauge(
            "queue_depth_capped",
            "1 where the last listing was cut: there are more jobs than queue_depth says.",
            int(board.listed.more),
        ),
        _gauge("jobs", "Jobs that are known, by what they wait for.", *_by("state", jobs)),
        _counter("jobs_taken_total", "Jobs taken from the source.", board.claims),
        _counter("jobs_done_total", "Jobs done and closed.", board.totals["done"]),
    ]


def _attempts(board: Board) -> list[Family]:
    counters = board.counters
    ended = counters.attempts or {("success", "finish"): 0}
    return [
        _counter("attempts_started_total", "Attempts that began.", counters.started),
        _counter(
            "attempts_total",
            "Attempts that ended, by outcome and by what was then done with the job.",
            *(
                Sample(count, (("outcome", outcome), ("verdict", verdict)))
                for (outcome, verdict), count in sorted(ended.items())
            ),
        ),
        Family(
            PREFIX + "attempt_duration_seconds",
            "histogram",
            "How long attempts ran, by outcome.",
            tuple(
                sample
                for outcome, durations in sorted(counters.durations.items())
                for sample in _histogram(outcome, durations)
            ),
        ),
    ]


def _histogram(outcome: str, durations: Durations) -> Iterable[Sample]:
    label, so_far = ("outcome", outcome), 0
    for bound, count in zip((*BUCKETS, float("inf")), durations.counts, strict=True):
        so_far += count
        yield Sample(so_far, (label, ("le", number(bound))), "_bucket")
    yield Sample(round(durations.seconds, 3), (label,), "_sum")
    yield Sample(so_far, (label,), "_count")


def _workers(board: Board) -> Iterator[Family]:
    rows = [board.workers[name] for name in sorted(board.workers, key=worker_order)]
    states = Counter(row.state for row in rows)
    yield _gauge(
        "workers",
        "Workers by state.",
        *_by("state", {state: states[state] for state in WORKER_STATES}),
    )
    yield _gauge(
        "workers_given_up",
        "Workers that crashed too often and are not started again.",
        len(board.given_up),
    )
    yield _gauge(
        "worker_busy",
        "1 while the worker has a job.",
        *(Sample(int(row.state == "busy"), (("worker", row.worker_id),)) for row in rows),
    )
    yield _counter(
        "worker_attempts_total",
        "Attempts of the worker that were done or failed.",
        *(
            Sample(count, (("worker", row.worker_id), ("result", result)))
            for row in rows
            for result, count in (("done", row.done), ("failed", row.failed))
        ),
    )


def _source(board: Board) -> list[Family]:
    spent, turns = board.activity.asking.spent, sorted(board.counters.turns.items())
    return [
        _counter("source_calls_total", "Calls of the source: processes, queries.", spent.calls),
        _counter("source_call_seconds_total", "What these calls took.", spent.seconds),
        _counter(
            "source_turns_total",
            "Visits to the source, by what they were for.",
            *(Sample(t.count, (("kind", kind),)) for kind, t in turns),
        ),
        _counter(
            "source_turn_seconds_total",
            "What these visits took, from question to answer.",
            *(Sample(round(t.seconds, 6), (("kind", kind),)) for kind, t in turns),
        ),
        _counter(
            "source_failures_total",
            "Visits to the source that came to nothing.",
            *(Sample(t.failures, (("kind", kind),)) for kind, t in turns),
        ),
        _gauge(
            "source_trouble",
            "1 while the source cannot be asked.",
            int(board.trouble is not None),
        ),
        _counter(
            "settlements_total",
            "Jobs that the source was told about, by what it was told and what it answered.",
            *(
                Sample(count, (("action", action), ("result", result)))
                for (action, result), count in sorted(board.counters.settled.items())
            ),
        ),
    ]


def _gauge(name: str, told: str, *values: Sample | float) -> Family:
    return _family(name, "gauge", told, values)


def _counter(name: str, told: str, *values: Sample | float) -> Family:
    return _family(name, "counter", told, values)


def _family(name: str, kind: str, told: str, values: tuple[Sample | float, ...]) -> Family:
    samples = (v if isinstance(v, Sample) else Sample(v) for v in values)
    return Family(PREFIX + name, kind, told, tuple(samples))


def _by(label: str, values: Mapping[str, float]) -> list[Sample]:
    return [Sample(value, ((label, name),)) for name, value in values.items()]


def _only(names: Iterable[str], one: str) -> dict[str, float]:
    return {name: int(name == one) for name in names}
