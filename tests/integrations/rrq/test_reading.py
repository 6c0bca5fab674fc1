"""Envelopes: every field of the text read and written, in both versions; what is wrong is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.framing import ProtocolError
from beads_workers.integrations.rrq import wire

CONTEXT = {
    "job_id": "j",
    "attempt": 1,
    "enqueue_time": "2025-01-01T12:00:00Z",
    "queue_name": "default",
    "deadline": "2025-01-01T12:05:00.123456789Z",
    "trace_context": {"traceparent": "00-a-b-01"},
    "worker_id": "rrq_worker_123",
}
REQUEST = {
    "protocol_version": "1",
    "request_id": "r",
    "job_id": "j",
    "function_name": "my_handler",
    "args": [1, "two"],
    "kwargs": {"flag": True},
    "context": CONTEXT,
}
REQUEST_2 = {k: v for k, v in REQUEST.items() if k not in ("args", "kwargs")} | {
    "protocol_version": "2",
    "params": {"flag": True},
}
OUTCOME = {"job_id": "j", "request_id": "r", "status": "success", "result": {"ok": True}}
CANCEL = {"protocol_version": "1", "job_id": "j"}


def of(kind: str, payload: object) -> bytes:
    return json.dumps({"type": kind, "payload": payload}).encode()


def test_a_request_of_version_1_has_every_field_of_the_text() -> None:
    assert wire.parse(of("request", REQUEST)) == wire.Request(
        request_id="r",
        job_id="j",
        function_name="my_handler",
        context=wire.RequestContext(
            job_id="j",
            attempt=1,
            enqueue_time=1735732800.0,
            queue_name="default",
            deadline=1735733100.123456,
            trace_context={"traceparent": "00-a-b-01"},
            worker_id="rrq_worker_123",
        ),
        args=(1, "two"),
        kwargs={"flag": True},
        protocol_version=wire.V1,
    )


def test_params_of_version_2_are_keyword_arguments() -> None:
    request = wire.parse(of("request", REQUEST_2))
    assert isinstance(request, wire.Request)
    assert (request.args, request.kwargs) == ((), {"flag": True})


def test_optional_fields_may_be_missing_or_null() -> None:
    context = {k: v for k, v in CONTEXT.items() if k not in ("deadline", "worker_id")}
    lean = REQUEST | {"context": context | {"trace_context": None}, "args": None}
    del lean["kwargs"]
    request = wire.parse(of("request", lean | {"later": "ignored"}))
    assert isinstance(request, wire.Request)
    assert (request.args, request.kwargs) == ((), {})
    assert request.context == wire.RequestContext("j", 1, 1735732800.0, "default")


def test_a_request_of_an_unknown_version_can_be_answered() -> None:
    request = wire.parse(of("request", REQUEST | {"protocol_version": "3", "args": "whatever"}))
    assert isinstance(request, wire.Request)
    assert (request.protocol_version, request.request_id) == ("3", "r")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"function_name": ""}, "no function_name"),
        ({"protocol_version": None}, "no protocol_version"),
        ({"args": {}}, "args is no array"),
        ({"kwargs": []}, "kwargs is no object"),
        ({"context": []}, "context is no object"),
        ({"context": None}, "context.attempt is no number from 1 on"),
        ({"context": CONTEXT | {"attempt": 0}}, "context.attempt is no number from 1 on"),
        ({"context": CONTEXT | {"attempt": True}}, "context.attempt is no number from 1 on"),
        ({"context": CONTEXT | {"enqueue_time": None}}, "no context.enqueue_time"),
        ({"context": CONTEXT | {"queue_name": 1}}, "no context.queue_name"),
        ({"context": CONTEXT | {"deadline": 5}}, "context.deadline is no text"),
        ({"context": CONTEXT | {"trace_context": {"a": 1}}}, "trace_context holds more than texts"),
        ({"context": CONTEXT | {"worker_id": 1}}, "context.worker_id is no text"),
    ],
)
def test_a_wrong_request_names_the_field_and_whom_to_tell(change: Any, reason: str) -> None:
    with pytest.raises(wire.WrongRequest, match=reason) as caught:
        wire.parse(of("request", REQUEST | change))
    assert (caught.value.request_id, caught.value.job_id) == ("r", "j")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"[]", "not a JSON object"),
        (b"{", "not JSON"),
        (b'"\xff"', "not JSON"),
        (of("request", None), "no payload object"),
        (of("hello", {}), "unknown envelope type 'hello'"),
        (b'{"type": ["request"], "payload": {}}', "unknown envelope type"),
        (of("request", REQUEST | {"request_id": 1}), "no request_id"),
        (of("request", REQUEST | {"job_id": ""}), "no job_id"),
        (of("response", OUTCOME | {"status": "done"}), "unknown status 'done'"),
        (of("response", OUTCOME | {"status": []}), "unknown status"),
        (of("response", OUTCOME | {"request_id": 1}), "request_id is no text"),
        (of("response", OUTCOME | {"error": "x"}), "error is no object"),
        (of("response", OUTCOME | {"error": {}}), "error.message is no text"),
        (of("response", OUTCOME | {"error": {"message": "", "details": 1}}), "error.details"),
        (of("response", OUTCOME | {"retry_after_seconds": -1}), "retry_after_seconds"),
        (of("response", OUTCOME | {"retry_after_seconds": "5"}), "retry_after_seconds"),
        (of("cancel", CANCEL | {"job_id": None}), "no job_id"),
        (of("cancel", CANCEL | {"hard_kill": "yes"}), "hard_kill"),
    ],
)
def test_what_nobody_can_be_told_of_is_an_error(payload: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason) as caught:
        wire.parse(payload)
    assert not isinstance(caught.value, wire.WrongRequest)


def test_an_outcome_has_every_field_of_the_text() -> None:
    error = {"message": "m", "type": "handler_not_found", "code": "c", "details": {"any": [1]}}
    fields = OUTCOME | {"status": "retry", "error": error, "retry_after_seconds": 2.5}
    assert wire.parse(of("response", fields)) == wire.RequestOutcome(
        status=wire.RequestStatus.RETRY,
        request_id="r",
        job_id="j",
        result={"ok": True},
        error=wire.ErrorInfo("m", "handler_not_found", "c", {"any": [1]}),
        retry_after_seconds=2.5,
    )


@pytest.mark.parametrize("result", ["", "null", '{"a":[1,"\\u00e9"]}', '" "'])
def test_a_success_is_written_the_same_from_the_text_of_its_result(result: str) -> None:
    whole = wire.encode(
        wire.RequestOutcome(
            wire.RequestStatus.SUCCESS, 'r"\n', "j\u00e9", json.loads(result or "null")
        )
    )
    assert json.loads(wire.encode_success('r"\n', "j\u00e9", result)) == json.loads(whole)
    assert wire.encode_success("r", "j", "1") == wire.encode(
        wire.RequestOutcome(wire.RequestStatus.SUCCESS, "r", "j", 1)
    )


def test_what_is_written_has_the_order_and_the_nulls_of_the_text() -> None:
    assert wire.encode(
        wire.RequestOutcome(wire.RequestStatus.SUCCESS, "r", "j", {"ok": True})
    ).decode() == (
        '{"type": "response", "payload": {"job_id": "j", "request_id": "r", "status": "success",'
        ' "result": {"ok": true}, "error": null, "retry_after_seconds": null}}'
    )
    assert json.loads(wire.encode(wire.CancelRequest("j")))["payload"] == {
        "protocol_version": "1", "job_id": "j", "request_id": None, "hard_kill": False,
    }  # fmt: skip
    written = json.loads(wire.encode(wire.parse(of("request", REQUEST))))["payload"]
    assert list(written) == list(REQUEST)
    assert list(written["context"]) == list(CONTEXT)
    assert written == REQUEST | {"context": CONTEXT | {"deadline": "2025-01-01T12:05:00.123456Z"}}


@pytest.mark.parametrize("result", [object(), {1, 2}, float("nan"), b"bytes"])
def test_a_result_that_is_no_json_is_not_written(result: object) -> None:
    with pytest.raises(ValueError):
        wire.encode(wire.RequestOutcome(wire.RequestStatus.SUCCESS, "r", "j", result))


def test_version_2_has_no_positional_arguments() -> None:
    request = wire.Request(
        "r", "j", "f", wire.RequestContext("j", 1, 0.0, "q"), args=(1,), protocol_version=wire.V2
    )
    with pytest.raises(ValueError, match="positional"):
        wire.encode(request)


TEXTS = st.text(min_size=1, max_size=8).map(lambda t: t.encode("utf-8", "replace").decode())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=2)
SECONDS = st.integers(0, 4_000_000_000).map(float)
CONTEXTS = st.builds(
    wire.RequestContext,
    job_id=TEXTS,
    attempt=st.integers(1, 99),
    enqueue_time=SECONDS,
    queue_name=TEXTS,
    deadline=st.none() | SECONDS,
    trace_context=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
    worker_id=st.none() | TEXTS,
)
ENVELOPES = st.one_of(
    st.builds(
        wire.Request,
        TEXTS,
        TEXTS,
        TEXTS,
        CONTEXTS,
        st.lists(VALUES, max_size=2).map(tuple),
        OBJECTS,
    ),
    st.builds(
        wire.Request,
        TEXTS,
        TEXTS,
        TEXTS,
        CONTEXTS,
        st.just(()),
        OBJECTS,
        protocol_version=st.just(wire.V2),
    ),
    st.builds(
        wire.RequestOutcome,
        st.sampled_from(wire.RequestStatus),
        TEXTS,
        TEXTS,
        VALUES,
        st.none() | st.builds(wire.ErrorInfo, TEXTS, st.none() | TEXTS, st.none() | TEXTS, OBJECTS),
        st.none() | st.integers(0, 99).map(float),
    ),
    st.builds(
        wire.CancelRequest,
        TEXTS,
        st.none() | TEXTS,
        st.booleans(),
        st.sampled_from([wire.V1, wire.V2]),
    ),
)


@given(ENVELOPES)
def test_what_is_written_is_read_back(envelope: wire.Envelope) -> None:
    assert wire.parse(wire.encode(envelope)) == envelope
