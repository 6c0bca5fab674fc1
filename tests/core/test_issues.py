"""The one fold over the journal: where an issue stands, whatever the journal holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.model import Arguments
from beads_workers.core.base.policy import AttemptHistory
from beads_workers.core.base.source import Action
from beads_workers.core.base.states import ISSUE, IssueState, IssueStimulus
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Issue, Issues, Standing, Transition
from beads_workers.core.records.journal import Entry, Record, Unsettled
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.core.schedule.retry import history_of

AT = 1_700_000_000.0

CLAIMED = rec.Claimed("a", "title of a", 1, "m.f", Arguments((1,)), 5.0)
DELEGATING = rec.ClaimDelegated("a", "W1")
STARTED = rec.Started("a", "W1", 1, "r.1", traceparent="00-1-2-01")
LOST = rec.OwnerLost("a", "W1", 7)
INHERITED = rec.Inherited("a", "run-0", "W1", 7, 77)
REQUEUED = rec.Requeued("a")
DONE = rec.Finished("a", "W1", 1, "r.1", "success", "finish")
FAILED = rec.Finished("a", "W1", 1, "r.1", "error", "requeue", "boom", charged=1, delay_seconds=9.0)
RECEIPT = Receipt(branch="bw/a/1", base="b", head="h")
TO_LAND = rec.Finished("a", "W1", 1, "r.1", "success", "land", receipt=RECEIPT)
LANDED = rec.BranchLanded("a", 1, "c", "bw-landing/main")
SHELVED = rec.LandingEnded("a", "shelve")
SPENT = rec.Finished("a", "W1", 1, "r.1", "error", "quarantined", "boom", charged=3)
UNSTARTED = rec.Finished("a", "W1", 1, "r.1", "cancelled", "requeue")


def settled(action: str, result: str = "applied") -> rec.SettledRecord:
    """The tracker's answer."""
    return rec.SettledRecord("a", action, result)


WAYS: dict[IssueState, tuple[Record, ...]] = {
    IssueState.ENQUEUED: (),
    IssueState.CLAIMED: (CLAIMED,),
    IssueState.DELEGATING: (CLAIMED, DELEGATING),
    IssueState.RUNNING: (CLAIMED, STARTED),
    IssueState.ORPHANED: (CLAIMED, STARTED, LOST),
    IssueState.CLOSING: (CLAIMED, STARTED, DONE),
    IssueState.LANDING: (CLAIMED, STARTED, TO_LAND),
    IssueState.SHELVING: (CLAIMED, STARTED, TO_LAND, SHELVED),
    IssueState.SHELVED: (CLAIMED, STARTED, TO_LAND, SHELVED, settled("shelve")),
    IssueState.RELEASING: (CLAIMED, REQUEUED),
    IssueState.QUARANTINING: (CLAIMED, STARTED, SPENT),
    IssueState.QUARANTINED: (CLAIMED, STARTED, SPENT, settled("quarantined")),
}
"""How an issue comes into each state that is not forgotten at once."""

_WRITE = {
    IssueState.DELEGATING: "hand_over",
    IssueState.LANDING: "confirm",
    IssueState.CLOSING: "close",
    IssueState.SHELVING: "shelve",
    IssueState.RELEASING: "release",
    IssueState.QUARANTINING: "quarantined",
}


_UNLANDED = {IssueStimulus.REQUEUED: "requeue", IssueStimulus.SPENT: "quarantined"}


