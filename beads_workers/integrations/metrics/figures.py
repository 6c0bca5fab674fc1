"""Figures for a monitoring system, made from a board. docs/METRICS.md lists all figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from beads_workers.core.base.model import value
from beads_workers.core.records.issues import Place
from beads_workers.core.views.snapshot import BUCKETS, Board, Durations, worker_order
from beads_workers.core.views.status import SHOWN_STATES

# --- exposition ----------------------------------------------------------------------------------
# Families of figures in Prometheus' text format 0.0.4, and as JSON.


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


@value
class Sample:
    """One line. ``suffix`` follows the family's name: ``_bucket``, ``_sum``, ``_count``."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@value
class Family:
    """One metric with all its samples. ``kind``: ``counter``, ``gauge`` or ``histogram``."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


def to_text(families: Iterable[Family]) -> str:
    """Return the whole answer to a scrape."""
    return "".join(line + "\n" for family in families for line in _lines(family))


def to_json(families: Iterable[Family]) -> list[dict[str, Any]]:
    """Return families as JSON; infinity is the text ``+Inf`` in labels."""
    return [
        {
            "name": family.name,
            "type": family.kind,
            "help": family.help,
            "samples": [
                {"name": family.name + s.suffix, "labels": dict(s.labels), "value": s.value}
                for s in family.samples
            ],
        }
        for family in families
    ]


def from_json(value: list[dict[str, Any]]) -> list[Family]:
    """Return the families that ``to_json`` wrote; for a client of the fleet."""
    return [
        Family(
            each["name"],
            each["type"],
            each["help"],
            tuple(
                Sample(
                    sample["value"],
                    tuple(sample["labels"].items()),
                    sample["name"].removeprefix(each["name"]),
                )
                for sample in each["samples"]
            ),
        )
        for each in value
    ]


def _lines(family: Family) -> Iterator[str]:
    help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {help_text}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
        labels = f"{{{inside}}}" if inside else ""
        yield f"{family.name}{sample.suffix}{labels} {number(sample.value)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    """Return a value as the format writes it: ``3``, ``0.25``, ``+Inf``, ``NaN``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))


# --- figures -------------------------------------------------------------------------------------
# From a board to the families of ``metrics``.


PREFIX = "beads_workers_"
WORKER_STATES = ("starting", "idle", "busy", "stopping")
RUN_STATES = ("waiting", "running", "paused", "draining", "stopping")


def families(board: Board, elapsed: float) -> Iterator[Family]:
    """Yield all figures that come from the journal; many workers take milliseconds.

    ``elapsed``: seconds of the run now.
    """
    yield from _run(board, elapsed)
    yield from _queue(board)
    yield from _attempts(board)
    yield from _workers(board)
    yield from _source(board)
    yield from _agents(board, elapsed)
    yield from _landing(board, elapsed)


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
            *_by("state", {name: int(name == state) for name in RUN_STATES}),
        ),
        _gauge(
            "degraded",
            "Conditions of the machine that stand in the way now.",
            len(board.degraded),
        ),
    ]


