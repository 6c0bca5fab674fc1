"""Whatever is killed in the middle of a Hero queue: one end for every job, one reply, no run too
many.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.support.fleet import Fleet, until
from tests.support.hero_client import HeroPlace, TextbookClient
from tests.support.peers import Redis

RETRIES = 2


@pytest.fixture
def place(tmp_path: Path, durable_redis: Redis) -> HeroPlace:
    return HeroPlace(tmp_path, durable_redis)


def all_is_well(client: TextbookClient, place: HeroPlace, job_ids: list[str], retries: int) -> None:
    """One end, one reply, and no run too many, for each of them; nothing else is left."""
    ended = client.ended(job_ids)
    until(lambda: client.left() == {}, what=f"left: {client.left()}")
    assert {i: client.replies(i) for i in job_ids} == dict.fromkeys(job_ids, 1)
    ran = Counter(place.ran("ran"))
    assert all(ran[i] <= retries + 1 for i in job_ids), ran
    assert all(ran[i] >= 1 for i in job_ids if ended[i] == "finished"), (ran, ended)
    for job_id in job_ids:
        named = "output" if ended[job_id] == "finished" else "error"
        assert client.reply(job_id) == client.field(job_id, named)


def jobs(count: int, seconds: float) -> dict[str, str]:
    """So many, which note that they run, and take a while."""
    return {f"j{n}": f"echo j{n} >>ran; sleep {seconds}; echo done" for n in range(count)}


def crash(fleet: Fleet) -> None:
    os.kill(fleet.pid, signal.SIGKILL)


def test_a_script_whose_worker_dies_is_lost_or_has_another_attempt(
    place: HeroPlace, durable_redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(durable_redis)
    fleet = start(place, *place.arguments("-n", "1")).started()
    for job_id, retries, reply in (("once", "0", "lost"), ("twice", "1", "second")):
        script = f"echo {job_id} >>ran; [ $(grep -c {job_id} ran) = 2 ] && echo second || sleep 60"
        client.submit(job_id, script, retries=retries)
        until(lambda job_id=job_id: job_id in place.ran("ran"))
        newest = max(r["pid"] for r in fleet.journal("worker_started"))
        os.kill(newest, signal.SIGKILL)
        assert client.reply(job_id) == reply
    assert Counter(place.ran("ran")) == {"once": 1, "twice": 2}
    assert client.left() == {}


def test_a_fleet_that_is_killed_goes_on_where_it_was(
    place: HeroPlace, durable_redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(durable_redis)
    work = jobs(40, 0.05)
    client.submit_many(work, retries=str(RETRIES))
    for number in (5, 20):
        fleet = start(place, *place.arguments("-n", "4")).started()
        until(lambda number=number: len(place.ran("ran")) >= number)
        crash(fleet)
        assert fleet.wait() != 0
    last = start(place, *place.arguments("-n", "4", "--until-empty"))
    last.wait()
    all_is_well(client, place, list(work), RETRIES)
    assert set(client.ended(list(work)).values()) == {"finished"}


def test_a_script_that_was_killed_with_the_fleet_is_not_run_again_unasked(
    place: HeroPlace, durable_redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(durable_redis)
    client.submit("once", "echo once >>ran; sleep 60")
    client.submit("queued", "echo queued >>ran; echo done")
    first = start(place, *place.arguments("-n", "1")).started()
    until(lambda: place.ran("ran"))
    crash(first)
    first.wait()
    start(place, *place.arguments("-n", "1", "--until-empty")).wait()
    assert client.reply("once") == client.field("once", "error") == "lost"
    assert client.reply("queued") == "done"
    assert place.ran("ran") == ["once", "queued"]
    assert client.left() == {}


def test_what_was_done_is_told_by_the_next_start_when_redis_could_not_be_told(
    place: HeroPlace, durable_redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(durable_redis)
    client.submit("done", "touch there; while [ ! -e go ]; do sleep 0.2; done; echo 42")
    client.submit("bad", "touch too; while [ ! -e go ]; do sleep 0.2; done; echo no >&2; exit 1")
    fleet = start(place, *place.arguments("-n", "2")).started()
    until(lambda: (place.folder / "there").exists() and (place.folder / "too").exists())
    durable_redis.kill()
    (place.folder / "go").touch()
    fleet.wait_for("finished", issue_id="done")
    fleet.wait_for("finished", issue_id="bad")
    crash(fleet)
    fleet.wait()
    durable_redis.start_again()
    assert client.field("done", "status") == "started"
    start(place, *place.arguments("-n", "1", "--until-empty")).wait()
    assert (client.reply("done"), client.reply("bad")) == ("42", "no")
    assert client.left() == {}


def test_a_redis_that_is_killed_again_and_again_loses_nothing(
    place: HeroPlace, durable_redis: Redis, start: StartFleet
) -> None:
    client = TextbookClient(durable_redis)
    work = jobs(40, 0.05)
    client.submit_many(work, retries=str(RETRIES))
    fleet = start(place, *place.arguments("-n", "4")).started()
    for number in (5, 20):
        until(lambda number=number: len(place.ran("ran")) >= number)
        durable_redis.kill()
        until(lambda: fleet.status()["source_state"]["state"] != "ok")
        durable_redis.start_again()
    all_is_well(client, place, list(work), 0)
    assert set(client.ended(list(work)).values()) == {"finished"}
    until(lambda: fleet.status()["source_state"]["state"] == "ok")
    assert fleet.call("stop").returncode == 0


def test_two_fleets_share_a_queue_and_one_takes_over_what_the_other_had(
    place: HeroPlace, durable_redis: Redis, start: StartFleet, tmp_path: Path
) -> None:
    client = TextbookClient(durable_redis)
    work = jobs(50, 0.1)
    client.submit_many(work, retries=str(RETRIES))
    fleets = []
    for name in "ab":
        options = ("-n", "2", "--shared", "--state-dir", str(tmp_path / name))
        fleets.append(start(place, *place.arguments(*options, lease="2s")).started())
    first, second = fleets
    until(lambda: first.journal("started") and second.journal("started"))
    until(lambda: durable_redis.command("HLEN", "hero:beads_workers:w1:holders").strip() == "4")
    crash(first)
    first.wait()
    all_is_well(client, place, list(work), RETRIES)
    assert set(client.ended(list(work)).values()) == {"finished"}
    assert any("is dead: " in r["text"] for r in second.journal("noted"))
    assert second.call("stop", "--state-dir", str(tmp_path / "b")).returncode == 0


def test_a_queue_that_is_not_shared_is_refused_while_its_fleet_lives(
    place: HeroPlace, durable_redis: Redis, start: StartFleet, tmp_path: Path
) -> None:
    first = start(place, *place.arguments("-n", "1")).started()
    second = start(place, *place.arguments("-n", "1", "--state-dir", str(tmp_path / "b")))
    assert second.wait() == 6
    assert "another orchestrator serves this queue" in second.errors
    assert first.process.poll() is None