def record_of(state: IssueState, stimulus: IssueStimulus) -> tuple[Record, ...]:
    """What the live core writes where this happens to an issue in that state."""
    write = _WRITE.get(state, "")
    if state is IssueState.QUARANTINED and stimulus is not IssueStimulus.LANDED:
        return (rec.RetryAsked("a"),)
    if state in (IssueState.LANDING, IssueState.SHELVED) and stimulus in _UNLANDED:
        return (rec.LandingEnded("a", _UNLANDED[stimulus], "conflict"),)
    if stimulus is IssueStimulus.REQUEUED:
        unsent = state in (IssueState.CLAIMED, IssueState.DELEGATING)
        return (REQUEUED,) if unsent else (FAILED,)
    return {
        IssueStimulus.CLAIMED: (CLAIMED,),
        IssueStimulus.RESERVED: (DELEGATING,),
        IssueStimulus.SENT: (STARTED,),
        IssueStimulus.RETURNED_UNSTARTED: (UNSTARTED, CLAIMED),
        IssueStimulus.SUCCEEDED: (DONE,),
        IssueStimulus.TO_LAND: (TO_LAND,),
        IssueStimulus.LANDED: (LANDED,),
        IssueStimulus.TO_MEND: (rec.LandingEnded("a", "mend", "conflict"),),
        IssueStimulus.SHELVE: (SHELVED,),
        IssueStimulus.SPENT: (SPENT,),
        IssueStimulus.OWNER_LOST: (LOST,),
        IssueStimulus.APPLIED: (settled(write),),
        IssueStimulus.FOUND_CLOSED: (settled(write, "found_closed"),),
        IssueStimulus.NOT_OURS: (settled(write, "not_ours"),),
        IssueStimulus.FAILED: (rec.SettlementFailed("a", write, "no"),),
        IssueStimulus.INHERITED: (INHERITED,),
    }[stimulus]


def entries(*records: Record) -> list[Entry]:
    """A journal; every record a second after the one before."""
    return [Entry(record, AT + n, float(n)) for n, record in enumerate(records)]


def after(*records: Record) -> tuple[Issues, Transition]:
    """What these records make, and the transition that the last one was."""
    issues = Issues()
    changes = [issues.apply(entry) for entry in entries(*records)]
    assert changes and changes[-1] is not None
    return issues, changes[-1]


def issue_after(*records: Record) -> Issue:
    """The issue, as it is after these records."""
    return after(*records)[0].known["a"]


@pytest.mark.parametrize(
    ("state", "stimulus"),
    [pair for pair, move in ISSUE.items() if not move.bug],
    ids=lambda each: each.name,
)
def test_the_journal_moves_an_issue_as_the_live_core_does(
    state: IssueState, stimulus: IssueStimulus
) -> None:
    records = (*WAYS[state], *record_of(state, stimulus))
    assert after(*records)[1].issue.state is ISSUE[state, stimulus].to


def test_every_state_but_the_last_ones_can_be_read_from_a_journal() -> None:
    for state, way in WAYS.items():
        if way:
            assert issue_after(*way).state is state
    assert set(IssueState) - set(WAYS) == {IssueState.CLOSED, IssueState.FOREIGN}


def test_what_is_closed_or_somebody_elses_is_forgotten() -> None:
    for result in ("applied", "found_closed", "not_ours"):
        issues, change = after(CLAIMED, STARTED, DONE, settled("close", result))
        assert issues.known == {} and change.before is IssueState.CLOSING and change.end == DONE


def test_what_is_open_again_is_remembered_only_with_a_past() -> None:
    assert after(CLAIMED, REQUEUED, settled("release"))[0].known == {}
    issue = issue_after(CLAIMED, STARTED, FAILED, settled("release"))
    assert issue.state is IssueState.ENQUEUED and issue.standing is Standing.COOLING
    assert history_of(issue) == AttemptHistory(1, 0, 0, "boom") and issue.due == 11.0


def test_a_page_is_what_the_next_run_is_told() -> None:
    retry_entry = issue_after(CLAIMED, STARTED, FAILED).retry_entry
    assert retry_entry == rec.Checkpointed(
        "a",
        "title of a",
        charged=1,
        not_before=AT + 2.0 + 9.0,
        error="boom",
        delay_seconds=9.0,
        path="m.f",
        arguments=Arguments((1,)),
        enqueued_at=5.0,
        outcome="error",
        traceparent="00-1-2-01",
    )
    assert issue_after(retry_entry).charged == 1


def test_what_the_tracker_is_to_be_asked_for_is_pending_until_it_has_answered() -> None:
    assert {s: issue_after(*way).pending for s, way in WAYS.items() if way} == {
        IssueState.CLAIMED: None,
        IssueState.DELEGATING: Action.HAND_OVER,
        IssueState.RUNNING: None,
        IssueState.ORPHANED: None,
        IssueState.CLOSING: Action.CLOSE,
        IssueState.LANDING: None,
        IssueState.SHELVING: Action.SHELVE,
        IssueState.SHELVED: None,
        IssueState.RELEASING: Action.RELEASE,
        IssueState.QUARANTINING: Action.QUARANTINE,
        IssueState.QUARANTINED: None,
    }


