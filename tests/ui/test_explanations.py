"""Reasons as a table: what the tracker and the scheduler know of an issue, and what is said."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from beads_workers.core.base.facts import AccountFacts, Facts, IssueFacts, TrackerTrouble
from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.source import TrackedIssue
from beads_workers.ui.reasons import Cause, Picture, epoch, explain, headline

NOW = 1_700_000_000.0
A = IssueId("a")
RUNNING = Facts("running", "run-1", "bd", attempts_max=3, slots=2, look_seconds=4.0)
US, THEM = "beads-workers/host/run-1", "beads-workers/host/run-0"
LATER = "2023-11-14T23:00:00Z"


def picture(*seen: TrackedIssue, facts: Facts = RUNNING, **others: Any) -> Picture:
    """What is known; the tracker lists everything open as ready."""
    ready = frozenset(each.issue_id for each in seen if each.status == "open")
    return Picture(
        facts,
        NOW,
        lambda at: f"T{at - NOW:+.0f}",
        {each.issue_id: each for each in seen},
        **{"ready": ready, **others},
    )


def issue(issue_id: str = "a", status: str = "open", **fields: Any) -> TrackedIssue:
    """An issue; what it waits for as plain texts."""
    return TrackedIssue(IssueId(issue_id), f"title of {issue_id}", status, **fields)


def causes(shown: Picture) -> list[Cause]:
    """The causes for issue ``a``, in order."""
    return [reason.cause for reason in explain(A, shown)]


def headline_of(shown: Picture) -> str:
    """The headline for issue ``a``."""
    return headline(A, explain(A, shown), shown)


def known(**fields: Any) -> Facts:
    """A running fleet that knows this of issue ``a``."""
    return replace(RUNNING, issues=(IssueFacts("a", **fields),))


@pytest.mark.parametrize(
    ("fields", "cause", "words"),
    [
        ({"status": "closed", "close_reason": "done"}, Cause.CLOSED, "closed: done"),
        ({"status": "closed", "closed_at": LATER}, Cause.CLOSED, "closed at T+2800"),
        ({"status": "closed", "assignee": "bob"}, Cause.CLOSED, "last assigned to bob"),
        ({"status": "in_progress", "assignee": "bob"}, Cause.IN_PROGRESS, "in progress by bob"),
        ({"status": "in_progress"}, Cause.IN_PROGRESS, "in nobody's name"),
        ({"status": "in_progress", "assignee": US}, Cause.IN_PROGRESS, "by this fleet just now"),
        ({"status": "in_progress", "assignee": THEM}, Cause.IN_PROGRESS, "host/run-0"),
        ({"assignee": "bob"}, Cause.ASSIGNED, "assigned to bob"),
        ({"deferred_until": LATER}, Cause.DEFERRED, "deferred until T+2800, in 46 min 40 s"),
        ({"status": "deferred"}, Cause.DEFERRED, "deferred"),
        ({"status": "blocked"}, Cause.STATUS, "its status is blocked"),
        ({"issue_type": "epic"}, Cause.FILTERED, "it is an epic: it holds the work of others"),
        ({"issue_type": "message"}, Cause.FILTERED, "it is a message: that is no work"),
        ({"hidden_by": "pinned"}, Cause.STATUS, "it is pinned: kept beside the backlog"),
    ],
)
def test_what_the_tracker_shows_is_said_in_its_words(
    fields: dict[str, Any], cause: Cause, words: str
) -> None:
    shown = picture(issue(**fields))
    assert causes(shown) == [cause]
    assert words in headline_of(shown)
    assert explain(A, shown)[0].remedy


def test_a_deferral_that_is_over_holds_nothing_back() -> None:
    assert causes(picture(issue(deferred_until="2023-11-14T20:00:00.123456789Z"))) == [Cause.DUE]


def test_a_child_waits_for_its_parent_to_be_due() -> None:
    shown = picture(issue(parents=(IssueId("e"),)), issue("e", deferred_until=LATER))
    assert causes(shown) == [Cause.DEFERRED]
    assert "its parent e is deferred until T+2800" in headline_of(shown)


def test_an_issue_that_does_not_exist_is_not_found() -> None:
    assert causes(picture()) == [Cause.NOT_FOUND]
    assert "'beads-workers list --all'" in explain(A, picture())[0].remedy


def test_a_job_that_was_sent_and_is_over_is_not_looked_for_in_a_tracker() -> None:
    shown = picture(is_pushed=True)
    assert causes(shown) == [Cause.NOT_FOUND]
    assert "it is over, or never came" in headline_of(shown)
    assert "beads-workers logs a" in explain(A, shown)[0].remedy


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (Filters(labels=("x", "night")), "filtered by --label night: its labels are x, y"),
        (Filters(labels_any=("p", "q")), "filtered by --label-any p or q: its labels are x, y"),
        (Filters(exclude_labels=("y",)), "filtered by --exclude-label y: its labels are x, y"),
        (Filters(types=("bug",)), "filtered by --type bug: its type is task"),
        (Filters(priorities=(0, 1)), "filtered by --priority 0 or 1: its priority is 2"),
        (Filters(parent="e9"), "filtered by --parent e9: its parent is e1"),
        (Filters(only=("b", "c")), "filtered by only b, c: it was not named at the start"),
        (
            Filters(bring=("function", "command")),
            "it has no function of its own and no command of its own,"
            " and the fleet has none for it",
        ),
    ],
)
def test_each_filter_is_named_with_the_issues_own_value(wanted: Filters, text: str) -> None:
    shown = picture(
        issue(labels=("x", "y"), parents=(IssueId("e1"),)),
        issue("e1", issue_type="epic"),
        facts=replace(RUNNING, filters=wanted),
    )
    assert [reason.text for reason in explain(A, shown)] == [text]


def test_a_filter_that_lets_it_through_is_no_reason() -> None:
    wanted = Filters(("x",), ("x", "z"), ("q",), ("task",), (2,), "e0", ("a",))
    shown = picture(
        issue(labels=("x",), parents=(IssueId("e1"),)),
        issue("e1", parents=(IssueId("e0"),)),
        facts=replace(RUNNING, filters=wanted),
    )
    assert causes(shown) == [Cause.DUE]


@pytest.mark.parametrize(
    ("fields", "cause", "words"),
    [
        (
            {"in_flight": "running", "worker_id": "W3", "running_seconds": 12.0, "attempt": 2},
            Cause.RUNNING,
            "W3 has had it for 12 s, attempt 2 of 3",
        ),
        (
            {"in_flight": "orphaned", "worker_id": "W3", "owner_pid": 77},
            Cause.LOST,
            "pid 77 still lives",
        ),
        ({"in_flight": "delegating", "worker_id": "W3"}, Cause.DELEGATING, "handed over to W3"),
        ({"in_flight": "claimed", "position": 4}, Cause.QUEUED, "number 4 in the queue"),
        ({"in_flight": "closing"}, Cause.UNCLOSED, "close is still pending"),
        ({"standing": "unclosed", "pending_tries": 2}, Cause.UNCLOSED, "refused 2 times"),
        (
            {"in_flight": "landing", "behind": ("app-3",), "gate_seconds": 40.0},
            Cause.WAITING_TO_LAND,
            "waits to land behind app-3; verify has run for 40 s",
        ),
        (
            {"in_flight": "shelved", "behind": ("b", "c", "d", "e", "f")},
            Cause.WAITING_TO_LAND,
            "waits to land behind b, c, d and 2 more",
        ),
        ({"in_flight": "releasing"}, Cause.SETTLING, "being requeued"),
        (
            {"in_flight": "quarantining", "standing": "quarantined"},
            Cause.SETTLING,
            "being quarantined",
        ),
        ({"standing": "on_hold"}, Cause.ON_HOLD, "a person put it on hold"),
        (
            {"standing": "quarantined", "charged": 3, "error": "boom"},
            Cause.QUARANTINED,
            "quarantined after 3 attempts; last error: boom",
        ),
        (
            {"standing": "quarantined", "error": "its branch conflicts"},
            Cause.QUARANTINED,
            "quarantined: its branch conflicts",
        ),
        (
            {"standing": "cooling", "again_seconds": 90.0, "attempt": 2, "error": "boom"},
            Cause.COOLING,
            "cooling down until T+90, in 1 min 30 s: then attempt 2 of 3; last error: boom",
        ),
    ],
)
def test_what_the_scheduler_knows_is_said(fields: dict[str, Any], cause: Cause, words: str) -> None:
    waits = "quarantined" in fields.values() or "shelved" in fields.values()
    shown = picture(issue(status="blocked" if waits else "open"), facts=known(**fields))
    assert causes(shown) == [cause]
    assert words in headline_of(shown)
    assert explain(A, shown)[0].remedy


@pytest.mark.parametrize(
    ("facts", "cause", "words"),
    [
        (Facts("none"), Cause.NO_FLEET, "ready, but no fleet is running here"),
        (replace(RUNNING, state="recovering"), Cause.RECOVERING, "an earlier run left"),
        (replace(RUNNING, state="paused"), Cause.PAUSED, "ready, but the fleet is paused"),
        (replace(RUNNING, state="draining"), Cause.DRAINING, "draining"),
        (replace(RUNNING, state="settling"), Cause.STOPPING, "stopping"),
        (replace(RUNNING, slots=0), Cause.NO_WORKERS, "has no workers"),
        (replace(RUNNING, slots=0, starting=3), Cause.NO_WORKERS, "3 are starting"),
        (replace(RUNNING, issues_max=5, ended=5), Cause.LIMIT, "--limit 5 is reached"),
        (replace(RUNNING, busy=2), Cause.BUSY, "all 2 workers are busy"),
        (
            replace(RUNNING, trouble=TrackerTrouble("locked", "wait", 4, 61.0, 8.0)),
            Cause.TRACKER,
            "has failed 4 times in a row, for 1 min 1 s: locked",
        ),
        (RUNNING, Cause.DUE, "it can be taken: the tracker is asked again at T+4, in 4 s"),
    ],
)
def test_a_ready_issue_that_is_not_taken_has_the_fleets_reasons(
    facts: Facts, cause: Cause, words: str
) -> None:
    shown = picture(issue(), facts=facts)
    assert causes(shown)[0] is cause
    assert words in headline_of(shown)


def test_behind_busy_workers_the_more_urgent_ones_are_counted() -> None:
    facts = replace(RUNNING, busy=2, unsent=1, listed=(1, 2, 9, 9, 9))
    reasons = explain(A, picture(issue(), facts=facts))
    assert [reason.cause for reason in reasons] == [Cause.BUSY, Cause.BEHIND]
    assert reasons[1].text.startswith("4 issues")


def test_every_reason_that_holds_is_given_the_most_decisive_first() -> None:
    shown = picture(
        issue(assignee="bob", waits_for=(IssueId("b"),), labels=("x",)),
        issue("b"),
        facts=replace(
            known(standing="cooling", again_seconds=5.0),
            state="paused",
            filters=Filters(labels=("y",)),
        ),
    )
    assert causes(shown) == [
        Cause.ASSIGNED,
        Cause.BLOCKED,
        Cause.FILTERED,
        Cause.COOLING,
        Cause.PAUSED,
    ]


def test_what_the_tracker_does_not_call_ready_is_not_promised() -> None:
    assert causes(picture(issue(), ready=frozenset())) == [Cause.NOT_READY]


def test_a_tracker_that_cannot_be_looked_at_leaves_what_the_fleet_knows() -> None:
    shown = picture(unseen="bd list: locked", facts=known(standing="quarantined", charged=3))
    assert causes(shown) == [Cause.QUARANTINED]
    assert causes(picture(unseen="bd list: locked")) == [Cause.TRACKER]
    assert headline_of(picture(unseen="locked")) == "the tracker could not be looked at: locked"


def test_what_was_quarantined_and_is_open_again_is_ready() -> None:
    assert causes(picture(issue(), facts=known(standing="quarantined", charged=3))) == [Cause.DUE]


def test_a_claim_of_our_own_ended_run_is_requeued_by_the_next_start() -> None:
    facts = Facts("none", "run-1")
    (first, second) = explain(A, picture(issue(status="in_progress", assignee=US), facts=facts))
    assert "held by a run that has ended" in first.text
    assert "next 'beads-workers start' requeues it" in first.remedy
    assert second.cause is Cause.NO_FLEET


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:01:00.123456789+01:00", 60.123456),
        ("1970-01-01T00:01:00", 60.0),
        ("soon", None),
        ("", None),
    ],
)
def test_a_trackers_time_is_read_or_is_none(text: str, seconds: float | None) -> None:
    assert epoch(text) == seconds


LIMITED = AccountFacts("claude", "limited", "5-hour limit", "", "", 2460.0, 2490.0)
LOGIN = AccountFacts("claude", "needs_person", "not logged in", "", "claude /login", None, 900.0)


def test_an_issue_that_waits_for_an_account_says_until_when() -> None:
    fleet = replace(RUNNING, accounts=(LIMITED,), all_closed=True)
    shown = picture(issue(), facts=fleet)
    (reason,) = explain(A, shown)
    assert (reason.cause, reason.until) == (Cause.ACCOUNT, NOW + 2490.0)
    assert headline_of(shown) == "ready, but claude: 5-hour limit until T+2460, in 41 min"


def test_an_account_that_needs_a_person_says_who_mends_it() -> None:
    fleet = replace(RUNNING, accounts=(LOGIN,), all_closed=True)
    (reason,) = explain(A, picture(issue(), facts=fleet))
    assert reason.text == "claude: not logged in; tried again at T+900, in 15 min"
    assert reason.remedy == "mend it with 'claude /login', then 'beads-workers resume'"


def test_while_another_agent_works_only_what_is_parked_waits() -> None:
    both = replace(RUNNING, accounts=(LIMITED,), issues=(IssueFacts("a", parked=True),))
    assert causes(picture(issue(), facts=both)) == [Cause.ACCOUNT]
    other = replace(both, issues=())
    assert Cause.ACCOUNT not in causes(picture(issue(), facts=other))


def test_accounts_travel_as_json() -> None:
    fleet = replace(RUNNING, accounts=(LIMITED, LOGIN), all_closed=True)
    assert from_plain(Facts, json.loads(json.dumps(asdict(fleet)))) == fleet
