"""The memory source's faults: what fails, what is done all the same, and what is counted."""

from __future__ import annotations

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement, SourceError
from beads_workers.trackers.issue import TrackerIssue
from beads_workers.trackers.settlement_rules import Ownership
from tests.contracts.memory import Fault, FaultKind, MemorySource, MemoryTracker


def source_with(*faults: Fault, tracker: MemoryTracker | None = None) -> MemorySource:
    issues = [TrackerIssue(id=f"m-{number}", title="t") for number in range(3)]
    return MemorySource(issues, actor="us", tracker=tracker, faults=faults)


def test_a_refused_call_does_nothing_and_only_so_often() -> None:
    source = source_with(Fault(FaultKind.REFUSED, times=2))
    for _ in range(2):
        with pytest.raises(SourceError):
            source.take(1, ())
    assert source.tracker.writes == []
    assert len(source.take(1, ()).jobs) == 1


def test_a_lost_answer_leaves_what_was_done_until_the_source_can_see_to_it() -> None:
    source = source_with(Fault(FaultKind.ANSWER_LOST, "take"))
    with pytest.raises(SourceError):
        source.take(2, ())
    assert source.tracker.writes == [("m-0", "in_progress", "us"), ("m-1", "in_progress", "us")]
    # Nobody knows of those claims: the next take requeues them before it looks.
    assert [job.issue_id for job in source.take(2, ()).jobs] == ["m-0", "m-1"]


def test_claims_of_a_lost_answer_are_requeued_at_the_close() -> None:
    source = source_with(Fault(FaultKind.ANSWER_LOST, "take"))
    with pytest.raises(SourceError):
        source.take(1, ())
    source.close()
    assert source.tracker.writes[-1] == ("m-0", "open", "")


def test_a_hand_over_that_is_asked_for_again_has_been_done() -> None:
    source = source_with(Fault(FaultKind.REPORT_LOST, "settle"))
    (job,) = source.take(1, ()).jobs
    handed = [Settlement(Action.HAND_OVER, job.issue_id)]
    assert source.settle(handed)[0].result is Result.FAILED
    assert source.settle(handed)[0].result is Result.APPLIED


def test_a_fault_waits_for_its_call() -> None:
    source = source_with(Fault(FaultKind.REFUSED, "recover"))
    assert len(source.take(1, ()).jobs) == 1
    with pytest.raises(SourceError):
        source.recover(CrashedRun("us"))


@pytest.mark.parametrize(
    ("kind", "status"), [(FaultKind.NOT_APPLIED, "in_progress"), (FaultKind.REPORT_LOST, "closed")]
)
def test_one_settlement_fails_and_the_others_do_not(kind: FaultKind, status: str) -> None:
    source = source_with(Fault(kind, "settle", issue_id="m-1"))
    source.take(2, ())
    answers = source.settle([Settlement(Action.CLOSE, IssueId(f"m-{n}")) for n in range(2)])
    assert [answer.result for answer in answers] == [Result.APPLIED, Result.FAILED]
    assert answers[1].error
    assert source.tracker.holding("m-1") == Ownership(status, "us")


def test_two_sources_share_one_tracker() -> None:
    tracker = MemoryTracker()
    first = source_with(tracker=tracker)
    second = MemorySource(actor="them", tracker=tracker)
    assert len(first.take(2, ()).jobs) == 2
    assert [job.issue_id for job in second.take(9, ()).jobs] == ["m-2"]


def test_two_runs_over_the_same_issues_are_the_same() -> None:
    def play() -> list[tuple[str, str, str]]:
        source = source_with(Fault(FaultKind.REPORT_LOST, times=2))
        jobs = source.take(9, ()).jobs
        source.settle([Settlement(Action.RELEASE, job.issue_id) for job in jobs])
        return source.tracker.writes

    assert play() == play() != []
