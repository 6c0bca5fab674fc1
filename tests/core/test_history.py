"""The account of a run: what became of attempts, issues and workers, however the run ended."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.records import journal as rec
from beads_workers.core.records.landing import Add
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.core.views.history import FAILURES, Fate, History, fold
from beads_workers.ui.findings import lanes, money_of
from tests.support import landings
from tests.support.journals import BEGAN_AT, Script, agents_night, night, of, started


def account(script: Script, **how: bool | float) -> History:
    """The account of a script's entries, in the order of time."""
    history = fold(sorted(script.entries, key=lambda e: e.elapsed), **how)  # type: ignore[arg-type]
    assert history is not None
    return history


def begun(workers: int = 1) -> Script:
    """A script after a run's first record."""
    script = Script()
    script.add(0.0, started(workers))
    return script


def fates(history: History) -> dict[str, Fate]:
    """What became of each issue."""
    return {i.issue_id: i.fate for i in history.issues}


def test_an_attempt_has_its_times_worker_and_outcome() -> None:
    script = begun()
    script.attempt("W1", "a", 1.0, 3.5, "error", "requeue", error="broke", number=2, title="t")
    (attempt,) = account(script).attempts
    assert (attempt.issue_id, attempt.title, attempt.worker_id, attempt.attempt) == (
        "a", "t", "W1", 2,
    )  # fmt: skip
    assert (attempt.began, attempt.ended, attempt.seconds) == (1.0, 3.5, 2.5)
    assert (attempt.outcome, attempt.verdict, attempt.error) == ("error", "requeue", "broke")
    assert (attempt.worker_ms, attempt.charged) == (2500, 2)


def test_every_issue_has_the_fate_that_came_last() -> None:
    script = begun()
    script.attempt("W1", "closed", 1.0, 2.0)
    script.attempt("W1", "pending", 2.0, 3.0, settled=False)
    script.attempt("W1", "aside", 3.0, 4.0, "error", "quarantined", error="no")
    script.attempt("W1", "back", 4.0, 5.0, "error", "requeue", error="no")
    script.attempt("W1", "again", 5.0, 6.0, "error", "requeue", error="no")
    script.attempt("W1", "again", 6.5, 7.0)
    script.attempt("W1", "in hand", 7.0, None)
    script.add(8.0, rec.Claimed("unsent"))
    script.attempt("W1", "foreign", 8.0, 9.0, settled=False)
    script.add(9.0, rec.SettledRecord("foreign", "close", "not_ours", "bob has it"))
    script.attempt("W1", "found", 9.0, 10.0, "lost", "requeue", settled=False)
    script.add(11.0, rec.SettledRecord("found", "release", "found_closed"))
    assert fates(account(script))["pending"] is Fate.CLOSED, "by the start that settled this run"
    assert fates(account(script, settled=False)) == {
        "closed": Fate.CLOSED,
        "pending": Fate.UNCLOSED,
        "aside": Fate.QUARANTINED,
        "back": Fate.REQUEUED,
        "again": Fate.CLOSED,
        "in hand": Fate.UNFINISHED,
        "unsent": Fate.UNFINISHED,
        "foreign": Fate.NOT_OURS,
        "found": Fate.CLOSED,
    }


def test_what_earlier_runs_left_is_told_apart() -> None:
    script = begun()
    script.add(0.1, rec.Checkpointed("aside", "t", 3, quarantined=True, error="no"))
    script.add(0.1, rec.Checkpointed("pending", "t", claimed_by="somebody"))
    script.add(0.2, rec.SettledRecord("pending", "close", "applied"))
    script.add(0.1, rec.Checkpointed("tried", "t", 1, error="once"))
    script.attempt("W1", "tried", 1.0, 2.0)
    history = account(script)
    assert fates(history) == {
        "aside": Fate.QUARANTINED, "pending": Fate.CLOSED, "tried": Fate.CLOSED,
    }  # fmt: skip
    assert {i.issue_id for i in history.issues if i.earlier} == {"aside", "pending"}
    assert [i.issue_id for i in history.with_fate(Fate.CLOSED)] == ["tried"]


def test_a_retry_that_a_person_asks_for_opens_the_issue_again() -> None:
    script = begun()
    script.attempt("W1", "a", 1.0, 2.0, "error", "quarantined", error="no")
    script.add(3.0, rec.RetryAsked("a"))
    assert fates(account(script)) == {"a": Fate.REQUEUED}


@pytest.mark.parametrize(
    ("alive", "now", "state", "outcome", "seconds"),
    [(True, 30.0, "running", "running", 29.0), (False, None, "killed", "cut_off", 3.0)],
)
def test_an_attempt_without_an_end_lasts_to_the_end_of_the_account(
    alive: bool, now: float | None, state: str, outcome: str, seconds: float
) -> None:
    script = begun()
    script.attempt("W1", "a", 1.0, None)
    script.add(4.0, rec.Noted("info", "the last word"))
    history = account(script, alive=alive, now=None if now is None else BEGAN_AT + now)  # type: ignore[arg-type]
    (attempt,) = history.attempts
    assert (history.state, attempt.outcome, attempt.seconds) == (state, outcome, seconds)
    assert attempt.ended is None


