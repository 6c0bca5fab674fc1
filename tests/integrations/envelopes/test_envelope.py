"""The job envelope: the four examples of its text, and what breaks its contract."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.framing import ProtocolError
from beads_workers.integrations.envelopes import wire

START = {
    "job_id": "job-123",
    "job_path": "backend.workers.tasks.worker_heartbeat",
    "args": [],
    "kwargs": {"timestamp": 1672531200},
}
ENQUEUED = START | {"state": "enqueued", "ts_enqueued": 1672531200}
RUNNING = START | {"state": "running", "ts_enqueued": 1672531200, "ts_started": 1672531201}
DONE = START | {
    "state": "done",
    "ts_enqueued": 1672531200,
    "ts_started": 1672531201,
    "ts_finished": 1672531205,
}
ERROR = START | {
    "state": "error",
    "ts_enqueued": 1672531200,
    "ts_started": 1672531201,
    "ts_finished": 1672531202,
    "error": "Timeout talking to worker",
}
EXAMPLES = [ENQUEUED, RUNNING, DONE, ERROR]


def made(state: wire.JobState, **more: Any) -> wire.Envelope:
    return wire.Envelope(
        job_id="job-123",
        job_path="backend.workers.tasks.worker_heartbeat",
        kwargs={"timestamp": 1672531200},
        state=state,
        ts_enqueued=1672531200,
        **more,
    )


@pytest.mark.parametrize(
    ("envelope", "example"),
    [
        (made(wire.JobState.ENQUEUED), ENQUEUED),
        (made(wire.JobState.RUNNING, ts_started=1672531201), RUNNING),
        (made(wire.JobState.DONE, ts_started=1672531201, ts_finished=1672531205), DONE),
        (
            made(
                wire.JobState.ERROR,
                ts_started=1672531201,
                ts_finished=1672531202,
                error="Timeout talking to worker",
            ),
            ERROR,
        ),
    ],
)
def test_the_examples_of_the_text_come_out_with_their_keys_in_order(
    envelope: wire.Envelope, example: dict[str, Any]
) -> None:
    assert json.dumps(wire.to_fields(envelope)) == json.dumps(example)
    assert wire.from_fields(example) == envelope


@pytest.mark.parametrize("example", EXAMPLES)
def test_unknown_keys_and_nulls_of_optional_ones_are_tolerated(example: dict[str, Any]) -> None:
    null = {"ts_started": None, "ts_finished": None, "error": None, "attempt": None}
    lean = {k: v for k, v in example.items() if k not in null}
    if example["state"] != "error":
        assert wire.from_fields(lean | null) == wire.from_fields(lean)
    later = example | {"enqueued_at": "2023-01-01T00:00:00Z", "later": [1]}
    assert replace(wire.from_fields(later), extra={}) == wire.from_fields(example)
    assert json.dumps(wire.to_fields(wire.from_fields(later))) == json.dumps(later)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"job_id": ""}, "job_id"),
        ({"job_id": 7}, "job_id"),
        ({"job_path": None}, "job_path"),
        ({"args": None}, "args"),
        ({"args": {}}, "args"),
        ({"kwargs": []}, "kwargs"),
        ({"kwargs": None}, "kwargs"),
        ({"state": "queued"}, "state"),
        ({"state": ["done"]}, "state"),
        ({"state": None}, "state"),
        ({"ts_enqueued": None}, "ts_enqueued"),
        ({"ts_enqueued": 1672531200.5}, "ts_enqueued"),
        ({"ts_enqueued": True}, "ts_enqueued"),
        ({"ts_started": "2023-01-01T00:00:00Z"}, "ts_started"),
        ({"ts_finished": []}, "ts_finished"),
        ({"error": 1}, "error"),
        ({"error": "it did not fail"}, "error"),
        ({"state": "error"}, "error"),
        ({"attempt": 0}, "attempt"),
        ({"reason": ""}, "reason"),
        ({"result_file": 1}, "result_file"),
        ({"omitted": "args"}, "omitted"),
        ({"omitted": [1]}, "omitted"),
        ({"next_retry_at": -1}, "next_retry_at"),
        ({"ts_enqueued": 1e300}, "ts_enqueued"),
    ],
)
def test_what_breaks_the_contract_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ProtocolError, match=f"^{named}:"):
        wire.from_fields(ENQUEUED | change)


@pytest.mark.parametrize("name", [*START, "state", "ts_enqueued"])
def test_no_required_field_may_be_missing(name: str) -> None:
    with pytest.raises(ProtocolError, match=f"^{name}:"):
        wire.from_fields({k: v for k, v in ENQUEUED.items() if k != name})


SECONDS = st.integers(0, 4_000_000_000)
STATES = st.sampled_from([s for s in wire.JobState if s is not wire.JobState.ERROR])
VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())


@given(
    st.builds(
        wire.Envelope,
        job_id=st.text(min_size=1),
        job_path=st.text(min_size=1),
        state=STATES,
        ts_enqueued=SECONDS,
        args=st.lists(VALUES).map(tuple),
        kwargs=st.dictionaries(st.text(), VALUES),
        ts_started=st.none() | SECONDS,
        ts_finished=st.none() | SECONDS,
        attempt=st.none() | st.integers(1, 9),
        next_retry_at=st.none() | SECONDS,
        reason=st.none() | st.text(min_size=1),
        result=VALUES,
        result_file=st.none() | st.text(min_size=1),
        omitted=st.lists(st.sampled_from(["args", "kwargs"])).map(tuple),
        extra=st.dictionaries(st.text().filter(lambda key: key not in wire.KNOWN), VALUES),
    )
)
def test_what_is_written_is_read_back(envelope: wire.Envelope) -> None:
    assert wire.from_fields(json.loads(json.dumps(wire.to_fields(envelope)))) == envelope
