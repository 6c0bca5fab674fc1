"""What every source promises when it settles and recovers: every tracker in ``TRACKERS``."""

from __future__ import annotations

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement, Source
from tests.contracts.pull_sources import STRANGER, THEM, US, MakeSource, settled, taken
from tests.contracts.trackers import NOBODY, Tracker, needs

pytestmark = pytest.mark.daily(3)

ACTIONS = (Action.CLOSE, Action.RELEASE, Action.QUARANTINE)


def hold(tracker: Tracker, source: Source, many: int) -> list[IssueId]:
    """So many issues that the source has taken."""
    keys = [tracker.create(f"held {number}") for number in range(many)]
    assert set(taken(source)) == set(keys)
    return keys


def with_reading(action: Action, key: IssueId) -> Settlement:
    return Settlement(action, key, "note", read_first=True)


def test_an_empty_group_costs_nothing(source: Source) -> None:
    before = source.calls.count
    assert source.settle([]) == []
    assert source.calls.count == before


def test_a_close_closes_and_says_why(tracker: Tracker, source: Source, held: IssueId) -> None:
    assert settled(source, Settlement(Action.CLOSE, held, "it is done")) == [Result.APPLIED]
    assert tracker.read(held)[0] == "closed"
    assert "it is done" in tracker.notes(held)


def test_a_repeated_close_finds_it_closed(source: Source, held: IssueId) -> None:
    close = Settlement(Action.CLOSE, held, read_first=True)
    assert settled(source, close) == [Result.APPLIED]
    assert settled(source, close) == [Result.FOUND_CLOSED]


def test_a_release_opens_it_for_everybody(
    tracker: Tracker, source_of: MakeSource, source: Source, held: IssueId
) -> None:
    release = Settlement(Action.RELEASE, held)
    assert settled(source, release) == [Result.APPLIED]
    assert tracker.read(held) == ("open", NOBODY)
    assert settled(source, Settlement(Action.RELEASE, held, read_first=True)) == [Result.APPLIED]
    assert taken(source_of(THEM)) == [held]


def test_what_is_quarantined_stays_out_until_it_is_reopened(
    tracker: Tracker, source: Source, held: IssueId
) -> None:
    quarantined = Settlement(Action.QUARANTINE, held, 'exit 1: "boom" $(touch x)')
    assert settled(source, quarantined) == [Result.APPLIED]
    assert tracker.read(held) == ("blocked", NOBODY)
    assert 'exit 1: "boom" $(touch x)' in tracker.notes(held)
    assert taken(source) == []
    assert settled(source, Settlement(Action.REOPEN, held)) == [Result.APPLIED]
    assert tracker.read(held) == ("open", NOBODY)
    assert taken(source) == [held]


@needs("owned")
def test_after_a_hand_over_the_issue_can_still_be_closed(
    tracker: Tracker, source: Source, held: IssueId
) -> None:
    assert settled(source, Settlement(Action.HAND_OVER, held)) == [Result.APPLIED]
    forgotten = Settlement(Action.CLOSE, held, read_first=True, handed_over=True)
    assert settled(source, forgotten) == [Result.APPLIED]
    assert tracker.read(held)[0] == "closed"


@needs("owned")
def test_after_a_hand_over_the_issue_can_still_be_requeued(
    tracker: Tracker, source: Source, held: IssueId
) -> None:
    settled(source, Settlement(Action.HAND_OVER, held))
    tracker.put(held, "in_progress", f"{US}/W3")
    back = Settlement(Action.RELEASE, held, read_first=True, handed_over=True)
    assert settled(source, back) == [Result.APPLIED]
    assert tracker.read(held) == ("open", NOBODY)


@needs("owned")
def test_what_a_stranger_claimed_after_a_hand_over_is_left_alone(
    tracker: Tracker, source: Source, held: IssueId
) -> None:
    settled(source, Settlement(Action.HAND_OVER, held))
    tracker.put(held, "in_progress", STRANGER)
    for action in (Action.CLOSE, Action.RELEASE, Action.QUARANTINE):
        read = Settlement(action, held, "note", read_first=True, handed_over=True)
        assert settled(source, read) == [Result.NOT_OURS]
    assert tracker.read(held) == ("in_progress", STRANGER)


