"""Followers: each gets the lines that it asked for, in batches; nothing else is kept."""

from __future__ import annotations

from beads_workers.core.records.journal import (
    KINDS,
    Claimed,
    Entry,
    Noted,
    RunChanged,
    encode,
    heads,
)
from beads_workers.runtime.control_socket import ALL, NOTHING, PUBLISH_SECONDS, Followers

CLAIMED = encode(Entry(Claimed("bw-1", 'says {"v":1,"e":"run_changed","t":0', 2), 1.0, 1.0))
CHANGED = encode(Entry(RunChanged("draining"), 2.0, 2.0))
NOTED = encode(Entry(Noted("warning", '{"v":1,"e":"run_changed",'), 3.0, 3.0))
ONLY = frozenset({"run_changed"})


def sent(followers: Followers, now: float = 0.0) -> dict[int, bytes]:
    """Who gets what at this moment."""
    return {number: lines for numbers, lines in followers.flush(now) for number in numbers}


def test_each_gets_what_it_asked_for_whole_and_in_order() -> None:
    followers = Followers()
    followers.add(1, ALL)
    followers.add(2, ONLY)
    followers.add(3, frozenset({"noted", "run_changed"}))
    followers.add(4, NOTHING)
    followers.publish(CLAIMED + CHANGED + NOTED + CHANGED)
    assert sent(followers) == {
        1: CLAIMED + CHANGED + NOTED + CHANGED,
        2: CHANGED + CHANGED,
        3: CHANGED + NOTED + CHANGED,
    }


def test_a_line_that_quotes_another_is_not_taken_for_it() -> None:
    followers = Followers()
    followers.add(1, ONLY)
    followers.publish(CLAIMED + NOTED)
    assert followers.deadline() is None


def test_lines_that_nobody_wants_wake_nobody() -> None:
    followers = Followers()
    followers.publish(CLAIMED)
    followers.add(1, ONLY)
    followers.add(2, NOTHING)
    followers.publish(CLAIMED)
    assert followers.deadline() is None and sent(followers) == {}


def test_batches_leave_a_few_times_a_second() -> None:
    followers = Followers()
    followers.add(1, ALL)
    followers.publish(CLAIMED)
    assert sent(followers, 5.0) == {1: CLAIMED}
    followers.publish(CHANGED)
    due = followers.deadline()
    assert due == 5.0 + PUBLISH_SECONDS
    assert sent(followers, due - 0.001) == {}
    assert sent(followers, due) == {1: CHANGED}
    assert followers.deadline() is None


def test_whoever_asks_again_follows_what_it_asked_for_last() -> None:
    followers = Followers()
    followers.add(1, ALL)
    followers.add(1, ONLY)
    followers.publish(CLAIMED + CHANGED)
    assert sent(followers) == {1: CHANGED}


def test_who_has_left_follows_no_more_and_the_others_do() -> None:
    followers = Followers()
    followers.add(1, NOTHING)
    followers.add(2, ALL)
    followers.add(3, ALL)
    followers.discard(1)
    followers.discard(2)
    followers.discard(7)
    assert [number in followers for number in (1, 2, 3)] == [False, False, True]
    followers.publish(CLAIMED)
    assert sent(followers) == {3: CLAIMED}


def test_every_kind_has_a_head_and_an_unknown_one_has_no_lines() -> None:
    assert all(len({*heads({kind})}) == len(heads({kind})) >= 1 for kind in KINDS)
    assert len({*heads(KINDS)}) == len(heads(KINDS)) >= len(KINDS)
    assert CHANGED.startswith(heads(ONLY)) and not CLAIMED.startswith(heads(ONLY))
    assert heads({"of a newer version"}) == ()
