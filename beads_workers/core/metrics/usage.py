"""What workers and the orchestrator cost the machine: whose a process is, and the figures of it.

A worker's part is everything in its session, and everything below it: the worker, its tasks, and
what those have left behind, for the orphans of a task become children of its worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from beads_workers.core.board import Board
from beads_workers.core.board_workers import worker_order
from beads_workers.core.metrics.exposition import Family, Sample
from beads_workers.core.metrics.figures import PREFIX
from beads_workers.core.values import value


@value
class ProcessUse:
    """One process as /proc has it. ``reaped_seconds``: CPU time of children it has waited for."""

    pid: int
    parent: int
    session: int
    cpu_seconds: float
    reaped_seconds: float
    resident_bytes: int


@value
class Watched:
    """Whose use is asked for: worker ids by pid, and which of them lead a session of ours."""

    orchestrator: int
    workers: tuple[tuple[int, str], ...] = ()
    own: frozenset[int] = frozenset()


@dataclass(slots=True)
class Use:
    """What one worker uses with all that belongs to it."""

    cpu_seconds: float = 0.0
    resident_bytes: int = 0
    processes: int = 0

    def add(self, process: ProcessUse) -> None:
        """One more process of it."""
        self.cpu_seconds += process.cpu_seconds + process.reaped_seconds
        self.resident_bytes += process.resident_bytes
        self.processes += 1


def watched(board: Board) -> Watched:
    """Whom a board knows; a process that serves several slots goes by the first of them."""
    workers: dict[int, str] = {}
    own = set()
    for name in sorted(board.workers, key=worker_order):
        row = board.workers[name]
        if row.pid:
            workers.setdefault(row.pid, name)
            if row.own:
                own.add(row.pid)
    pid = board.run.pid if board.run else 0
    return Watched(pid, tuple(workers.items()), frozenset(own))


def families(whose: Watched, processes: Iterable[ProcessUse]) -> list[Family]:
    """Use by worker, and the orchestrator's own. A worker that is gone meanwhile has no sample."""
    known = {process.pid: process for process in processes}
    names, used = dict(whose.workers), dict[int, Use]()
    for process in known.values():
        if (owner := _owner(process, known, names, whose.own)) is not None:
            used.setdefault(owner, Use()).add(process)
    by_worker = [(name, used[pid]) for pid, name in whose.workers if pid in used]
    return [
        *_of_orchestrator(known.get(whose.orchestrator)),
        _family(
            "worker_cpu_seconds_total",
            "counter",
            "CPU time of the worker and of all its tasks.",
            [(name, round(use.cpu_seconds, 3)) for name, use in by_worker],
        ),
        _family(
            "worker_resident_memory_bytes",
            "gauge",
            "Resident memory of the worker and of its task now; shared pages count for each.",
            [(name, use.resident_bytes) for name, use in by_worker],
        ),
        _family(
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
    # Read one after another, parents may form a ring of pids that were used again.
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


def _family(name: str, kind: str, told: str, values: Iterable[tuple[str, float]]) -> Family:
    samples = (Sample(value, (("worker", worker),)) for worker, value in values)
    return Family(PREFIX + name, kind, told, tuple(samples))