def test_what_its_worker_closed_counts_as_done(tracker: Tracker, source: Source) -> None:
    keys = hold(tracker, source, len(ACTIONS))
    for key in keys:
        tracker.put(key, "closed", US)
    group = map(with_reading, ACTIONS, keys)
    assert settled(source, *group) == [Result.FOUND_CLOSED] * len(keys)
    now = tracker.read_all()
    assert [now[key][0] for key in keys] == ["closed"] * len(keys)


@needs("agents_close")
def test_what_an_agent_that_failed_closed_by_itself_is_opened_again(
    tracker: Tracker, source: Source
) -> None:
    again, spent = keys = hold(tracker, source, 2)
    for key in keys:
        tracker.close_as(key, f"{US}/{key}")
    undoing = [
        Settlement(action, key, "note", read_first=True, by_agent=True)
        for action, key in zip((Action.RELEASE, Action.QUARANTINE), keys, strict=True)
    ]
    assert settled(source, *undoing) == [Result.APPLIED] * 2
    now = tracker.read_all()
    assert [now[key] for key in keys] == [("open", NOBODY), ("blocked", NOBODY)]
    assert settled(source, *undoing) == [Result.APPLIED] * 2, "once more does no harm"
    assert taken(source) == [again]
    assert tracker.read(spent) == ("blocked", NOBODY)


def test_what_a_person_takes_back_is_opened_again_whoever_closed_it(
    tracker: Tracker, source: Source, held: IssueId
) -> None:
    settled(source, Settlement(Action.CLOSE, held, "done"))
    tracker.put(held, "closed", "somebody else")
    back = Settlement(Action.REOPEN, held, read_first=True, taken_back=True)
    assert settled(source, back) == [Result.APPLIED]
    assert tracker.read(held) == ("open", NOBODY)
    assert taken(source) == [held]


@needs("agents_close")
def test_what_an_agent_that_succeeded_closed_by_itself_has_our_reason(
    tracker: Tracker, source: Source, held: IssueId
) -> None:
    tracker.close_as(held, f"{US}/{held}")
    close = Settlement(Action.CLOSE, held, "done, by claude", read_first=True, by_agent=True)
    assert settled(source, close) == [Result.APPLIED]
    assert tracker.read(held) == ("closed", US)
    assert "done, by claude" in tracker.notes(held)
    assert "all done" not in tracker.notes(held)


@needs("agents_close")
def test_what_the_agent_of_a_crashed_run_closed_by_itself_is_opened_again(
    tracker: Tracker, source: Source
) -> None:
    by_agent, _ = keys = hold(tracker, source, 2)
    for key in keys:
        tracker.close_as(key, f"{US}/{key}")
    answers = source.recover(CrashedRun(US, begun=tuple(keys), by_agents=(by_agent,)))
    assert [each.result for each in answers] == [Result.APPLIED]
    now = tracker.read_all()
    assert [now[key] for key in keys] == [("open", NOBODY), ("closed", US)]


def test_what_somebody_else_closed_meanwhile_stays_closed(
    tracker: Tracker, source: Source, held: IssueId
) -> None:
    tracker.put(held, "closed", STRANGER)
    undoing = Settlement(Action.RELEASE, held, read_first=True, by_agent=True)
    assert settled(source, undoing) == [Result.FOUND_CLOSED]
    assert tracker.read(held)[0] == "closed"


def test_what_a_stranger_took_over_is_left_alone(tracker: Tracker, source: Source) -> None:
    cases = [(action, status) for action in ACTIONS for status in ("in_progress", "open")]
    keys = hold(tracker, source, len(cases))
    for key, (_, status) in zip(keys, cases, strict=True):
        tracker.put(key, status, STRANGER)
    answers = source.settle(
        [with_reading(action, key) for key, (action, _) in zip(keys, cases, strict=True)]
    )
    now = tracker.read_all()
    for key, answer, (_, status) in zip(keys, answers, cases, strict=True):
        assert answer.result is Result.NOT_OURS
        assert answer.error and "\n" not in answer.error
        assert now[key] == (status, STRANGER)


def test_what_is_open_but_still_ours_is_cleared(
    tracker: Tracker, source: Source, held: IssueId
) -> None:
    tracker.put(held, "open", US)
    assert settled(source, Settlement(Action.RELEASE, held, read_first=True)) == [Result.APPLIED]
    assert tracker.read(held) == ("open", NOBODY)


