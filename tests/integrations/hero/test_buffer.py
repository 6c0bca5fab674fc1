"""Which job may begin next: the order of the queue, and all that holds a job back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beads_workers.integrations.hero.buffer import Kept, Standing, Stock
from beads_workers.integrations.hero.wire import HeroJob


def made(*names: str, **fields: object) -> tuple[Stock, list[Kept]]:
    stock = Stock()
    fields.setdefault("concurrent", True)
    return stock, [stock.add(HeroJob(name, **fields), 0) for name in names]  # type: ignore[arg-type]


def picked(stock: Stock, limit: int = 100) -> list[str]:
    return [kept.job.id for kept in stock.pick(limit)]


def test_the_oldest_come_first_and_each_only_once() -> None:
    stock, _ = made(*"abc")
    assert picked(stock, 2) == ["a", "b"]
    assert picked(stock) == ["c"]
    assert picked(stock) == []


def test_what_is_put_back_keeps_its_place() -> None:
    stock, (a, *_) = made(*"abc")
    picked(stock, 1)
    stock.put_back(a)
    assert picked(stock) == ["a", "b", "c"]


def test_one_of_a_context_at_a_time_and_others_pass() -> None:
    stock, (a, b) = made("a", "b", concurrent=False, context_id="shop")
    stock.add(HeroJob("c", concurrent=True, context_id="shop"), 0)
    stock.add(HeroJob("d", context_id="bank"), 0)
    assert picked(stock) == ["a", "c", "d"]
    assert b.standing is Standing.BEHIND
    stock.remove(a)
    assert picked(stock) == ["b"]


def test_no_context_is_a_context_as_well() -> None:
    stock, _ = made("a", "b", concurrent=False)
    assert picked(stock) == ["a"]


def test_while_a_job_waits_for_another_attempt_its_context_is_free() -> None:
    stock, (a, b) = made("a", "b", concurrent=False)
    picked(stock)
    stock.cool(a, until=5.0)
    assert picked(stock) == ["b"]
    assert stock.deadline() == 5.0
    assert not stock.warm_up(4.9)
    assert not stock.warm_up(5.0) or picked(stock) == []
    stock.remove(b)
    assert picked(stock) == ["a"]


def test_nobody_overtakes_a_job_whose_context_is_busy_elsewhere() -> None:
    stock, (a, _) = made("a", "b", concurrent=False)
    picked(stock)
    stock.rest(a, until=1.0)
    assert picked(stock) == []
    assert stock.warm_up(1.0)
    assert picked(stock) == ["a"]


def test_a_job_waits_until_all_that_it_waits_for_have_finished() -> None:
    stock = Stock()
    stock.add(HeroJob("roof"), 0, ["walls", "ground"])
    assert (picked(stock), stock.count(Standing.PARKED)) == ([], 1)
    assert sorted(stock.unmet()) == ["ground", "walls"]
    assert not stock.finished("ground")
    assert stock.finished("walls")
    assert picked(stock) == ["roof"]
    assert stock.unmet() == []


def test_when_one_of_these_fails_it_ends_with_that() -> None:
    stock = Stock()
    roof = stock.add(HeroJob("roof"), 0, ["walls", "ground"])
    stock.failed("walls", "walls failed")
    assert stock.doomed["roof"].error == "walls failed"
    assert not stock.finished("ground")
    stock.remove(roof)
    assert (stock.doomed, stock.unmet(), "roof" in stock) == ({}, [], False)


def test_one_that_is_named_by_another_waits_although_it_could_have_begun() -> None:
    stock, (a, b) = made("a", "b", concurrent=False)
    stock.wait(a, "z")
    assert picked(stock) == ["b"]
    stock.remove(b)
    assert stock.finished("z")
    assert picked(stock) == ["a"]


def test_one_that_is_doomed_leaves_its_context_to_the_next() -> None:
    stock, (a, _) = made("a", "b", concurrent=False)
    stock.doom(a, "stopped")
    assert picked(stock) == ["b"]
    assert stock.doomed["a"].context == "c:"


def test_after_an_eviction_only_what_the_fleet_has_is_left() -> None:
    stock, (a, _, _) = made(*"abc")
    picked(stock, 1)
    assert stock.evict() == [a]
    assert a.evicted
    assert [name in stock for name in "abc"] == [True, False, False]


def test_no_more_is_fetched_than_there_is_room_for() -> None:
    stock = Stock(ahead_max=2, held_max=4)
    assert stock.room() == 2
    stock.add(HeroJob("a", concurrent=True), 0)
    assert stock.room() == 1
    for name in "bcd":
        stock.add(HeroJob(name), 0, ["never"])
    assert stock.room() == 0, "what waits counts as well"


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
    stock = Stock()
    out: dict[str, Kept] = {}
    now = 0.0
    added = 0
    for step, number in steps:
        chosen = list(out.values())[number] if number < len(out) else None
        match step:
            case "add":
                added += 1
                job = HeroJob(str(added), context_id=str(number % 3), concurrent=number > 6)
                stock.add(job, 0)
            case "pick":
                for kept in stock.pick(number):
                    assert kept.job.id not in out
                    out[kept.job.id] = kept
            case "warm":
                now += number
                stock.warm_up(now)
            case "doom":
                here = [kept for kept in stock.rows() if kept.standing is not Standing.DOOMED]
                if number < len(here):
                    stock.doom(here[number], "x")
            case _ if chosen is not None:
                del out[chosen.job.id]
                if step == "end":
                    stock.remove(chosen)
                elif step == "back":
                    stock.put_back(chosen)
                else:
                    stock.cool(chosen, now + number)
        alone = [kept.context for kept in out.values() if kept.context]
        assert len(alone) == len(set(alone)), "two of one context"
        assert stock.count(Standing.OUT) == len(out)
    drain(stock, out)


def drain(stock: Stock, out: dict[str, Kept]) -> None:
    """Nothing is forgotten: in the end every job that is not doomed has had its turn."""
    for kept in out.values():
        stock.remove(kept)
    stock.warm_up(1e9)
    while batch := stock.pick(3):
        for kept in batch:
            stock.remove(kept)
        stock.warm_up(1e9)
    assert {kept.standing for kept in stock.rows()} <= {Standing.DOOMED}
