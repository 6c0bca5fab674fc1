"""``why`` as people read it: lines that no terminal obeys."""

from __future__ import annotations

import pytest

from beads_workers.core.base.facts import Facts, IssueFacts
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import TrackedIssue
from beads_workers.ui import why
from beads_workers.ui.reasons import Cause, Picture, chain, explain, headline
from beads_workers.ui.time_text import clock

NOW = 1_700_000_000.0
A, B = IssueId("a"), IssueId("b")
BLOCKED = TrackedIssue(A, "hide \x1b[8m me", "open", waits_for=(B,))


def picture(*seen: TrackedIssue, state: str = "paused") -> Picture:
    """A paused fleet, unless said otherwise."""
    facts = Facts(state, "run-1", attempts_max=3, slots=2)
    return Picture(facts, NOW, lambda at: clock(at, NOW), {s.issue_id: s for s in seen})


def lines(shown: Picture) -> list[str]:
    """What ``why a`` prints."""
    reasons = explain(A, shown)
    head = headline(A, reasons, shown)
    return list(why.issue_lines(A, shown.seen.get(A), head, reasons, chain(A, shown)))


def test_an_issue_is_its_headline_what_changes_it_and_what_it_waits_for() -> None:
    assert lines(picture(BLOCKED, TrackedIssue(B, "second", "in_progress", "bob"))) == [
        "a hide \\x1b[8m me",
        "  it waits for b, which is in progress, bob",
        "  -> it is ready when b is closed",
        "     waits for b second: in progress, bob",
        "also: the fleet is paused",
        "  -> 'beads-workers resume'",
    ]


@pytest.mark.parametrize("standing", ["asked", "awaits_approval", "quarantined"])
@pytest.mark.parametrize(("status", "waits"), [("blocked", True), ("deferred", False)])
def test_what_a_person_has_put_off_waits_for_nothing_else(
    standing: str, status: str, waits: bool
) -> None:
    facts = Facts("running", slots=2, issues=(IssueFacts("a", standing=standing),))
    shown = Picture(facts, NOW, lambda at: "", {A: TrackedIssue(A, "x", status)})
    causes = [each.cause.value for each in explain(A, shown)]
    assert (causes[0] == standing) is waits, causes


def test_that_no_fleet_runs_is_not_said_twice() -> None:
    shown = picture(BLOCKED, TrackedIssue(B, "second", "open"), state="none")
    assert not any("no fleet" in line for line in lines(shown))


def test_the_overview_counts_and_names_the_first_few() -> None:
    many = [TrackedIssue(IssueId(f"n{n}\n"), "x", "in_progress", "bob") for n in range(7)]
    shown = picture(*many)
    found = list(why.overview_lines(why.survey(shown.seen, shown), shown))
    assert found[0] == "the fleet is paused; 0 ready, 0 under way"
    assert found[1:3] == ["  -> 'beads-workers resume'", ""]
    assert " ".join(found[3].split()) == "7 in progress by others n0⏎, n1⏎, n2⏎, n3⏎, n4⏎, ..."
    assert len(found) == 4


def test_what_comes_next_is_the_last_line() -> None:
    facts = Facts(
        "running", slots=2, issues=(IssueFacts("a", standing="cooling", again_seconds=5),)
    )
    shown = Picture(facts, NOW, lambda at: f"T{at - NOW:+.0f}", {A: TrackedIssue(A, "x", "open")})
    found = list(why.overview_lines(why.survey([A], shown), shown))
    assert found[-1] == "next: a is tried again at T+5, in 5 s"


def test_a_fleet_that_waits_for_its_time_says_when_it_begins() -> None:
    facts = Facts("waiting", slots=2, begins_at=NOW + 90.0, issues=(IssueFacts("a"),))
    shown = Picture(facts, NOW, lambda at: f"T{at - NOW:+.0f}", {A: TrackedIssue(A, "x", "open")})
    said = "\n".join(lines(shown))
    assert "ready, but the fleet begins at T+90, in 1 min 30 s (--start-at)" in said
    assert "'beads-workers resume' begins at once" in said


def test_every_cause_that_can_group_issues_has_a_name() -> None:
    fleet = {
        Cause.NO_FLEET, Cause.RECOVERING, Cause.PAUSED, Cause.DRAINING, Cause.STOPPING,
        Cause.TRACKER, Cause.LIMIT, Cause.NO_WORKERS, Cause.BUSY, Cause.BEHIND,
        Cause.ACCOUNT,
    }  # fmt: skip
    assert set(Cause) - fleet - {Cause.CLOSED, Cause.NOT_FOUND} == set(why.GROUPS)
