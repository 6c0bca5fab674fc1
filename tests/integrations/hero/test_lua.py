"""What happens in one step in Redis: once, or not at all, however often it is asked for."""

from __future__ import annotations

import json

import pytest

from beads_workers.integrations.hero.store import JobEnd
from beads_workers.integrations.hero.wire import JobStatus
from tests.integrations.hero.place import LEASE, Run, queued, some_jobs
from tests.support.hero_client import TextbookClient
from tests.support.peers import Redis

DONE = JobEnd("a", "", 1, JobStatus.FINISHED, "42")


def test_jobs_are_fetched_in_the_order_in_which_they_came(redis: Redis) -> None:
    some_jobs(redis, *"abc")
    run = Run(redis, "r1").joined()
    assert run.fetched(2) == ["a", "b"]
    assert run.store.wait(1.0) == "c"
    assert run.store.held() == ["c", "b", "a"]
    assert run.store.wait(0.01) is None


def test_a_job_is_started_once_and_an_answer_that_was_lost_is_given_again(redis: Redis) -> None:
    client = some_jobs(redis, "a")
    run = Run(redis, "r1").joined()
    run.fetched()
    assert run.begun("a") == ["begun"]
    assert client.field("a", "status") == "started"
    assert run.begun("a") == ["begun"], "the same attempt"
    assert run.store.attempts_of(["a"]) == [1]


def test_an_end_is_written_once_with_one_reply_however_often_it_is_told(redis: Redis) -> None:
    client = some_jobs(redis, "a")
    run = Run(redis, "r1").joined()
    run.fetched()
    run.begun("a")
    assert [run.store.end([DONE]) for _ in range(3)] == [["done"]] * 3
    assert (client.field("a", "status"), client.replies("a")) == ("finished", 1)
    assert 86_000 < int(redis.command("TTL", "hero:reply:a")) <= 86_400
    assert client.left() == {}


def test_an_end_that_is_not_the_last_attempts_changes_nothing(redis: Redis) -> None:
    client = some_jobs(redis, "a", retries="1")
    run = Run(redis, "r1").joined()
    run.fetched()
    run.begun("a", most=2)
    run.store.requeue([("a", "", 1, False)])
    assert client.field("a", "status") == "dispatched"
    run.begun("a", attempts=1, most=2)
    assert run.store.end([DONE]) == ["not ours"]
    assert client.field("a", "status") == "started"
    assert run.store.end([DONE._replace(attempt=2)]) == ["done"]


def test_what_somebody_has_ended_meanwhile_stays_as_it_is(redis: Redis) -> None:
    client = some_jobs(redis, "a")
    run = Run(redis, "r1").joined()
    run.fetched()
    run.begun("a")
    redis.command("HSET", "hero:job:a", "status", "error", "error", "by hand")
    assert run.store.end([DONE]) == ["over"]
    assert (client.field("a", "error"), client.replies("a")) == ("by hand", 0)
    assert client.left() == {}


def test_a_job_whose_hash_is_gone_is_not_made_anew(redis: Redis) -> None:
    client = some_jobs(redis, *"ab")
    run = Run(redis, "r1").joined()
    run.fetched()
    run.begun("a")
    redis.command("DEL", "hero:job:a", "hero:job:b")
    assert run.store.end([DONE]) == ["over"]
    assert run.begun("b") == ["over"]
    assert redis.command("EXISTS", "hero:job:a", "hero:job:b").strip() == "0"
    assert client.left() == {}


def test_no_attempt_is_begun_beyond_the_last(redis: Redis) -> None:
    some_jobs(redis, "a")
    run = Run(redis, "r1").joined()
    run.fetched()
    run.begun("a")
    run.store.requeue([("a", "", 1, False)])
    assert run.begun("a", attempts=1, most=1) == ["spent"]


def test_what_was_never_begun_is_no_attempt(redis: Redis) -> None:
    client = some_jobs(redis, "a")
    run = Run(redis, "r1").joined()
    run.fetched()
    run.begun("a")
    assert [run.store.requeue([("a", "", 1, True)]) for _ in range(2)] == [["done"]] * 2
    assert run.store.attempts_of(["a"]) == [0]
    assert client.field("a", "status") == "dispatched"


