"""Framing: the same lines come out wherever the stream was cut."""

from __future__ import annotations

import itertools
import json

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from beads_workers.core.base import framing, limits
from beads_workers.core.base.framing import Framed, Line, LineReader, TooLong, Torn, strict_loads

MAX = 20
"""A small limit for these tests, so that lines at and over it stay readable."""

STREAMS = st.lists(
    st.sampled_from([b"a", b"{}", b"\n", b"\r", b" ", b"\x00", b"\xff", b"x" * MAX, b"y" * 7])
).map(b"".join)


def read(stream: bytes, cuts: list[int] | None = None, line_bytes_max: int = MAX) -> list[Framed]:
    """Everything a reader reports for a stream that arrives cut at these offsets."""
    reader = LineReader(line_bytes_max)
    edges = [0, *sorted(cuts or []), len(stream)]
    found: list[Framed] = []
    for start, end in itertools.pairwise(edges):
        found += reader.feed(stream[start:end])
    return found + reader.end()


def test_each_line_comes_out_without_its_end() -> None:
    assert read(b"one\ntwo\n") == [Line(b"one"), Line(b"two")]


def test_a_line_is_given_only_once_it_is_complete() -> None:
    reader = LineReader()
    assert reader.feed(b'{"type":') == []
    assert reader.feed(b"1}") == []
    assert reader.feed(b"\n{") == [Line(b'{"type":1}')]


def test_a_carriage_return_before_the_end_is_dropped_and_only_one() -> None:
    assert read(b"one\r\ntwo\r\r\n") == [Line(b"one"), Line(b"two\r")]


def test_a_carriage_return_in_the_middle_does_not_end_a_line() -> None:
    assert read(b"one\rtwo\n") == [Line(b"one\rtwo")]


def test_blank_lines_are_skipped() -> None:
    assert read(b"\n\r\n  \t \na\n\n") == [Line(b"a")]


def test_other_line_ends_of_unicode_do_not_split() -> None:
    text = "a\u2028b\u0085c\x0b\x0cd".encode()
    assert read(text + b"\n") == [Line(text)]


def test_nul_bytes_are_kept_for_the_parser_to_refuse() -> None:
    assert read(b"a\x00b\n\x00\n") == [Line(b"a\x00b"), Line(b"\x00")]


def test_a_line_of_exactly_the_limit_passes() -> None:
    assert read(b"x" * MAX + b"\n") == [Line(b"x" * MAX)]


def test_a_line_one_byte_over_the_limit_is_skipped_and_the_next_one_read() -> None:
    stream = b"x" * (MAX + 1) + b"\nnext\n"
    assert read(stream) == [TooLong(b"x" * MAX), Line(b"next")]


def test_the_limit_counts_the_carriage_return() -> None:
    assert read(b"x" * (MAX - 1) + b"\r\n") == [Line(b"x" * (MAX - 1))]
    assert read(b"x" * MAX + b"\r\n") == [TooLong(b"x" * MAX)]


def test_the_real_limit_is_one_mebibyte() -> None:
    whole = b"x" * (1 << 20)
    assert read(whole + b"\n", line_bytes_max=limits.LINE_BYTES_MAX) == [Line(whole)]
    [found] = read(whole + b"x\n", line_bytes_max=limits.LINE_BYTES_MAX)
    assert found == TooLong(b"x" * limits.LOGGED_BYTES_MAX)


def test_a_partial_last_line_is_reported_as_torn_and_not_used() -> None:
    assert read(b"one\ntw") == [Line(b"one"), Torn(b"tw")]


def test_the_end_after_a_complete_or_blank_line_reports_nothing() -> None:
    assert read(b"one\n") == [Line(b"one")]
    assert read(b"one\n \r") == [Line(b"one")]


def test_a_line_over_the_limit_that_never_ends_is_reported_once() -> None:
    assert read(b"x" * (MAX * 5), cuts=list(range(MAX * 5))) == [TooLong(b"x" * MAX)]


def test_an_endless_line_does_not_grow_the_reader() -> None:
    reader = LineReader(MAX)
    reported = [found for _ in range(1000) for found in reader.feed(b"x" * MAX)]
    assert reported == [TooLong(b"x" * MAX)]
    assert reader.feed(b"\nback\n") == [Line(b"back")]