def test_a_worker_that_died_and_came_back_has_two_lives() -> None:
    script = begun()
    script.add(0.5, rec.WorkerStarted("W1", 11), rec.WorkerJoined("W1", 11))
    script.add(2.0, rec.WorkerLeft("W1"), rec.WorkerExited("W1", 11, 137))
    script.add(3.0, rec.WorkerStarted("W1", 12), rec.WorkerJoined("W1", 12))
    script.add(5.0, rec.WorkerExited("W1", 12, 0), rec.WorkerGone("W1", "scaled down"))
    script.add(1.0, rec.WorkerJoined("W2", 99, "bash", own=False))
    script.add(4.0, rec.WorkerLeft("W2", "closed"))
    lives = account(script).workers
    assert [(w.worker_id, w.pid, w.own, w.began, w.ended, w.died) for w in lives] == [
        ("W1", 11, True, 0.5, 2.0, True),
        ("W1", 12, True, 3.0, 5.0, False),
        ("W2", 99, False, 1.0, 4.0, False),
    ]


def test_a_worker_that_is_killed_at_the_stop_has_not_died_on_the_fleet() -> None:
    script = begun()
    script.add(0.5, rec.WorkerStarted("W1", 11))
    script.add(2.0, rec.RunChanged("stopping", "user_requested"))
    script.add(3.0, rec.WorkerExited("W1", 11, 137))
    (life,) = account(script).workers
    assert (life.status, life.dismissed, life.died) == (137, True, False)


@pytest.mark.parametrize("then", ["running", "paused", "stopping"])
def test_the_wait_for_its_time_is_no_pause_and_has_a_length(then: str) -> None:
    script = begun()
    script.add(1.0, rec.RunChanged("waiting", "--start-at", until=BEGAN_AT + 7200.0))
    script.add(7200.0, rec.RunChanged(then))
    history = account(script)
    assert [(s.began, s.ended, s.text) for s in history.waits] == [(1.0, 7200.0, "--start-at")]
    assert len(history.pauses) == (then == "paused")
    assert ("waiting", history.waits) in lanes(history)


def test_trouble_and_pauses_have_a_beginning_and_an_end() -> None:
    script = begun()
    for at, failures in ((1.0, 1), (2.0, 2)):
        script.add(at, rec.SourceTrouble(f"locked {failures}", 1.0, "wait", failures))
    script.add(4.0, rec.SourceRecovered(), rec.RunChanged("paused", "asked"))
    script.add(6.0, rec.RunChanged("running"))
    script.add(8.0, rec.SourceTrouble("gone"), rec.RunChanged("paused"))
    history = account(script)
    assert [(s.began, s.ended, s.text, s.count) for s in history.outages] == [
        (1.0, 4.0, "locked 1", 2), (8.0, None, "gone", 1),
    ]  # fmt: skip
    assert [(s.began, s.ended) for s in history.pauses] == [(4.0, 6.0), (8.0, None)]


def test_what_the_tracker_cost_is_the_last_word_on_it() -> None:
    history = fold(of([(1.0, rec.Spent(3, 0.5)), (2.0, rec.Spent(7, 1.25))]))
    assert history is not None
    assert (history.tracker_calls, history.tracker_seconds) == (7, 1.25)


def test_a_run_without_its_first_record_has_no_account() -> None:
    assert fold([]) is None
    assert fold(of([(1.0, rec.Spent(1, 1.0))])[1:]) is None


@given(
    attempts=st.integers(0, 60),
    workers=st.integers(1, 9),
    seed=st.integers(0, 99),
    kept=st.floats(0, 1),
    missing=st.sets(st.integers(0, 400), max_size=20),
)
def test_a_journal_that_is_cut_short_or_has_holes_still_adds_up(
    attempts: int, workers: int, seed: int, kept: float, missing: set[int]
) -> None:
    entries = sorted(night(attempts, workers, seed).entries, key=lambda e: e.elapsed)
    entries = entries[: max(1, int(len(entries) * kept))]
    history = fold([e for n, e in enumerate(entries) if n == 0 or n not in missing])
    assert history is not None
    tries = Counter(a.issue_id for a in history.attempts)
    assert {i.issue_id: i.attempts for i in history.issues if i.attempts} == dict(tries)
    assert sum(i.seconds for i in history.issues) == pytest.approx(
        sum(a.seconds for a in history.attempts)
    )
    assert all(
        0 <= a.began <= a.began + a.seconds <= history.seconds + 1e-6 for a in history.attempts
    )
    assert all(
        w.began <= (history.seconds if w.ended is None else w.ended) for w in history.workers
    )
    assert {a.outcome for a in history.attempts if a.ended is None} <= {"cut_off"}


