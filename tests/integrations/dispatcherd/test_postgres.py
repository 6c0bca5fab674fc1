"""The broker on PostgreSQL: listened to and replied to without waiting, whatever becomes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from beads_workers.core.schedule.events import ConditionRecovered, Degraded
from beads_workers.integrations.dispatcherd.configuration import Brokers
from beads_workers.integrations.dispatcherd.configuration import Postgres as Settings
from beads_workers.integrations.dispatcherd.wire import POSTGRES_BYTES_MAX
from beads_workers.integrations.dispatcherd.wire_chunks import ChunkAccumulator
from tests.integrations.dispatcherd.stepped_ingress import SteppedIngress, control, task
from tests.support.postgres import Postgres

CHANNELS = ("one", 'a "strange" näme')


def settings(postgres: Postgres, **more: Any) -> Brokers:
    return Brokers(postgres=(Settings({"conninfo": postgres.conninfo}, CHANNELS, **more),))


@pytest.fixture
def stepped(tmp_path: Path, postgres: Postgres) -> Iterator[SteppedIngress]:
    made = SteppedIngress(tmp_path, settings(postgres))
    yield made
    made.close()


@pytest.fixture
def publisher(postgres: Postgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
        yield connection


def notify(publisher: psycopg.Connection, channel: str, message: bytes) -> None:
    publisher.execute("SELECT pg_notify(%s, %s)", (channel, message.decode()))


def test_every_channel_is_heard(stepped: SteppedIngress, publisher: psycopg.Connection) -> None:
    for number, channel in enumerate(CHANNELS):
        notify(publisher, channel, task(f"é{number}"))
    notify(publisher, "another", task("another"))
    stepped.until(lambda: len(stepped.queued()) == 2)
    assert stepped.queued() == ["é0", "é1"]
    assert [e.channel for e in stepped.ingress.queue.untaken()] == list(CHANNELS)


def test_a_reply_goes_to_its_channel_in_chunks_that_postgres_takes(
    stepped: SteppedIngress, publisher: psycopg.Connection
) -> None:
    publisher.execute("LISTEN back")
    notify(publisher, "one", control("status", "back"))
    _, reply = stepped.until(lambda: stepped.asked)[0]
    answer = {"text": 'é"' * 20_000}
    reply(answer)
    accumulator, whole = ChunkAccumulator(), None
    while whole is None:
        stepped.turn()
        for notification in publisher.notifies(timeout=0.05):
            assert len(notification.payload.encode()) <= POSTGRES_BYTES_MAX
            _, whole, _ = accumulator.ingest_dict(json.loads(notification.payload))
    assert whole == answer
    assert stepped.warnings() == []


def test_what_is_no_channel_gets_no_reply(
    stepped: SteppedIngress, publisher: psycopg.Connection
) -> None:
    notify(publisher, "one", control("alive", "x" * 64))
    _, reply = stepped.until(lambda: stepped.asked)[0]
    reply({})
    stepped.turn()
    assert "is no channel to reply to" in stepped.warnings()[0]
    notify(publisher, "one", task("good"))
    assert stepped.until(stepped.queued) == ["good"]


def test_a_connection_that_is_ended_is_made_again(
    stepped: SteppedIngress, publisher: psycopg.Connection
) -> None:
    others = "pid <> pg_backend_pid() AND datname = current_database()"
    publisher.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    stepped.until(lambda: [e for e in stepped.events if isinstance(e, Degraded)])
    stepped.until(lambda: [e for e in stepped.events if isinstance(e, ConditionRecovered)])
    notify(publisher, "one", task("again"))
    assert stepped.until(stepped.queued) == ["again"]


def test_a_server_that_is_not_there_is_tried_again(
    tmp_path: Path, lonely_postgres: Postgres
) -> None:
    lonely_postgres.server.stop()
    stepped = SteppedIngress(tmp_path, settings(lonely_postgres))
    assert [type(event) for event in stepped.events] == [Degraded]
    lonely_postgres.server.start()
    stepped.until(lambda: [e for e in stepped.events if isinstance(e, ConditionRecovered)])
    stepped.close()


def test_an_idle_connection_is_asked_whether_it_stands(tmp_path: Path, postgres: Postgres) -> None:
    stepped = SteppedIngress(tmp_path, settings(postgres, idle_seconds=0.02))
    broker = stepped.ingress.brokers[0]
    stepped.until(lambda: broker.status()["broker_self_check"]["success_count"] >= 3)
    assert stepped.events == []
    stepped.close()


def test_a_full_queue_leaves_notifications_with_the_server(
    tmp_path: Path, postgres: Postgres, publisher: psycopg.Connection
) -> None:
    stepped = SteppedIngress(tmp_path, settings(postgres), bytes_max=30_000)
    notify(publisher, "one", task("first", args=["x" * 7000]))
    stepped.until(stepped.queued)
    for number in range(20):
        notify(publisher, "one", task(f"n{number}", args=["x" * 7000]))
    done: list[str] = []
    while len(done) < 21:
        stepped.turn()
        assert len(stepped.queued()) <= 21
        for job in stepped.source.take(2, ()).jobs:
            stepped.ingress.queue.ended(job.issue_id)
            done.append(job.issue_id)
    assert done == ["first", *(f"n{number}" for number in range(20))]
    stepped.close()
