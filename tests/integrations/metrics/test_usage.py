"""Whose a process is, and what a worker uses with all that belongs to it."""

from __future__ import annotations

from beads_workers.integrations.metrics import figures
from tests.core.playbook import Play


def process(pid: int, parent: int, session: int, cpu: float = 1.0) -> figures.ProcessUse:
    """One of 100 bytes that has waited for half as much."""
    return figures.ProcessUse(pid, parent, session, cpu, cpu / 2, 100)


def used(
    whose: figures.WatchedProcesses, *processes: figures.ProcessUse
) -> dict[str, dict[str, float]]:
    """Values by family and worker."""
    return {
        family.name.removeprefix("beads_workers_worker_"): {
            dict(sample.labels).get("worker", ""): sample.value for sample in family.samples
        }
        for family in figures.usage_families(whose, processes)
    }


OURS = figures.WatchedProcesses(10, ((20, "W1"), (30, "W2")), frozenset({20, 30}))


def test_a_worker_has_its_session_and_what_left_it() -> None:
    found = used(
        OURS,
        process(20, 11, 20),
        process(21, 20, 20, 4.0),
        process(22, 21, 22),  # A session of its own, below the task.
        process(23, 1, 20),  # An orphan in the session.
        process(30, 11, 30),
        process(99, 1, 99, 50.0),
    )
    assert found["cpu_seconds_total"] == {"W1": 10.5, "W2": 1.5}
    assert found["resident_memory_bytes"] == {"W1": 400, "W2": 100}
    assert found["processes"] == {"W1": 4, "W2": 1}


def test_a_foreign_worker_is_not_charged_with_the_session_of_its_shell() -> None:
    foreign = figures.WatchedProcesses(10, ((20, "W1"),), frozenset())
    found = used(foreign, process(20, 5, 5), process(21, 20, 5), process(22, 5, 5, 9.0))
    assert found["processes"] == {"W1": 2}


def test_a_worker_that_is_gone_has_no_figures() -> None:
    assert used(OURS, process(30, 11, 30))["processes"] == {"W2": 1}


def test_parents_in_a_ring_belong_to_nobody() -> None:
    assert used(OURS, process(40, 41, 40), process(41, 40, 41))["processes"] == {}


def test_the_orchestrator_is_told_apart_from_what_it_has_run() -> None:
    by_name = {
        f.name: [s.value for s in f.samples]
        for f in figures.usage_families(OURS, [process(10, 1, 10)])
    }
    assert by_name["beads_workers_orchestrator_cpu_seconds_total"] == [1.0]
    assert by_name["beads_workers_orchestrator_calls_cpu_seconds_total"] == [0.5]
    assert by_name["beads_workers_orchestrator_resident_memory_bytes"] == [100]


def test_the_board_says_whose_processes_are_meant() -> None:
    play = Play(workers=2)
    play.own(1)
    play.own(2)
    play.join(3, pid=777)
    whose = figures.watched(play.board)
    assert whose == figures.WatchedProcesses(
        1, ((101, "W1"), (102, "W2"), (777, "W3")), frozenset({101, 102})
    )
