"""Messages of workers: the examples of the text, and what they are in our words."""

from __future__ import annotations

from typing import Any

import pytest

from beads_workers.core.base.framing import ProtocolError
from beads_workers.integrations.dispatcherd import wire

UUID = "9760671a-6261-45aa-881a-f66929ff9725"
DONE = {
    "worker": 3,
    "event": "done",
    "result": None,
    "uuid": UUID,
    "time_started": 1744992973.5737305,
    "time_finish": 1744992980.0253727,
}
EXITED = DONE | {"result": "<exit>", "is_stopping": True}
CONTROL = {"worker": 3, "event": "control", "command": "running", "control_data": {}}


@pytest.mark.parametrize(
    ("example", "meant"),
    [
        ({"worker": 3, "event": "ready"}, wire.WorkerReady(3)),
        (DONE, wire.TaskDone(3, UUID, 1744992973.5737305, 1744992980.0253727)),
        (EXITED, wire.TaskDone(3, UUID, 1744992973.5737305, 1744992980.0253727, "<exit>", True)),
        (CONTROL, wire.ControlAction(3, "running")),
        ({"worker": 3, "event": "shutdown"}, wire.WorkerShutdown(3)),
    ],
)
def test_the_examples_of_the_text_are_read(example: dict[str, Any], meant: wire.FromWorker) -> None:
    assert wire.from_worker_fields(example) == meant


def test_a_request_without_data_has_empty_data() -> None:
    without = {key: value for key, value in CONTROL.items() if key != "control_data"}
    assert wire.from_worker_fields(without) == wire.ControlAction(3, "running")


def test_an_error_is_an_additive_key() -> None:
    failed = wire.from_worker_fields(DONE | {"error": "ValueError: no"})
    assert isinstance(failed, wire.TaskDone) and failed.error == "ValueError: no"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"event": "ready"}, "no worker"),
        ({"worker": True, "event": "ready"}, "no worker"),
        ({"worker": 3}, "unknown event 'None'"),
        (DONE | {"uuid": 5}, "no uuid"),
        (DONE | {"time_finish": "later"}, "no time_started or time_finish"),
        (CONTROL | {"control_data": []}, "control_data is no object"),
        (CONTROL | {"command": ""}, "no command"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        wire.from_worker_fields(wrong)
