"""The ingress: on file first, whatever happens to the disk; and what it tells who answers."""

from __future__ import annotations

import json
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.schedule.events import Arrived, TaskFilter
from beads_workers.integrations.dispatcherd import ingress as module
from beads_workers.integrations.dispatcherd.configuration import Brokers, Produced
from beads_workers.integrations.dispatcherd.control import Service
from tests.integrations.dispatcherd.stepped_ingress import SteppedIngress, control, task


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[SteppedIngress]:
    made = SteppedIngress(tmp_path, Brokers(node_id="node"))
    yield made
    made.close()


def nowhere(reply_to: str) -> Callable[[str], None]:
    """Whoever sent it is not there."""
    return lambda text: None


def bring(stepped: SteppedIngress, *messages: bytes) -> None:
    for message in messages:
        stepped.ingress.receive(message, "channel", nowhere)


def test_what_was_read_is_told_when_it_is_on_file_and_not_before(stepped: SteppedIngress) -> None:
    bring(stepped, task("a"), task("b"))
    assert (stepped.queued(), stepped.filed(), stepped.events) == ([], [], [])
    stepped.turn()
    assert stepped.queued() == stepped.filed() == ["a", "b"]
    assert stepped.events == [Arrived()]


def test_a_full_disk_holds_up_what_was_read_until_there_is_room(
    stepped: SteppedIngress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DISK_RETRY_SECONDS", 0.0)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        bring(stepped, task("a"))
        stepped.turn()
        stepped.turn()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert stepped.queued() == stepped.filed() == []
    assert ["nothing is read" in text for text in stepped.warnings()] == [True]
    stepped.turn()
    assert stepped.queued() == stepped.filed() == ["a"]


def test_wrong_messages_are_told_but_not_without_end(stepped: SteppedIngress) -> None:
    bring(stepped, *(b"nonsense %d" % number for number in range(1000)))
    told = stepped.warnings()
    assert len(told) == module.WARNINGS_MAX
    assert "not JSON" in told[0] and "more of this is not shown" in told[-1]


def test_what_is_refused_is_counted_where_it_is_not_shown_too(
    stepped: SteppedIngress, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(stepped, *(b"nonsense %d" % number for number in range(1000)), task("a"))
    service = Service()
    stepped.ingress.describe(service)
    assert service.refused == 1000
    stepped.turn()
    assert stepped.told_refused() == module.WARNINGS_MAX
    monkeypatch.setattr(module, "WARNINGS_SECONDS", 0.0)
    assert stepped.ingress.deadline() <= time.monotonic()
    stepped.turn()
    assert stepped.told_refused() == 1000
    assert stepped.warnings()[-1] == "dispatcherd: 980 more messages were refused"


def test_whoever_asks_may_find_and_cancel_what_nobody_has_taken(stepped: SteppedIngress) -> None:
    bring(stepped, task("a"), task("b", delay=60), task("c", args=[1]), task("d", task="x.y"))
    stepped.turn()
    assert [job.issue_id for job in stepped.source.take(1, ()).jobs] == ["a"]
    found = list(stepped.ingress.find(TaskFilter({"task": "a.b"})))
    assert {(f.key, f.place) for f in found} == {("b", "delayed"), ("c", "queued")}
    assert found[0].message["channel"] == "channel"
    stepped.ingress.cancel(f.key for f in found)
    stepped.turn()
    assert stepped.queued() == ["d"]
    assert stepped.filed() == ["a", "d"]


def test_a_task_may_be_handed_in_by_whoever_asks(stepped: SteppedIngress) -> None:
    assert stepped.ingress.submit({"task": "a.b", "uuid": "handed in"}) == ""
    assert stepped.queued() == stepped.filed() == ["handed in"]
    assert "lambda" in stepped.ingress.submit({"task": "lambda: 1"})
    assert stepped.ingress.submit({"control": "run"}) == "a control request is no task"


def test_it_says_what_it_has_received(stepped: SteppedIngress) -> None:
    bring(stepped, task("a"), control("alive"))
    service = Service()
    stepped.ingress.describe(service)
    assert (service.received, service.chunks) == (1, [stepped.ingress.chunks])
    assert stepped.ingress.node_id == "node"


def test_stale_chunks_are_dropped_in_time(tmp_path: Path) -> None:
    stepped = SteppedIngress(tmp_path, Brokers(chunk_seconds=0.05))
    chunk: dict[str, Any] = {"__dispatcherd_chunk__": "v1", "message_id": "m", "index": 0}
    bring(stepped, json.dumps(chunk | {"total": 2, "payload": "{"}).encode())
    stepped.until(lambda: stepped.ingress.chunks.timed_out_assemblies)
    assert stepped.ingress.deadline() == float("inf")
    stepped.close()


def test_a_file_that_is_mostly_over_is_begun_anew(
    stepped: SteppedIngress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beads_workers.integrations.dispatcherd.spool.ANEW_BYTES", 1000)
    for number in range(50):
        bring(stepped, task(f"n{number}"))
        stepped.turn()
        (job,) = stepped.source.take(1, ()).jobs
        stepped.ingress.queue.ended(IssueId(job.issue_id))
    stepped.turn()
    assert stepped.path.stat().st_size < 3000 and stepped.filed() == []


def test_producers_bring_tasks_at_the_start_and_again_and_again(tmp_path: Path) -> None:
    produced = (
        Produced({"task": "shop.warm"}),
        Produced({"task": "shop.tell", "args": [1]}),
        Produced({"task": "shop.clean"}, 0.05),
    )
    made = SteppedIngress(tmp_path, Brokers(produced=produced))
    made.turn()
    assert made.filed() == ["on-start-0", "on-start-1"]
    made.until(lambda: len(made.queued()) >= 5)
    assert made.queued()[:5] == ["on-start-0", "on-start-1", "sch-1", "sch-2", "sch-3"]
    tasks = [found.message for found in made.ingress.find(TaskFilter())]
    assert [(each["task"], each.get("args")) for each in tasks[:2]] == [
        ("shop.warm", None),
        ("shop.tell", [1]),
    ]
    service = Service()
    made.ingress.describe(service)
    assert service.producers["OnStartProducer"]["produced_count"] == 2
    assert service.producers["ScheduledProducer"]["produced_count"] >= 3
    made.ingress.stop_accepting()
    count = len(made.queued())
    for _ in range(20):
        made.turn()
    assert len(made.queued()) == count
    made.close()
