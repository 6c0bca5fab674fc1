"""Why nothing, or little, happens: one line, the fleet's reasons, counts, and what comes next."""

from __future__ import annotations

from dataclasses import replace

from beads_workers.core.base.facts import Facts, IssueFacts, TrackerTrouble
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import TrackedIssue
from beads_workers.ui.reasons import Cause
from beads_workers.ui.why import Overview, survey, when
from tests.ui.test_explanations import NOW, RUNNING, issue, picture


def surveyed(*seen: TrackedIssue, facts: Facts = RUNNING) -> Overview:
    """The overview of these issues, all of them unfinished."""
    return survey([each.issue_id for each in seen], picture(*seen, facts=facts))


def counts(found: Overview) -> dict[Cause, int]:
    """How many issues stand behind each cause."""
    return {group.cause: group.count for group in found.groups}


def test_an_empty_backlog_is_the_reason() -> None:
    assert surveyed().headline == "nothing is left to do: every issue is closed"


def test_issues_are_counted_by_their_most_decisive_reason() -> None:
    found = surveyed(
        issue("a"),
        issue("b", waits_for=(IssueId("a"),)),
        *(issue(f"c{number}", "in_progress", assignee="bob") for number in range(7)),
    )
    assert counts(found) == {Cause.IN_PROGRESS: 7, Cause.BLOCKED: 1, Cause.DUE: 1}
    (progress,) = [group for group in found.groups if group.cause is Cause.IN_PROGRESS]
    assert progress.issue_ids == ("c0", "c1", "c2", "c3", "c4")


def test_a_backlog_of_which_nothing_is_ready_says_so() -> None:
    found = surveyed(issue("a", assignee="bob"))
    assert found.headline == "nothing can be taken: no issue is ready"


def test_a_paused_fleet_comes_first_and_its_ready_issues_are_ready() -> None:
    found = surveyed(issue("a"), facts=replace(RUNNING, state="paused"))
    assert found.headline == "the fleet is paused; 1 ready, 0 under way"
    assert counts(found) == {Cause.DUE: 1}
    assert [reason.cause for reason in found.fleet] == [Cause.PAUSED]
    assert found.next_up is None


def test_busy_workers_are_the_reason_why_ready_issues_wait() -> None:
    facts = replace(RUNNING, busy=2, issues=(IssueFacts("b", in_flight="running", worker_id="W1"),))
    found = surveyed(issue("a"), issue("b", "in_progress"), facts=facts)
    assert found.headline == "all 2 workers are busy; ready and waiting for one: 1"


def test_idle_workers_beside_running_ones_are_counted() -> None:
    facts = replace(RUNNING, busy=1, issues=(IssueFacts("b", in_flight="running", worker_id="W1"),))
    found = surveyed(issue("b", "in_progress"), facts=facts)
    assert found.headline == "at work: 1 under way; workers without work: 1, ready: 0"


def test_without_a_fleet_the_ready_issues_are_what_matters() -> None:
    found = surveyed(issue("a"), issue("b"), facts=Facts("none"))
    assert found.headline.startswith("ready for a fleet: 2")


def test_the_next_thing_to_happen_is_the_earliest() -> None:
    cooling = IssueFacts("a", standing="cooling", again_seconds=3.0)
    found = surveyed(issue("a"), facts=replace(RUNNING, issues=(cooling,), look_seconds=4.0))
    assert found.next_up is not None
    assert (found.next_up.at, found.next_up.text) == (NOW + 3.0, "a is tried again")
    assert when(found.next_up, picture()) == "T+3, in 3 s"
    found = surveyed(facts=replace(RUNNING, look_seconds=4.0))
    assert found.next_up is not None
    assert found.next_up.text == "the tracker is asked for new issues"


def test_a_failing_tracker_is_asked_again_next() -> None:
    trouble = TrackerTrouble("locked", "", 3, 10.0, 2.0)
    found = surveyed(issue("a"), facts=replace(RUNNING, trouble=trouble))
    assert found.headline.startswith("the tracker has failed 3 times in a row")
    assert found.next_up is not None and found.next_up.text == "the tracker is asked again"


def test_where_the_tracker_cannot_be_looked_at_the_fleet_s_memory_is_sorted() -> None:
    facts = replace(
        RUNNING,
        issues=(
            IssueFacts("a", in_flight="running", worker_id="W1"),
            IssueFacts("b", standing="quarantined", charged=3),
        ),
    )
    found = survey((), picture(facts=facts, unseen="bd list: locked"))
    assert found.headline == "the tracker could not be looked at: bd list: locked"
    assert counts(found) == {Cause.RUNNING: 1, Cause.QUARANTINED: 1}


def test_a_single_busy_worker_is_not_all_of_them() -> None:
    assert surveyed(issue("a"), facts=replace(RUNNING, slots=1, busy=1)).headline == (
        "the worker is busy; ready and waiting for one: 1"
    )
