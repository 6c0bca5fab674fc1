"""What the demo checks at its end: every promise has a fault here that breaks it, and only it."""

from __future__ import annotations

from typing import Any

import pytest

from beads_workers.cli.throwaway import Promise, what_was_checked
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.demo.account import OUTCOMES, DemoAccount, Killed, promises, what_was_seen
from beads_workers.demo.backlog import BACKLOG, ItemFate

KILLED = Killed("W3", 42, "shop-20")
ONCE, TWICE, LEFT, LIVING, WORDS, SHOW = range(6)


class Demo:
    """A run that went as it should, as records, and what else is looked at."""

    def __init__(self) -> None:
        self.records: list[rec.Record] = [rec.WorkerStarted("W3", 42), rec.WorkerStarted("W3", 43)]
        self.tracker: dict[str, str] = {}
        self.living: list[int] = []
        self.killed: Killed | None = KILLED
        for item in BACKLOG:
            outcomes = OUTCOMES[item.fate]
            for attempt, outcome in enumerate(outcomes, 1):
                self.attempt(item.issue_id, attempt, outcome, attempt == len(outcomes))
            hopeless = item.fate is ItemFate.HOPELESS
            self.tracker[item.issue_id] = "blocked" if hopeless else "closed"
            if not hopeless:
                self.records.append(rec.SettledRecord(item.issue_id, "close", "applied"))
        totals = {"done": len(BACKLOG) - 1, "failed": 8, "quarantined": 1}
        row = {"issue_id": "shop-31", "attempts": 3, "error": "no\x1b[2J"}
        self.ended: dict[str, Any] = {
            "totals": totals,
            "quarantined": [row],
            "uptime_seconds": 40.0,
            "source_calls": {"count": 100, "seconds": 0.3},
        }

    def attempt(self, issue_id: str, attempt: int, outcome: str, last: bool) -> None:
        """One more, from its beginning to its end."""
        ended = "finish" if outcome == "success" else "quarantined" if last else "requeue"
        worker = "W3" if outcome == "lost" else "W5"
        self.records.append(rec.Started(issue_id, worker, attempt, "r"))
        self.records.append(rec.Finished(issue_id, worker, attempt, "r", outcome, ended))

    def account(self) -> DemoAccount:
        """What the journal says."""
        account = DemoAccount()
        for record in self.records:
            account.add(Entry(record, 0.0, 0.0))
        return account

    def promises(self) -> list[Promise]:
        """All of them, checked."""
        found = promises(self.account(), self.ended, self.tracker, self.living, self.killed)
        return list(found)

    def broken(self) -> list[int]:
        """Which promises are broken."""
        return [number for number, promise in enumerate(self.promises()) if promise.broken]


def test_a_run_as_it_should_be_keeps_every_promise() -> None:
    assert Demo().broken() == []
    assert not any("BROKEN" in text for text in what_was_checked(Demo().promises(), "the tracker"))


def closed_twice(demo: Demo) -> None:
    """A close too many."""
    demo.records.append(rec.SettledRecord("shop-1", "close", "applied"))


def reopened(demo: Demo) -> None:
    """The tracker knows better than the journal."""
    demo.tracker["shop-1"] = "open"


def missing(demo: Demo) -> None:
    """The tracker has lost one."""
    del demo.tracker["shop-1"]


def in_two_hands(demo: Demo) -> None:
    """A second worker begins before the first one has ended."""
    demo.records.insert(3, rec.Started("shop-1", "W7", 1, "r2"))


def in_progress(demo: Demo) -> None:
    """Nobody works on it any more."""
    demo.tracker["shop-1"] = "in_progress"


def left_running(demo: Demo) -> None:
    """A process."""
    demo.living.append(4711)


def other_figures(demo: Demo) -> None:
    """The fleet says something else than its journal."""
    demo.ended["totals"]["failed"] += 1


def nobody_killed(demo: Demo) -> None:
    """The hand came too late."""
    demo.killed = None


@pytest.mark.parametrize(
    ("fault", "breaks"),
    [
        (closed_twice, [ONCE]),
        (reopened, [ONCE]),
        (missing, [ONCE]),
        (in_two_hands, [TWICE]),
        (in_progress, [ONCE, LEFT]),
        (left_running, [LIVING]),
        (other_figures, [WORDS]),
        (nobody_killed, [SHOW]),
    ],
)
def test_each_fault_breaks_its_promise(fault: Any, breaks: list[int]) -> None:
    demo = Demo()
    fault(demo)
    assert demo.broken() == breaks
    said = "\n".join(what_was_checked(demo.promises(), "the tracker"))
    assert said.count("BROKEN") == len(breaks)


def test_an_issue_that_went_otherwise_is_named() -> None:
    demo = Demo()
    demo.records = [r for r in demo.records if getattr(r, "issue_id", "") != "shop-2"]
    demo.attempt("shop-2", 1, "success", True)
    demo.records.append(rec.SettledRecord("shop-2", "close", "applied"))
    assert demo.promises()[SHOW].broken == ("shop-2: success",)


def test_who_steers_is_not_held_to_the_script() -> None:
    demo = Demo()
    demo.killed, demo.tracker["shop-1"] = None, "open"
    demo.records.append(rec.PutOnHold("shop-1"))
    assert demo.broken() == []
    closed_twice(demo)
    assert demo.broken() == [ONCE]


@pytest.mark.parametrize(("reason", "asked"), [("user_requested", True), ("idle_timeout", False)])
def test_a_stop_before_the_end_is_seen(reason: str, asked: bool) -> None:
    demo = Demo()
    demo.records.append(rec.RunChanged("stopping", reason))
    assert demo.account().stopped is asked


def test_the_figures_are_those_of_the_run_and_its_texts_are_escaped() -> None:
    demo = Demo()
    said = "\n".join(what_was_seen(demo.account(), demo.ended, demo.killed))
    assert f"{len(BACKLOG) - 1} of {len(BACKLOG)} issues closed in 40.0 s" in said
    assert "W3 (pid 42, now 43) at shop-20; W5 did it" in said
    assert "shop-31, 3 attempts; no\\x1b[2J" in said


def test_what_did_not_happen_is_not_told() -> None:
    demo = Demo()
    demo.records, demo.ended["quarantined"] = [], []
    said = "\n".join(what_was_seen(demo.account(), demo.ended, None))
    assert len(said.splitlines()) == 2
