"""The queues that ``test_queues`` runs against: one class and one entry in ``QUEUES`` each.

To add a push source, or whose jobs have a sender that is to get an answer, write a class
of the shape ``Queue`` and name it in ``QUEUES``. Every test uses a fresh one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Source
from beads_workers.core.schedule.events import ConnId
from beads_workers.integrations.hero import store as hero
from beads_workers.integrations.hero.connection import Address
from beads_workers.integrations.hero.maintenance import Maintenance
from beads_workers.integrations.hero.source import HeroSource
from beads_workers.integrations.hero.wire import Keys
from beads_workers.integrations.rrq import request_table, wire
from beads_workers.integrations.rrq.request_table import RequestTable
from beads_workers.integrations.rrq.source import RrqSource
from beads_workers.integrations.rrq.wire import FrameReader, parse
from tests.support.hero_client import WORKER, TextbookClient
from tests.support.peers import Redis

ACTOR = "beads-workers/host/run-1"


class Queue(Protocol):
    """A fresh queue with its source, and what a sender does and sees."""

    source: Source

    def send(self, name: str) -> IssueId:
        """A job comes in; what the edge does with it is done, so that it can be taken."""

    def answers(self, issue_id: IssueId) -> list[tuple[bool, Any]]:
        """What its sender has been told since the last time: success, and its result or error."""


class Hero:
    """``HeroSource`` over a real Redis, with the part of its thread done by hand."""

    def __init__(self, folder: Path, redis: Redis) -> None:
        self._client = TextbookClient(redis)
        self._redis = redis
        queue = hero.ServedQueue(Address(port=redis.port), WORKER, Keys())
        self.source = made = HeroSource(queue, actor=ACTOR, place="host /state")
        self._maintenance = Maintenance(
            made._store,
            made._runs,
            made.holding,
            made.who,
            lambda event: None,
            patience_seconds=0.01,
        )
        made.take(0, ())

    def send(self, name: str) -> IssueId:
        self._client.submit(name, "echo")
        self._maintenance.round()
        return IssueId(name)

    def answers(self, issue_id: IssueId) -> list[tuple[bool, Any]]:
        said = []
        while self._client.replies(issue_id):
            reply = self._client.reply(issue_id)
            said.append((self._client.field(issue_id, "status") == "finished", reply))
        return said


class Rrq:
    """``RrqSource`` with one connection of version 2, which answers when it is done."""

    def __init__(self, folder: Path, redis: Redis) -> None:
        self._serving = RequestTable()
        self._serving.connected(ConnId(1))
        self._reader = FrameReader()
        self._told: dict[str, list[tuple[bool, Any]]] = {}
        self.source = RrqSource(
            self._serving, actor=ACTOR, place="unix:/s", calls_functions=False, clock=lambda: 0.0
        )

    def send(self, name: str) -> IssueId:
        context = wire.RequestContext(name, 1, 0.0, "default")
        request = wire.Request(f"r-{name}", name, "f", context)
        payload = wire.encode(replace(request, protocol_version=wire.V2))
        self._serving.received(ConnId(1), payload, 0.0, 0.0)
        return IssueId(name)

    def answers(self, issue_id: IssueId) -> list[tuple[bool, Any]]:
        for command in self._serving.collect():
            if isinstance(command, request_table.SendFrame):
                for payload in self._reader.feed(command.data):
                    self._hear(parse(payload))
        return self._told.pop(issue_id, [])

    def _hear(self, said: object) -> None:
        assert isinstance(said, wire.RequestOutcome) and said.job_id is not None
        good = said.status is wire.RequestStatus.SUCCESS
        value = said.result if good else said.error and said.error.message
        self._told.setdefault(said.job_id, []).append((good, value))


def as_json(text: str) -> str:
    """The result of a job that said this."""
    return json.dumps(text)


QUEUES: dict[str, Callable[[Path, Redis], Queue]] = {"hero": Hero, "rrq": Rrq}
