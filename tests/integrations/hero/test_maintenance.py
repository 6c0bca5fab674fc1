"""The maintenance of a queue, round by round, over a real Redis and a clock that is moved by
hand."""

from __future__ import annotations

import json

import pytest

from beads_workers.core.base.source import SourceError
from beads_workers.core.schedule.events import Arrived, Warned, Withdrawn
from beads_workers.integrations.hero.buffer import JobStanding
from beads_workers.integrations.hero.maintenance import MISSING_SECONDS, ServedElsewhere
from beads_workers.integrations.hero.store import LOOKED_THROUGH_MAX
from tests.integrations.hero.place import LEASE, Clock, Run, queued, some_jobs
from tests.support.hero_client import TextbookClient
from tests.support.peers import Redis


def buffered(run: Run) -> list[str]:
    return [kept.job.id for kept in run.holding.buffer.rows()]


def take(run: Run, count: int = 1) -> list[str]:
    """As the fleet's tracker thread does it."""
    picked = run.holding.buffer.pick(count)
    jobs = [(k.job.id, k.context, k.attempts, k.job.attempts_max) for k in picked]
    assert run.store.begin(jobs) == ["begun"] * len(picked)
    for kept in picked:
        kept.attempts += 1
    return [kept.job.id for kept in picked]


def texts(run: Run) -> list[str]:
    return [event.text for event in run.events if isinstance(event, Warned)]


def test_nothing_is_fetched_before_the_fleet_asks(redis: Redis) -> None:
    some_jobs(redis, "a")
    run = Run(redis, "r1")
    run.holding.opened.clear()
    run.round()
    assert queued(redis) == ["a"]
    run.holding.opened.set()
    run.round()
    assert (buffered(run), queued(redis)) == (["a"], [])
    assert Arrived() in run.events


def test_nothing_is_fetched_when_the_run_is_ending(redis: Redis) -> None:
    some_jobs(redis, "a")
    run = Run(redis, "r1")
    run.maintenance.stopped_accepting = True
    run.round()
    assert queued(redis) == ["a"]


def test_no_more_is_fetched_than_there_is_room_for(redis: Redis) -> None:
    some_jobs(redis, *"abcd")
    run = Run(redis, "r1")
    run.holding.buffer._prefetch_max = 2
    run.round()
    assert (buffered(run), queued(redis)) == (["a", "b"], ["c", "d"])
    take(run)
    run.round()
    assert (buffered(run), queued(redis)) == (["b", "c"], ["d"])


def test_a_job_that_is_queued_twice_is_one_job(redis: Redis) -> None:
    client = some_jobs(redis, *"ab")
    client.queue("a", "a")
    run = Run(redis, "r1")
    run.round()
    client.queue("a")
    run.round()
    assert (buffered(run), run.store.held()) == (["a", "b"], ["b", "a"])


def test_one_that_has_ended_is_not_run_again_because_it_is_queued_again(redis: Redis) -> None:
    client = TextbookClient(redis)
    client.submit("a", "echo", status="finished", output="42")
    run = Run(redis, "r1")
    run.round()
    assert (buffered(run), client.left()) == ([], {})
    assert (client.field("a", "output"), client.replies("a")) == ("42", 0)


def test_what_cannot_be_meant_ends_with_what_is_wrong(redis: Redis) -> None:
    client = TextbookClient(redis)
    client.submit("a", "echo", env_vars="{")
    redis.command("LPUSH", "hero:work_queue:w1", "no-such-job")
    run = Run(redis, "r1")
    run.round()
    assert client.reply("a").startswith("wrong job: env_vars: not JSON")
    assert texts(run) == [f"a: {client.field('a', 'error')}"]
    assert client.left() == {}


def test_a_stop_reaches_what_runs_and_what_waits_here(redis: Redis) -> None:
    client = some_jobs(redis, *"abc")
    run = Run(redis, "r1")
    run.round()
    assert take(run) == ["a"]
    for job_id in "ac":
        client.stop(job_id)
    run.round(1.0)
    assert Withdrawn(("a",), "stopped_by_request") in run.events  # type: ignore[arg-type]
    assert client.reply("c") == "stopped_by_request"
    assert buffered(run) == ["b"]
    told = len(run.events)
    run.round(1.0)
    assert [e for e in run.events[told:] if isinstance(e, Withdrawn)] == [], "told once"


def test_a_stop_for_a_job_that_never_comes_is_forgotten_after_a_while(redis: Redis) -> None:
    client = TextbookClient(redis)
    client.stop("never")
    run = Run(redis, "r1")
    for _ in range(5):
        run.round(MISSING_SECONDS / 5)
    assert run.store.stop_requests() == ["never"]
    for _ in range(3):
        run.round(MISSING_SECONDS / 3)
    assert run.store.stop_requests() == []