def test_a_context_is_one_jobs_alone_whoever_runs_it(redis: Redis) -> None:
    some_jobs(redis, *"ab")
    first, second = Run(redis, "r1").joined(), Run(redis, "r2").joined()
    first.fetched(1)
    second.fetched(1)
    assert first.store.begin([("a", "c:shop", 0, 1)]) == ["begun"]
    assert second.store.begin([("b", "c:shop", 0, 1)]) == ["busy"]
    assert second.store.begin([("b", "c:bank", 0, 1)]) == ["begun"]
    first.store.end([DONE._replace(context="c:shop")])
    assert redis.command("HKEYS", "hero:beads_workers:w1:contexts").split() == ["c:bank"]


# --- one that has died --------------------------------------------------------------------------


def test_what_a_crashed_run_had_goes_back_before_all_others_and_in_its_order(redis: Redis) -> None:
    client = some_jobs(redis, *"abcd", retries="1")
    dead, other = Run(redis, "r1").joined(), Run(redis, "r2").joined()
    dead.fetched(3)
    dead.begun("a", most=2)
    assert other.runs.requeue("r1", "dead") == [], "it lives"
    dead.dies()
    told = other.runs.requeue("r1", "dead")
    assert told == [("c", "queued"), ("b", "queued"), ("a", "queued")]
    assert queued(redis) == ["a", "b", "c", "d"]
    assert client.field("a", "status") == "dispatched"
    assert other.store.attempts_of(["a"]) == [1], "it was an attempt"
    assert other.runs.requeue("r1", "dead") == []


def test_what_it_was_at_work_on_for_the_last_time_is_lost(redis: Redis) -> None:
    client = some_jobs(redis, *"ab", concurrent="false")
    dead, other = Run(redis, "r1").joined(), Run(redis, "r2").joined()
    dead.fetched()
    dead.store.begin([("a", "c:shell", 0, 1)])
    dead.dies()
    assert other.runs.requeue("r1", "dead") == [("b", "queued"), ("a", "lost")]
    assert (client.field("a", "status"), client.reply("a")) == ("error", "lost")
    other.fetched()
    assert other.store.begin([("b", "c:shell", 0, 1)]) == ["begun"], "its context is free"


def test_a_run_that_was_taken_over_can_end_begin_and_fetch_nothing(redis: Redis) -> None:
    client = some_jobs(redis, *"abc", retries="1")
    asleep, other = Run(redis, "r1").joined(), Run(redis, "r2").joined()
    asleep.fetched(2)
    asleep.begun("a", most=2)
    asleep.dies()
    other.runs.requeue("r1", "dead")
    assert asleep.store.end([DONE]) == ["not ours"]
    assert asleep.store.requeue([("a", "", 1, False)]) == ["not ours"]
    assert asleep.begun("b") == ["evicted"]
    assert asleep.store.fetch(5) is None
    assert not asleep.runs.beat(asleep.who)
    assert queued(redis) == ["a", "b", "c"]
    assert client.field("a", "status") == "dispatched"


def test_one_that_brings_another_job_into_its_list_after_its_death_loses_nothing(
    redis: Redis,
) -> None:
    some_jobs(redis, *"ab")
    asleep, other = Run(redis, "r1").joined(), Run(redis, "r2").joined()
    asleep.dies()
    other.runs.requeue("r1", "dead")
    assert other.runs.others() == {"r1": False}
    assert asleep.store.wait(1.0) == "a"
    assert other.runs.others() == {"r1": True}
    assert other.runs.requeue("r1", "dead") == [("a", "queued")]


def test_a_run_that_leaves_requeues_all_but_what_it_still_has_pending(redis: Redis) -> None:
    client = some_jobs(redis, *"abc")
    run = Run(redis, "r1").joined()
    run.fetched()
    run.begun("b")
    run.runs.requeue("r1", "leaving")
    assert queued(redis) == ["a", "c"]
    assert run.store.held() == ["b"]
    assert run.store.end([DONE._replace(job_id="b")]) == ["done"]
    run.runs.requeue("r1", "leaving")
    assert redis.command("HLEN", "hero:beads_workers:w1:fleet").strip() == "0"
    assert client.field("b", "status") == "finished"


