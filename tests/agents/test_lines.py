"""Streams: cut anywhere, with anything between the lines, and as long as they like."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beads_workers.agents.adapter import names
from beads_workers.agents.events import Doing, Event, FinalResult, Printed, Tally
from beads_workers.agents.lines import LINE_BYTES_MAX, Fields, activity
from tests.agents.streams import GOOD, adapter, events, without_printed

GARBAGE = st.one_of(
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b" ")),
    st.sampled_from([b"{", b"{}", b"null", b'{"type":"nonsense"}', b'{"type":7}', b"[1]", b"\xff"]),
)


def test_every_agent_with_a_structure_has_a_stream_here() -> None:
    assert set(GOOD) == set(names()) - {"plain", "aider"}


@settings(deadline=None)
@given(st.sampled_from(sorted(GOOD)), st.data())
def test_any_split_gives_the_same_events(name: str, data: st.DataObject) -> None:
    whole = GOOD[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    parser, found = adapter(name).parser(), list[Event]()
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += parser.feed(whole[start:end])
    assert found + parser.end() == events(name, whole)


@settings(deadline=None)
@given(st.sampled_from(sorted(GOOD)), st.lists(GARBAGE, min_size=1, max_size=5), st.data())
def test_garbage_between_lines_changes_nothing(
    name: str, garbage: list[bytes], data: st.DataObject
) -> None:
    lines = GOOD[name].splitlines(keepends=True)
    for each in garbage:
        lines.insert(data.draw(st.integers(0, len(lines))), each + b"\n")
    found = without_printed(events(name, b"".join(lines)))
    assert found == without_printed(events(name, GOOD[name]))


@settings(deadline=None)
@given(st.sampled_from(sorted(names())), st.binary(max_size=300))
def test_nothing_raises(name: str, data: bytes) -> None:
    tally = Tally()
    tally.apply(events(name, data))
    assert tally.result is None


def test_a_line_with_invalid_utf_8_is_understood() -> None:
    broken = GOOD["codex"].replace(b"All is there.", b"All is th\xffre.")
    assert events("codex", broken)[-1] == FinalResult("All is th\N{REPLACEMENT CHARACTER}re.", True)


def test_a_last_line_needs_no_end() -> None:
    assert events("codex", GOOD["codex"].rstrip()) == events("codex", GOOD["codex"])


def test_what_is_no_event_is_a_line() -> None:
    assert events("codex", b"error: no such option\n") == [Printed("error: no such option")]


@pytest.mark.parametrize("line", [b"x" * (1 << 20), b'{"type":"user","x":"' + b"x" * 900 + b'"}\n'])
def test_a_hundred_megabytes_cost_no_memory(line: bytes) -> None:
    parser, tally = adapter("claude").parser(), Tally()
    piece = line * max(1, (1 << 20) // len(line))
    tracemalloc.start()
    try:
        for _ in range(100):
            tally.apply(parser.feed(piece))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * LINE_BYTES_MAX
    tally.apply(parser.feed(b"\n" + GOOD["claude"]))
    assert tally.result == FinalResult("All is there.", True)


def test_each_look_at_an_object_is_total() -> None:
    said = Fields({"a": {"b": "x", "n": 1e400, "m": -3}, "l": [1, {"c": "d"}, "e"]})
    assert (said.text("a", "b"), said.text("a", "b", "c"), said.text("l")) == ("x", "", "")
    assert (said.number("a", "n"), said.count("a", "m"), said.count("a", "b")) == (None, 0, 0)
    assert [each.text("c") for each in said.each("l")] == ["d"]
    assert said.strings("l") == ["e"]
    assert not said.at("l") and not Fields(None) and not said.flag("a")


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("Edit", {"file_path": "/w/shop/cart.py"}, "editing shop/cart.py"),
        ("read_file", {"absolute_path": "/other/x"}, "reading /other/x"),
        ("Bash", {"command": "pytest -q\necho done"}, "running pytest -q"),
        ("shell", {"command": "/bin/bash -lc 'ls -l'"}, "running ls -l"),
        ("Grep", {"pattern": "total", "path": "/w"}, "searching total"),
        ("TodoWrite", {"todos": []}, "using TodoWrite"),
        ("", {}, "using"),
    ],
)
def test_a_call_of_a_tool_reads_as_people_say_it(
    tool: str, arguments: dict[str, object], text: str
) -> None:
    found = activity(tool, Fields(arguments), "/w")
    assert isinstance(found, Doing)
    assert found.text == text
