"""The broker on PostgreSQL: listened to and replied to without waiting, whatever becomes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from beads_workers.core.events import ConditionRecovered, Degraded
from beads_workers.integrations.dispatcherd.configuration import Brokers
from beads_workers.integrations.dispatcherd.configuration import Postgres as Settings
from beads_workers.integrations.dispatcherd.wire import POSTGRES_BYTES_MAX
from beads_workers.integrations.dispatcherd.wire_chunks import ChunkAccumulator
from tests.integrations.dispatcherd.desk import Desk, control, task
from tests.support.postgres import Postgres

CHANNELS = ("one", 'a "strange" näme')


def settings(postgres: Postgres, **more: Any) -> Brokers:
    return Brokers(postgres=(Settings({"conninfo": postgres.conninfo}, CHANNELS, **more),))


@pytest.fixture
def desk(tmp_path: Path, postgres: Postgres) -> Iterator[Desk]:
    made = Desk(tmp_path, settings(postgres))
    yield made
    made.close()


@pytest.fixture
def publisher(postgres: Postgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        yield connection


def notify(publisher: psycopg.Connection, channel: str, message: bytes) -> None:
    publisher.execute("SELECT pg_notify(%s, %s)", (channel, message.decode()))


def test_every_channel_is_heard(desk: Desk, publisher: psycopg.Connection) -> None:
    for number, channel in enumerate(CHANNELS):
        notify(publisher, channel, task(f"é{number}"))
    notify(publisher, "another", task("another"))
    desk.until(lambda: len(desk.queued()) == 2)
    assert desk.queued() == ["é0", "é1"]
    assert [e.channel for e in desk.ingress.queue.untaken()] == list(CHANNELS)


def test_a_reply_goes_to_its_channel_in_chunks_that_postgres_takes(
    desk: Desk, publisher: psycopg.Connection
) -> None:
    publisher.execute("LISTEN back")
    notify(publisher, "one", control("status", "back"))
    _, reply = desk.until(lambda: desk.asked)[0]
    answer = {"text": 'é"' * 20_000}
    reply(answer)
    accumulator, whole = ChunkAccumulator(), None
    while whole is None:
        desk.turn()
        for notification in publisher.notifies(timeout=0.05):
            assert len(notification.payload.encode()) <= POSTGRES_BYTES_MAX
            _, whole, _ = accumulator.ingest_dict(json.loads(notification.payload))
    assert whole == answer
    assert desk.warnings() == []


def test_what_is_no_channel_gets_no_reply(desk: Desk, publisher: psycopg.Connection) -> None:
    notify(publisher, "one", control("alive", "x" * 64))
    _, reply = desk.until(lambda: desk.asked)[0]
    reply({})
    desk.turn()
    assert "is no channel to reply to" in desk.warnings()[0]
    notify(publisher, "one", task("good"))
    assert desk.until(desk.queued) == ["good"]


def test_a_connection_that_is_ended_is_made_again(
    desk: Desk, publisher: psycopg.Connection
) -> None:
    others = "pid <> pg_backend_pid() AND datname = current_database()"
    publisher.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    desk.until(lambda: [e for e in desk.events if isinstance(e, Degraded)])
    desk.until(lambda: [e for e in desk.events if isinstance(e, ConditionRecovered)])
    notify(publisher, "one", task("again"))
    assert desk.until(desk.queued) == ["again"]


def test_a_server_that_is_not_there_is_tried_again(
    tmp_path: Path, lonely_postgres: Postgres
) -> None:
    lonely_postgres.server.stop()
    desk = Desk(tmp_path, settings(lonely_postgres))
    assert [type(event) for event in desk.events] == [Degraded]
    lonely_postgres.server.start()
    desk.until(lambda: [e for e in desk.events if isinstance(e, ConditionRecovered)])
    desk.close()


def test_an_idle_connection_is_asked_whether_it_stands(tmp_path: Path, postgres: Postgres) -> None:
    desk = Desk(tmp_path, settings(postgres, idle_seconds=0.02))
    broker = desk.ingress.brokers[0]
    desk.until(lambda: broker.status()["broker_self_check"]["success_count"] >= 3)
    assert desk.events == []
    desk.close()


def test_a_full_queue_leaves_notifications_with_the_server(
    tmp_path: Path, postgres: Postgres, publisher: psycopg.Connection
) -> None:
    desk = Desk(tmp_path, settings(postgres), bytes_max=30_000)
    notify(publisher, "one", task("first", args=["x" * 7000]))
    desk.until(desk.queued)
    for number in range(20):
        notify(publisher, "one", task(f"n{number}", args=["x" * 7000]))
    done: list[str] = []
    while len(done) < 21:
        desk.turn()
        assert len(desk.queued()) <= 21
        for job in desk.source.take(2, ()).jobs:
            desk.ingress.queue.ended(job.issue_id)
            done.append(job.issue_id)
    assert done == ["first", *(f"n{number}" for number in range(20))]
    desk.close()
