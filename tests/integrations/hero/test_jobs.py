"""States of a job, and what follows from its fields."""

from __future__ import annotations

from beads_workers.integrations.hero.wire import HeroJob


def test_both_words_for_what_it_waits_for_count_once() -> None:
    job = HeroJob("j", prerequisites=("a", "b"), dependencies=("b", "c"))
    assert job.waits_for == ("a", "b", "c")


def test_retries_are_attempts_beyond_the_first() -> None:
    assert HeroJob("j").attempts_max == 1
    assert HeroJob("j", retries=2).attempts_max == 3