def test_a_queue_is_shared_only_with_those_who_share_it(redis: Redis) -> None:
    alone = Run(redis, "r1", "alone host /a").joined()
    assert Run(redis, "r2").runs.join("shared host /b") == "alone host /a"
    assert Run(redis, "r3").runs.join("alone host /b") == "alone host /a"
    assert Run(redis, "r4").runs.join("alone host /a") == "", "its own next start"
    alone.dies()
    redis.command("DEL", "hero:beads_workers:w1:lease:r4")
    assert Run(redis, "r5").runs.join("alone host /b") == ""


def test_to_look_is_not_to_join(redis: Redis) -> None:
    run = Run(redis, "r1")
    assert run.runs.join("alone host /a", only_look=True) == ""
    assert redis.command("KEYS", "*").strip() == ""


def test_a_lease_lasts_as_long_as_was_said(redis: Redis) -> None:
    run = Run(redis, "r1").joined()
    assert run.runs.beat(run.who)
    left = int(redis.command("PTTL", "hero:beads_workers:w1:lease:r1"))
    assert LEASE * 1000 - 5000 < left <= LEASE * 1000


# --- stop requests, and what jobs wait for --------------------------------------------------------


def test_a_job_that_waits_in_the_queue_is_stopped_there(redis: Redis) -> None:
    client = some_jobs(redis, *"ab")
    run = Run(redis, "r1").joined()
    client.stop("a")
    client.stop("elsewhere")
    assert run.store.stop_requests() == ["elsewhere", "a"]
    assert run.store.stop_queued(["elsewhere", "a"]) == ["missing", "stopped"]
    assert client.reply("a") == client.field("a", "error") == "stopped_by_request"
    assert (run.store.stop_requests(), queued(redis)) == (["elsewhere"], ["b"])
    run.store.forget_stops(["elsewhere"])
    assert run.store.stop_requests() == []


def test_a_stop_for_what_has_ended_goes_and_for_what_runs_elsewhere_stays(redis: Redis) -> None:
    client = some_jobs(redis, *"ab")
    run, other = Run(redis, "r1").joined(), Run(redis, "r2").joined()
    other.fetched()
    other.begun("a", "b")
    other.store.end([DONE])
    client.stop("a")
    client.stop("b")
    assert run.store.stop_queued(["a", "b"]) == ["over", "unknown"]
    assert run.store.stop_requests() == ["b"]


@pytest.mark.parametrize(
    ("known", "after"),
    [("", ["x"]), ("null", ["x"]), ("[]", ["x"]), ('["a"]', ["a", "x"]), ('["x"]', ["x"])],
)
def test_a_job_comes_to_name_another_once(redis: Redis, known: str, after: list[str]) -> None:
    client = some_jobs(redis, "p", dependents=known)
    run = Run(redis, "r1").joined()
    for _ in range(2):
        run.store.link([("p", "x")], "dependents", ())
    assert json.loads(client.field("p", "dependents")) == after


def test_no_job_is_made_and_none_that_has_ended_is_changed_by_being_named(redis: Redis) -> None:
    client = TextbookClient(redis)
    client.create("over", "echo", status="finished")
    client.create("between", "echo", prerequisites="a, x")
    run = Run(redis, "r1").joined()
    run.store.link([("missing", "x"), ("over", "x"), ("between", "x")], "prerequisites", ())
    assert redis.command("EXISTS", "hero:job:missing").strip() == "0"
    assert client.field("over", "prerequisites") == ""
    assert client.field("between", "prerequisites") == "a, x"


def test_one_that_is_named_as_a_dependency_need_not_be_a_prerequisite_as_well(redis: Redis) -> None:
    client = some_jobs(redis, "p", dependencies='["x"]')
    run = Run(redis, "r1").joined()
    run.store.link([("p", "x")], "prerequisites", ("dependencies",))
    assert client.field("p", "prerequisites") == ""


def test_a_redis_that_forgot_our_programs_is_told_them_again(redis: Redis) -> None:
    some_jobs(redis, *"ab")
    run = Run(redis, "r1").joined()
    redis.command("SCRIPT", "FLUSH")
    assert run.fetched() == ["a", "b"]
    redis.command("SCRIPT", "FLUSH")
    assert run.begun("a", "b") == ["begun", "begun"]
