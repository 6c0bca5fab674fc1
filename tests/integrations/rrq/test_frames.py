"""Frames: the same payloads come out wherever the stream was cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.integrations.rrq.wire import FRAME_BYTES_MAX, FrameReader, frame

MAX = 20
PAYLOADS = st.lists(st.binary(min_size=1, max_size=MAX), max_size=6)


def read(stream: bytes, cuts: list[int] | None = None) -> tuple[list[bytes], str]:
    """What comes of a stream that arrives cut at these offsets, and how it ended."""
    reader = FrameReader(MAX)
    edges = [0, *sorted(cuts or []), len(stream)]
    found = [p for start, end in itertools.pairwise(edges) for p in reader.feed(stream[start:end])]
    reader.end()
    return found, reader.broken


@given(PAYLOADS, st.lists(st.integers(0, 150), max_size=8))
def test_what_was_framed_comes_out_wherever_it_was_cut(
    payloads: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(frame(p, MAX) for p in payloads)
    assert read(stream, [min(cut, len(stream)) for cut in cuts]) == (payloads, "")


def test_the_length_is_four_bytes_the_most_significant_first() -> None:
    assert frame(b"x" * 258) == b"\x00\x00\x01\x02" + b"x" * 258


def test_a_frame_is_given_only_once_it_is_complete() -> None:
    reader = FrameReader()
    assert reader.feed(b"\x00\x00\x00") == []
    assert reader.feed(b"\x02{") == []
    assert reader.feed(b"}\x00") == [b"{}"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (b"\x00\x00\x00\x00", "an empty frame"),
        (b"\x00\x00\x00\x15", "a frame of 21 bytes, over 20"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes, over 20"),
    ],
)
def test_a_wrong_length_ends_the_stream_after_what_came_before_it(
    wrong: bytes, reason: str
) -> None:
    assert read(frame(b"one") + wrong + frame(b"two")) == ([b"one"], reason)


def test_a_wrong_length_is_seen_before_anything_follows_it() -> None:
    reader = FrameReader(MAX)
    assert reader.feed(b"\x00\x00\x00\x15") == []
    assert reader.broken
    assert reader.feed(frame(b"two")) == []


@pytest.mark.parametrize("torn", [b"\x00", b"\x00\x00\x00\x05", b"\x00\x00\x00\x05half"])
def test_a_stream_that_ends_inside_a_frame_says_so(torn: bytes) -> None:
    found, broken = read(frame(b"one") + torn)
    assert found == [b"one"]
    assert broken == f"the stream ended {len(torn)} bytes into a frame"


def test_the_longest_frame_passes_and_one_byte_more_does_not() -> None:
    longest = b"x" * FRAME_BYTES_MAX
    assert FrameReader().feed(frame(longest)) == [longest]
    with pytest.raises(ValueError):
        frame(longest + b"x")
    with pytest.raises(ValueError):
        frame(b"")
