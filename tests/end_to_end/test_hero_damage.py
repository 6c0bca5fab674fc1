"""Keys that hold what they should not: whoever may add jobs may write them, and no other job may
suffer from it."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.conftest import StartFleet
from tests.support.fleet import until
from tests.support.hero_client import HeroPlace, TextbookClient
from tests.support.peers import Redis

GOOD = 100
WRONG = {
    "string": "SET {} x",
    "list": "RPUSH {} x",
    "set": "SADD {} x",
    "zset": "ZADD {} 1 x",
    "stream": "XADD {} * f x",
}
"""By what ``TYPE`` calls it: how a key comes to hold it."""
HASH = "HSET {} f x"


def test_two_hundred_damaged_keys_cost_nothing_but_their_own_jobs(
    tmp_path: Path, redis: Redis, start: StartFleet
) -> None:
    place, client = HeroPlace(tmp_path, redis), TextbookClient(redis)
    good = [f"good{n}" for n in range(GOOD)]
    jobs = [f"job{n}" for n in range(100)]
    mute = [f"mute{n}" for n in range(50)]
    waits = [f"waits{n}" for n in range(50)]
    kinds = [*WRONG.values()]
    reply_kinds = [HASH, *(how for kind, how in WRONG.items() if kind != "list")]
    damage = [kinds[n % 5].format(f"hero:job:{job_id}") for n, job_id in enumerate(jobs)]
    damage += [reply_kinds[n % 5].format(f"hero:reply:{each}") for n, each in enumerate(mute)]
    damage += [kinds[n % 5].format(f"hero:job:before-{each}") for n, each in enumerate(waits)]
    damage += ["SET hero:stop_queue:w1 x"]
    client.pipe(damage)
    client.submit_many(dict.fromkeys([*good[: GOOD // 2], *mute], "echo done"))
    client.queue(*jobs)
    for job_id in waits:
        client.submit(job_id, "echo done", prerequisites=f'["before-{job_id}"]')
    client.submit_many(dict.fromkeys(good[GOOD // 2 :], "echo done"))

    fleet = start(place, *place.arguments("-n", "4")).started()
    said = client.ended([*good, *mute, *waits])
    assert {said[each] for each in (*good, *mute)} == {"finished"}
    assert {said[each] for each in waits} == {"error"}
    assert client.field("waits0", "error") == "prerequisite before-waits0 failed"
    until(lambda: client.left() == {}, what="something is still in hand")
    assert client.reply("good0") == "done"
    assert client.reply("job0") == "wrong job: its key in Redis holds a string, not a hash"
    assert client.reply("job1") == "wrong job: its key in Redis holds a list, not a hash"
    notes = [note["text"] for note in fleet.journal("noted")]
    assert "nothing can be stopped through Redis: hero:stop_queue:w1 holds no list" in notes
    fleet.call("stop")
    assert fleet.wait() == 0, fleet.said()


def test_a_damaged_key_of_the_fleet_is_said_and_costs_nothing_once_it_is_mended(
    tmp_path: Path, redis: Redis, start: StartFleet
) -> None:
    place, client = HeroPlace(tmp_path, redis), TextbookClient(redis)
    redis.command("set", "hero:beads_workers:w1:holders", "x")
    client.submit("a", "echo done")
    fleet = start(place, *place.arguments("-n", "1")).started()
    told = fleet.wait_for("source_trouble")["error"]
    assert told.endswith("a key holds what it should not: 'beads-workers doctor' names it")
    redis.command("del", "hero:beads_workers:w1:holders")
    assert client.reply("a") == "done"
    fleet.call("stop")
    assert fleet.wait() == 0, fleet.said()
