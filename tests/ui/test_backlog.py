"""The backlog: every issue in one state, with its reason; quarantined ones fold by cause."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from beads_workers.core.base.facts import Facts, IssueFacts
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import TrackedIssue
from beads_workers.ui.backlog import IssueBacklog, IssueRow, as_json, backlog, grouped, lines
from beads_workers.ui.reasons import Cause, Picture
from beads_workers.ui.words import STATE_TITLES, State

NOW = 1_700_000_000.0


def seen(issue_id: str, status: str = "open", **more: object) -> TrackedIssue:
    return TrackedIssue(IssueId(issue_id), f"title of {issue_id}", status, **more)  # type: ignore[arg-type]


def picture(
    *issues: TrackedIssue, facts: tuple[IssueFacts, ...] = (), state: str = "running"
) -> Picture:
    """A fleet of two workers that are both busy."""
    fleet = Facts(state, "run-1", attempts_max=3, slots=2, busy=2, issues=facts)
    ready = frozenset(each.issue_id for each in issues)
    return Picture(fleet, NOW, str, {each.issue_id: each for each in issues}, ready)


def found(shown: Picture) -> IssueBacklog:
    return backlog(shown, shown.seen)


def only(shown: Picture, issue_id: str = "a") -> IssueRow:
    return next(row for row in found(shown).rows() if row.issue_id == issue_id)


def test_every_state_has_a_title() -> None:
    assert set(STATE_TITLES) == set(State)
    assert len(set(STATE_TITLES.values())) == len(State)


@pytest.mark.parametrize("state", ["none", "running", "paused", "draining", "recovering"])
def test_an_issue_that_only_waits_for_the_fleet_is_ready(state: str) -> None:
    row = only(picture(seen("a", priority=1), state=state))
    assert (row.state, row.title, row.priority) == (State.READY, "title of a", 1)


@pytest.mark.parametrize(
    ("facts", "state", "at", "attempts"),
    [
        (IssueFacts("a", in_flight="running", worker_id="W2", running_seconds=60.0, attempt=2),
         State.RUNNING, NOW - 60.0, 2),
        (IssueFacts("a", in_flight="claimed", position=3), State.READY, None, 0),
        (IssueFacts("a", in_flight="landing"), State.LANDING, None, 0),
        (IssueFacts("a", standing="unclosed"), State.LANDING, None, 0),
        (IssueFacts("a", standing="cooling", charged=1, again_seconds=30.0, error="boom"),
         State.RETRYING, NOW + 30.0, 1),
        (IssueFacts("a", standing="on_hold"), State.LEFT_ALONE, None, 0),
        (IssueFacts("a", standing="awaits_approval"), State.NEEDS_YOU, None, 0),
    ],
)  # fmt: skip
def test_what_the_fleet_does_with_an_issue_is_its_state(
    facts: IssueFacts, state: State, at: float | None, attempts: int
) -> None:
    status = "blocked" if facts.standing == "awaits_approval" else "open"
    row = only(picture(seen("a", status), facts=(facts,)))
    assert (row.state, row.at, row.attempts) == (state, at, attempts)


def test_a_question_waits_for_a_person() -> None:
    row = only(
        picture(seen("a", "blocked"), facts=(IssueFacts("a", standing="asked", error="Which?"),))
    )
    assert row.state is State.NEEDS_YOU and "Which?" in row.text and "answer a" in row.remedy


def test_a_blocked_issue_names_what_it_waits_for() -> None:
    shown = picture(seen("a", waits_for=(IssueId("b"), IssueId("c"))), seen("b"), seen("c"))
    shown = replace(shown, ready=frozenset({IssueId("b"), IssueId("c")}))
    row = only(shown)
    assert (row.state, row.blocked_by, row.text) == (State.BLOCKED, ("b", "c"), "blocked by b, c")


def test_a_child_is_blocked_by_its_parent_that_waits() -> None:
    shown = picture(
        seen("a", parents=(IssueId("p"),)), seen("p", waits_for=(IssueId("b"),)), seen("b")
    )
    assert (only(shown).state, only(shown).blocked_by) == (State.BLOCKED, ("p",))


def test_an_issue_that_a_person_set_to_blocked_is_blocked_by_nothing_named() -> None:
    row = only(picture(seen("a", "blocked")))
    assert (row.state, row.blocked_by) == (State.BLOCKED, ())


@pytest.mark.parametrize(
    "issue", [seen("a", "deferred"), seen("a", assignee="bob"), seen("a", issue_type="epic")]
)
def test_what_no_fleet_takes_is_left_alone(issue: TrackedIssue) -> None:
    assert only(picture(issue)).state is State.LEFT_ALONE


def test_an_issue_in_progress_elsewhere_is_in_progress() -> None:
    assert only(picture(seen("a", "in_progress", assignee="bob"))).state is State.RUNNING


def test_a_closed_issue_says_when_it_was_closed() -> None:
    row = only(picture(seen("a", "closed", closed_at="2023-11-14T22:13:20Z")))
    assert (row.state, row.at) == (State.CLOSED, NOW)


def quarantined(number: int, error: str) -> IssueFacts:
    return IssueFacts(f"q-{number}", standing="quarantined", charged=3, error=error)


def test_quarantined_issues_fold_by_cause_and_the_most_frequent_stands_first() -> None:
    facts = (
        quarantined(1, "boom"),
        *(quarantined(n, f"q-{n}: cannot parse conf/{n}.toml") for n in range(2, 5)),
    )
    shown = picture(*(seen(each.issue_id, "blocked") for each in facts), facts=facts)
    groups = found(shown).groups
    assert [(g.state, g.cause, [row.issue_id for row in g.rows]) for g in groups] == [
        (State.QUARANTINED, "#: cannot parse #", ["q-2", "q-3", "q-4"]),
        (State.QUARANTINED, "boom", ["q-1"]),
    ]
    assert {(row.title, row.attempts) for row in groups[1].rows} == {("title of q-1", 3)}
    assert found(shown).counts[State.QUARANTINED] == 4


def test_groups_stand_in_the_order_of_the_states_and_urgent_issues_first() -> None:
    shown = picture(
        seen("late", priority=4), seen("soon", priority=0), seen("q-1", "blocked"),
        facts=(quarantined(1, "boom"),),
    )  # fmt: skip
    assert [row.issue_id for row in found(shown).rows()] == ["q-1", "soon", "late"]
    assert sum(found(shown).counts.values()) == 3


@pytest.mark.parametrize(
    ("order", "ids"),
    [("", ["b", "a", "c"]), ("time", ["c", "b", "a"]), ("id", ["a", "b", "c"]),
     ("title", ["c", "a", "b"])],
)  # fmt: skip
def test_the_issues_of_a_group_have_the_order_that_is_asked_for(order: str, ids: list[str]) -> None:
    row = IssueRow("a", "m", State.RETRYING, Cause.COOLING, "", priority=2, at=30.0)
    rows = [row, replace(row, issue_id="b", title="z", priority=1, at=20.0),
            replace(row, issue_id="c", title="B", priority=3, at=10.0)]  # fmt: skip
    (group,) = grouped(rows, order)
    assert [each.issue_id for each in group.rows] == ids


def test_what_was_claimed_after_the_listing_is_in_the_backlog() -> None:
    late = IssueFacts("new", in_flight="running", worker_id="W1", running_seconds=1.0)
    gone = quarantined(1, "a person has closed it meanwhile")
    shown = picture(seen("a"), facts=(late, gone))
    rows = list(backlog(shown, shown.seen, titles={"new": "New"}).rows())
    assert [(row.issue_id, row.title, row.worker_id) for row in rows] == [
        ("new", "New", "W1"),
        ("a", "title of a", ""),
    ]


def test_without_the_tracker_there_is_what_the_fleet_remembers() -> None:
    facts = (quarantined(1, "boom"), IssueFacts("r", in_flight="running"))
    shown = replace(picture(facts=facts), unseen="database is locked")
    told = backlog(shown, (), titles={"q-1": "Fix it"})
    assert [(row.issue_id, row.title) for row in told.rows()] == [("q-1", "Fix it"), ("r", "")]
    assert told.unseen == "database is locked"


def test_the_json_has_every_count_and_every_issue() -> None:
    shown = picture(seen("a"), seen("q-1", "blocked"), facts=(quarantined(1, "boom"),))
    told = json.loads(json.dumps(as_json(found(shown))))
    assert list(told["counts"]) == [state.value for state in State]
    assert told["counts"]["ready"] == told["counts"]["quarantined"] == 1
    first = told["groups"][0]
    assert (first["state"], first["cause"], first["count"]) == ("quarantined", "boom", 1)
    assert first["issues"] == [
        {
            "issue_id": "q-1", "title": "title of q-1", "state": "quarantined",
            "reason": "quarantined", "text": "quarantined after 3 attempts; last error: boom",
            "remedy": "'beads-workers retry q-1' gives it new attempts", "priority": 2,
            "blocked_by": [], "at": None, "attempts": 3, "error": "boom", "worker_id": None,
        }
    ]  # fmt: skip


def test_the_text_has_a_heading_for_each_state_and_for_each_cause_of_several() -> None:
    facts = (
        *(quarantined(n, f"cannot parse conf/{n}.toml") for n in (1, 2)),
        quarantined(3, "boom"),
        quarantined(4, "no rule"),
        IssueFacts("r", in_flight="running", worker_id="W1", running_seconds=61.0, attempt=2),
        IssueFacts("c", standing="cooling", charged=1, again_seconds=90.0, error="boom"),
        IssueFacts("n", in_flight="claimed", position=1),
    )
    seen_now = [seen(each.issue_id, "blocked") for each in facts[:4]]
    seen_now += [seen("r"), seen("c"), seen("n"), seen("w", waits_for=(IssueId("r"),))]
    assert list(lines(found(picture(*seen_now, facts=facts)), NOW)) == [
        "quarantined: 2 x cannot parse #",
        "  q-1  P2  title of q-1  3 attempts",
        "  q-2  P2  title of q-2  3 attempts",
        "",
        "quarantined: 2",
        "  q-3  P2  title of q-3  3 attempts: boom",
        "  q-4  P2  title of q-4  3 attempts: no rule",
        "",
        "in progress: 1",
        "  r    P2  title of r    W1, 1 min 1 s, attempt 2",
        "",
        "waiting for a retry: 1",
        "  c    P2  title of c    again in 1 min 30 s: boom",
        "",
        "ready: 1",
        "  n    P2  title of n    claimed",
        "",
        "blocked: 1",
        "  w    P2  title of w    by r",
    ]


def test_no_text_of_an_issue_is_obeyed_by_a_terminal() -> None:
    bad = TrackedIssue(IssueId("a\x1b[2J"), "hide \x1b[8m me\n", "open", assignee="\x07bob")
    assert all(line.isprintable() for line in lines(found(picture(bad)), NOW))


def test_of_a_queue_that_no_tracker_lists_there_is_what_the_fleet_has() -> None:
    facts = (
        IssueFacts("r", in_flight="running", worker_id="W1", running_seconds=1.0),
        IssueFacts("c", standing="cooling", charged=1, again_seconds=9.0),
        IssueFacts("over"),
    )
    pushed = replace(picture(facts=facts), is_pushed=True)
    assert {row.issue_id: row.state for row in backlog(pushed, ()).rows()} == {
        "r": State.RUNNING,
        "c": State.RETRYING,
    }
