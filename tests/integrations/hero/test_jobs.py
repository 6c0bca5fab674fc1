"""States of a job, and what follows from its fields."""

from __future__ import annotations

from beads_workers.integrations.hero.wire import MOVES, HeroJob, JobStatus, may_become

D, S, F, E = JobStatus.DISPATCHED, JobStatus.STARTED, JobStatus.FINISHED, JobStatus.ERROR


def test_every_state_says_where_it_may_go_to() -> None:
    assert set(MOVES) == set(JobStatus)


def test_a_job_is_started_before_it_finishes() -> None:
    assert may_become(D, S)
    assert may_become(S, F)
    assert not may_become(D, F)


def test_a_job_can_fail_at_any_time_before_its_end() -> None:
    assert may_become(D, E)
    assert may_become(S, E)
    assert not may_become(F, E)


def test_only_a_new_beginning_leads_out_of_an_end() -> None:
    for status in (F, E):
        assert status.is_final
        assert [to for to in JobStatus if may_become(status, to)] == [D]


def test_both_words_for_what_it_waits_for_count_once() -> None:
    job = HeroJob("j", prerequisites=("a", "b"), dependencies=("b", "c"))
    assert job.waits_for == ("a", "b", "c")


def test_retries_are_attempts_beyond_the_first() -> None:
    assert HeroJob("j").attempts_max == 1
    assert HeroJob("j", retries=2).attempts_max == 3
