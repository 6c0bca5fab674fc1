"""Checks side by side: in order, each for itself, and not for ever."""

from __future__ import annotations

import threading

from beads_workers.checks.rules import ok
from beads_workers.checks.runner import ScheduledCheck, carry_out


def test_they_come_in_order_whatever_ends_first() -> None:
    second_is_through = threading.Event()

    def first() -> object:
        second_is_through.wait(10)
        return ok("first", "")

    def second() -> object:
        second_is_through.set()
        return [ok("second", "a"), ok("second", "b")]

    jobs = [
        ScheduledCheck("first", first),
        ScheduledCheck("second", second),
        ScheduledCheck("none", lambda: None),
    ]  # type: ignore[arg-type]
    assert [check.name for _, check in carry_out(jobs)] == ["first", "second", "second"]


def test_one_that_breaks_is_a_line_of_its_own_and_stops_no_other() -> None:
    def broken() -> None:
        raise PermissionError(13, "Permission denied")

    jobs = [ScheduledCheck("broken", broken), ScheduledCheck("sound", lambda: ok("sound", ""))]
    found = [check for _, check in carry_out(jobs)]
    assert [(c.name, c.status.value) for c in found] == [("broken", "warn"), ("sound", "ok")]
    assert "PermissionError" in found[0].text


def test_one_that_hangs_is_left_behind() -> None:
    for_ever = threading.Event()
    waited_for: list[str] = []
    jobs = [
        ScheduledCheck("stuck", for_ever.wait, patience_seconds=0.3),
        ScheduledCheck("sound", lambda: ok("sound", "")),
    ]  # type: ignore[arg-type, list-item]
    found = [c for _, c in carry_out(jobs, waited_for.append)]
    for_ever.set()
    assert [(c.name, c.status.value) for c in found] == [("stuck", "warn"), ("sound", "ok")]
    assert waited_for == ["stuck"]