def test_a_line_in_ten_thousand_pieces_is_searched_only_once() -> None:
    # Without the memory of where the search ended this would compare five gigabytes.
    reader = LineReader()
    piece = b"x" * 100
    assert all(reader.feed(piece) == [] for _ in range(10_000))
    assert reader.feed(b"\n") == [Line(piece * 10_000)]


def test_a_reader_starts_anew_after_the_end() -> None:
    reader = LineReader(MAX)
    reader.feed(b"x" * (MAX + 1))
    assert reader.end() == []
    assert reader.feed(b"a\n") == [Line(b"a")]


@given(stream=STREAMS, data=st.data())
def test_wherever_a_stream_is_cut_the_same_lines_come_out(
    stream: bytes, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream))))
    assert read(stream, cuts) == read(stream)


@given(stream=STREAMS)
def test_byte_by_byte_gives_the_same_lines_as_all_at_once(stream: bytes) -> None:
    assert read(stream, list(range(len(stream)))) == read(stream)


@given(stream=STREAMS)
def test_what_comes_out_is_what_splitting_the_whole_text_gives(stream: bytes) -> None:
    *complete, rest = stream.split(b"\n")
    fitting = [line.removesuffix(b"\r") for line in complete if len(line) <= MAX]
    lines = [found.text for found in read(stream) if isinstance(found, Line)]
    assert lines == [line for line in fitting if line.strip()]
    over = sum(len(line) > MAX for line in [*complete, rest])
    assert sum(isinstance(found, TooLong) for found in read(stream)) == over


def test_no_more_lines_are_given_than_asked_for_and_the_rest_waits() -> None:
    reader = LineReader(MAX)
    assert reader.feed(b"1\n2\n3\n4", 2) == [Line(b"1"), Line(b"2")]
    assert reader.pending
    assert reader.feed(b"", 2) == [Line(b"3")]
    assert not reader.pending
    assert reader.feed(b"\n") == [Line(b"4")]


def test_the_limit_of_a_line_holds_behind_lines_that_wait() -> None:
    reader = LineReader(MAX)
    assert reader.feed(b"1\n2\n" + b"x" * (MAX + 1), 1) == [Line(b"1")]
    assert reader.feed(b"", 1) == [Line(b"2")]
    assert reader.feed(b"", 1) == [TooLong(b"x" * MAX)]
    assert reader.feed(b"x\n3\n", 1) == [Line(b"3")]


# --- a quicker parser beside Python's -----------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
)


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """JSON as somebody writes it, or nearly: escaped or not, cut, or with a byte changed."""
    escaped = draw(st.booleans())
    text = json.dumps(draw(JSON), ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    at = draw(st.integers(0, len(text)))
    return (
        text[:at]
        + draw(st.sampled_from([b"", b"", b"", b"e", b"9" * 20, b" ", b"\xff", b"]"]))
        + (text[at + draw(st.integers(0, 1)) :])
    )


def outcome(text: bytes, *, replace_surrogates: bool) -> str:
    """What comes of reading it: the value with its types, or that it is refused."""
    try:
        return repr(strict_loads(text, replace_surrogates=replace_surrogates))
    except (ValueError, RecursionError):
        return "refused"


@given(json_texts(), st.booleans())
@example(b"1e999", True)
@example(b"-0", True)
@example(b"123456789012345678901234567890", True)
@example(b"18446744073709551616", True)
@example(b"-9223372036854775809", True)
@example(b'"\\ud83d\\ude00"', False)
@example(b'"\\ud83d"', True)
@example(b'{"a":1,"a":2}', True)
@example(b"\xef\xbb\xbf{}", True)
@example(b"[" * 5000 + b"]" * 5000, True)
@example(b"[" * 1000 + b"]" * 1000, True)
@example(b"NaN", True)
def test_a_quicker_parser_reads_what_pythons_reads(text: bytes, replace_surrogates: bool) -> None:
    slow = outcome(text, replace_surrogates=replace_surrogates)
    framing.read_with(orjson.loads)
    try:
        assert outcome(text, replace_surrogates=replace_surrogates) == slow
    finally:
        framing.read_with(None)