def test_a_job_that_comes_after_its_stop_is_stopped(redis: Redis) -> None:
    client = TextbookClient(redis)
    client.stop("a")
    run = Run(redis, "r1")
    run.round()
    client.submit("a", "echo")
    run.round(1.0)
    run.round(1.0)
    assert client.reply("a") == "stopped_by_request"


@pytest.mark.parametrize("order", ["stop create queue", "create stop queue", "create queue stop"])
def test_a_stop_that_is_there_at_the_fetch_stops_before_anything_begins(
    redis: Redis, order: str
) -> None:
    client = TextbookClient(redis)
    run = Run(redis, "r1")
    run.round()  # From now on the clock stands: no look for stop requests is due.
    steps = {"stop": client.stop, "queue": client.queue}
    for step in order.split():
        client.create("a", "echo") if step == "create" else steps[step]("a")
    run.round()
    assert take(run) == []
    run.round()
    assert (client.reply("a"), client.left()) == ("stopped_by_request", {})
    assert run.store.stop_requests() == []


def test_the_end_of_a_job_elsewhere_lets_one_begin_here(redis: Redis) -> None:
    client = TextbookClient(redis)
    client.create("walls", "echo")
    client.submit("roof", "echo", prerequisites='["walls"]')
    run = Run(redis, "r1")
    run.round()
    assert run.holding.buffer.count(JobStanding.PARKED) == 1
    assert json.loads(client.field("walls", "dependents")) == ["roof"]
    redis.command("HSET", "hero:job:walls", "status", "finished")
    run.round(1.5)
    assert take(run) == ["roof"]


def test_one_that_names_this_job_as_dependent_holds_it_back(redis: Redis) -> None:
    client = TextbookClient(redis)
    client.create("garden", "echo")
    client.queue("garden")
    run = Run(redis, "r1")
    run.round()
    client.submit("ground", "echo", dependents='["garden"]')
    run.round()
    assert take(run, 5) == ["ground"]
    assert json.loads(client.field("garden", "prerequisites")) == ["ground"]


ORDERS = [
    "create ground, create garden, queue ground, queue garden",
    "create ground, create garden, queue garden, queue ground",
    "create garden, create ground, queue garden, queue ground",
    "create ground, queue ground, create garden, queue garden",
]


@pytest.mark.parametrize("order", ORDERS)
def test_dependents_alone_hold_whichever_comes_first(redis: Redis, order: str) -> None:
    client = TextbookClient(redis)
    run = Run(redis, "r1")
    taken = []
    for step in order.split(", "):
        what, job_id = step.split()
        named = {"dependents": '["garden"]'} if job_id == "ground" else {}
        client.create(job_id, "echo", **named) if what == "create" else client.queue(job_id)
        run.round()
        taken += take(run, 5)
    assert taken == ["ground"]
    assert json.loads(client.field("garden", "prerequisites")) == ["ground"]


def test_where_not_all_can_be_looked_through_those_that_came_are_known(redis: Redis) -> None:
    fill = f"for n = 0, {LOOKED_THROUGH_MAX} do redis.call('SET', 'other:' .. n, '') end"
    redis.command("EVAL", fill, "0")
    client = TextbookClient(redis)
    run = Run(redis, "r1")
    client.submit("ground", "echo", dependents='["garden"]')
    run.round()
    client.submit("garden", "echo")
    run.round()
    assert take(run, 5) == ["ground"]


def test_a_job_that_named_it_and_is_gone_holds_nothing(redis: Redis) -> None:
    client = TextbookClient(redis)
    run = Run(redis, "r1")
    client.submit("ground", "echo", dependents='["garden"]')
    run.round()
    redis.command("DEL", "hero:job:ground")
    client.submit("garden", "echo")
    run.round()
    assert "garden" in [kept.job.id for kept in run.holding.buffer.pick(5)]


def test_what_all_wait_for_is_found_behind_them(redis: Redis) -> None:
    client = some_jobs(redis, *"abc", prerequisites='["z"]')
    client.submit("z", "echo")
    run = Run(redis, "r1")
    run.holding.buffer._held_max = 2
    run.round()
    assert (buffered(run), queued(redis)) == (["a", "b"], ["c", "z"])
    run.round(1.5)
    assert sorted(buffered(run) + queued(redis)) == ["a", "b", "c", "z"]
    run.round()
    run.round(1.5)
    run.round()
    assert take(run) == ["z"]
    assert sorted([*buffered(run), *queued(redis)]) == ["a", "b", "c"]


