"""A queue in a real Redis, runs that serve it, and a client of the text."""

from __future__ import annotations

from beads_workers.core.schedule.events import Event
from beads_workers.integrations.hero.connection import Address, RedisLink
from beads_workers.integrations.hero.maintenance import Maintenance, SharedState
from beads_workers.integrations.hero.store import JobStore, Runs, ServedQueue
from beads_workers.integrations.hero.wire import Keys
from tests.support.hero_client import WORKER, TextbookClient
from tests.support.peers import Redis

LEASE = 15.0


class Clock:
    """Monotonic, and moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Run:
    """One run of ours. It has joined; ``maintenance`` never waits. ``events``: what the core would
    be."""

    def __init__(self, redis: Redis, name: str, who: str = "", clock: Clock | None = None) -> None:
        queue = ServedQueue(Address(port=redis.port), WORKER, Keys(), LEASE)
        link = RedisLink(queue.address)
        self.name = name
        self.who = who or f"shared host /{name}"
        self.clock = clock or Clock()
        self.store = JobStore(queue, name, link=link)
        self.runs = Runs(queue, name, link=link)
        self.holding = SharedState()
        self.holding.opened.set()
        self.events: list[Event] = []
        self.maintenance = Maintenance(
            self.store, self.runs, self.holding, self.who, self.events.append, self.clock, 0.01
        )
        self._own = redis

    def joined(self) -> Run:
        assert self.runs.join(self.who) == ""
        return self

    def fetched(self, count: int = 100) -> list[str]:
        found = self.store.fetch(count)
        assert found is not None
        return [each.job_id for each in found]

    def begun(self, *job_ids: str, attempts: int = 0, most: int = 1) -> list[str]:
        return self.store.begin((job_id, "", attempts, most) for job_id in job_ids)

    def dies(self) -> None:
        """Its lease is over; nobody has noticed yet."""
        self._own.command("DEL", f"hero:beads_workers:{WORKER}:lease:{self.name}")

    def round(self, seconds: float = 0.0) -> None:
        """Time passes, and whatever is due is done."""
        self.clock.now += seconds
        # Without room it waits for nothing, and with it only for a moment.
        self.holding.wake.set()
        self.maintenance.round()


def queued(redis: Redis) -> list[str]:
    """The queue, the next one first."""
    return redis.command("LRANGE", f"hero:work_queue:{WORKER}", "0", "-1").split()[::-1]


def some_jobs(redis: Redis, *job_ids: str, **fields: str) -> TextbookClient:
    """They are in the queue, in this order."""
    client = TextbookClient(redis)
    client.submit_many(dict.fromkeys(job_ids, "echo"), **fields)
    return client
