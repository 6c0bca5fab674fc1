"""What a start makes of the words that a crashed run's workers have left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.source import Action, Result, Settled, Settlement
from beads_workers.core.base.wire import RETURNED_UNSTARTED, Done, Failed, encode
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.schedule import events as ev
from beads_workers.core.views.recovery import RecoveryState, read_spool, recovery_state, replay
from tests.core.playbook import EPOCH, Play
from tests.core.test_recovery import STARTED, entries, reread

A, B = IssueId("a"), IssueId("b")
DONE = Done(A, "W1", 12, {"note": "all well", "sum": 3}, request_id="r.a")
UNSTARTED = Failed(B, "W1", "why", 0, error_detail=RETURNED_UNSTARTED, request_id="r.b")
WORDS = {"r.a": DONE, "r.b": UNSTARTED}


def dead(path: str = "") -> RecoveryState:
    """A run that has sent a and b, and heard of neither."""
    claimed = [rec.Claimed(name, name, 2, path) for name in "ab"]
    began = [rec.Started(name, "W1", 2, f"r.{name}") for name in "ab"]
    return recovery_state(entries(STARTED, *claimed, *began))


def lines(*messages: Done | Failed) -> bytes:
    return b"".join(encode(m, "W1", 1.0, v1=False) for m in messages)


def test_a_success_that_nobody_heard_needs_a_close_with_all_that_came_of_it() -> None:
    left = dead()
    ends = replay(left, WORDS)
    finished = rec.Finished(
        "a", "W1", 2, "r.a", "success", "finish", duration_ms=12, note="all well",
        result='{"note":"all well","sum":3}',
    )  # fmt: skip
    # It had begun at the third second.
    assert ends == {"a": Entry(finished, EPOCH + 3.012, 3.012)}
    (crashed,) = left.unsettled_runs()
    assert (crashed.unclosed, crashed.begun, crashed.unstarted) == ((A,), (), (B,))
    (close,) = crashed.closes([A])
    assert close == Settlement(
        Action.CLOSE, A, "all well", read_first=True, result='{"note":"all well","sum":3}'
    )
    assert dict(crashed.outcomes)[A].kind is OutcomeKind.SUCCESS


def test_it_is_the_same_as_if_it_had_been_read_in_time() -> None:
    late = dead()
    ends = replay(late, WORDS)
    read = dead()
    for entry in ends.values():
        read.apply(entry)
    read.returned_unstarted({"r.b"})
    assert late == read
    assert replay(late, WORDS) == {}, "once"


def test_a_word_on_another_issue_or_another_attempt_changes_nothing() -> None:
    left, before = dead(), dead()
    for strange in (replace(DONE, issue_id=B), replace(DONE, request_id="r.z")):
        assert replay(left, {strange.request_id: strange}) == {}
    assert left == before
    over = recovery_state(entries(STARTED, rec.Started("a", "W1", 1, "r.a")))
    over.settled_elsewhere("a")
    assert replay(over, WORDS) == {}


@pytest.mark.parametrize(
    ("labels", "approves", "awaits"),
    [((), False, False), (("land:ask",), False, True), ((), True, True)],
)
def test_a_branch_that_nobody_heard_of_awaits_approval_as_if_it_had_been_heard(
    labels: tuple[str, ...], approves: bool, awaits: bool
) -> None:
    began = replace(STARTED, lands=True, approves=approves)
    claimed = rec.Claimed("a", "a", labels=labels)
    left = recovery_state(entries(began, claimed, rec.Started("a", "W1", 1, "r.a", agent="claude")))
    receipt = {"verdict": "done", "head": "c1", "branch": "bw/a/1"}
    finished = replay(left, {"r.a": replace(DONE, receipt=receipt)})["a"].record
    assert isinstance(finished, rec.Finished)
    assert (finished.verdict, finished.awaits) == ("land", awaits)
    (entry,) = left.checkpoint()
    assert entry.landing is not None and entry.landing.awaits is awaits


def test_only_what_a_function_returned_is_kept_where_it_is_a_note_alone() -> None:
    answers = {"r.a": replace(DONE, result={"note": "x"})}
    for path, kept in (("", ""), ("m.f", '{"note":"x"}')):
        finished = replay(dead(path), answers)["a"].record
        assert isinstance(finished, rec.Finished) and finished.result == kept


def test_words_are_read_in_whatever_pieces_they_come_and_only_those_that_are_wanted() -> None:
    whole = lines(DONE, UNSTARTED)
    assert read_spool([whole], WORDS) == WORDS
    pieces = (whole[n : n + 7] for n in range(0, len(whole), 7))
    assert read_spool(pieces, WORDS) == WORDS
    assert read_spool([whole], ()) == {}


def test_the_first_word_on_an_attempt_counts() -> None:
    later = replace(DONE, result="another")
    assert read_spool([lines(DONE, later)], WORDS) == {"r.a": DONE}


def test_a_failure_and_whatever_is_no_word_is_passed_over() -> None:
    failed = Failed(A, "W1", "boom", request_id="r.a")
    ready = b'{"type":"READY","worker_id":"W1","timestamp":1,"request_id":"r.a"}\n'
    junk = b"\xff\n[]\n{}\n" + b"x" * (limits.WORD_BYTES_MAX + 1) + b"\n" + ready
    assert read_spool([junk, lines(failed, UNSTARTED), b'{"type":"DO'], WORDS) == {"r.b": UNSTARTED}


def test_a_close_that_was_heard_of_late_and_fails_is_kept_like_any_other() -> None:
    play = Play(recovering=True)
    settled = Settled(Settlement(Action.CLOSE, A), Result.FAILED, "why")
    play.do(ev.RecoveryEnded((settled,), (rec.Checkpointed("a", claimed_by="actor/run-0"),)))
    assert play.core._parts.retry_state.not_to_take() == {"a"}
    assert recovery_state(reread(play.entries)).unclosed == {"a": "actor/run-0"}
    play.do(ev.StopAsked())
    assert play.ended == 7


def test_what_waited_for_another_try_is_only_unclosed_once_word_of_its_success_comes() -> None:
    cooling = rec.Checkpointed("a", charged=1, not_before=EPOCH + 60.0, delay_seconds=60.0)
    play = Play(recovering=True, checkpointed=[cooling])
    play.do(ev.RecoveryEnded((), (rec.Checkpointed("a", claimed_by="actor/run-0"),)))
    assert [i.issue_id for i in play.board.unclosed] == ["a"] and play.board.retrying == {}


def test_one_that_was_closed_is_forgotten() -> None:
    play = Play(recovering=True)
    settled = Settled(Settlement(Action.CLOSE, A), Result.APPLIED)
    play.do(ev.RecoveryEnded((settled,), (rec.Checkpointed("a", claimed_by="actor/run-0"),)))
    assert not play.core._parts.effects.issues.known and not play.board.unclosed
    assert recovery_state(reread(play.entries)).unclosed == {}