def test_a_close_that_the_worker_forgot_is_made_up_for(
    tracker: Tracker, source: Source, held: IssueId
) -> None:
    tracker.put(held, "open", US)
    assert settled(source, Settlement(Action.CLOSE, held, read_first=True)) == [Result.APPLIED]
    assert tracker.read(held)[0] == "closed"


def test_one_bad_id_does_not_fail_the_others(tracker: Tracker, source: Source) -> None:
    first, second = tracker.create("first"), tracker.create("second")
    assert set(taken(source)) == {first, second}
    tracker.put(first, "in_progress", STRANGER)
    unknown = IssueId(f"{first}zzz")
    results = settled(
        source,
        Settlement(Action.CLOSE, unknown, read_first=True),
        Settlement(Action.CLOSE, first, read_first=True),
        Settlement(Action.CLOSE, second),
    )
    assert results == [Result.NOT_OURS, Result.NOT_OURS, Result.APPLIED]
    now = tracker.read_all()
    assert now[first] == ("in_progress", STRANGER)
    assert now[second][0] == "closed"


def test_a_group_may_hold_every_action(tracker: Tracker, source: Source) -> None:
    keys = [tracker.create(f"number {number}") for number in range(3)]
    assert set(taken(source)) == set(keys)
    results = settled(
        source,
        Settlement(Action.CLOSE, keys[0]),
        Settlement(Action.RELEASE, keys[1]),
        Settlement(Action.QUARANTINE, keys[2], "broken"),
    )
    assert results == [Result.APPLIED] * 3
    now = tracker.read_all()
    assert [now[key][0] for key in keys] == ["closed", "open", "blocked"]


def test_what_we_hold_needs_no_renewal(source: Source, held: IssueId) -> None:
    renewed = source.renew([held])
    assert renewed.lost == ()
    assert {lease.issue_id for lease in renewed.leases} <= {held}


def test_recovery_closes_what_was_done_and_requeues_what_was_held(
    tracker: Tracker, source_of: MakeSource
) -> None:
    done, running, free = (tracker.create(title) for title in ("done", "running", "free"))
    theirs = tracker.create("somebody else's")
    tracker.put(theirs, "in_progress", STRANGER)
    assert taken(source_of(US), 10, [free]) != []
    living = source_of(THEM)
    answers = living.recover(CrashedRun(US, unclosed=(done,)))
    said = {(a.settlement.issue_id, a.settlement.action, a.result) for a in answers}
    assert said == {(done, Action.CLOSE, Result.APPLIED), (running, Action.RELEASE, Result.APPLIED)}
    now = tracker.read_all()
    assert now[done][0] == "closed"
    assert now[running] == now[free] == ("open", NOBODY)
    assert now[theirs] == ("in_progress", STRANGER)


def test_recovery_can_be_repeated(tracker: Tracker, source_of: MakeSource) -> None:
    done = tracker.create("done")
    tracker.create("running")
    assert len(taken(source_of(US))) == 2
    living = source_of(THEM)
    dead = CrashedRun(US, unclosed=(done,))
    living.recover(dead)
    before = tracker.read_all()
    again = living.recover(dead)
    assert {(a.settlement.issue_id, a.result) for a in again} == {(done, Result.FOUND_CLOSED)}
    assert tracker.read_all() == before


def test_recovery_quarantines_what_had_its_last_attempt(
    tracker: Tracker, source_of: MakeSource
) -> None:
    last, reopened = tracker.create("last"), tracker.create("reopened")
    assert taken(source_of(US), 10, [reopened]) == [last]
    dead = CrashedRun(US, quarantined=((last, "three attempts"), (reopened, "long ago")))
    for _ in range(2):
        source_of(THEM).recover(dead)
        now = tracker.read_all()
        assert now[last] == ("blocked", NOBODY)
        assert "three attempts" in tracker.notes(last)
        assert now[reopened] == ("open", NOBODY), "a person has opened it since"


