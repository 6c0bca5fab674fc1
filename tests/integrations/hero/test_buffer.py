"""Which job may begin next: the order of the queue, and all that holds a job back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beads_workers.integrations.hero.buffer import BufferedJob, JobStanding, LocalBuffer
from beads_workers.integrations.hero.wire import HeroJob


def made(*names: str, **fields: object) -> tuple[LocalBuffer, list[BufferedJob]]:
    buffer = LocalBuffer()
    fields.setdefault("concurrent", True)
    return buffer, [buffer.add(HeroJob(name, **fields), 0) for name in names]  # type: ignore[arg-type]


def picked(buffer: LocalBuffer, limit: int = 100) -> list[str]:
    return [kept.job.id for kept in buffer.pick(limit)]


def test_the_oldest_come_first_and_each_only_once() -> None:
    buffer, _ = made(*"abc")
    assert picked(buffer, 2) == ["a", "b"]
    assert picked(buffer) == ["c"]
    assert picked(buffer) == []


def test_what_is_put_back_keeps_its_place() -> None:
    buffer, (a, *_) = made(*"abc")
    picked(buffer, 1)
    buffer.put_back(a)
    assert picked(buffer) == ["a", "b", "c"]


def test_one_of_a_context_at_a_time_and_others_pass() -> None:
    buffer, (a, b) = made("a", "b", concurrent=False, context_id="shop")
    buffer.add(HeroJob("c", concurrent=True, context_id="shop"), 0)
    buffer.add(HeroJob("d", context_id="bank"), 0)
    assert picked(buffer) == ["a", "c", "d"]
    assert b.standing is JobStanding.BEHIND
    buffer.remove(a)
    assert picked(buffer) == ["b"]


def test_no_context_is_a_context_as_well() -> None:
    buffer, _ = made("a", "b", concurrent=False)
    assert picked(buffer) == ["a"]


def test_while_a_job_waits_for_another_attempt_its_context_is_free() -> None:
    buffer, (a, b) = made("a", "b", concurrent=False)
    picked(buffer)
    buffer.cool(a, until=5.0)
    assert picked(buffer) == ["b"]
    assert buffer.deadline() == 5.0
    assert not buffer.warm_up(4.9)
    assert not buffer.warm_up(5.0) or picked(buffer) == []
    buffer.remove(b)
    assert picked(buffer) == ["a"]


def test_nobody_overtakes_a_job_whose_context_is_busy_elsewhere() -> None:
    buffer, (a, _) = made("a", "b", concurrent=False)
    picked(buffer)
    buffer.rest(a, until=1.0)
    assert picked(buffer) == []
    assert buffer.warm_up(1.0)
    assert picked(buffer) == ["a"]


def test_a_job_waits_until_all_that_it_waits_for_have_finished() -> None:
    buffer = LocalBuffer()
    buffer.add(HeroJob("roof"), 0, ["walls", "ground"])
    assert (picked(buffer), buffer.count(JobStanding.PARKED)) == ([], 1)
    assert sorted(buffer.unmet()) == ["ground", "walls"]
    assert not buffer.finished("ground")
    assert buffer.finished("walls")
    assert picked(buffer) == ["roof"]
    assert buffer.unmet() == []


def test_when_one_of_these_fails_it_ends_with_that() -> None:
    buffer = LocalBuffer()
    roof = buffer.add(HeroJob("roof"), 0, ["walls", "ground"])
    buffer.failed("walls", "walls failed")
    assert buffer.doomed["roof"].error == "walls failed"
    assert not buffer.finished("ground")
    buffer.remove(roof)
    assert (buffer.doomed, buffer.unmet(), "roof" in buffer) == ({}, [], False)


def test_one_that_is_named_by_another_waits_although_it_could_have_begun() -> None:
    buffer, (a, b) = made("a", "b", concurrent=False)
    buffer.wait(a, "z")
    assert picked(buffer) == ["b"]
    buffer.remove(b)
    assert buffer.finished("z")
    assert picked(buffer) == ["a"]


def test_one_that_is_doomed_leaves_its_context_to_the_next() -> None:
    buffer, (a, _) = made("a", "b", concurrent=False)
    buffer.doom(a, "stopped")
    assert picked(buffer) == ["b"]
    assert buffer.doomed["a"].context == "c:"


def test_after_an_eviction_only_what_the_fleet_has_is_left() -> None:
    buffer, (a, _, _) = made(*"abc")
    picked(buffer, 1)
    assert buffer.evict() == [a]
    assert a.evicted
    assert [name in buffer for name in "abc"] == [True, False, False]


def test_no_more_is_fetched_than_there_is_room_for() -> None:
    buffer = LocalBuffer(prefetch_max=2, held_max=4)
    assert buffer.room() == 2
    buffer.add(HeroJob("a", concurrent=True), 0)
    assert buffer.room() == 1
    for name in "bcd":
        buffer.add(HeroJob(name), 0, ["never"])
    assert buffer.room() == 0, "what waits counts as well"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "pick", "end", "back", "cool", "warm", "doom"]), st.integers(0, 9)
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_each_is_with_the_fleet_once_and_a_context_has_one(
    steps: list[tuple[str, int]],
) -> None:
    buffer = LocalBuffer()
    out: dict[str, BufferedJob] = {}
    now = 0.0
    added = 0
    for step, number in steps:
        chosen = list(out.values())[number] if number < len(out) else None
        match step:
            case "add":
                added += 1
                job = HeroJob(str(added), context_id=str(number % 3), concurrent=number > 6)
                buffer.add(job, 0)
            case "pick":
                for kept in buffer.pick(number):
                    assert kept.job.id not in out
                    out[kept.job.id] = kept
            case "warm":
                now += number
                buffer.warm_up(now)
            case "doom":
                here = [kept for kept in buffer.rows() if kept.standing is not JobStanding.DOOMED]
                if number < len(here):
                    buffer.doom(here[number], "x")
            case _ if chosen is not None:
                del out[chosen.job.id]
                if step == "end":
                    buffer.remove(chosen)
                elif step == "back":
                    buffer.put_back(chosen)
                else:
                    buffer.cool(chosen, now + number)
        alone = [kept.context for kept in out.values() if kept.context]
        assert len(alone) == len(set(alone)), "two of one context"
        assert buffer.count(JobStanding.OUT) == len(out)
    drain(buffer, out)


def drain(buffer: LocalBuffer, out: dict[str, BufferedJob]) -> None:
    """Nothing is forgotten: in the end every job that is not doomed has had its turn."""
    for kept in out.values():
        buffer.remove(kept)
    buffer.warm_up(1e9)
    while batch := buffer.pick(3):
        for kept in batch:
            buffer.remove(kept)
        buffer.warm_up(1e9)
    assert {kept.standing for kept in buffer.rows()} <= {JobStanding.DOOMED}
