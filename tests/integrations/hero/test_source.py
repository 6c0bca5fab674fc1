"""The fleet's view of a queue, over a real Redis: taken, settled, and what a crashed run left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import IssueId, Job, Outcome, OutcomeKind
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement, SourceError
from beads_workers.integrations.hero.buffer import JobStanding
from beads_workers.integrations.hero.connection import Address
from beads_workers.integrations.hero.maintenance import Maintenance
from beads_workers.integrations.hero.source import HeroSource
from beads_workers.integrations.hero.store import ServedQueue
from beads_workers.integrations.hero.wire import Keys
from tests.support.hero_client import WORKER, TextbookClient
from tests.support.peers import Redis

NOT_NOW = Outcome(OutcomeKind.ERROR, "boom")
DONE = Outcome(OutcomeKind.SUCCESS, result='"42"')


class Served:
    """A source, and the thread's part of it done by hand."""

    def __init__(self, redis: Redis, run: str = "r1", *, shared: bool = False) -> None:
        queue = ServedQueue(Address(port=redis.port), WORKER, Keys())
        self.source = HeroSource(
            queue, actor=f"beads-workers/h/{run}", place=f"h /{run}", shared=shared
        )
        source = self.source
        self.maintenance = Maintenance(
            source._store,
            source._runs,
            source.holding,
            source.who,
            lambda event: None,
            patience_seconds=0.01,
        )

    def taken(self, count: int = 10) -> list[Job]:
        self.source.take(0, ())
        self.maintenance.round()
        return list(self.source.take(count, ()).jobs)

    def settle(self, job_id: str, outcome: Outcome | None) -> Result:
        done = outcome is not None and outcome.kind is OutcomeKind.SUCCESS
        action = Action.CLOSE if done else Action.RELEASE
        (settled,) = self.source.settle([Settlement(action, IssueId(job_id), outcome=outcome)])
        return settled.result


@pytest.fixture
def client(redis: Redis) -> TextbookClient:
    return TextbookClient(redis)


@pytest.fixture
def served(redis: Redis) -> Iterator[Served]:
    made = Served(redis)
    yield made
    made.source.close()


def test_a_job_is_what_its_hash_says(served: Served, client: TextbookClient) -> None:
    client.submit("a", "echo $X", env_vars='{"X": "1"}', timeout="7", log_path="a.log")
    (job,) = served.taken()
    assert (job.source, job.issue_id, job.attempt, job.timeout_seconds) == ("hero", "a", 1, 7.0)
    assert job.script is not None
    script = job.script
    assert (script.text, script.context, script.caller) == ("echo $X", "shell", "client")
    assert (dict(script.environment), script.log_path) == ({"X": "1"}, "a.log")
    assert job.enqueued_at == 1767323045.0
    assert job.named is not None and job.named.path == "hero.script"
    assert "echo" not in job.title, "a script may hold what is nobody's business"


def test_a_job_is_started_before_anybody_has_it(served: Served, client: TextbookClient) -> None:
    client.submit("a", "echo")
    served.taken()
    assert client.field("a", "status") == "started"


def test_a_success_is_told_with_what_it_said(served: Served, client: TextbookClient) -> None:
    client.submit("a", "echo")
    served.taken()
    assert served.settle("a", DONE) is Result.APPLIED
    assert (client.reply("a"), client.field("a", "status")) == ("42", "finished")
    assert served.settle("a", DONE) is Result.NOT_OURS


def test_a_long_output_is_fetched_from_its_file(
    served: Served, client: TextbookClient, tmp_path: Path
) -> None:
    client.submit("a", "echo")
    served.taken()
    file = tmp_path / "result.json"
    file.write_text(json.dumps("x" * 100_000))
    served.settle("a", Outcome(OutcomeKind.SUCCESS, result='{"cut"', result_file=str(file)))
    assert client.field("a", "output") == "x" * 100_000


def test_a_job_that_fails_waits_for_its_next_attempt(
    served: Served, client: TextbookClient
) -> None:
    client.submit("a", "echo", retries="1")
    served.taken()
    assert served.settle("a", NOT_NOW) is Result.APPLIED
    assert client.field("a", "status") == "dispatched"
    assert served.source.holding.buffer.count(JobStanding.COOLING) == 1
    assert [row.issue_id for row in served.source.take(0, ()).listed] == ["a"], "not yet empty"
    served.source.holding.buffer.warm_up(1e18)
    (job,) = served.taken()
    assert job.attempt == 2
    served.settle("a", NOT_NOW)
    assert (client.reply("a"), client.field("a", "status")) == ("boom", "error")


def test_what_nobody_began_is_no_attempt_and_comes_again(
    served: Served, client: TextbookClient
) -> None:
    client.submit("a", "echo")
    served.taken()
    served.settle("a", None)
    assert client.field("a", "status") == "dispatched"
    (job,) = served.taken()
    assert (job.issue_id, job.attempt) == ("a", 1)


def test_a_redis_that_is_away_leaves_everything_to_be_asked_again(durable_redis: Redis) -> None:
    client, served = TextbookClient(durable_redis), Served(durable_redis)
    client.submit("a", "echo")
    client.submit("b", "echo")
    (job,) = served.taken(1)
    durable_redis.kill()
    for ask in (lambda: served.source.take(1, ()), lambda: served.settle("a", DONE)):
        with pytest.raises(SourceError, match="does not answer"):
            ask()
    durable_redis.start_again()
    assert served.settle(job.issue_id, DONE) is Result.APPLIED
    assert [job.issue_id for job in served.taken()] == ["b"]


