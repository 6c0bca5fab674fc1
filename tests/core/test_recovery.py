"""What a crashed run left, from its journal alone: docs/SEMANTICS.md, "Recovery"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from beads_workers.core.base.model import Arguments, Call, IssueId, Outcome, OutcomeKind
from beads_workers.core.base.policy import Policy, quarantine_note
from beads_workers.core.base.source import Action, CrashedRun, Result, Settled, Settlement
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Issues, Standing
from beads_workers.core.records.journal import Checkpointed, Entry, Record, decode, encode
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.events import ConnId
from beads_workers.core.views.recovery import RecoveryState, left_over, recovery_state
from beads_workers.core.views.snapshot import Board
from tests.core.playbook import EPOCH, Play, cancelled, done, failed, job, lost, ready

A = IssueId("a")


def entries(*records: Record) -> list[Entry]:
    """A journal; every record a second after the one before."""
    return [Entry(r, EPOCH + n, float(n)) for n, r in enumerate(records)]


def reread(written: Iterable[Entry]) -> list[Entry]:
    """As the next start reads it from the file."""
    read = [decode(encode(entry)) for entry in written]
    return [entry for entry in read if entry is not None]


def written(left: RecoveryState) -> list[CrashedRun]:
    """Pending writes; without what only a source is told that keeps outcomes."""
    return [
        replace(crashed, outcomes=(), unstarted=(), begun=(), handed_back=())
        for crashed in left.unsettled_runs()
    ]


STARTED = rec.RunStarted("run-1", 1, "actor/run-1", "memory", "/p")


def test_a_failed_attempt_is_remembered_with_its_time_and_its_error() -> None:
    play = Play()
    play.working("a")
    play.do(failed(1, "a", "boom"))
    (retry_entry,) = recovery_state(reread(play.entries)).checkpoint()
    assert (
        retry_entry.issue_id,
        retry_entry.charged,
        retry_entry.error,
        retry_entry.quarantined,
    ) == ("a", 1, "boom", False)
    assert EPOCH + 8.0 <= retry_entry.not_before <= EPOCH + 10.0


def test_what_an_issue_calls_is_remembered_with_it_from_run_to_run() -> None:
    play = Play()
    play.join(1)
    play.answer(job("a", call=Call("m.f", (1,)), enqueued_at=EPOCH - 5.5))
    play.do(failed(1, "a"))
    first = recovery_state(reread(play.entries)).checkpoint()
    (retry_entry,) = recovery_state(reread(Play(checkpointed=first).entries)).checkpoint()
    described = (
        retry_entry.title,
        retry_entry.path,
        retry_entry.arguments,
        retry_entry.enqueued_at,
        retry_entry.outcome,
    )
    assert described == ("title of a", "m.f", Arguments((1,)), EPOCH - 5.5, "error")


def test_the_next_run_goes_on_counting_where_this_one_stopped() -> None:
    first = Play(policy=Policy(attempts_max=2))
    first.working("a")
    first.do(failed(1, "a"))
    second = Play(
        policy=Policy(attempts_max=2),
        checkpointed=recovery_state(reread(first.entries)).checkpoint(),
    )
    assert second.core._parts.retry_state.not_to_take() == {"a"}
    second.wait(11.0)
    second.working("a")
    second.do(failed(1, "a"))
    assert (Action.QUARANTINE, "a") in second.pending()


def test_done_and_unclosed_is_closed_by_the_next_start_in_the_same_name() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    left = recovery_state(reread(play.entries))
    assert written(left) == [CrashedRun("actor/run-1", (A,))]
    assert left.checkpoint() == [Checkpointed("a", claimed_by="actor/run-1")]


def test_what_the_tracker_confirmed_is_pending_no_more() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    play.answer()
    left = recovery_state(reread(play.entries))
    assert left.unsettled_runs() == [CrashedRun("actor/run-1")] and left.checkpoint() == []


def test_a_failed_close_is_still_pending() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    play.answer(results={"a": Result.FAILED})
    assert recovery_state(reread(play.entries)).unclosed == {"a": "actor/run-1"}


def test_what_was_handed_over_is_named_until_it_is_settled() -> None:
    play = Play(self_claiming=True)
    play.join(1, v1=True)
    play.answer("a")
    play.answer()
    assert recovery_state(reread(play.entries)).unsettled_runs()[-1].handed_over == ("a",)
    play.do(failed(1, "a"))
    play.quiet()
    assert recovery_state(reread(play.entries)).unsettled_runs()[-1].handed_over == ()


def test_what_was_quarantined_stays_so_until_a_person_asks() -> None:
    play = Play(policy=Policy(attempts_max=1))
    play.working("a")
    play.do(failed(1, "a", "boom"))
    play.answer()
    assert recovery_state(reread(play.entries)).retry_entries["a"].quarantined
    play.do(RetryAskedFor(ev.Ticket(1), (A,)))
    assert recovery_state(reread(play.entries)).retry_entries == {}


def test_what_was_taken_back_has_a_reopening_pending_until_the_tracker_has_heard_of_it() -> None:
    quarantined = rec.Finished("a", "W1", 1, "r", "error", "quarantined", charged=1)
    blocked = rec.SettledRecord("a", "quarantined", "applied", "")
    reopened = rec.SettledRecord("a", "reopen", "applied", "")
    for taken_back in (rec.Refunded("a", 0), rec.RetryAsked("a")):
        records = (STARTED, quarantined, blocked, taken_back)
        assert written(recovery_state(entries(*records))) == [
            CrashedRun("actor/run-1", reopened=(A,))
        ]
        for later in (reopened, rec.Claimed("a", "a", 2)):
            assert written(recovery_state(entries(*records, later))) == [CrashedRun("actor/run-1")]
    # What only cooled down was never blocked.
    cooling = rec.Finished("a", "W1", 1, "r", "error", "requeue", charged=1, delay_seconds=9.0)
    assert (
        recovery_state(entries(STARTED, cooling, rec.RetryAsked("a"))).unsettled_runs()[0].reopened
        == ()
    )


def test_an_attempt_that_was_not_begun_has_no_end_once_its_issue_is_claimed_again() -> None:
    began = rec.Started("a", "W1", 1, "r1")
    unstarted = rec.Finished("a", "W1", 1, "r1", "cancelled", "requeue")
    again = (rec.Claimed("a"), rec.Started("a", "W2", 1, "r2"))
    left = recovery_state(entries(STARTED, rec.Claimed("a"), began, unstarted, *again))
    assert left.unsettled_runs() == [CrashedRun("actor/run-1", begun=(A,))]


def test_a_hand_over_that_was_refused_leaves_nothing_that_was_not_begun() -> None:
    records = (STARTED, rec.Claimed("a"), rec.ClaimDelegated("a", "W1"))
    refused = rec.SettledRecord("a", "hand_over", "not_ours")
    assert recovery_state(entries(*records)).unsettled_runs()[-1].unstarted == (A,)
    assert recovery_state(entries(*records, refused)).unsettled_runs() == [
        CrashedRun("actor/run-1")
    ]


def test_what_had_its_last_attempt_has_that_pending_until_the_tracker_has_it() -> None:
    play = Play(policy=Policy(attempts_max=1))
    play.working("a")
    play.do(failed(1, "a", "boom"))
    (crashed,) = recovery_state(reread(play.entries)).unsettled_runs()
    assert crashed.quarantined == ((A, quarantine_note(1, "boom")),)
    assert crashed.back(A).action is Action.QUARANTINE
    play.answer(results={"a": Result.FAILED})
    assert recovery_state(reread(play.entries)).quarantined
    play.wait(2.0)
    play.answer()
    assert recovery_state(reread(play.entries)).unsettled_runs() == [CrashedRun("actor/run-1")]


def test_a_person_who_asks_for_another_try_takes_that_pending_write_away() -> None:
    left = recovery_state(
        entries(
            STARTED,
            rec.Finished("a", "W1", 1, "r", "error", "quarantined", charged=3),
            rec.RetryAsked("a"),
        )
    )
    assert left.unsettled_runs()[0].back(A) == Settlement(Action.REOPEN, A, read_first=True)


def test_pending_writes_of_several_runs_are_made_in_each_ones_own_name_this_runs_last() -> None:
    left = recovery_state(
        entries(
            STARTED,
            Checkpointed("old", claimed_by="actor/run-0"),
            rec.CheckpointEnded(),
            rec.Finished("new", "W1", 1, "r", "success", "finish"),
        )
    )
    assert written(left) == [
        CrashedRun("actor/run-0", (IssueId("old"),), closes_only=True),
        CrashedRun("actor/run-1", (IssueId("new"),)),
    ]


def test_how_attempts_went_of_which_the_source_was_not_told_is_known() -> None:
    settled = rec.SettledRecord("told", "release", "applied")
    left = recovery_state(
        entries(
            STARTED,
            *(rec.Claimed(name, name, 2) for name in ("told", "done", "bad", "runs", "waits")),
            *(rec.Started(name, "W1", 1, "r", name, 2) for name in ("told", "done", "bad", "runs")),
            rec.Finished("told", "W1", 1, "r", "error", "hand_back", "boom"),
            settled,
            rec.Finished("done", "W1", 1, "r", "success", "finish", result='"42"'),
            rec.Finished("bad", "W1", 1, "r", "timeout", "hand_back", "late"),
        )
    )
    (crashed,) = left.unsettled_runs()
    assert dict(crashed.outcomes) == {
        "done": Outcome(OutcomeKind.SUCCESS, result='"42"'),
        "bad": Outcome(OutcomeKind.TIMEOUT, "late"),
    }
    assert crashed.unstarted == ("waits",)
    assert crashed.begun == ("runs",)
    assert crashed.handed_back == ("bad",)


def test_an_outcome_of_a_later_version_is_no_success() -> None:
    strange = rec.Finished("a", "W1", 1, "r", "stranger", "hand_back", "x")
    (crashed,) = recovery_state(entries(STARTED, strange)).unsettled_runs()
    assert crashed.outcomes == ((A, Outcome(OutcomeKind.ERROR, "x")),)


def test_a_torn_last_line_is_passed_over_and_the_rest_counts() -> None:
    play = Play()
    play.working("a")
    play.do(failed(1, "a"))
    lines = [encode(entry) for entry in play.entries]
    for cut in range(1, len(lines[-1])):
        assert decode(lines[-1][:cut].rstrip(b"}\n")) is None
    assert (
        recovery_state(e for e in map(decode, lines) if e is not None).retry_entries["a"].charged
        == 1
    )


BEFORE = recovery_state(
    entries(
        rec.RunStarted("run-0", 1, "actor/run-0", "memory", "/p"),
        Checkpointed("a", charged=2),
        Checkpointed("b", charged=1),
        rec.CheckpointEnded(),
        rec.Finished("c", "W1", 1, "r", "success", "finish"),
    )
)


def test_a_crash_in_the_middle_of_a_checkpoint_loses_nothing_of_the_run_before() -> None:
    torn = recovery_state(entries(STARTED, Checkpointed("a", charged=2)))
    torn.take_over(BEFORE)
    known = {each: retry_entry for each, retry_entry in torn.retry_entries.items() if each != "c"}
    assert known == BEFORE.retry_entries and torn.unclosed == BEFORE.unclosed


def test_after_a_whole_checkpoint_the_run_before_adds_nothing() -> None:
    whole = recovery_state(entries(STARTED, Checkpointed("a", charged=2), rec.CheckpointEnded()))
    whole.take_over(BEFORE)
    assert set(whole.retry_entries) == {"a"} and whole.unclosed == {}


def test_what_a_later_run_has_taken_is_no_longer_pending_for_an_earlier_one() -> None:
    runs = {
        "1": recovery_state(
            entries(
                STARTED,
                rec.CheckpointEnded(),
                rec.Claimed("a", "a", 1),
                rec.Started("a", "W1", 1, "1.1", agent="claude"),
                rec.Claimed("b", "b", 1),
                rec.Started("b", "W2", 1, "1.2", agent="claude"),
            )
        ),
        "2": recovery_state(
            entries(
                STARTED,
                rec.CheckpointEnded(),
                rec.Claimed("a", "a", 1),
                rec.Started("a", "W1", 1, "2.1"),
                rec.Finished("a", "W1", 1, "2.1", "success", "finish"),
                rec.SettledRecord("a", "close", "applied", ""),
            )
        ),
    }
    (first, _), _ = left_over(["1", "2"], lambda run_id: False, runs.get)
    assert list(first.begun) == ["b"]
    assert [each.request_id for each in first.unread] == ["1.2"]


def test_a_call_of_the_tracker_whose_end_is_not_recorded_is_to_be_waited_for() -> None:
    began = rec.CallStarted(77, 12345, ("bd", "ready"))
    assert recovery_state(entries(STARTED, began)).last_call == (77, 12345)
    assert recovery_state(entries(STARTED, began, rec.CallEnded(77))).last_call is None


# --- the recovery, seen by the core ---------------------------------------------------------------


def recovered(action: Action, result: Result, *checkpointed: Checkpointed) -> Play:
    """A run that was told this of issue a by its recovery."""
    play = Play(checkpointed=checkpointed, recovering=True)
    settled = Settled(Settlement(action, A), result, "why")
    play.do(ev.RecoveryEnded((settled,)))
    return play


def test_a_close_that_the_recovery_made_up_for_is_forgotten() -> None:
    play = recovered(Action.CLOSE, Result.APPLIED, Checkpointed("a", claimed_by="actor/run-0"))
    assert not play.core._parts.effects.issues.known
    assert recovery_state(play.entries).unclosed == {} and play.board.unclosed == []


def test_done_work_that_is_somebody_elses_now_is_no_concern_of_ours_any_more() -> None:
    play = recovered(Action.CLOSE, Result.NOT_OURS, Checkpointed("a", claimed_by="actor/run-0"))
    assert not play.core._parts.effects.issues.known


def test_what_a_later_run_quarantined_stays_known_when_an_earlier_one_no_longer_holds_it() -> None:
    quarantined = Checkpointed("a", charged=3, quarantined=True)
    play = recovered(Action.RELEASE, Result.NOT_OURS, quarantined)
    assert play.core._parts.effects.issues.known[A].standing is Standing.QUARANTINED
    assert recovery_state(play.entries).retry_entries == {"a": quarantined}
    assert play.board.quarantined == {"a": (3, "")}


def test_a_close_that_failed_again_is_kept_shown_and_ends_the_run_with_seven() -> None:
    play = recovered(Action.CLOSE, Result.FAILED, Checkpointed("a", claimed_by="actor/run-0"))
    assert play.core._parts.retry_state.not_to_take() == {"a"}
    assert recovery_state(play.entries).unclosed == {"a": "actor/run-0"}
    assert [i.issue_id for i in play.board.unclosed] == ["a"]
    play.do(ev.StopAsked())
    assert play.ended == 7


def test_what_a_dead_run_says_of_an_issue_forgets_no_cost_that_is_known() -> None:
    known = Checkpointed("a", money=2.0, tokens=1000, counted="0.1")
    play = Play(checkpointed=(known,), recovering=True)
    play.do(
        ev.RecoveryEnded((), late_entries=(Checkpointed("a", claimed_by="actor/run-0", charged=1),))
    )
    past = play.core._parts.effects.issues.known[A].retry_entry
    assert past == replace(known, claimed_by="actor/run-0", charged=1)


def test_a_dead_run_may_know_of_more_than_was_counted() -> None:
    more = Checkpointed("a", money=3.0, tokens=1500, counted="0.2")
    known = Checkpointed("a", money=2.0, tokens=1000, counted="0.1")
    play = Play(checkpointed=(known,), recovering=True)
    play.do(ev.RecoveryEnded((), late_entries=(more,)))
    assert play.core._parts.effects.issues.known[A].retry_entry == more


def test_what_the_recovery_requeued_keeps_its_count() -> None:
    play = recovered(Action.RELEASE, Result.APPLIED, Checkpointed("a", charged=1))
    assert play.core._parts.retry_state.history(A).charged == 1
    assert recovery_state(play.entries).retry_entries["a"].charged == 1


def test_a_clock_that_was_set_back_parks_no_issue_for_ever() -> None:
    play = Play(checkpointed=[Checkpointed("a", charged=1, not_before=EPOCH + 1e9)])
    play.wait(86_400.0)
    assert play.core._parts.retry_state.not_to_take() == set()


def test_a_clock_that_was_set_back_by_a_day_makes_no_back_off_longer_than_it_was() -> None:
    first = Play()
    first.working("a")
    first.do(failed(1, "a"))
    (retry_entry,) = recovery_state(reread(first.entries)).checkpoint()
    second = Play(checkpointed=[replace(retry_entry, not_before=retry_entry.not_before + 86_400.0)])
    assert second.core._parts.retry_state.not_to_take() == {"a"}
    second.wait(10.0)
    assert second.core._parts.retry_state.not_to_take() == set()


def test_what_did_not_have_to_wait_need_not_wait_after_the_clock_was_set_back() -> None:
    play = Play(checkpointed=[Checkpointed("a", charged=1)])
    play.working("a")
    play.do(ev.StopAsked(), cancelled(1, "a"))
    (retry_entry,) = recovery_state(reread(play.entries)).checkpoint()
    assert (retry_entry.charged, retry_entry.not_before, retry_entry.delay_seconds) == (1, 0.0, 0.0)


def test_who_of_the_workers_that_are_not_ours_had_an_issue_to_the_end_is_remembered() -> None:
    play = Play()
    for number, issue_id in enumerate("ab", 1):
        play.do(ev.Connected(ConnId(number), 900 + number, 77), ready(number))
        play.answer(issue_id)
    assert recovery_state(reread(play.entries)).owners == {"a": (901, 77), "b": (902, 77)}
    play.do(done(1, "a"), lost(2))
    assert recovery_state(reread(play.entries)).owners == {"b": (902, 77)}, (
        "it may still work on it"
    )
    play.do(ev.OwnerGone(902))
    assert recovery_state(reread(play.entries)).owners == {}


def test_our_own_workers_are_not_waited_for_by_pid() -> None:
    play = Play(1)
    play.own(1)
    play.answer("a")
    assert recovery_state(reread(play.entries)).owners == {}


def test_the_fold_does_not_care_how_often_it_is_made() -> None:
    play = Play()
    play.working("a", "b")
    play.do(done(1, "a"), failed(2, "b"), lost(2))
    once = recovery_state(reread(play.entries))
    again = recovery_state(reread(reread(play.entries)))
    assert replace(once, issues=Issues()) == replace(again, issues=Issues())
    assert once.unsettled_runs() == again.unsettled_runs() and once.begun == again.begun
    assert once.retry_entries.keys() == again.retry_entries.keys() == {"b"}
    assert job("b").issue_id in once.retry_entries


def test_what_is_shown_of_a_carried_retry_does_not_grow_with_a_clock_that_was_set_back() -> None:
    day = 86_400.0
    board = Board()
    retry_entry = rec.Checkpointed("bw-1", not_before=2 * day, delay_seconds=10.0)
    board.apply(Entry(retry_entry, at=day, elapsed=1.0))
    assert board.retrying == {"bw-1": 11.0}


def test_what_was_queued_on_a_worker_was_never_started() -> None:
    records: list[rec.Record] = []
    for name in ("a", "b"):
        records += [rec.Claimed(name), rec.Started(name, "W1", 1, f"run.{name}")]
    left = recovery_state(Entry(record, 1.0, 1.0) for record in records)
    left.returned_unstarted({"run.b", "another.a"})
    (crashed,) = left.unsettled_runs()
    assert (crashed.begun, crashed.unstarted) == (("a",), ("b",))
