"""The rule for what a settlement may write, as a table."""

from __future__ import annotations

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement
from beads_workers.trackers.settlement_rules import Ownership, pending, rule

OURS = "run-1"
WORKER = "run-1/W3"
THEIRS = "alice"

A, N, F = Result.APPLIED, Result.NOT_OURS, Result.FOUND_CLOSED

#   action, handed over, what is found (status, assignee), answer, what is written
TABLE = [
    (Action.CLOSE, False, ("in_progress", OURS), A, ("closed", OURS)),
    (Action.CLOSE, False, ("in_progress", WORKER), A, ("closed", OURS)),
    (Action.CLOSE, False, ("open", OURS), A, ("closed", OURS)),
    (Action.CLOSE, False, ("blocked", OURS), A, ("closed", OURS)),
    (Action.CLOSE, False, ("open", ""), N, None),
    (Action.CLOSE, False, ("in_progress", THEIRS), N, None),
    (Action.CLOSE, False, ("in_progress", "run-10"), N, None),
    (Action.CLOSE, False, ("closed", THEIRS), F, None),
    (Action.CLOSE, False, ("tombstone", ""), F, None),
    (Action.CLOSE, True, ("open", ""), A, ("closed", OURS)),
    (Action.CLOSE, True, ("in_progress", ""), A, ("closed", OURS)),
    (Action.CLOSE, True, ("blocked", ""), N, None),
    (Action.CLOSE, True, ("in_progress", THEIRS), N, None),
    (Action.RELEASE, False, ("in_progress", OURS), A, ("open", "")),
    (Action.RELEASE, False, ("open", OURS), A, ("open", "")),
    (Action.RELEASE, False, ("open", ""), A, None),
    (Action.RELEASE, False, ("blocked", OURS), N, None),
    (Action.RELEASE, False, ("in_progress", ""), N, None),
    (Action.RELEASE, True, ("in_progress", ""), A, ("open", "")),
    (Action.RELEASE, True, ("in_progress", WORKER), A, ("open", "")),
    (Action.RELEASE, True, ("in_progress", THEIRS), N, None),
    (Action.RELEASE, False, ("closed", OURS), F, None),
    (Action.QUARANTINE, False, ("in_progress", OURS), A, ("blocked", "")),
    (Action.QUARANTINE, False, ("blocked", OURS), A, ("blocked", "")),
    (Action.QUARANTINE, False, ("blocked", ""), A, None),
    (Action.QUARANTINE, False, ("open", ""), N, None),
    (Action.QUARANTINE, True, ("in_progress", ""), A, ("blocked", "")),
    (Action.QUARANTINE, False, ("closed", ""), F, None),
    (Action.HAND_OVER, False, ("in_progress", OURS), A, ("in_progress", "")),
    (Action.HAND_OVER, False, ("in_progress", THEIRS), N, None),
    (Action.HAND_OVER, False, ("closed", THEIRS), F, None),
    (Action.REOPEN, False, ("blocked", ""), A, ("open", "")),
    (Action.REOPEN, False, ("open", ""), A, None),
    (Action.REOPEN, False, ("in_progress", OURS), N, None),
    (Action.REOPEN, False, ("blocked", THEIRS), N, None),
    (Action.REOPEN, False, ("closed", OURS), F, None),
    (Action.CONFIRM, False, ("in_progress", OURS), A, None),
    (Action.CONFIRM, False, ("blocked", OURS), A, None),
    (Action.CONFIRM, False, ("open", ""), N, None),
    (Action.CONFIRM, False, ("blocked", ""), N, None),
    (Action.CONFIRM, False, ("in_progress", THEIRS), N, None),
    (Action.CONFIRM, False, ("closed", OURS), N, None),
    (Action.CONFIRM, False, ("tombstone", ""), N, None),
]


@pytest.mark.parametrize(("action", "handed_over", "found", "answer", "written"), TABLE)
def test_the_rule(
    action: Action,
    handed_over: bool,
    found: tuple[str, str],
    answer: Result,
    written: tuple[str, str] | None,
) -> None:
    settlement = Settlement(action, IssueId("x"), handed_over=handed_over)
    ruling = rule(settlement, Ownership(*found), OURS)
    assert ruling.result is answer
    assert ruling.write == (None if written is None else Ownership(*written))
    assert bool(ruling.error) == (answer is N)


@pytest.mark.parametrize("action", Action)
def test_what_is_not_there_is_nobodys(action: Action) -> None:
    assert rule(Settlement(action, IssueId("x")), None, OURS).result is N


def test_what_was_done_is_closed_and_the_rest_requeued_once_each() -> None:
    done, begun, held = IssueId("done"), IssueId("begun"), IssueId("held")
    dead = CrashedRun(OURS, unclosed=(done, done), handed_over=(begun, done))
    writes = pending(dead, [held, done, begun])
    assert [(each.action, each.issue_id, each.handed_over) for each in writes] == [
        (Action.CLOSE, done, True),
        (Action.RELEASE, held, False),
        (Action.RELEASE, begun, True),
    ]


def test_what_a_later_run_knows_of_an_earlier_one_requeues_nothing() -> None:
    # Its own journal tells who may be at work on the rest.
    done, held = IssueId("done"), IssueId("held")
    dead = CrashedRun(OURS, unclosed=(done,), closes_only=True)
    assert [(w.action, w.issue_id) for w in pending(dead, [held, done])] == [(Action.CLOSE, done)]
