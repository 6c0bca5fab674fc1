"""HEARTBEAT, STATUS, PAUSE and RESUME, PRIORITY, BATCH: what goes over the wire, byte for byte."""

from __future__ import annotations

import json

import pytest

from beads_workers.core.base import wire
from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId

HEAD = '"worker_id":"W1","timestamp":12.500000,"version":"1.1"'
ISSUE = IssueId("a")


def written(message: wire.Message) -> str:
    """The line of a message as 1.1 has it."""
    return wire.encode(message, "W1", 12.5, v1=False).decode()


def read(kind: str, **fields: object) -> wire.Message:
    """A message of this type from a peer."""
    head = {"type": kind, "worker_id": "W1", "timestamp": 1, "version": "1.1"}
    return wire.parse(json.dumps(head | fields).encode())


@pytest.mark.parametrize(
    ("message", "kind", "more"),
    [
        (wire.Heartbeat(), "HEARTBEAT", ""),
        (wire.StatusAsked(), "STATUS", ""),
        (wire.Status("idle"), "STATUS", ',"state":"idle"'),
        (
            wire.Status("busy", ISSUE, "r", "compiles", wire.Resources(1024, 2.5)),
            "STATUS",
            ',"state":"busy","issue_id":"a","request_id":"r","activity":"compiles"'
            ',"resources":{"rss_bytes":1024,"cpu_seconds":2.5}',
        ),
        (wire.Pause(), "PAUSE", ""),
        (wire.Pause("lunch"), "PAUSE", ',"reason":"lunch"'),
        (wire.Resume(), "RESUME", ""),
        (wire.Priority(), "PRIORITY", ""),
        (wire.Priority(frozenset()), "PRIORITY", ',"priorities":[]'),
        (
            wire.Priority(frozenset({1, 0}), frozenset({"b", "a"}), frozenset({"bug"})),
            "PRIORITY",
            ',"priorities":[0,1],"labels":["a","b"],"issue_types":["bug"]',
        ),
    ],
)
def test_it_is_written_with_what_it_has_to_say_and_read_as_it_is_written(
    message: wire.Message, kind: str, more: str
) -> None:
    assert written(message) == f'{{"type":"{kind}",{HEAD}{more}}}\n'
    assert wire.parse(written(message).encode()) == message


def test_a_batch_is_the_fields_of_tasks_from_the_issue_on() -> None:
    first = wire.Task(ISSUE, 2, "X", "long", "bug", ("x",), 3, 60.5, {"command": ["x"]}, None, "r1")
    second = wire.Task(IssueId("b"), 0, "Y", request_id="r2")
    line = written(wire.Batch((first, second)))
    assert line.startswith(f'{{"type":"BATCH",{HEAD},"tasks":[{{"issue_id":"a","priority":2,')
    alone = [json.loads(written(task)) for task in (first, second)]
    head = ("type", "worker_id", "timestamp", "version")
    assert json.loads(line)["tasks"] == [
        {name: value for name, value in task.items() if name not in head} for task in alone
    ]
    assert wire.parse(line.encode()) == wire.Batch((first, second))


def test_ready_announces_its_interval_and_its_batches_behind_what_it_prefetches() -> None:
    ready = wire.Ready("W1", "1.1", frozenset({"batch", "heartbeat"}), 3, 20.5, 10)
    assert written(ready).endswith(
        ',"features":["batch","heartbeat"],"prefetch_count":3,"heartbeat_seconds":20.5'
        ',"batch_size":10}\n'
    )
    assert wire.parse(written(ready).encode()) == ready
    assert wire.encode(ready, "W1", 12.5, v1=True) == wire.encode(
        wire.Ready("W1"), "W1", 12.5, v1=True
    )


@pytest.mark.parametrize(
    ("told", "kept"), [(1, 1), (300.0, 300), (0.9, None), (301, None), ("20", None), (True, None)]
)
def test_an_interval_out_of_its_range_announces_nothing(told: object, kept: float | None) -> None:
    ready = read("READY", heartbeat_seconds=told)
    assert isinstance(ready, wire.Ready) and ready.heartbeat_seconds == kept


@pytest.mark.parametrize(
    ("told", "kept"), [(2, 2), (100, 100), (101, 100), (1, 0), (-5, 0), (2.5, 0), (None, 0)]
)
def test_a_batch_has_two_tasks_at_least_and_a_hundred_at_most(told: object, kept: int) -> None:
    ready = read("READY", batch_size=told)
    assert isinstance(ready, wire.Ready) and ready.batch_size == kept


def test_of_a_status_only_its_state_has_to_make_sense() -> None:
    status = read(
        "STATUS",
        state="busy",
        issue_id=7,
        activity="x" * 300,
        resources={"rss_bytes": -1, "cpu_seconds": 3, "threads": 9},
    )
    assert status == wire.Status("busy", activity="x" * 200, resources=wire.Resources(None, 3.0))
    assert read("STATUS", state="paused", resources=[]) == wire.Status("paused")
    for state in ("asleep", None, ["busy"]):
        with pytest.raises(ProtocolError, match="none of idle, waiting, busy, paused"):
            read("STATUS", state=state)


@pytest.mark.parametrize(
    "fields",
    [
        {"priorities": [0, 5]},
        {"priorities": [True]},
        {"priorities": 1},
        {"labels": ["a", 1]},
        {"labels": "a"},
        {"issue_types": [None]},
        {"labels": ["x"] * 1001},
    ],
)
def test_a_priority_that_cannot_be_understood_is_refused_whole(fields: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        read("PRIORITY", **fields)


@pytest.mark.parametrize(
    "tasks",
    [None, [], {}, ["a"], [{"issue_id": "a"}], [{"issue_id": "a", "priority": 1, "title": ""}, {}]],
)
def test_a_batch_with_anything_that_is_no_task_is_refused_whole(tasks: object) -> None:
    with pytest.raises(ProtocolError):
        read("BATCH", tasks=tasks)
    with pytest.raises(ProtocolError, match="more than 100"):
        read("BATCH", tasks=[{"issue_id": "a", "priority": 1, "title": ""}] * 101)
