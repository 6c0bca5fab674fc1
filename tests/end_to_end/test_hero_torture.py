"""Two fleets on one Hero queue, and some seconds in which anything is killed or frozen."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.end_to_end.conftest import StartFleet
from tests.support.fleet import Fleet, until
from tests.support.hero_client import HeroPlace, TextbookClient
from tests.support.peers import Redis

TROUBLE_SECONDS = 6.0
RETRIES = 1


def harm(what: str, fleet: Fleet, redis: Redis, rng: Random) -> None:
    """One of the things that may happen to anybody."""
    match what:
        case "worker":
            # A fleet that has just begun anew has none for a moment.
            begun = until(lambda: fleet.journal("worker_started"))
            pids = [record["pid"] for record in begun]
            try:
                os.kill(rng.choice(pids[-2:]), signal.SIGKILL)
            except ProcessLookupError:
                pass  # It is dead already.
        case "redis":
            redis.kill()
            time.sleep(rng.random())
            redis.start_again()
        case "freeze":
            os.kill(fleet.pid, signal.SIGSTOP)
            time.sleep(rng.random() * 5)
            os.kill(fleet.pid, signal.SIGCONT)
        case _:
            os.kill(fleet.pid, signal.SIGKILL)
            fleet.wait()


def test_every_job_has_one_end_and_one_reply_whatever_happens(
    tmp_path: Path, durable_redis: Redis, start: StartFleet
) -> None:
    place, client = HeroPlace(tmp_path, durable_redis), TextbookClient(durable_redis)
    seed = int(os.environ.get("BW_TORTURE_SEED", "7"))
    rng = Random(seed)
    jobs = {f"j{n}": f"echo j{n} >>ran; sleep {n % 4 / 5}; echo j{n}" for n in range(40)}
    client.submit_many(jobs, retries=str(RETRIES))

    def begin(name: str) -> Fleet:
        options = ("-n", "2", "--shared", "--state-dir", str(tmp_path / name))
        return start(place, *place.arguments(*options, lease="2s")).started()

    fleets = {name: begin(name) for name in "ab"}
    over = time.monotonic() + TROUBLE_SECONDS
    while time.monotonic() < over:
        what, name = rng.choice(("worker", "worker", "redis", "freeze", "fleet")), rng.choice("ab")
        harm(what, fleets[name], durable_redis, rng)
        if what == "fleet":
            fleets[name] = begin(name)
    ended = client.ended(list(jobs))
    until(lambda: client.left() == {}, what=f"seed {seed}: {client.left()}")
    ran = Counter(place.ran("ran"))
    for job_id, status in ended.items():
        told = (seed, job_id, status, ran[job_id])
        assert client.replies(job_id) == 1, told
        assert ran[job_id] <= RETRIES + 1, told
        assert client.reply(job_id) == (job_id if status == "finished" else "lost"), told
