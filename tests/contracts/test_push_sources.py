"""What every push source promises: every queue in ``PUSH_SOURCES``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.core.base.model import IssueId, Job, Outcome, OutcomeKind
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement
from beads_workers.core.schedule.events import Arrived
from tests.contracts.push_sources import PATIENCE_SECONDS, PUSH_SOURCES, Looped, Queue

DONE = Outcome(OutcomeKind.SUCCESS, result="1")
FAILED = Outcome(OutcomeKind.ERROR, "no")


@pytest.fixture(params=sorted(PUSH_SOURCES))
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    made = PUSH_SOURCES[request.param](tmp_path, lambda: request.getfixturevalue("postgres"))
    yield made
    made.close()


def taken(queue: Queue, count: int, limit: int = 100) -> list[Job]:
    """Take until so many have come, and then see that there are no more."""
    jobs: list[Job] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(jobs) < count:
        assert time.monotonic() < deadline, f"{len(jobs)} of {count}"
        queue.turn()
        jobs += queue.source.take(limit, ()).jobs
    queue.turn()
    assert queue.source.take(limit, ()).jobs == ()
    return jobs


def test_it_says_what_it_is(queue: Queue) -> None:
    assert queue.source.name.lower() in queue.source.describe().lower()
    assert "\n" not in queue.source.describe()


def test_where_nothing_has_come_there_is_nothing(queue: Queue) -> None:
    answer = queue.source.take(10, ())
    assert (answer.jobs, answer.waiting, answer.later) == ((), 0, 0)


def test_what_has_come_is_told_and_taken_once_and_oldest_first(queue: Queue) -> None:
    paths = [f"pkg.mod.f{number}" for number in range(20)]
    queue.send(*paths)
    jobs = taken(queue, 20, limit=3)
    assert [job.title for job in jobs] == paths
    assert len({job.issue_id for job in jobs}) == 20
    assert isinstance(queue, Looped) and any(isinstance(e, Arrived) for e in queue.events)


def test_a_job_calls_what_its_sender_named(queue: Queue) -> None:
    queue.send("pkg.mod.f")
    (job,) = taken(queue, 1)
    assert (job.source, job.issue_id) == (queue.source.name, "id of pkg.mod.f")
    assert job.call is not None and job.call.path == "pkg.mod.f"
    assert [*job.call.args, *job.call.kwargs.values()] == ["pkg.mod.f"]
    assert job.command is None


@pytest.mark.parametrize("outcome", [DONE, FAILED])
def test_what_has_ended_is_over(queue: Queue, outcome: Outcome) -> None:
    queue.send("pkg.mod.f", "pkg.mod.g")
    first, second = taken(queue, 2)
    action = Action.CLOSE if outcome is DONE else Action.RELEASE
    settlement = Settlement(action, first.issue_id, outcome=outcome)
    (settled,) = queue.source.settle([settlement])
    assert (settled.settlement, settled.result) == (settlement, Result.APPLIED)
    taken(queue, 0)
    assert queue.source.look([first.issue_id]) == {}
    queue.source.settle([Settlement(Action.RELEASE, second.issue_id, outcome=FAILED)])


def test_the_same_end_twice_and_an_unknown_one_change_nothing(queue: Queue) -> None:
    queue.send("pkg.mod.f")
    (job,) = taken(queue, 1)
    close = Settlement(Action.CLOSE, job.issue_id, outcome=DONE)
    strange = Settlement(Action.CLOSE, IssueId("strange"), outcome=DONE)
    results = [s.result for s in queue.source.settle([close, close, strange])]
    assert results == [Result.APPLIED] * 3
    queue.send("pkg.mod.g")
    assert [job.title for job in taken(queue, 1)] == ["pkg.mod.g"]


def test_what_nobody_worked_on_comes_again_from_whoever_keeps_it(queue: Queue) -> None:
    queue.send("pkg.mod.f", "pkg.mod.g")
    first, _ = taken(queue, 2)
    queue.source.settle([Settlement(Action.RELEASE, first.issue_id)])
    again = taken(queue, 1 if queue.again else 0)
    assert [job.issue_id for job in again] == ([first.issue_id] if queue.again else [])


def test_the_id_of_one_that_is_over_may_come_again(queue: Queue) -> None:
    for _ in range(2):
        queue.send("pkg.mod.f")
        (job,) = taken(queue, 1)
        queue.source.settle([Settlement(Action.CLOSE, job.issue_id, outcome=DONE)])
        queue.turn()


def test_there_are_no_leases_and_nothing_to_recover_of_strangers(queue: Queue) -> None:
    assert queue.source.renew([IssueId("a")]).lost == ()
    assert queue.source.recover(CrashedRun("nobody")) == []