def test_the_queue_is_listed_before_it_is_fetched(served: Served, client: TextbookClient) -> None:
    for name in "abc":
        client.submit(name, "echo", prerequisites='["a"]' if name == "b" else "")
    assert [row.issue_id for row in served.source.take(0, ()).listed] == ["a", "b", "c"]
    seen = served.source.unfinished(2)
    assert [(s.issue_id, s.status, s.waits_for) for s in seen] == [
        ("a", "open", ()),
        ("b", "open", ("a",)),
    ]
    assert served.source.ready() == {"a", "c"}
    assert served.source.look([IssueId("c"), IssueId("x")]).keys() == {"c"}


def test_jobs_that_wait_for_others_do_not_keep_a_fleet_from_ending(
    served: Served, client: TextbookClient
) -> None:
    client.submit("roof", "echo", prerequisites='["walls"]')
    assert served.taken() == []
    answer = served.source.take(1, ())
    assert (answer.listed, answer.blocked) == ((), 1)


def test_a_source_that_is_closed_requeues_in_order(redis: Redis, client: TextbookClient) -> None:
    served = Served(redis)
    for name in "abc":
        client.submit(name, "echo")
    served.taken(0)
    served.source.close()
    assert redis.command("LRANGE", "hero:work_queue:w1", "0", "-1").split() == ["c", "b", "a"]
    assert redis.command("KEYS", "hero:beads_workers:*").strip() == ""


def test_a_source_that_leaves_a_redis_that_stalls_keeps_its_list_for_the_next(
    redis: Redis, client: TextbookClient
) -> None:
    served = Served(redis)
    client.submit("a", "echo")
    served.taken(0)
    served.source.holding.stuck.set()
    served.source.close()
    redis.command("DEL", "hero:beads_workers:w1:lease:r1")
    assert Served(redis, "r2").source._runs.others() == {"r1": True}


def test_somebody_who_serves_alone_is_named_at_the_start(
    redis: Redis, client: TextbookClient
) -> None:
    first, second = Served(redis), Served(redis, "r2", shared=True)
    first.taken()
    with pytest.raises(SourceError, match="another orchestrator serves this queue: alone h /r1"):
        second.source.describe()
    assert first.source.describe().startswith("Hero jobs for w1 at redis://127.0.0.1:")


# --- a crashed run -------------------------------------------------------------------------------


def recovered(redis: Redis, dead: CrashedRun) -> dict[str, tuple[str, str]]:
    served = Served(redis, "r2")
    settled = served.source.recover(dead)
    served.source.recover(dead)
    served.source.close()
    return {s.settlement.issue_id: (s.settlement.action.value, s.result.value) for s in settled}


def test_what_a_crashed_run_did_is_told_from_its_journal(
    redis: Redis, client: TextbookClient
) -> None:
    for name in ("done", "bad", "again", "runs", "never", "waits"):
        client.submit(name, "echo", retries="1" if name == "again" else "0")
    Served(redis).taken(5)
    dead = CrashedRun(
        "beads-workers/h/r1",
        unclosed=(IssueId("done"),),
        outcomes=((IssueId("done"), DONE), (IssueId("bad"), NOT_NOW), (IssueId("again"), NOT_NOW)),
        unstarted=(IssueId("never"),),
    )
    told = recovered(redis, dead)
    assert told["done"] == ("close", "applied")
    assert {told[name] for name in ("bad", "again", "runs")} == {("release", "applied")}
    assert (client.reply("done"), client.reply("bad"), client.reply("runs")) == (
        "42",
        "boom",
        "lost",
    )
    queue = redis.command("LRANGE", "hero:work_queue:w1", "0", "-1").split()
    assert queue[::-1] == ["again", "never", "waits"]
    assert client.field("again", "status") == client.field("never", "status") == "dispatched"
    attempts = redis.command("HGETALL", "hero:beads_workers:w1:attempts").split()
    assert dict(zip(attempts[::2], attempts[1::2], strict=True)) == {"again": "1"}


def test_what_somebody_else_has_taken_over_is_not_told(
    redis: Redis, client: TextbookClient
) -> None:
    client.submit("a", "echo", retries="1")
    first = Served(redis, shared=True)
    first.taken()
    other = Served(redis, "r3", shared=True)
    redis.command("DEL", "hero:beads_workers:w1:lease:r1")
    other.source._runs.requeue("r1", "dead")
    dead = CrashedRun("beads-workers/h/r1", outcomes=((IssueId("a"), DONE),))
    assert recovered(redis, dead)["a"] == ("close", "not_ours")
    assert (client.field("a", "status"), client.replies("a")) == ("dispatched", 0)


def test_what_has_left_the_queue_and_is_not_here_yet_is_not_nothing(redis: Redis) -> None:
    served, client = Served(redis), TextbookClient(redis)
    client.submit("a", "true")
    served.source.take(0, ())
    served.maintenance._join()
    between: list[int] = []
    fetched = served.source._store.fetch

    def fetch(*arguments: Any) -> Any:
        found = fetched(*arguments)
        taken = served.source.take(1, ())
        between.append(taken.waiting)
        assert not (taken.jobs or taken.listed)
        return found

    served.source._store.fetch = fetch  # type: ignore[method-assign]
    served.maintenance.round()
    assert between == [1]
    assert [job.issue_id for job in served.source.take(1, ()).jobs] == ["a"]
    served.settle("a", DONE)
    assert served.source.take(1, ()).waiting == 0
    served.source.close()
