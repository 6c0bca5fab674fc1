"""What goes over the wire, byte for byte."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base import limits, wire
from beads_workers.core.base.model import IssueId, OutcomeKind

NOW = 1733423456.789
HEAD = b'"worker_id":"W1","timestamp":1733423456.789000'
ISSUE = IssueId("beads-workers-abc")
TASK = wire.Task(ISSUE, 2, "Implement feature X")


def written(message: wire.Message, *, v1: bool = True, worker_id: str = "W1") -> bytes:
    """The bytes of a message at the timestamp of the text's examples."""
    return wire.encode(message, worker_id, NOW, v1=v1)


# --- exact bytes of version 1: the fields of the text, all of them, no others, in its order ---


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (wire.Ready("W1", "1.1", frozenset({wire.GROUPED})), b'{"type":"READY",' + HEAD + b"}\n"),
        (
            wire.Done(ISSUE, duration_ms=15234, result={"x": 1}, result_file="/run/r.json"),
            b'{"type":"DONE",' + HEAD + b',"issue_id":"beads-workers-abc","duration_ms":15234}\n',
        ),
        (
            wire.Failed(ISSUE, "", "boom", 1234, OutcomeKind.RETRY, 5.0, "detail"),
            b'{"type":"FAILED",'
            + HEAD
            + b',"issue_id":"beads-workers-abc","error":"boom","duration_ms":1234}\n',
        ),
        (
            wire.Task(
                ISSUE, 2, "Feature X", "long", "bug", ("a",), 3, 60.0, {"command": ["x"]}, "/f"
            ),
            b'{"type":"TASK",'
            + HEAD
            + b',"issue_id":"beads-workers-abc","priority":2,"title":"Feature X"}\n',
        ),
        (wire.Wait(30), b'{"type":"WAIT",' + HEAD + b',"wait_seconds":30}\n'),
        (
            wire.Shutdown("user_requested"),
            b'{"type":"SHUTDOWN",' + HEAD + b',"reason":"user_requested"}\n',
        ),
    ],
)
def test_version_1_has_exactly_the_fields_of_the_text_in_its_order(
    message: wire.Message, expected: bytes
) -> None:
    assert written(message) == expected


@pytest.mark.parametrize("moment", [0.0, 1733423456.0, 1733423456.5, 1733423456.789])
def test_a_timestamp_has_three_decimals_at_least(moment: float) -> None:
    text = wire.encode(wire.Wait(1), "W1", moment, v1=True)
    number = text.split(b'"timestamp":')[1].split(b",")[0]
    assert len(number.split(b".")[1]) >= 3
    assert float(number) == moment


def test_a_message_is_one_line_of_ascii_whatever_the_title_holds() -> None:
    title = 'a"b\n\r\u2028\x1b[31m\x00 $(touch x) é 🐝 --help'
    text = written(wire.Task(ISSUE, 0, title))
    assert text.isascii() and text.count(b"\n") == 1 and text.endswith(b"\n")
    parsed = wire.parse(text)
    assert isinstance(parsed, wire.Task) and parsed.title == title


def test_a_duration_that_is_not_known_is_written_as_nought() -> None:
    assert b'"duration_ms":0}' in written(wire.Done(ISSUE))
    assert b'"duration_ms":0}' in written(wire.Failed(ISSUE))


# --- what 1.1 adds ----------------------------------------------------------------------------


def additions(message: wire.Message) -> dict[str, Any]:
    """The keys that a message has in 1.1 and has not in 1, but for its version."""
    more = json.loads(written(message, v1=False))
    fewer = json.loads(written(message))
    assert list(more)[: len(fewer) + 1] == [*fewer, "version"]
    assert more["version"] == "1.1"
    return {key: value for key, value in more.items() if key not in (*fewer, "version")}


def test_ready_announces_its_version_and_features_in_a_fixed_order() -> None:
    ready = wire.Ready("W1", "1.1", frozenset({wire.GROUPED, wire.CANCEL}))
    assert additions(ready) == {"features": ["cancel", "grouped"]}
    assert wire.parse(written(ready, v1=False)) == ready


def test_a_task_carries_the_whole_issue() -> None:
    task = wire.Task(ISSUE, 2, "X", "long", "bug", ("a", "b"), 3, 60.5, {"command": ["x", "y"]})
    assert additions(task) == {
        "description": "long",
        "issue_type": "bug",
        "labels": ["a", "b"],
        "attempt": 3,
        "timeout_seconds": 60.5,
        "payload": {"command": ["x", "y"]},
    }