def test_recovery_reopens_what_was_taken_back_and_nothing_else(
    tracker: Tracker, source_of: MakeSource
) -> None:
    names = "blocked", "free", "closed", "answered"
    blocked, free, closed, answered = (tracker.create(name) for name in names)
    tracker.put(blocked, "blocked", NOBODY)
    tracker.put(closed, "closed", NOBODY)
    tracker.put(answered, "closed", NOBODY)
    dead = CrashedRun(US, reopened=(blocked, free, closed, answered), answered=(answered,))
    answers = source_of(THEM).recover(dead)
    assert {a.settlement.action for a in answers} == {Action.REOPEN}
    now = tracker.read_all()
    assert now[blocked] == now[free] == now[answered] == ("open", NOBODY)
    assert now[closed][0] == "closed"
    source_of(US).take(1, [free, answered])
    assert tracker.read(blocked) == ("in_progress", US)
    source_of(THEM).recover(CrashedRun("beads-workers/host/run-0", reopened=(blocked,)))
    assert tracker.read(blocked) == ("in_progress", US), "somebody is at work on it"


def test_recovery_reopens_what_was_handed_over_before_it_was_quarantined_and_taken_back(
    tracker: Tracker, source_of: MakeSource
) -> None:
    # How far their quarantine had come when the orchestrator died, nobody knows.
    statuses = ("open", "in_progress", "blocked")
    keys = tuple(tracker.create(f"taken back, {status}") for status in statuses)
    for key, status in zip(keys, statuses, strict=True):
        tracker.put(key, status, NOBODY)
    dead = CrashedRun(US, handed_over=keys, reopened=keys)
    assert [a.result for a in source_of(THEM).recover(dead)] == [Result.APPLIED] * 3
    now = tracker.read_all()
    assert [now[key] for key in keys] == [("open", NOBODY)] * 3


@needs("agents_close")
def test_recovery_undoes_what_agents_have_closed_that_were_not_done(
    tracker: Tracker, source_of: MakeSource
) -> None:
    names = ("undone", "out of attempts", "by a person", "of a command")
    undone, spent, theirs, plain = (tracker.create(name) for name in names)
    assert len(taken(source_of(US))) == 4
    for issue_id in (undone, spent, plain):
        tracker.close_as(issue_id, US)
    tracker.put(theirs, "closed", STRANGER)
    quarantined = ((spent, "three attempts"),)
    dead = CrashedRun(US, quarantined=quarantined, by_agents=(undone, spent, theirs))
    for _ in range(2):
        source_of(THEM).recover(dead)
        now = tracker.read_all()
        assert now[undone] == ("open", NOBODY)
        assert now[spent] == ("blocked", NOBODY)
        assert now[theirs][0] == now[plain][0] == "closed"


def test_recovery_leaves_alone_what_a_worker_of_somebody_else_still_has(
    tracker: Tracker, source_of: MakeSource
) -> None:
    kept, other = tracker.create("kept"), tracker.create("other")
    assert len(taken(source_of(US))) == 2
    source_of(THEM).recover(CrashedRun(US, kept=(kept,), by_agents=(kept, other)))
    now = tracker.read_all()
    assert now[kept] == ("in_progress", US)
    assert now[other] == ("open", NOBODY)


@needs("owned")
def test_recovery_frees_what_was_handed_over(tracker: Tracker, source_of: MakeSource) -> None:
    closed, begun = tracker.create("closed"), tracker.create("begun")
    dead = source_of(US)
    assert len(taken(dead)) == 2
    settled(dead, Settlement(Action.HAND_OVER, closed), Settlement(Action.HAND_OVER, begun))
    tracker.put(closed, "closed", f"{US}/W1")
    tracker.put(begun, "in_progress", f"{US}/W2")
    answers = source_of(THEM).recover(CrashedRun(US, handed_over=(closed, begun)))
    assert {(a.settlement.issue_id, a.result) for a in answers} == {
        (closed, Result.FOUND_CLOSED),
        (begun, Result.APPLIED),
    }
    assert tracker.read(begun) == ("open", NOBODY)


@needs("owned")
def test_recovery_does_not_touch_a_run_with_a_longer_name(
    tracker: Tracker, source_of: MakeSource
) -> None:
    longer = {tracker.create(f"theirs{suffix}"): f"{US}{suffix}" for suffix in ("0", "-2")}
    for key, name in longer.items():
        tracker.put(key, "in_progress", name)
    assert source_of(THEM).recover(CrashedRun(US)) == []
    now = tracker.read_all()
    assert all(now[key] == ("in_progress", name) for key, name in longer.items())
