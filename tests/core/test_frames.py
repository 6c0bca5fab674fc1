"""Frames: what is shown at the end of each quarter second, live and in a replay alike."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.records.journal import (
    CallEnded,
    CallStarted,
    Entry,
    Noted,
    Record,
    decode,
    encode,
)
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import FRAME_SECONDS, Frames


def entry(elapsed: float, record: Record | None = None) -> Entry:
    """Something that people are shown, as it is read back from the journal."""
    made = Entry(record or Noted("info", f"at {elapsed}"), 1_700_000_000.0 + elapsed, elapsed)
    read = decode(encode(made))
    assert read is not None
    return read


def replayed(entries: list[Entry]) -> list[dict[str, Any]]:
    """What a replay shows."""
    frames = Frames(Board(), watched=True)
    shown = [frames.add(one) for one in entries] + [frames.rest()]
    return [one for one in shown if one is not None]


def times(shown: list[dict[str, Any]]) -> list[float]:
    """The moments of the run that snapshots show."""
    return [one["uptime_seconds"] for one in shown]


def test_what_changes_in_one_frame_is_shown_once_at_its_end() -> None:
    shown = replayed([entry(0.1), entry(0.2), entry(0.26), entry(1.1)])
    assert times(shown) == [0.25, 0.5, 1.25]
    assert [len(one["notes"]) for one in shown] == [2, 3, 4]


def test_a_change_at_the_very_end_of_a_frame_belongs_to_the_next() -> None:
    assert times(replayed([entry(0.1), entry(0.25)])) == [0.25, 0.5]


def test_nothing_is_worked_out_while_nobody_watches() -> None:
    frames = Frames(Board(), watched=False)
    assert frames.add(entry(0.1)) is None and frames.ends == math.inf
    assert frames.rest() is None
    frames.watched = True
    assert frames.add(entry(0.2)) is None
    assert (last := frames.due(0.25)) is not None and len(last["notes"]) == 2


def test_what_the_tracker_thread_writes_beside_the_loop_makes_no_frame() -> None:
    calls: list[Record] = [CallStarted(7, 8, ("bd",)), CallEnded(7)]
    assert replayed([entry(0.1 + n, call) for n, call in enumerate(calls)]) == []


@given(
    st.lists(st.integers(0, 3_000_000), max_size=30).map(sorted),
    st.lists(st.integers(0, 3_000_000), max_size=30),
)
def test_a_replay_shows_what_a_watcher_was_shown_whenever_the_loop_looked(
    changes: list[int], looks: list[int]
) -> None:
    entries = [entry(micros / 1e6) for micros in changes]
    live, shown = Frames(Board(), watched=True), []
    # A look: the loop woke up between two entries, late or often.
    for moment, one in sorted(
        [*((one.elapsed, one) for one in entries), *((micros / 1e6, None) for micros in looks)],
        key=lambda pair: (pair[0], pair[1] is None),
    ):
        shown.append(live.due(moment) if one is None else live.add(one))
    shown.append(live.rest())
    assert [one for one in shown if one is not None] == replayed(entries)


@given(st.lists(st.floats(0, 100, allow_nan=False), max_size=40).map(sorted))
def test_there_are_never_more_than_four_a_second(moments: list[float]) -> None:
    shown = times(replayed([entry(round(moment, 6)) for moment in moments]))
    gaps = [later - earlier for earlier, later in pairwise(shown)]
    assert all(gap >= FRAME_SECONDS for gap in gaps)