def test_a_failure_goes_down_the_whole_line(redis: Redis) -> None:
    client = TextbookClient(redis)
    client.submit("c", "echo", prerequisites='["b"]')
    client.submit("b", "echo", prerequisites='["a"]')
    client.create("a", "echo", status="error", error="x")
    run = Run(redis, "r1")
    for _ in range(3):
        run.round(1.5)
    assert client.reply("b") == "prerequisite a failed"
    assert client.reply("c") == "prerequisite b failed"
    assert client.left() == {}


def test_a_job_that_waits_for_itself_is_an_error(redis: Redis) -> None:
    client = TextbookClient(redis)
    client.submit("a", "echo", prerequisites='["a"]')
    run = Run(redis, "r1")
    run.round()
    run.round()
    assert client.reply("a") == "these jobs wait for each other: a -> a"


# --- leases -------------------------------------------------------------------------------------


def test_a_lease_is_kept_and_a_run_that_keeps_it_is_left_alone(redis: Redis) -> None:
    some_jobs(redis, "a")
    clock = Clock()
    run, other = Run(redis, "r1", clock=clock), Run(redis, "r2", clock=clock)
    run.round()
    for _ in range(8):
        run.round(LEASE / 2)
        other.round()
    assert (buffered(run), buffered(other)) == (["a"], [])


def test_a_run_is_dead_when_its_lease_was_gone_for_another_one(redis: Redis) -> None:
    client = some_jobs(redis, *"ab", retries="0")
    dead, other = Run(redis, "r1"), Run(redis, "r2")
    dead.round()
    assert take(dead) == ["a"]
    dead.dies()
    other.round()
    other.round(LEASE * 0.9)
    assert client.field("a", "status") == "started", "it may still come back"
    other.round(LEASE * 0.5)
    assert client.reply("a") == "lost"
    other.round()
    assert buffered(other) == ["b"]
    assert texts(other) == ["run r1 is dead: 1 of its jobs are queued again, 1 are lost"]


def test_redis_must_have_answered_all_the_time_for_that(redis: Redis) -> None:
    some_jobs(redis, "a")
    dead, other = Run(redis, "r1"), Run(redis, "r2")
    dead.round()
    dead.dies()
    other.round()
    other.maintenance.failed()
    other.round(LEASE * 1.5)
    assert buffered(other) == []
    other.round(LEASE * 1.5)
    other.round()
    assert buffered(other) == ["a"]


def test_a_run_that_finds_itself_taken_over_ends_what_runs_and_begins_anew(redis: Redis) -> None:
    client = some_jobs(redis, *"ab", retries="3")
    run, other = Run(redis, "r1"), Run(redis, "r2")
    run.round()
    assert take(run) == ["a"]
    run.dies()
    other.runs.join(other.who)
    other.runs.requeue("r1", "dead")
    run.round(LEASE)
    (withdrawn,) = [e for e in run.events if isinstance(e, Withdrawn)]
    assert withdrawn.issue_ids == ("a",)
    assert "taken it over" in withdrawn.why
    run.round()
    assert buffered(run) == ["b"], "a is still with the fleet, whose attempt is being ended"
    kept = run.holding.buffer.get("a")
    assert kept is not None and kept.returned
    assert client.field("a", "status") == "dispatched"


def test_a_run_that_shares_and_cannot_reach_redis_ends_what_it_runs(redis: Redis) -> None:
    some_jobs(redis, "a")
    for who, ends in (("shared h /a", True), ("alone h /b", False)):
        redis.command("DEL", "hero:beads_workers:w1:fleet")
        run = Run(redis, who[:4], who)
        run.round()
        if ends:
            take(run)
        run.clock.now += LEASE * 2.5
        run.maintenance.failed()
        assert any(isinstance(event, Withdrawn) for event in run.events) is ends


def test_what_came_into_our_list_unheard_is_found_there(redis: Redis) -> None:
    some_jobs(redis, *"ab")
    run = Run(redis, "r1")
    run.holding.opened.clear()
    run.round()
    assert run.store.wait(1.0) == "a", "and the answer was lost"
    run.maintenance.failed()
    run.round()
    assert buffered(run) == ["a"]


def test_one_that_serves_alone_keeps_everybody_else_out(redis: Redis) -> None:
    Run(redis, "r1", "alone host /a").round()
    with pytest.raises(ServedElsewhere, match="alone host /a"):
        Run(redis, "r2", "alone host /b").round()


def test_a_redis_that_is_away_is_an_error_and_then_it_goes_on(durable_redis: Redis) -> None:
    client = some_jobs(durable_redis, *"ab")
    run = Run(durable_redis, "r1")
    run.round()
    durable_redis.kill()
    with pytest.raises(SourceError, match="does not answer"):
        run.round(1.0)
    run.maintenance.failed()
    durable_redis.start_again()
    client.submit("c", "echo")
    run.round(1.0)
    assert buffered(run) == ["a", "b", "c"]
