"""What every source promises whose jobs have a sender that is to get an answer: all in
``QUEUES``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement
from tests.contracts.queues import ACTOR, QUEUES, Queue, as_json
from tests.support.peers import Redis

DONE = Outcome(OutcomeKind.SUCCESS, result=as_json("42"))
FAILED = Outcome(OutcomeKind.ERROR, "boom")


@pytest.fixture(params=sorted(QUEUES))
def queue(request: pytest.FixtureRequest, tmp_path: Path, redis: Redis) -> Iterator[Queue]:
    make: Callable[[Path, Redis], Queue] = QUEUES[request.param]
    made = make(tmp_path, redis)
    yield made
    made.source.close()


def taken(queue: Queue, count: int = 10) -> list[str]:
    return [job.issue_id for job in queue.source.take(count, ()).jobs]


def settle(queue: Queue, issue_id: IssueId, outcome: Outcome | None) -> Result:
    good = outcome is not None and outcome.kind is OutcomeKind.SUCCESS
    action = Action.CLOSE if good else Action.RELEASE
    settlement = Settlement(action, issue_id, outcome=outcome)
    (settled,) = queue.source.settle([settlement])
    assert settled.settlement == settlement
    return settled.result


def test_it_says_what_it_is_and_has_the_runs_actor(queue: Queue) -> None:
    assert "\n" not in queue.source.describe()
    assert queue.source.actor == ACTOR


def test_nothing_is_taken_where_nothing_has_come(queue: Queue) -> None:
    assert taken(queue) == []


def test_the_oldest_is_taken_first_and_each_once(queue: Queue) -> None:
    for name in "abc":
        queue.send(name)
    assert taken(queue, 2) == ["a", "b"]
    assert taken(queue) == ["c"]
    assert taken(queue) == []


def test_a_limit_of_zero_takes_nothing(queue: Queue) -> None:
    queue.send("a")
    assert taken(queue, 0) == []
    assert taken(queue) == ["a"]


def test_a_job_names_its_source_and_counts_its_attempts_from_one(queue: Queue) -> None:
    queue.send("a")
    (job,) = queue.source.take(1, ()).jobs
    assert (job.source, job.attempt) == (queue.source.name, 1)
    assert job.title


def test_nobody_is_answered_before_the_work_is_done(queue: Queue) -> None:
    key = queue.send("a")
    taken(queue)
    assert queue.answers(key) == []


def test_its_sender_is_told_the_result_once(queue: Queue) -> None:
    key = queue.send("a")
    taken(queue)
    assert settle(queue, key, DONE) is Result.APPLIED
    settle(queue, key, DONE)
    assert queue.answers(key) == [(True, "42")]


def test_its_sender_is_told_the_error_once(queue: Queue) -> None:
    key = queue.send("a")
    taken(queue)
    assert settle(queue, key, FAILED) is Result.APPLIED
    settle(queue, key, FAILED)
    assert queue.answers(key) == [(False, "boom")]


def test_every_way_to_end_is_an_answer(queue: Queue) -> None:
    for kind in set(OutcomeKind) - {OutcomeKind.SUCCESS}:
        key = queue.send(kind.value)
        assert taken(queue) == [key]
        settle(queue, key, Outcome(kind, "why"))
        ((good, said),) = queue.answers(key)
        assert not good
        assert said


def test_a_result_that_lies_in_a_file_is_told_whole(queue: Queue, tmp_path: Path) -> None:
    key = queue.send("a")
    taken(queue)
    file = tmp_path / "result.json"
    file.write_text(as_json("x" * 70_000))
    settle(queue, key, Outcome(OutcomeKind.SUCCESS, result='{"cut"', result_file=str(file)))
    assert queue.answers(key) == [(True, "x" * 70_000)]


def test_a_result_that_cannot_be_read_is_an_error(queue: Queue, tmp_path: Path) -> None:
    key = queue.send("a")
    taken(queue)
    missing = str(tmp_path / "missing.json")
    settle(queue, key, Outcome(OutcomeKind.SUCCESS, result_file=missing))
    ((good, said),) = queue.answers(key)
    assert not good
    assert "cannot be read" in said


def test_what_nobody_began_is_answered_or_taken_again(queue: Queue) -> None:
    key = queue.send("a")
    taken(queue)
    settle(queue, key, None)
    assert bool(queue.answers(key)) is not (taken(queue) == ["a"])


def test_what_is_settled_and_unknown_harms_nobody(queue: Queue) -> None:
    key = queue.send("a")
    assert settle(queue, IssueId("stranger"), DONE) is not Result.FAILED
    assert taken(queue) == [key]
    assert queue.answers(key) == []


def test_many_are_settled_at_once_each_with_its_own_answer(queue: Queue) -> None:
    keys = [queue.send(name) for name in "abcd"]
    taken(queue)
    settlements = [
        Settlement(Action.CLOSE, key, outcome=DONE)
        if number % 2
        else Settlement(Action.RELEASE, key, outcome=FAILED)
        for number, key in enumerate(keys)
    ]
    settled = queue.source.settle(settlements)
    assert [s.settlement for s in settled] == settlements
    told = {key: queue.answers(key) for key in keys}
    assert list(told.values()) == [[(False, "boom")], [(True, "42")]] * 2


def test_there_are_no_leases_to_renew(queue: Queue) -> None:
    key = queue.send("a")
    taken(queue)
    renewed = queue.source.renew([key])
    assert (renewed.leases, renewed.lost) == ((), ())


def test_a_crashed_run_that_left_nothing_is_no_trouble(queue: Queue) -> None:
    assert queue.source.recover(CrashedRun("beads-workers/host/run-0")) == []


def test_what_does_not_exist_is_not_seen(queue: Queue) -> None:
    assert queue.source.look([IssueId("never")]) == {}
