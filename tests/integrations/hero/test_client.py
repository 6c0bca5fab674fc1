"""The client against a real Redis; whoever serves the queues is played by redis-cli's commands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from beads_workers.integrations.hero.client import HeroClient, JobExists, NoSuchJob, StillUnderWay
from beads_workers.integrations.hero.connection import Address, CannotReach
from beads_workers.integrations.hero.wire import DEFAULT as TEXT
from beads_workers.integrations.hero.wire import LATER, HeroJob, JobStatus
from tests.support.cutting import Cutting
from tests.support.fleet import until
from tests.support.peers import Redis

JOB = HeroJob(worker_id="w1", caller_id="ann", context_id="sh", script="echo hi")


@pytest.fixture
def client(redis: Redis) -> Iterator[HeroClient]:
    with HeroClient(Address(port=redis.port), TEXT, patience_seconds=30.0) as made:
        yield made


def field(redis: Redis, job_id: str, name: str) -> str:
    return redis.command("hget", f"hero:job:{job_id}", name).strip()


def queue(redis: Redis, key: str = "hero:work_queue:w1") -> list[str]:
    return redis.command("lrange", key, "0", "-1").split()


def finish(redis: Redis, job_id: str, output: str) -> None:
    """What a worker writes at the end, as the text says it."""
    redis.command("hset", f"hero:job:{job_id}", "status", "finished", "output", output)
    redis.command("lpush", f"hero:reply:{job_id}", output)


def test_a_job_is_a_hash_and_then_its_id_in_the_queue(client: HeroClient, redis: Redis) -> None:
    (job_id,) = client.submit([replace(JOB, env_vars={"A": "b"}, prerequisites=("x",))])
    assert queue(redis) == [job_id]
    assert field(redis, job_id, "status") == "dispatched"
    assert field(redis, job_id, "script") == "echo hi"
    assert field(redis, job_id, "env_vars") == '{"A":"b"}'
    assert field(redis, job_id, "prerequisites") == '["x"]'
    assert field(redis, job_id, "created_at").endswith("Z")
    job = client.get(job_id)
    assert (job.caller_id, job.worker_id, job.id) == ("ann", "w1", job_id)


def test_the_first_of_a_batch_is_at_the_end_that_workers_take_from(
    client: HeroClient, redis: Redis
) -> None:
    jobs = [replace(JOB, id=f"j{n}", worker_id="w1" if n % 3 else "w2") for n in range(450)]
    ids = client.submit(jobs)
    assert ids == [job.id for job in jobs]
    assert queue(redis) == [job.id for job in reversed(jobs) if job.worker_id == "w1"]
    assert queue(redis, "hero:work_queue:w2") == [f"j{n}" for n in range(447, -1, -3)]
    assert client.depths("w1") == (300, 0)


def test_an_id_that_is_known_is_refused_before_anything_is_handed_in(
    client: HeroClient, redis: Redis
) -> None:
    client.submit([replace(JOB, id="a")])
    with pytest.raises(JobExists, match="job a already"):
        client.submit([replace(JOB, id="b"), replace(JOB, id="a")])
    with pytest.raises(JobExists, match="twice"):
        client.submit([replace(JOB, id="c"), replace(JOB, id="c")])
    assert queue(redis) == ["a"]
    with pytest.raises(NoSuchJob):
        client.get("b")


@pytest.mark.parametrize("job", [replace(JOB, worker_id=""), replace(JOB, id="a\n")])
def test_what_cannot_be_a_job_is_refused(client: HeroClient, redis: Redis, job: HeroJob) -> None:
    with pytest.raises(ValueError, match=r"a job names|an id is"):
        client.submit([job])
    assert queue(redis) == []


def test_run_waits_for_the_reply_and_gives_what_the_hash_says(
    client: HeroClient, redis: Redis
) -> None:
    def serve() -> None:
        job_id = redis.command("blpop", "hero:work_queue:w1", "30").split()[1]
        until(lambda: "blocked_clients:1" in redis.command("info", "clients"))
        finish(redis, job_id, "42")

    worker = threading.Thread(target=serve)
    worker.start()
    ended = client.run(JOB, 60.0)
    worker.join()
    assert (ended.status, ended.output) == (JobStatus.FINISHED, "42")
    left = redis.command("llen", f"hero:reply:{ended.id}").strip()
    assert left == "0", "it was a later look, and not the reply"


def test_a_job_that_has_ended_is_found_without_a_reply(client: HeroClient, redis: Redis) -> None:
    (job_id,) = client.submit([JOB])
    redis.command("hset", f"hero:job:{job_id}", "status", "error", "error", "timeout")
    ended = client.wait(job_id, 60.0)
    assert (ended.status, ended.error) == (JobStatus.ERROR, "timeout")


def test_a_reply_that_another_took_is_made_good_by_looking_at_the_job(
    client: HeroClient, redis: Redis
) -> None:
    (job_id,) = client.submit([JOB])

    def serve() -> None:
        until(lambda: "blocked_clients:1" in redis.command("info", "clients"))
        redis.command("hset", f"hero:job:{job_id}", "status", "finished", "output", "42")

    worker = threading.Thread(target=serve)
    worker.start()
    assert client.wait(job_id, 60.0).output == "42"
    worker.join()


def test_waiting_has_an_end(client: HeroClient) -> None:
    (job_id,) = client.submit([JOB])
    with pytest.raises(StillUnderWay, match=r"is dispatched after 0\.2 s"):
        client.wait(job_id, 0.2)
    with pytest.raises(NoSuchJob):
        client.wait("other", 0.2)


def test_a_stop_goes_to_the_jobs_worker_and_not_to_one_that_has_ended(
    client: HeroClient, redis: Redis
) -> None:
    first, second = client.submit([JOB, JOB])
    assert client.stop(first).status is JobStatus.DISPATCHED
    finish(redis, second, "42")
    assert client.stop(second).status is JobStatus.FINISHED
    assert queue(redis, "hero:stop_queue:w1") == [first]
    with pytest.raises(NoSuchJob):
        client.stop("other")


def test_a_job_that_has_ended_is_queued_again_and_no_other(redis: Redis) -> None:
    network = Cutting(redis.port, at=b"EXEC")
    with HeroClient(Address(port=redis.port), TEXT) as client:
        first, second = client.submit([JOB, JOB])
        redis.command("del", "hero:work_queue:w1")
        finish(redis, second, "42")
    with HeroClient(Address(port=network.port), TEXT) as client:
        assert client.retry(first).status is JobStatus.DISPATCHED
        assert client.retry(second).status is JobStatus.FINISHED
        again = client.get(second)
        assert (again.status, again.output) == (JobStatus.DISPATCHED, None)
    network.close()
    assert network.cuts == 1
    assert queue(redis) == [second]


def test_every_job_is_listed_once_and_what_is_none_is_named(
    client: HeroClient, redis: Redis
) -> None:
    ids = client.submit([JOB] * 30)
    redis.command("set", "hero:job:text", "x")
    redis.command("hset", "hero:job:odd", "status", "dreaming")
    redis.command("set", "hero:other", "x")
    rows = list(client.rows())
    assert sorted(row.id for row in rows) == sorted([*ids, "text", "odd"])
    by_id = {row.id: row for row in rows}
    assert by_id["text"].trouble == "is no hash"
    assert "dreaming" in by_id["odd"].trouble
    first = by_id[ids[0]].job
    assert first is not None and first.context_id == "sh" and first.script == ""


def test_the_later_naming_is_a_setting(redis: Redis) -> None:
    with HeroClient(Address(port=redis.port), LATER) as client:
        (job_id,) = client.submit([JOB])
        assert queue(redis, "hero:q:work:type:w1") == [job_id]
        client.stop(job_id)
        assert queue(redis, "hero:q:ctl:type:w1") == [job_id]
        redis.command("hset", f"hero:job:{job_id}", "status", "finished", "output", "1")
        redis.command("lpush", f"hero:q:reply:{job_id}", "1")
        assert client.wait(job_id, 60.0).output == "1"


def test_a_connection_that_is_cut_meanwhile_is_made_anew(client: HeroClient, redis: Redis) -> None:
    (job_id,) = client.submit([JOB])

    def cut() -> None:
        until(lambda: "blocked_clients:1" in redis.command("info", "clients"))
        redis.command("client", "kill", "type", "normal")
        finish(redis, job_id, "42")

    worker = threading.Thread(target=cut)
    worker.start()
    assert client.wait(job_id, 60.0).output == "42"
    worker.join()


def test_a_batch_whose_answer_was_lost_is_handed_in_once(redis: Redis) -> None:
    network = Cutting(redis.port, at=b"EXEC")
    jobs = [replace(JOB, id=f"j{n}") for n in range(5)]
    with HeroClient(Address(port=network.port), TEXT) as client:
        assert client.submit(jobs) == [job.id for job in jobs]
    network.close()
    assert network.cuts == 1
    assert queue(redis) == ["j4", "j3", "j2", "j1", "j0"]


def test_a_redis_that_stays_away_is_told(redis: Redis) -> None:
    address = Address(port=redis.port)
    redis.close()
    with (
        HeroClient(address, TEXT, 0.2) as client,
        pytest.raises(CannotReach, match="does not answer"),
    ):
        client.submit([JOB])


def test_a_redis_that_is_killed_while_somebody_waits_loses_no_reply(durable_redis: Redis) -> None:
    with HeroClient(Address(port=durable_redis.port), TEXT, patience_seconds=60.0) as client:
        (job_id,) = client.submit([JOB])

        def die() -> None:
            until(lambda: "blocked_clients:1" in durable_redis.command("info", "clients"))
            durable_redis.kill()
            durable_redis.start_again()
            finish(durable_redis, job_id, "42")

        worker = threading.Thread(target=die)
        worker.start()
        assert client.wait(job_id, 60.0).output == "42"
        worker.join()
