"""Wrong lines: never anything but ``ProtocolError``, whatever the bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base import limits
from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.wire import Done, Failed, Message, Ready, Shutdown, encode, parse

NOW = 1733423456.789


def line(type_: str, **fields: Any) -> bytes:
    """A line of the text's own shape; a field given as ``...`` is left out."""
    base = {"type": type_, "worker_id": "W1", "timestamp": NOW}
    return json.dumps({k: v for k, v in (base | fields).items() if v is not ...}).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)  # fmt: skip


def parse_or_refuse(text: bytes) -> Message | None:
    """None for a refusal; any other exception fails the test."""
    try:
        return parse(text)
    except ProtocolError as error:
        assert str(error) and len(str(error)) < 200
        return None


@given(noise=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    parse_or_refuse(noise)


KEYS = st.sampled_from(
    [
        "type",
        "worker_id",
        "timestamp",
        "issue_id",
        "duration_ms",
        "error",
        "outcome",
        "retry_after_seconds",
        "error_detail",
        "result",
        "priority",
        "title",
        "description",
        "issue_type",
        "labels",
        "attempt",
        "timeout_seconds",
        "payload",
        "payload_file",
        "wait_seconds",
        "reason",
        "version",
        "features",
    ]
)
WILD = JSON | st.floats() | st.sampled_from([1 << 2000, -1, 1e308, True, "\ud800", "\0", [], {}])
TYPES = st.sampled_from(["READY", "DONE", "FAILED", "TASK", "WAIT", "SHUTDOWN", "CANCEL", "X"])


@given(type_=TYPES, fields=st.dictionaries(KEYS, WILD))
def test_any_fields_are_read_or_refused_and_what_is_read_can_be_written(
    type_: str, fields: dict[str, Any]
) -> None:
    base = {"worker_id": "W1", "timestamp": 1, "issue_id": "x"}
    message = parse_or_refuse(json.dumps(base | fields | {"type": type_}).encode())
    if message is not None:
        json.loads(encode(message, "W1", NOW, v1=False), parse_constant=pytest.fail)
        repr(message).encode("utf-8")


@given(value=WILD)
def test_any_json_on_its_own_is_read_or_refused(value: Any) -> None:
    parse_or_refuse(json.dumps(value).encode())


READY_TEXT = '{"type":"READY","worker_id":"W1","timestamp":1}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (READY_TEXT.encode()[:-1], "not JSON"),
        (READY_TEXT.encode() * 2, "not JSON"),
        (READY_TEXT.encode() + b"\x00", "not JSON"),
        (READY_TEXT.encode("utf-8-sig"), "not JSON"),
        (READY_TEXT.encode("utf-16"), "not JSON"),
        (READY_TEXT.encode("utf-16-le"), "not JSON"),
        (READY_TEXT.encode("utf-32"), "not JSON"),
        (b'{"type":"\xff"}', "not JSON"),
        (b'{"type":"\xed\xa0\x80"}', "not JSON"),
        (b"{'type':'READY'}", "not JSON"),
        (b'{"a":"tab\there"}', "not JSON"),
        (b'{"type":"READY","worker_id":"W1","timestamp":NaN}', "not JSON"),
        (b'{"type":"READY","worker_id":"W1","timestamp":Infinity}', "not JSON"),
        (b'{"type":"READY","worker_id":"W1","timestamp":-Infinity}', "not JSON"),
        (b'{"type":"READY","worker_id":"W1","timestamp":1e999}', "not JSON"),
        (b'{"type":"READY","worker_id":"W1","timestamp":' + b"9" * 10_000 + b"}", "not JSON"),
        (b'{"type":"READY","worker_id":"W1","timestamp":' + b"9" * 400 + b"}", "no timestamp"),
        (b"[" * 100_000, "not JSON: nested"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "not JSON: nested"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON: nested"),
        (b"null", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'"READY"', "not a JSON object"),
        (b"1", "not a JSON object"),
        (b"{}", "no message type"),
        (b'{"type":null}', "no message type"),
        (b'{"type":["READY"]}', "no message type"),
        (b'{"type":"ready"}', "unknown message type 'ready'"),
        (b'{"type":""}', "no message type"),
    ],
)
def test_a_line_that_is_no_message_is_refused_with_its_reason(text: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        parse(text)


def test_a_float_that_overflows_is_refused_wherever_it_stands() -> None:
    with pytest.raises(ProtocolError, match="too large"):
        parse(b'{"type":"DONE","issue_id":"x","result":{"deep":[-1e999]}}')


def test_an_unknown_type_is_quoted_escaped_and_cut_for_the_log() -> None:
    with pytest.raises(ProtocolError) as caught:
        parse(line("\x1b[2J" + "x" * 1000))
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 100


def test_of_duplicate_keys_the_last_one_counts() -> None:
    text = b'{"type":"DONE","issue_id":"a","issue_id":"b","worker_id":"W1","timestamp":1}'
    assert parse(text) == parse(line("DONE", issue_id="b"))


def test_keys_that_nobody_knows_are_ignored() -> None:
    assert parse(line("READY", colour="red", nested={"a": [1]})) == Ready("W1")


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc80\udc81", "\ud800x\udc00"])
def test_lone_surrogates_become_question_marks_so_that_text_can_be_stored(text: str) -> None:
    message = parse(line("FAILED", issue_id="x", error=text, error_detail={"a": text}))
    assert isinstance(message, Failed)
    message.error.encode("utf-8")
    assert "?" in message.error


def test_a_pair_of_surrogates_is_one_character() -> None:
    message = parse(b'{"type":"SHUTDOWN","reason":"\\ud83d\\udc1d"}')
    assert message == Shutdown("🐝")


def test_surrogates_in_a_deeply_nested_line_are_refused_like_any_deep_line() -> None:
    for depth in (100, 500, 900, 990, 2000, 50_000):
        deep = b"[" * depth + b'"\\ud800"' + b"]" * depth
        parse_or_refuse(b'{"type":"DONE","issue_id":"x","result":' + deep + b"}")


def nested(depth: int) -> bytes:
    """A DONE whose result is so deep; the message is one level, and its field another."""
    return line("DONE", issue_id="x", duration_ms=1).rstrip()[:-1] + (
        b',"result":' + b'{"a":[' * (depth // 2) + b"1" + b"]}" * (depth // 2) + b"}"
    )


def test_what_is_nested_deeper_than_could_be_written_again_is_refused() -> None:
    parse(nested(limits.NESTED_MAX - 2))
    for depth in (limits.NESTED_MAX + 2, 960, 5000):
        with pytest.raises(ProtocolError, match="nested too deeply"):
            parse(nested(depth))


def test_many_brackets_beside_each_other_are_not_deep() -> None:
    assert parse(line("DONE", issue_id="x", duration_ms=1, result=[[], {}] * 1000))


def test_a_duration_beyond_any_life_is_none() -> None:
    for wrong in (limits.INTEGER_MAX + 1, 1e300, 10**300, -1):
        done = parse(line("DONE", issue_id="x", duration_ms=wrong))
        assert isinstance(done, Done) and done.duration_ms is None and done.warnings