def test_a_whole_night_has_all_of_its_attempts() -> None:
    history = account(night(500, 7))
    assert len(history.attempts) == 500
    assert history.state == "ended" and history.exit_code == 7
    closed = {a.issue_id for a in history.attempts if a.outcome == "success"}
    assert {i.issue_id for i in history.with_fate(Fate.CLOSED)} == closed
    failed = [a for a in history.attempts if a.outcome in FAILURES]
    assert failed and all(a.error for a in failed)


def test_an_attempt_of_an_agent_has_its_receipt() -> None:
    first, *_ = account(agents_night()).of_issue("a")
    assert (first.agent, first.receipt and first.receipt.session) == ("claude", "s-1")


def test_what_a_killed_worker_had_used_is_found_later() -> None:
    script = agents_night()
    (lost,) = account(script).of_issue("d")
    assert lost.receipt is None
    found = Receipt(agent="claude", usage={"m": Tokens(7)})
    script.add(12.0, rec.UsageFound("d", 1, lost.request_id, found))
    (again,) = account(script).of_issue("d")
    assert again.receipt is not None
    assert again.receipt.tokens.total == 7


def test_a_killed_agent_is_counted_as_cut_also_if_no_usage_of_it_is_known() -> None:
    script = begun()
    killed = Receipt("unfinished", agent="claude", session="s", was_cut=True)
    script.attempt("W1", "x", 1.0, 2.0, "error", "requeue", agent="claude", receipt=killed)
    script.attempt("W1", "y", 3.0, None, agent="claude")
    (last,) = account(script).of_issue("y")
    script.add(9.0, rec.UsageFound("y", 1, last.request_id, Receipt(agent="claude", session="t")))
    history = account(script)
    assert [a.was_cut for a in history.attempts] == [True, True]
    spent = money_of(history)
    assert spent is not None and spent.total.cut == 2


def test_what_an_attempt_reported_itself_stays_its_usage() -> None:
    script = agents_night()
    first, *_ = account(script).of_issue("a")
    spooled = rec.UsageFound("a", 1, first.request_id, Receipt(agent="claude"), whole=True)
    script.add(12.0, spooled)
    again, *_ = account(script).of_issue("a")
    assert (again.receipt, again.was_cut) == (first.receipt, False)


# --- landing --------------------------------------------------------------------------------------


def landed_night() -> History:
    """The account of a run that lands, a record each second."""
    script = begun()
    for number, record in enumerate(landings.night(), 1):
        script.add(float(number), record)
    return account(script)


def test_each_issue_knows_how_its_branch_came_to_land_or_did_not() -> None:
    history = landed_night()
    assert fates(history) == {
        "a": Fate.CLOSED,
        "b": Fate.CLOSED,
        "c": Fate.QUARANTINED,
        "d": Fate.CLOSED,
        "e": Fate.WAITING_TO_LAND,
    }
    of_issue = {issue.issue_id: issue.landing for issue in history.issues}
    a, b, c, d, e = (of_issue[issue_id] for issue_id in "abcde")
    assert a and b and c and d and e
    assert (a.commit, a.verified, a.branch) == (landings.FIRST, True, "bw/a/1")
    assert (a.gate_runs, a.gate_seconds) == (2, 5.0), "with b, and alone"
    assert (b.commit, b.verified, b.gate_runs) == (landings.SECOND, False, 1)
    assert (c.commit, c.refused, c.repairs) == ("", 1, 0)
    assert c.error.startswith("its branch conflicts with what has landed (landed by a)")
    assert (d.commit, d.refused, d.repairs, d.gate_runs) == ("3" * 40, 1, 1, 1)
    assert (e.commit, e.landed, e.gate_runs) == ("", None, 0), "its gate still runs"
    assert a.landed is not None and d.landed is not None and a.landed < d.landed


def test_the_sums_of_landing_are_those_that_status_shows() -> None:
    sums = landed_night().landing
    assert sums is not None
    assert (sums.landed, sums.unverified, sums.conflicts, sums.sent_back, sums.quarantined) == (
        *(3, 1, 2, 1),
        1,
    )
    assert (sums.gate_runs, sums.gates["kept"], sums.flaky, sums.gate_seconds) == (3, 1, 1, 7.0)


def test_a_run_in_which_nothing_lands_has_no_word_of_it() -> None:
    history = account(night(20, 2))
    assert history.landing is None
    assert all(issue.landing is None for issue in history.issues)


def test_what_an_earlier_run_had_done_and_this_one_landed_is_told() -> None:
    script = begun()
    add = Add("old", 1, "run", "a" * 40, landings.TIP, "bw/old/1", "Do old")
    script.add(1.0, rec.Checkpointed("old", title="Do old", landing=add))
    for record in landings.landed("old"):
        script.add(2.0, record)
    (issue,) = account(script).issues
    assert not issue.earlier and issue.fate is Fate.CLOSED
    assert issue.landing is not None and issue.landing.commit == landings.FIRST
    assert issue.landing.branch == "bw/old/1"
