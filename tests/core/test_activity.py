"""Throughput in buckets that get coarser, and how long the tracker takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.limits import BUCKETS_MAX
from beads_workers.core.records import journal as rec
from beads_workers.core.views.snapshot import Asking, Throughput


@given(st.lists(st.floats(0, 1e6), max_size=60).map(sorted))
def test_every_completion_is_counted_in_the_bucket_of_its_time(moments: list[float]) -> None:
    throughput = Throughput()
    for moment in moments:
        throughput.add(moment)
    assert len(throughput.done) <= BUCKETS_MAX
    expected = [0] * len(throughput.done)
    for moment in moments:
        expected[int(moment // throughput.bucket_seconds)] += 1
    assert throughput.done == expected


def test_a_turn_is_shown_until_its_cost_is_known() -> None:
    asking = Asking()
    asking.began(rec.RoundTripBegan(3, 0, 8), 1.0)
    assert asking.round_trip is not None and asking.typical_seconds() is None
    asking.ended(rec.Spent(2, 0.5))
    asking.ended(rec.Spent(3, 1.5))
    asking.ended(rec.Spent(3, 1.5))
    assert asking.round_trip is None
    assert list(asking.each) == [0.25, 1.0], "seconds for each call; a turn without calls is none"
