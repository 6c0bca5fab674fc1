"""What viewers of the live page are told: the newest of each topic, and attempts once each."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from beads_workers.core.records.issues import Issues
from beads_workers.core.views.history import fold
from beads_workers.ui.web_state import ATTEMPTS_MAX, VIEWERS_MAX, PageState, ended_attempts, frame
from tests.support.journals import HOSTILE_TITLES, night


def events(chunk: bytes) -> list[tuple[str, Any]]:
    """The events of one chunk of a stream."""
    blocks = [block for block in chunk.decode("ascii").split("\n\n") if block]
    parsed = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
    return [(each["event"], json.loads(each["data"])) for each in parsed if "event" in each]


def row(n: int) -> tuple[str, str, str, int, float, float, str]:
    """An attempt that ended."""
    return ("W1", f"a-{n}", "A", 1, float(n), n + 1.0, "success")


def test_an_event_is_one_line_of_data_whatever_it_holds() -> None:
    for title in HOSTILE_TITLES:
        event = frame("snapshot", {"title": title})
        assert event.endswith(b"\n\n") and event.count(b"\n") == 3 and event.isascii()
        assert events(event) == [("snapshot", {"title": title})]


def test_what_was_overtaken_is_not_sent() -> None:
    shown = PageState()
    stream = shown.follow()
    assert next(stream) == b"retry: 1000\n\n"
    for n in range(5):
        shown.say("snapshot", {"n": n})
    assert ("snapshot", {"n": 4}) in events(next(stream))
    shown.say("fleet", {"state": "live"})
    assert events(next(stream)) == [("fleet", {"state": "live"})]


def test_the_same_once_more_wakes_nobody() -> None:
    shown = PageState()
    stream = shown.follow()
    shown.say("fleet", {"state": "live"})
    list(islice(stream, 2))
    shown.say("fleet", {"state": "live"})
    shown.say("snapshot", {})
    assert events(next(stream)) == [("snapshot", {})]


def test_attempts_come_once_and_anew_for_another_run() -> None:
    shown = PageState()
    shown.begin()
    shown.add([row(n) for n in range(3)])
    stream = shown.follow()
    next(stream)
    ((_, told),) = events(next(stream))
    assert told["anew"] and [each[1] for each in told["rows"]] == ["a-0", "a-1", "a-2"]
    shown.add([row(3)])
    ((_, told),) = events(next(stream))
    assert not told["anew"] and [each[1] for each in told["rows"]] == ["a-3"]
    shown.begin()
    shown.add([row(9)])
    ((_, told),) = events(next(stream))
    assert told["anew"] and [each[1] for each in told["rows"]] == ["a-9"]


def test_whoever_has_missed_what_is_kept_begins_anew() -> None:
    shown = PageState()
    shown.begin()
    stream = shown.follow()
    list(islice(stream, 2))
    shown.add([row(n) for n in range(ATTEMPTS_MAX + 10)])
    ((_, told),) = events(next(stream))
    assert told["anew"] and told["dropped"] == 10 and len(told["rows"]) == ATTEMPTS_MAX


def test_so_many_may_look() -> None:
    shown = PageState()
    assert all(shown.enter() for _ in range(VIEWERS_MAX))
    assert not shown.enter()
    shown.leave()
    assert shown.enter()


def test_the_attempts_are_those_of_the_report() -> None:
    entries = sorted(night(300, 8).entries, key=lambda entry: entry.elapsed)
    told = list(ended_attempts(Issues(), entries))
    history = fold(entries)
    assert history is not None
    wanted = {
        (a.worker_id, a.issue_id, a.attempt, round(a.began, 3), a.outcome)
        for a in history.attempts
        if a.ended is not None
    }
    assert {(t[0], t[1], t[3], t[4], t[6]) for t in told} >= wanted
    assert len(told) == len({(t[0], t[1], t[3], t[4]) for t in told}) >= 290
