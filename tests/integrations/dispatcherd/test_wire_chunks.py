"""Chunks: what was cut comes out whole, in any order; whatever else comes, memory is bounded."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.framing import ProtocolError
from beads_workers.integrations.dispatcherd import wire_chunks
from beads_workers.integrations.dispatcherd.wire import POSTGRES_BYTES_MAX, SOCKET_BYTES_MAX

TEXT = [
    {
        "__dispatcherd_chunk__": "v1",
        "message_id": "4e66bf05b4b14222be14817a5eb918b4",
        "index": 0,
        "total": 2,
        "payload": '{"uuid":"9760671a-6261-45aa-881a-f66929ff9725","args":[4,3',
    },
    {
        "__dispatcherd_chunk__": "v1",
        "message_id": "4e66bf05b4b14222be14817a5eb918b4",
        "index": 1,
        "total": 2,
        "payload": ',2,1],"kwargs":{},"task":"awx.main.tasks.jobs.RunJob"}',
    },
]
"""The example of the protocol text."""
WHOLE = {
    "uuid": "9760671a-6261-45aa-881a-f66929ff9725",
    "args": [4, 3, 2, 1],
    "kwargs": {},
    "task": "awx.main.tasks.jobs.RunJob",
}
ID = "4e66bf05b4b14222be14817a5eb918b4"


def chunk(index: Any = 0, total: Any = 2, payload: Any = "{", **more: Any) -> dict[str, Any]:
    return {**TEXT[0], "index": index, "total": total, "payload": payload, **more}


def cut(value: object, max_bytes: int = 200, message_id: str = ID) -> list[dict[str, Any]]:
    """The chunks of a value, as they arrive."""
    chunks = wire_chunks.split_message(
        json.dumps(value), max_bytes=max_bytes, message_id=message_id
    )
    return [wire_chunks.read_object(each.encode()) for each in chunks]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_example_of_the_text_is_joined_in_any_order(order: tuple[int, int]) -> None:
    accumulator = wire_chunks.ChunkAccumulator()
    first, second = (TEXT[index] for index in order)
    assert accumulator.ingest_dict(first) == (True, None, ID)
    assert accumulator.ingest_dict(second) == (True, WHOLE, ID)
    assert (accumulator.active_messages, accumulator._bytes) == (0, 0)
    assert accumulator.successful_assemblies == 1


def test_what_is_no_chunk_is_returned_as_it_is() -> None:
    assert wire_chunks.ChunkAccumulator().ingest_dict(WHOLE) == (False, WHOLE, None)


@pytest.mark.parametrize(("size", "count"), [(SOCKET_BYTES_MAX, 1), (SOCKET_BYTES_MAX + 1, 2)])
def test_a_message_is_cut_only_when_it_is_over_the_limit(size: int, count: int) -> None:
    message = json.dumps({"a": "x" * (size - 9)})
    assert len(message) == size
    assert (
        len(wire_chunks.split_message(message, max_bytes=SOCKET_BYTES_MAX, message_id=ID)) == count
    )


def test_a_message_is_measured_in_bytes_and_not_in_characters() -> None:
    message = json.dumps({"a": "é" * 600}, ensure_ascii=False)
    assert len(message) < SOCKET_BYTES_MAX
    assert len(wire_chunks.split_message(message, max_bytes=SOCKET_BYTES_MAX, message_id=ID)) > 1


def test_without_a_limit_nothing_is_cut() -> None:
    assert wire_chunks.split_message("x" * 9999, max_bytes=None, message_id=ID) == ["x" * 9999]


def test_a_limit_without_room_for_a_character_is_refused() -> None:
    with pytest.raises(ValueError, match="no room for a chunk in 120 bytes"):
        wire_chunks.split_message("x" * 200, max_bytes=120, message_id=ID)


HARD_TEXTS = st.text(st.sampled_from('aé日👩"\\\n\x00\x7f{}[],:'), max_size=400)


@given(
    st.dictionaries(HARD_TEXTS, HARD_TEXTS | st.lists(HARD_TEXTS, max_size=3), max_size=4),
    st.integers(140, 400),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_what_was_cut_comes_out_whole_and_no_chunk_is_over_the_limit(
    value: dict[str, Any], max_bytes: int, ascii_only: bool, rng: random.Random
) -> None:
    message = json.dumps(value, ensure_ascii=ascii_only)
    chunks = wire_chunks.split_message(message, max_bytes=max_bytes, message_id=ID)
    assert all(len(each.encode()) <= max_bytes for each in chunks)
    rng.shuffle(chunks)
    accumulator = wire_chunks.ChunkAccumulator()
    found = [accumulator.ingest_dict(wire_chunks.read_object(each.encode()))[1] for each in chunks]
    assert found == [None] * (len(chunks) - 1) + [value]


@given(st.randoms(use_true_random=False), st.integers(2, 5))
def test_messages_that_arrive_interleaved_shuffled_and_twice_come_out_once_each(
    rng: random.Random, count: int
) -> None:
    values = [
        {"task": f"a.b{number}", "args": ["x" * 300 * (number + 1)]} for number in range(count)
    ]
    chunks = [each for n, value in enumerate(values) for each in cut(value, message_id=f"m{n}")]
    assert len(chunks) > count
    doubled = [each for each in chunks if each["index"] == 0]
    rng.shuffle(chunks)
    accumulator = wire_chunks.ChunkAccumulator()
    # A piece that comes a second time after its message is whole is one of a new message.
    found = [accumulator.ingest_dict(each)[1] for each in doubled + chunks]
    assert sorted(m["task"] for m in found if m) == sorted(str(v["task"]) for v in values)
    assert accumulator.errored_assemblies == 0


def test_a_megabyte_over_both_brokers_is_whole_again() -> None:
    value = {"task": "a.b", "args": ["é\n" * 250_000 + "x" * 500_000]}
    for max_bytes in (SOCKET_BYTES_MAX, POSTGRES_BYTES_MAX):
        accumulator = wire_chunks.ChunkAccumulator()
        found = [accumulator.ingest_dict(each)[1] for each in reversed(cut(value, max_bytes))]
        assert found[-1] == value


@pytest.mark.parametrize("unit", ["utf-16", "characters"])
def test_a_cut_inside_a_character_is_mended(unit: str) -> None:
    # A peer that counts in UTF-16 cuts between the two halves of a character.
    text = json.dumps({"task": "a.b", "args": ["👩‍👩‍👧 日本 é"]}, ensure_ascii=False)
    if unit == "utf-16":
        raw = text.encode("utf-16-le")
        pieces = [
            raw[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(raw), 2)
        ]
    else:
        pieces = list(text)
    accumulator = wire_chunks.ChunkAccumulator()
    sent = [json.dumps(chunk(i, len(pieces), piece)).encode() for i, piece in enumerate(pieces)]
    found = [accumulator.ingest_dict(wire_chunks.read_object(each))[1] for each in sent]
    assert found[-1] == json.loads(text)


def test_half_a_character_that_stays_alone_is_a_question_mark_or_a_mark() -> None:
    accumulator = wire_chunks.ChunkAccumulator()
    halves = ['{"task": "a.b", "uuid": "\ud83d', 'x"}']
    sent = [json.dumps(chunk(i, 2, piece)).encode() for i, piece in enumerate(halves)]
    message = [accumulator.ingest_dict(wire_chunks.read_object(each))[1] for each in sent][-1]
    assert message == {"task": "a.b", "uuid": "\ufffdx"}


def test_the_marker_inside_an_argument_makes_no_chunk() -> None:
    value = {"task": "a.b", "args": ["__dispatcherd_chunk__ \ud83d"]}
    read = wire_chunks.read_object(json.dumps(value).encode())
    assert read == {"task": "a.b", "args": ["__dispatcherd_chunk__ ?"]}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (chunk(__dispatcherd_chunk__="v2"), "a chunk of version 'v2', and not v1"),
        (chunk(message_id=""), "a chunk without a message_id"),
        (chunk(message_id=7), "a chunk without a message_id"),
        (chunk(2, 2), "index 2 of 2"),
        (chunk(-1, 2), "index -1 of 2"),
        (chunk(True, 2), "index True of 2"),
        (chunk(0, 0), "index 0 of 0"),
        (chunk(0, 1 << 60), "index 0 of 1152921504606846976"),
        (chunk(payload=None), "the payload of a chunk"),
        (chunk(payload=5), "the payload of a chunk"),
    ],
)
def test_a_wrong_chunk_is_counted_and_changes_nothing(wrong: dict[str, Any], reason: str) -> None:
    accumulator = wire_chunks.ChunkAccumulator()
    accumulator.ingest_dict(TEXT[0])
    assert accumulator.ingest_dict(wrong) == (True, None, None)
    assert accumulator.errored_assemblies == 1
    assert reason in accumulator.troubles[0]
    assert accumulator.ingest_dict(TEXT[1]) == (True, WHOLE, ID)


@pytest.mark.parametrize("contrary", [chunk(1, 3, "x"), chunk(0, 2, "other")])
def test_a_chunk_that_contradicts_an_earlier_one_does_not_count(contrary: dict[str, Any]) -> None:
    accumulator = wire_chunks.ChunkAccumulator()
    accumulator.ingest_dict(TEXT[0])
    accumulator.ingest_dict(contrary)
    assert accumulator.errored_assemblies == 1
    assert accumulator.ingest_dict(TEXT[1]) == (True, WHOLE, ID)


@pytest.mark.parametrize(("joined", "why"), [("{x", "not JSON"), ("[1]", "not a JSON object")])
def test_what_is_no_message_when_it_is_joined_is_counted(joined: str, why: str) -> None:
    accumulator = wire_chunks.ChunkAccumulator()
    accumulator.ingest_dict(chunk(0, 2, joined[:1]))
    assert accumulator.ingest_dict(chunk(1, 2, joined[1:])) == (True, None, ID)
    assert (accumulator.errored_assemblies, accumulator.active_messages) == (1, 0)
    assert why in accumulator.troubles[0]


def test_what_is_stale_is_dropped_counted_from_its_first_piece() -> None:
    accumulator = wire_chunks.ChunkAccumulator(message_timeout_seconds=10.0)
    accumulator.ingest_dict(chunk(0, 3), 100.0)
    accumulator.ingest_dict(chunk(1, 3), 109.0)
    accumulator.expire_partial_messages(109.9)
    assert accumulator.active_messages == 1
    accumulator.expire_partial_messages(110.0)
    assert (accumulator.active_messages, accumulator._bytes) == (0, 0)
    assert accumulator.timed_out_assemblies == 1
    assert accumulator.troubles == [f"2 of 3 chunks of {ID} were stale"]


def test_partials_say_what_has_come() -> None:
    accumulator = wire_chunks.ChunkAccumulator()
    accumulator.ingest_dict(chunk(2, 3, "abc"), 100.0)
    accumulator.ingest_dict(chunk(0, 3, "d"), 101.0)
    assert accumulator.partials(105.0) == (wire_chunks.Partial(ID, 5.0, 3, ((0, 1), (2, 3))),)


def test_orphans_never_take_more_memory_than_there_is_for_them() -> None:
    accumulator = wire_chunks.ChunkAccumulator(pending_bytes_max=100_000, pending_max=300)
    for number in range(10_000):
        accumulator.ingest_dict(chunk(0, 2, "x" * 800, message_id=f"m{number}"))
        assert accumulator._bytes <= 100_000
    assert accumulator.active_messages == 100
    assert accumulator.errored_assemblies == 9_900
    assert len(accumulator.troubles) == 20


def test_a_message_that_is_being_sent_outlives_a_flood_of_orphans() -> None:
    accumulator = wire_chunks.ChunkAccumulator(pending_max=10)
    chunks = cut({"task": "a.b", "args": ["x" * 3000]})
    found = None
    for number, each in enumerate(chunks):
        _, found, _ = accumulator.ingest_dict(each)
        for orphan in range(5):
            accumulator.ingest_dict(chunk(0, 2, message_id=f"{number} {orphan}"))
    assert found == {"task": "a.b", "args": ["x" * 3000]}


def test_a_message_without_end_is_dropped() -> None:
    accumulator = wire_chunks.ChunkAccumulator()
    for index in range(17):
        accumulator.ingest_dict(chunk(index, 20, "x" * (1 << 20)))
    assert "are over 16777216 bytes" in accumulator.troubles[0]
    assert accumulator._bytes == 0


def test_what_is_no_json_is_a_mistake_of_the_peer() -> None:
    with pytest.raises(ProtocolError, match="not JSON"):
        wire_chunks.read_object(b'{"__dispatcherd_chunk__"')
