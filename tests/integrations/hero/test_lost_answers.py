"""A network that loses an answer, of each kind in turn: asked again, nothing is done twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement, SourceError
from beads_workers.integrations.hero import lua
from beads_workers.integrations.hero.connection import Address
from beads_workers.integrations.hero.maintenance import Maintenance
from beads_workers.integrations.hero.source import HeroSource
from beads_workers.integrations.hero.store import ServedQueue
from beads_workers.integrations.hero.wire import Keys
from tests.support.cutting import Cutting
from tests.support.fleet import until
from tests.support.hero_client import WORKER, TextbookClient
from tests.support.peers import Redis

T = TypeVar("T")
CUTS = {
    name: hashlib.sha1((lua.HEAD + getattr(lua, name)).encode()).hexdigest().encode()
    for name in ("JOIN", "BEAT", "FETCH", "BEGIN", "AGAIN", "END", "STOP", "RETURN", "DROP", "LINK")
} | {"BLMOVE": b"BLMOVE"}


class Served:
    """A source behind a network that loses one answer; everything is asked until it is told."""

    def __init__(self, port: int, run: str) -> None:
        queue = ServedQueue(Address(port=port), WORKER, Keys())
        self.source = source = HeroSource(
            queue, actor=f"beads-workers/h/{run}", place="h /s", retry_seconds=0.0
        )
        self._maintenance = Maintenance(
            source._store,
            source._runs,
            source.holding,
            source.who,
            lambda event: None,
            patience_seconds=0.02,
        )
        self.lost = 0

    def ask(self, question: Callable[[], T]) -> T:
        while True:
            try:
                return question()
            except SourceError:
                self.lost += 1
                assert self.lost < 5, "it was cut once"
                self._maintenance.failed()

    def round(self) -> None:
        self.ask(self._maintenance.round)

    def take(self) -> list[str]:
        return [job.issue_id for job in self.ask(lambda: self.source.take(10, ())).jobs]

    def settle(self, job_id: str, outcome: Outcome) -> None:
        good = outcome.kind is OutcomeKind.SUCCESS
        action = Action.CLOSE if good else Action.RELEASE
        settlement = Settlement(action, IssueId(job_id), outcome=outcome)
        (settled,) = self.ask(lambda: self.source.settle([settlement]))
        assert settled.result is Result.APPLIED


@pytest.fixture(params=sorted(CUTS))
def network(request: pytest.FixtureRequest, redis: Redis) -> Iterator[Cutting]:
    made = Cutting(redis.port, CUTS[request.param])
    # So that a program is not merely unknown when it is asked for the first time.
    for name in CUTS.keys() - {"BLMOVE"}:
        redis.command("SCRIPT", "LOAD", lua.HEAD + getattr(lua, name))
    yield made
    made.close()


def test_every_job_comes_to_one_end_with_one_reply(network: Cutting, redis: Redis) -> None:
    client = TextbookClient(redis)
    served = Served(network.port, "r1")
    served.take()
    served.round()  # Nothing is there, so it waits for a moment.
    client.submit("done", "echo", retries="1")
    client.submit("waits", "echo", prerequisites='["done"]')
    client.submit("stopped", "echo")
    client.queue("done")
    served.round()
    assert served.take() == ["done", "stopped"]
    served.settle("done", Outcome(OutcomeKind.ERROR, "once"))
    served.round()
    assert served.take() == ["done"]
    served.settle("done", Outcome(OutcomeKind.SUCCESS, result='"42"'))
    served.settle("stopped", Outcome(OutcomeKind.ERROR, "boom"))
    assert served.take() == ["waits"]
    client.stop("late")
    client.submit("late", "echo")
    served.source.holding.opened.clear()  # It is to be found in the queue.
    until(lambda: served.round() or client.replies("late"))
    left = served.ask(lambda: served.source.recover(CrashedRun("beads-workers/h/r1")))
    assert [s.settlement.issue_id for s in left] in (["waits"], [])
    assert network.cuts == 1
    said = {name: client.reply(name) for name in ("done", "stopped", "waits", "late")}
    assert said == {"done": "42", "stopped": "boom", "waits": "lost", "late": "stopped_by_request"}
    assert client.left() == {}
    assert [client.replies(name) for name in said] == [0] * 4, "one each"
