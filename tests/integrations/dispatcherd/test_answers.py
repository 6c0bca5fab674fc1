"""The shapes of the answers to dispatcherd's control commands."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.schedule.commands import FoundTask, FoundTasks
from beads_workers.core.views.snapshot import Board
from beads_workers.integrations.dispatcherd import control
from beads_workers.integrations.dispatcherd.control import Scene, Service, answer_to
from beads_workers.integrations.dispatcherd.wire_chunks import ChunkAccumulator, split_message

ADD = {"uuid": "u1", "task": "shop.add"}
STARTED = rec.Started("u1", "W1", 1, "r.1", "shop.add", 2)


def scene(
    *tasks: FoundTask,
    records: tuple[rec.Record, ...] = (),
    service: Service | None = None,
    cancelling: frozenset[str] = frozenset(),
) -> Scene:
    """A run of two seconds with these records."""
    board = Board()
    run = rec.RunStarted("run-1", 77, "actor/run-1", "bd", "/project", workers=1)
    for number, record in enumerate((run, *records)):
        board.apply(Entry(record, 1000.0 + number / 10, number / 10))
    return Scene(board, 2.0, 50.0, service or Service(), FoundTasks(tasks, cancelling))


def ask(command: str, at: Scene, **data: Any) -> dict[str, Any]:
    """The answer."""
    return answer_to(command, data, at)


def test_tasks_are_numbered_within_their_places_and_by_their_workers() -> None:
    found = [
        FoundTask("d", "delayed", {"uuid": "d"}),
        FoundTask("q1", "queued", {"uuid": "q1"}),
        FoundTask("b", "blocked", {"uuid": "b"}),
        FoundTask("w", "worker", ADD, "W12"),
        FoundTask("s", "worker", ADD, "W1.2"),
        FoundTask("q2", "queued", {"uuid": "q2"}),
    ]
    shown = ask("running", scene(*found))
    assert list(shown) == [
        "worker-12",
        "worker-1.2",
        "blocked-0",
        "queued-0",
        "queued-1",
        "delayed-0",
    ]
    assert shown["queued-1"] == {"uuid": "q2"}
    assert ask("cancel", scene(*found)) == shown


def test_what_waits_in_an_ingress_is_shown_with_the_rest_and_counted_without_a_look() -> None:
    at = scene(FoundTask("w", "worker", ADD, "W1"), service=Service(queued=7))
    waiting = (FoundTask("b", "blocked", ADD), FoundTask("q", "queued", ADD))
    shown = ask("running", replace(at, waiting=waiting))
    assert list(shown) == ["worker-1", "blocked-0", "queued-0"]
    assert ask("main", at)["pool"]["active_task_ct"] == 1 + 7


def test_what_would_not_fit_a_connection_is_counted() -> None:
    long = {"uuid": "u", "args": ["x" * (control.TASKS_BYTES_MAX // 3)]}
    found = [FoundTask(str(n), "queued", long) for n in range(5)]
    shown = ask("running", scene(*found))
    assert list(shown) == ["queued-0", "queued-1", "not-shown"]
    assert shown["not-shown"] == {"count": 3}


def test_a_worker_has_the_keys_of_the_real_one() -> None:
    joined = (rec.WorkerStarted("W1", 5), rec.WorkerJoined("W1", 5, "W1", True, "1.1", 0), STARTED)
    at = scene(FoundTask("u1", "worker", ADD, "W1"), records=joined, cancelling=frozenset({"W1"}))
    assert ask("workers", at) == {
        "worker-1": {
            "worker_id": 1,
            "pid": 5,
            "status": "ready",
            "finished_count": 0,
            "current_task": "shop.add",
            "current_task_uuid": "u1",
            "active_cancel": True,
            "age": 1.9,
        }
    }


def test_attempts_are_counted_for_the_pool_and_for_each_worker() -> None:
    ends = [
        rec.Finished("u1", "W1", 1, "r.1", outcome, verdict, "", 5)
        for outcome, verdict in (
            ("success", "finish"),
            ("error", "requeue"),
            ("cancelled", "requeue"),
        )
    ]
    at = scene(
        FoundTask("w", "worker", ADD, "W1"),
        FoundTask("q", "queued", ADD),
        FoundTask("d", "delayed", ADD),
        records=(rec.WorkerStarted("W1", 5), STARTED, *ends, STARTED),
        service=Service(controls=3, received=10, refused=4),
    )
    assert ask("main", at) == {
        "received_count": 13,
        "control_count": 3,
        "refused_count": 4,
        "pid": 77,
        "pool": {
            "next_worker_id": 2,
            "finished_count": 2,
            "canceled_count": 1,
            "retirement_count": 0,
            "worker_ct": 1,
            "running_ct": 1,
            "active_task_ct": 2,
            "usage": {"count": 0, "top5": {}, "near_worker_ct": {}},
        },
    }
    assert ask("workers", at)["worker-1"]["finished_count"] == 3


def test_what_was_received_is_what_was_claimed_where_nothing_sends() -> None:
    claimed = rec.Claimed("a", "title", 2)
    assert ask("main", scene(records=(claimed,)))["received_count"] == 1


def test_the_source_is_a_producer_unless_brokers_are() -> None:
    made = {"produced_count": 0, "uptime_seconds": 2.0, "recycle_count": 0}
    assert ask("producers", scene()) == {"bd-producer": made}
    service = Service(producers={"socket-producer": {"produced_count": 4}})
    assert ask("producers", scene(service=service)) == service.producers


def test_the_server_of_figures_is_enabled_or_not() -> None:
    assert ask("metrics", scene()) == {"enabled": False}
    service = Service(metrics={"port": 9})
    assert ask("metrics", scene(service=service)) == {"enabled": True, "status": {"port": 9}}


def test_pieces_of_all_that_listens_are_told() -> None:
    first, second = ChunkAccumulator(), ChunkAccumulator()
    parts = split_message("x" * 300, max_bytes=200, message_id="ab")
    first.ingest_dict(json.loads(parts[1]), 48.0)
    second.ingest_dict({"__dispatcherd_chunk__": "v9"}, 49.0)
    shown = ask("chunks", scene(service=Service(chunks=[first, second])))
    assert shown["status"] == {
        "total_chunks_received": 2,
        "successful_assemblies": 0,
        "errored_assemblies": 1,
        "timed_out_assemblies": 0,
        "active_messages": 1,
    }
    length = len(json.loads(parts[1])["payload"])
    assert shown["partials"] == {
        "ab": {
            "seconds_since_start": 2.0,
            "expected_total": len(parts),
            "chunks": [{"chunk_id": 1, "length": length}],
        }
    }


def test_status_holds_every_answer_that_changes_nothing() -> None:
    at = scene(FoundTask("w", "worker", ADD, "W1"))
    shown = ask("status", at)
    names = ["running", "aio_tasks", "workers", "producers", "metrics", "main", "chunks"]
    assert list(shown) == names
    assert shown == {name: ask(name, at) for name in names}


def test_alive_and_aio_tasks_have_nothing_to_say() -> None:
    assert ask("alive", scene()) == {} == ask("aio_tasks", scene())


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("INFO", "INFO"),
        (" debug ", "DEBUG"),
        ("warn", "WARNING"),
        (30, "WARNING"),
        (15, "Level 15"),
    ],
)
def test_a_level_is_remembered_and_told(level: object, shown: str) -> None:
    at = scene()
    told = ask("set_log_level", at, level=level)
    assert told == {"logger": "dispatcherd", "level": shown, "previous_level": "NOTSET"}
    assert ask("set_log_level", at, level="ERROR")["previous_level"] == shown


@pytest.mark.parametrize("level", ["loud", "", None, True, 1.5])
def test_what_is_no_level_is_an_error(level: object) -> None:
    at = scene()
    assert list(ask("set_log_level", at, level=level)) == ["error"]
    assert ask("set_log_level", at, level="INFO")["previous_level"] == "NOTSET"


@pytest.mark.parametrize("command", ["nothing", "__class__", "tasks", ""])
def test_any_other_command_is_an_error(command: str) -> None:
    assert ask(command, scene()) == {"error": f"No control method {command}"}