def _queue(board: Board) -> list[Family]:
    depths = {str(priority): n for priority, n in enumerate(board.listed.by_priority)}
    places = board.places()
    claimed = board.unsent + board.prefetched()
    jobs = {place.value: places[place] for place in Place} | {
        "ready": sum(board.listed.by_priority) + places[Place.READY] - claimed,
        "claimed": claimed,
        "blocked": board.listed.blocked,
    }
    jobs["unlanded"] = jobs.pop("waiting_to_land")
    return [
        _gauge(
            "queue_depth",
            "Jobs that could be taken, by priority (0 is the most urgent), as last listed.",
            *_by("priority", depths),
        ),
        _gauge(
            "queue_depth_capped",
            "1 if the last listing was cut: there are more jobs than queue_depth says.",
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
    spent, trips = board.activity.asking.spent, sorted(board.counters.trips.items())
    return [
        _counter(
            "messages_refused_total",
            "Messages of publishers that were not taken.",
            board.counters.refused,
        ),
        _counter("source_calls_total", "Calls of the source: processes, queries.", spent.calls),
        _counter("source_call_seconds_total", "Seconds that these calls took.", spent.seconds),
        _counter(
            "source_round_trips_total",
            "Visits to the source, by what they were for.",
            *(Sample(t.count, (("kind", kind),)) for kind, t in trips),
        ),
        _counter(
            "source_round_trip_seconds_total",
            "Seconds that these visits took, from question to answer.",
            *(Sample(round(t.seconds, 6), (("kind", kind),)) for kind, t in trips),
        ),
        _counter(
            "source_failures_total",
            "Visits to the source that came to nothing.",
            *(Sample(t.failures, (("kind", kind),)) for kind, t in trips),
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


ACCOUNT_STATES = ("available", "limited", "needs_person", "backing_off")


def _agents(board: Board, elapsed: float) -> list[Family]:
    rows = board.agents.accounts(0, board.began_at + elapsed)
    states = Counter(row["state"] for row in rows)
    money = board.agents.money()
    kinds = ("input", "output", "cached_read", "cached_write")
    return [
        _gauge(
            "agent_accounts",
            "Agents of the fleet, by how their accounts stand.",
            *_by("state", {state: states[state] for state in ACCOUNT_STATES}),
        ),
        _counter(
            "agent_tokens_total",
            "Tokens of attempts that ended.",
            *_by("kind", {kind: money["tokens"][kind] for kind in kinds}),
        ),
        _counter(
            "agent_unpriced_tokens_total",
            "Tokens of these whose price nobody has said.",
            money["unpriced_tokens"],
        ),
        _counter(
            "agent_dollars_total",
            "Cost of attempts that ended, in dollars, by verdict.",
            *_by("verdict", {name: each["usd"] for name, each in money["by_verdict"].items()}),
        ),
    ]


def _landing(board: Board, elapsed: float) -> list[Family]:
    landings = board.landings
    ungated = landings.unverified
    oldest = max((elapsed - since for _, since in landings.running.values()), default=0.0)
    return [
        _counter(
            "landed_total",
            "Branches that landed, by whether a gate has passed with them inside.",
            *_by(
                "gate",
                {
                    "passed": landings.landed - ungated - landings.nothing_new,
                    "none": ungated,
                    "contained": landings.nothing_new,
                },
            ),
        ),
        _counter(
            "landing_refused_total",
            "Branches that did not land as they were, by what became of them.",
            *_by("became", {"mend": landings.sent_back, "quarantined": landings.quarantined}),
        ),
        _counter(
            "landing_conflicts_total",
            "Branches that conflict with what has landed.",
            landings.conflicts,
        ),
        _counter(
            "landing_culprits_total",
            "Branches with which the gate is red, and without which it is green.",
            landings.culprits,
        ),
        _counter(
            "gate_runs_total",
            "Gates that have ended, by verdict; kept: it was known, and nothing ran.",
            *_by("verdict", landings.gates),
        ),
        _counter("gate_seconds_total", "Seconds that these gates took.", landings.gate_seconds),
        _counter(
            "gates_flaky_total",
            "Gates that were green on a tree on which they had been red.",
            landings.flaky,
        ),
        _gauge("gates_running", "Gates that run now.", len(landings.running)),
        _gauge("gate_oldest_seconds", "How long the oldest of them has run.", round(oldest, 3)),
    ]


def _gauge(name: str, help_text: str, *values: Sample | float) -> Family:
    return _family(name, "gauge", help_text, values)


def _counter(name: str, help_text: str, *values: Sample | float) -> Family:
    return _family(name, "counter", help_text, values)


def _family(name: str, kind: str, help_text: str, values: tuple[Sample | float, ...]) -> Family:
    samples = (v if isinstance(v, Sample) else Sample(v) for v in values)
    return Family(PREFIX + name, kind, help_text, tuple(samples))


def _by(label: str, values: Mapping[str, float]) -> list[Sample]:
    return [Sample(value, ((label, name),)) for name, value in values.items()]


# --- usage ---------------------------------------------------------------------------------------
# The use of the machine by workers and the orchestrator: owners of processes, and their figures.
#
# A worker owns all processes of its session, and their descendants: the worker, its tasks, and what
# the tasks have left behind, because orphans of a task become children of its worker.


@value
class ProcessUse:
    """One process as in /proc. ``reaped_seconds``: CPU time of children it has waited for."""

    pid: int
    parent: int
    session: int
    cpu_seconds: float
    reaped_seconds: float
    resident_bytes: int


@value
class WatchedProcesses:
    """Processes whose use is wanted: worker ids by pid, and which workers lead a session of
    ours."""

    orchestrator: int
    workers: tuple[tuple[int, str], ...] = ()
    own: frozenset[int] = frozenset()


@dataclass(slots=True)
class Use:
    """Use of one worker and of all processes it owns."""

    cpu_seconds: float = 0.0
    resident_bytes: int = 0
    processes: int = 0

    def add(self, process: ProcessUse) -> None:
        """Add a process of the worker."""
        self.cpu_seconds += process.cpu_seconds + process.reaped_seconds
        self.resident_bytes += process.resident_bytes
        self.processes += 1


def watched(board: Board) -> WatchedProcesses:
    """Return the processes that a board knows; a process with several slots has the first one's
    name."""
    workers: dict[int, str] = {}
    own = set()
    for name in sorted(board.workers, key=worker_order):
        row = board.workers[name]
        if row.pid:
            workers.setdefault(row.pid, name)
            if row.own:
                own.add(row.pid)
    pid = board.run.pid if board.run else 0
    return WatchedProcesses(pid, tuple(workers.items()), frozenset(own))


def usage_families(whose: WatchedProcesses, processes: Iterable[ProcessUse]) -> list[Family]:
    """Return the use of each worker, and the orchestrator's.

    A worker that is gone has no sample.
    """
    known = {process.pid: process for process in processes}
    names, used = dict(whose.workers), dict[int, Use]()
    for process in known.values():
        if (owner := _owner(process, known, names, whose.own)) is not None:
            used.setdefault(owner, Use()).add(process)
    by_worker = [(name, used[pid]) for pid, name in whose.workers if pid in used]
    return [
        *_of_orchestrator(known.get(whose.orchestrator)),
        _worker_family(
            "worker_cpu_seconds_total",
            "counter",
            "CPU time of the worker and of all its tasks.",
            [(name, round(use.cpu_seconds, 3)) for name, use in by_worker],
        ),
        _worker_family(
            "worker_resident_memory_bytes",
            "gauge",
            "Resident memory of the worker and of its task now; shared pages count for each.",
            [(name, use.resident_bytes) for name, use in by_worker],
        ),
        _worker_family(
            "worker_processes",
            "gauge",
            "Processes of the worker and of its task now.",
            [(name, use.processes) for name, use in by_worker],
        ),
    ]


def _owner(
    process: ProcessUse, known: dict[int, ProcessUse], names: dict[int, str], own: frozenset[int]
) -> int | None:
    if process.session in own:
        return process.session
    seen = set()
    above: ProcessUse | None = process
    # Processes are read one after another: with reused pids, parents may form a ring.
    while above is not None and above.pid not in seen:
        if above.pid in names:
            return above.pid
        if above.session in own:
            return above.session
        seen.add(above.pid)
        above = known.get(above.parent)
    return None


def _of_orchestrator(process: ProcessUse | None) -> list[Family]:
    cpu = [Sample(round(process.cpu_seconds, 3))] if process else []
    children = [Sample(round(process.reaped_seconds, 3))] if process else []
    memory = [Sample(process.resident_bytes)] if process else []
    return [
        Family(
            PREFIX + "orchestrator_cpu_seconds_total",
            "counter",
            "CPU time of the orchestrator itself.",
            tuple(cpu),
        ),
        Family(
            PREFIX + "orchestrator_calls_cpu_seconds_total",
            "counter",
            "CPU time of the processes that it has run: calls of the tracker, notifications.",
            tuple(children),
        ),
        Family(
            PREFIX + "orchestrator_resident_memory_bytes",
            "gauge",
            "Resident memory of the orchestrator.",
            tuple(memory),
        ),
    ]


def _worker_family(
    name: str, kind: str, help_text: str, values: Iterable[tuple[str, float]]
) -> Family:
    samples = (Sample(value, (("worker", worker),)) for worker, value in values)
    return Family(PREFIX + name, kind, help_text, tuple(samples))


def scraped(board: Board, elapsed: float) -> dict[str, Any]:
    """Return the answer to ``bw.metrics``: the figures, and the processes whose use the client
    reads."""
    whose = watched(board)
    return {
        "families": to_json(families(board, elapsed)),
        "orchestrator": whose.orchestrator,
        "workers": whose.workers,
        "own": sorted(whose.own),
    }
