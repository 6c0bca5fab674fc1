"""Keys from bytes: every form, split anywhere, and what is no key."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.ui.keys import (
    BURST_MAX,
    BURST_QUIET_SECONDS,
    ESCAPE_SECONDS,
    SEQUENCE_BYTES_MAX,
    KeyParser,
)

KEYS: dict[bytes, list[str]] = {
    b"p": ["p"],
    b"+": ["+"],
    b" ": ["space"],
    b"\r": ["enter"],
    b"\n": ["enter"],
    b"\t": ["tab"],
    b"\x7f": ["backspace"],
    b"\x0c": ["ctrl+l"],
    "é€😀".encode(): ["é", "€", "😀"],
    b"\x1b[A\x1b[B\x1b[C\x1b[D": ["up", "down", "right", "left"],
    b"\x1bOA\x1bOB\x1bOC\x1bOD": ["up", "down", "right", "left"],
    b"\x1b[H\x1b[F\x1bOH\x1bOF": ["home", "end", "home", "end"],
    b"\x1b[1~\x1b[4~\x1b[7~\x1b[8~": ["home", "end", "home", "end"],
    b"\x1b[5~\x1b[6~\x1b[2~\x1b[3~": ["page_up", "page_down", "insert", "delete"],
    b"\x1bOP\x1b[15~\x1b[24~\x1b[[A": ["f1", "f5", "f12", "f1"],
    b"\x1b[1;5A\x1b[1;2D\x1b[5;3~": ["ctrl+up", "shift+left", "alt+page_up"],
    b"\x1b[15;8~\x1b[Z": ["ctrl+alt+shift+f5", "shift+tab"],
    b"\x1bOM\x1bOq": ["enter", "1"],
    b"\x1bx\x1b\xc3\xa9\x1b\x7f": ["alt+x", "alt+é", "alt+backspace"],
    b"\x1b\x1b[A": ["escape", "up"],
    # A mouse: the left button, and the wheel.
    b"\x1b[<0;10;20Mq": ["click:10,20", "q"],
    b"\x1b[<0;1;9999M\x1b[<0;1;1m": ["click:1,9999"],
    b"\x1b[<64;5;5M\x1b[<65;5;5M": ["wheel_up", "wheel_down"],
    # No keys: other buttons, places that no screen has, and forms that nobody asked for.
    b"\x1b[<2;10;20Mq": ["q"],
    b"\x1b[<32;10;20M\x1b[<4;1;1M\x1b[<16;1;1Mq": ["q"],
    b"\x1b[<0;0;0M\x1b[<0;10000;1M\x1b[<0;01;1Mq": ["q"],
    b"\x1b[<0;1M\x1b[<;;M\x1b[<0;1;1;1M\x1b[<0;1;1 Mq": ["q"],
    b"\x1b[<99999999999999999999;1;1Mq": ["q"],
    # No keys: a mouse that another program left on, answers, sequences that nobody knows.
    b"\x1b[M qqq": ["q"],
    b"\x1b[?62;22cq": ["q"],
    b"\x1b[12;40Rq": ["q"],
    b"\x1b[27;5;9~q": ["q"],
    b"\x1b[>1 qq": ["q"],
    b"\x1b]10;rgb:0000/0000/0000\x07q": ["q"],
    b"\x1b]11;blue\x07q": ["q"],
    b"\x1bP>|xterm\x1b\\q": ["q"],
    b"\x1b[200~q\x1b[201~": ["q"],
    # What a terminal says of its background.
    b"\x1b]11;rgb:0000/0000/0000\x07q": ["background:dark", "q"],
    b"\x1b]11;rgba:ffff/ffff/dddd/ffff\x1b\\q": ["background:light", "q"],
    # Broken ones end where they break.
    b"\x1b[12\x1b[A": ["up"],
    b"\x1b[\x03q": ["ctrl+c", "q"],
    b"\xff\xc3q\x80\xf5q": ["q", "q"],
    b"\xed\xa0\x80q": ["q"],
    b"\xc2\x9bq": ["q"],
}


def keys(*pieces: bytes) -> list[str]:
    """What these reads give, one directly after the other."""
    parser = KeyParser()
    return [key for piece in pieces for key in parser.feed(piece, 0.0)]


@pytest.mark.parametrize(("data", "named"), KEYS.items(), ids=repr)
def test_a_sequence_gives_its_keys_wherever_the_reads_are_split(
    data: bytes, named: list[str]
) -> None:
    assert keys(data) == named
    for cut in range(1, len(data)):
        assert keys(data[:cut], data[cut:]) == named, cut
    assert keys(*(bytes([byte]) for byte in data)) == named


@given(st.lists(st.sampled_from(list(KEYS)), max_size=6), st.data())
def test_sequences_one_after_the_other_do_not_disturb_each_other(
    sequences: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(sequences)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in itertools.pairwise([0, *cuts, len(stream)])]
    pieces = [piece[at : at + BURST_MAX] for piece in pieces for at in range(0, len(piece), 8)]
    expected = [key for sequence in sequences for key in KEYS[sequence]]
    assert keys(*pieces) == expected


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_no_bytes_at_all_break_it_or_make_it_grow(pieces: list[bytes]) -> None:
    parser = KeyParser()
    for number, piece in enumerate(pieces):
        for key in parser.feed(piece, float(number)):
            assert key.isprintable()
        if (deadline := parser.deadline()) is not None:
            parser.on_deadline(deadline)
        assert parser.deadline() is None
    assert parser.feed(b"q", 1e6) == ["q"]


def test_a_lone_escape_is_a_key_after_a_moment() -> None:
    parser = KeyParser()
    assert parser.feed(b"\x1b", 1.0) == []
    assert parser.deadline() == 1.0 + ESCAPE_SECONDS
    assert parser.on_deadline(1.0 + ESCAPE_SECONDS / 2) == []
    assert parser.on_deadline(1.0 + ESCAPE_SECONDS) == ["escape"]
    assert parser.deadline() is None
    assert parser.feed(b"[A", 2.0) == ["[", "A"]


@pytest.mark.parametrize(
    ("begun", "named"),
    [
        (b"\x1b[", ["alt+["]),
        (b"\x1bO", ["alt+O"]),
        (b"\x1b]", ["alt+]"]),
        (b"\x1b[1;", []),
        (b"\x1b]11;rgb", []),
        (b"\xc3", []),
        (b"\x1b\xc3", []),
    ],
)
def test_of_what_was_cut_short_nothing_remains(begun: bytes, named: list[str]) -> None:
    parser = KeyParser()
    assert parser.feed(begun, 0.0) == []
    assert parser.on_deadline(ESCAPE_SECONDS) == named
    assert parser.feed(b"q", 1.0) == ["q"]


@pytest.mark.parametrize(("begun", "end"), [(b"\x1b]", b"\x07"), (b"\x1b[1;", b"A")])
def test_a_sequence_beyond_the_limit_is_no_key_wherever_it_is_split(
    begun: bytes, end: bytes
) -> None:
    whole = begun + b"2" * 3 * SEQUENCE_BYTES_MAX + end + b"q"
    assert KeyParser().feed(whole, 0.0) == ["q"]
    parser = KeyParser()
    assert [key for at in range(len(whole)) for key in parser.feed(whole[at : at + 1], at)] == ["q"]


def test_of_a_sequence_without_end_little_is_kept_and_nothing_remains() -> None:
    parser = KeyParser()
    parser.feed(b"\x1b]", 0.0)
    for _ in range(100):
        assert parser.feed(b"z" * SEQUENCE_BYTES_MAX, 0.0) == []
    assert len(parser._rest) <= SEQUENCE_BYTES_MAX
    assert parser.on_deadline(ESCAPE_SECONDS) == []
    assert parser.feed(b"q", 1.0) == ["q"]


# --- pasting ----------------------------------------------------------------------------------


def test_a_paste_is_no_command_and_neither_is_its_tail_in_a_read_of_its_own() -> None:
    parser = KeyParser()
    assert parser.feed(b"k" * (BURST_MAX + 1), 0.0) == []
    assert parser.feed(b"kill", BURST_QUIET_SECONDS * 0.9) == []
    assert parser.feed(b"\r", BURST_QUIET_SECONDS * 1.7) == []
    assert parser.feed(b"k", BURST_QUIET_SECONDS * 3) == ["k"]


def test_where_a_person_writes_a_paste_is_text_and_its_line_ends_send_nothing() -> None:
    parser = KeyParser()
    parser.takes_text = True
    text = "two lines,\nof text"
    named = {" ": "space", "\n": "space"}
    assert parser.feed(text.encode(), 0.0) == [named.get(c, c) for c in text]
    assert parser.feed(b"\r", BURST_QUIET_SECONDS * 0.9) == ["space"]
    assert parser.feed(b"\r", BURST_QUIET_SECONDS * 3) == ["enter"]


def test_as_many_characters_as_one_types_are_keys() -> None:
    assert keys(b"k" * BURST_MAX) == ["k"] * BURST_MAX


def test_a_mouse_wheel_may_send_any_number_of_arrows_at_once() -> None:
    assert keys(b"\x1bOB" * 60) == ["down"] * 60