def test_a_hand_over_is_answered_before_its_issue_is_released() -> None:
    left = (CLAIMED, DELEGATING, REQUEUED)
    assert issue_after(*left).pending is Action.HAND_OVER
    for answer in (settled("hand_over"), rec.SettlementFailed("a", "hand_over", "no")):
        assert issue_after(*left, answer).pending is Action.RELEASE


def test_what_a_person_reopens_is_written_once_the_tracker_has_blocked_it() -> None:
    spent = (CLAIMED, STARTED, SPENT, rec.RetryAsked("a"))
    assert issue_after(*spent).pending is Action.QUARANTINE
    issue = issue_after(*spent, settled("quarantined"))
    assert (issue.state, issue.pending) == (IssueState.ENQUEUED, Action.REOPEN)
    assert issue.is_reopened and issue.charged == 0
    assert after(*spent, settled("quarantined"), settled("reopen"))[0].known == {}


def test_what_an_earlier_run_quarantined_is_reopened_although_its_mark_is_settled_later() -> None:
    quarantined, asked = rec.Checkpointed("a", charged=3, quarantined=True), rec.RetryAsked("a")
    issue = issue_after(quarantined, asked, settled("quarantined"))
    assert issue.pending is Action.REOPEN and issue.is_reopened
    assert after(quarantined, asked, settled("quarantined"), settled("reopen"))[0].known == {}


def test_what_is_told_again_makes_the_same_issue() -> None:
    cooling = (CLAIMED, STARTED, FAILED, settled("release"))
    on_hold = rec.PutOnHold("a")
    cancelled = rec.Finished("a", "W1", 1, "r.1", "cancelled", "requeue", "stopped")
    spent = Receipt(usage={"m": Tokens(output=1000)})
    cost = rec.UsageFound("a", 1, "r.1", spent)
    ended = (CLAIMED, STARTED, cancelled, cost)
    for way in (*WAYS.values(), cooling, ended):
        for more in ((), (on_hold,), (on_hold, rec.Refunded("a", 0))):
            if not (*way, *more):
                continue
            issue = issue_after(*way, *more)
            again = Issues()
            if issue.retry_entry is not None:
                again.apply(Entry(issue.retry_entry, AT, 0.0))
            for entry in issue.entries:
                again.apply(entry)
            repeated = again.known["a"]
            names = ("state", "standing", "pending", "retry_entry", "worker_id", "handed_over")
            for name in names:
                assert getattr(repeated, name) == getattr(issue, name), (way, name)


def test_a_cost_that_is_known_after_a_retry_is_told_again() -> None:
    cost = rec.UsageFound("a", 1, "r.1", Receipt(usage={"m": Tokens(output=1000)}))
    issue = issue_after(CLAIMED, STARTED, FAILED, rec.RetryAsked("a"), cost)
    again = Issues()
    assert issue.retry_entry is not None
    for entry in (Entry(issue.retry_entry, AT, 0.0), *issue.entries):
        again.apply(entry)
    repeated = again.known["a"].retry_entry
    assert repeated is not None and repeated.tokens == issue.retry_entry.tokens == 1000


_ANY = st.sampled_from(
    [
        CLAIMED,
        DELEGATING,
        STARTED,
        LOST,
        REQUEUED,
        DONE,
        FAILED,
        SPENT,
        UNSTARTED,
        rec.PutOnHold("a"),
        rec.RetryAsked("a"),
        rec.Refunded("a", 1),
        rec.Checkpointed("a", charged=2, quarantined=True),
        rec.Checkpointed("a", claimed_by="x"),
        rec.WorkerJoined("W1", 7, own=False),
        rec.SettlementFailed("a", "close"),
        Unsettled("a", "note", 7, 8, True),
        *(
            settled(action.value, result)
            for action in Action
            for result in ("applied", "found_closed", "not_ours", "of a later version")
        ),
    ]
)


@given(st.lists(_ANY, max_size=12))
def test_a_journal_that_lacks_lines_is_taken_as_far_as_it_makes_sense(told: list[Record]) -> None:
    issues = Issues()
    for entry in entries(*told):
        issues.apply(entry)
    for issue in issues.known.values():
        assert issue.state not in (IssueState.CLOSED, IssueState.FOREIGN)