def test_a_long_title_is_cut_and_whole_in_a_field_of_its_own() -> None:
    long = wire.Task(ISSUE, 2, "\N{SNOWMAN}" * limits.TITLE_CHARS_MAX)
    assert len(json.loads(written(long))["title"]) == limits.TITLE_CHARS_SHORT == 500
    assert len(written(long)) < 64 << 10
    assert len(written(long, v1=False)) < limits.LINE_BYTES_MAX
    more = additions(long)
    assert next(iter(more)) == "full_title" and more["full_title"] == long.title
    assert wire.parse(written(long, v1=False)) == long
    short = wire.Task(ISSUE, 2, "x" * limits.TITLE_CHARS_SHORT)
    assert "full_title" not in additions(short)


def test_a_task_says_who_claims_where_its_worker_has_not() -> None:
    assert additions(wire.Task(ISSUE, 2, "X", claims="worker"))["claims"] == "worker"
    assert "claims" not in additions(TASK)


@pytest.mark.parametrize(
    "message", [wire.Wait(1), wire.Shutdown("error"), wire.Cancel(ISSUE, "user")]
)
def test_every_message_of_1_1_says_so(message: wire.Message) -> None:
    assert json.loads(written(message, v1=False))["version"] == "1.1"


def test_a_task_names_the_file_instead_of_carrying_a_large_payload() -> None:
    task = wire.Task(ISSUE, 2, "X", payload={"issue": {}}, payload_file="/run/issues/1.json")
    assert additions(task)["payload_file"] == "/run/issues/1.json"
    assert "payload" not in additions(task)


def test_a_task_leaves_out_a_timeout_and_a_payload_that_it_has_not() -> None:
    assert set(additions(TASK)) == {"description", "issue_type", "labels", "attempt"}


def test_failed_says_how_it_ended() -> None:
    failed = wire.Failed(ISSUE, "", "boom", 5, OutcomeKind.RETRY, 30.0, "the log's end")
    assert additions(failed) == {
        "outcome": "retry",
        "retry_after_seconds": 30.0,
        "error_detail": "the log's end",
    }
    assert additions(wire.Failed(ISSUE)) == {"outcome": "error"}


def test_done_carries_a_result_only_where_there_is_one() -> None:
    assert additions(wire.Done(ISSUE, result={"x": [1]})) == {"result": {"x": [1]}}
    assert additions(wire.Done(ISSUE)) == {}
    assert additions(wire.Done(ISSUE, result_file="/run/r.json")) == {"result_file": "/run/r.json"}


def test_cancel_names_its_issue_and_reason() -> None:
    ending = b',"version":"1.1","issue_id":"beads-workers-abc","reason":"user"}\n'
    expected = b'{"type":"CANCEL",' + HEAD + ending
    assert written(wire.Cancel(ISSUE, "user"), v1=False) == expected
    assert wire.parse(expected) == wire.Cancel(ISSUE, "user")


# --- round trips ------------------------------------------------------------------------------

TEXT = st.text(max_size=30).filter(lambda text: "\0" not in text)
IDS = st.text(min_size=1, max_size=30).map(IssueId)
SENDERS = st.text(min_size=1, max_size=9)
MILLISECONDS = st.integers(0, limits.INTEGER_MAX)
SECONDS = st.floats(0.001, 86_400)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)  # fmt: skip
FAILURES = st.sampled_from(
    [k for k in OutcomeKind if k not in (OutcomeKind.SUCCESS, OutcomeKind.LOST)]
)
MESSAGES = st.one_of(
    st.builds(wire.Ready, SENDERS, st.just("1.1"), st.frozensets(SENDERS)),
    st.builds(wire.Done, IDS, st.just("W1"), MILLISECONDS, JSON),
    st.builds(
        wire.Failed, IDS, st.just("W1"), TEXT, MILLISECONDS, FAILURES, st.none() | SECONDS, TEXT
    ),
    st.builds(
        wire.Task,
        IDS,
        st.integers(0, 4),
        TEXT,
        TEXT,
        TEXT,
        st.lists(TEXT).map(tuple),
        st.integers(1, 99),
        st.none() | SECONDS,
        st.dictionaries(TEXT, JSON, max_size=3),
    ),
    st.builds(wire.Wait, st.integers(1, 3600)),
    st.builds(wire.Shutdown, TEXT),
    st.builds(wire.Cancel, IDS, TEXT),
)


@given(message=MESSAGES)
def test_what_is_written_in_1_1_is_read_back_the_same(message: wire.Message) -> None:
    sender = message.worker_id if isinstance(message, wire.Ready) else "W1"
    assert wire.parse(written(message, v1=False, worker_id=sender)) == message


@given(message=MESSAGES)
def test_what_is_written_in_1_can_always_be_read(message: wire.Message) -> None:
    assert type(wire.parse(written(message))) is type(message)


def test_written_numbers_are_finite() -> None:
    value = json.loads(written(wire.Failed(ISSUE, retry_after_seconds=0.1), v1=False))
    assert math.isfinite(value["retry_after_seconds"])
