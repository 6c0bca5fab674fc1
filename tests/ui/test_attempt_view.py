"""One attempt with all that is around it: which is pinned, what happens now, what can be done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.views.history import History
from beads_workers.core.views.nights import night
from beads_workers.ui import bindings
from beads_workers.ui.attempt_view import (
    ANSWER,
    APPROVE,
    REJECT,
    RELEASE,
    RETRY,
    AttemptView,
    Pin,
    actions,
    attempt_view,
    now,
    pin_issue,
    pin_outcome,
    pin_worker,
    running,
    sections,
    stamp,
)
from beads_workers.ui.viewer import ATTEMPT
from tests.core.test_nights import run
from tests.support.journals import BEGAN_AT, Script
from tests.support.landings import night as landings
from tests.ui.snapshots import after, ended, fleet, to_decide

RECEIPT = Receipt(
    "unfinished",
    agent="claude",
    branch="bw/a/2",
    base="0" * 40,
    head="a" * 40,
    diffstat="1 file changed",
    lesson="2 tests failed",
)


def told() -> History:
    """A night of two runs: ``a`` fails in the first, twice, and runs in the second."""
    first, second = Script(), Script()
    first.attempt("W1", "a", 1.0, 3.0, "error", "requeue", error="E: 3 != 4", title="Mend a")
    first.attempt("W2", "b", 1.0, 2.0)
    first.attempt("W2", "a", 5.0, 6.0, "retry", "requeue", number=2, receipt=RECEIPT)
    first.attempt("W2", "a", 7.0, 9.0, "error", "requeue", number=2, error="E: again")
    second.attempt("W1", "a", 1.0, None, number=3)
    return night([run(first, 1), run(second, 2, 100.0)])


RUNS = told().runs


def at(pin: Pin, until: float | None = None) -> AttemptView:
    """The view of that night."""
    return attempt_view(pin, RUNS, until)


# --- which attempt -------------------------------------------------------------------------------


def test_all_attempts_of_a_night_are_walked_through_and_others_are_not_among_them() -> None:
    view = at(Pin("a", "run-1", 1, "W1"))
    walked = [(each.run_id, each.attempt.attempt, each.attempt.error) for each in view.attempts]
    assert walked == [
        ("run-1", 1, "E: 3 != 4"),
        ("run-1", 2, ""),
        ("run-1", 2, "E: again"),
        ("run-2", 3, ""),
    ]
    assert view.place == "1 of 4" and view.step(-1) is None
    third = view.step(2)
    assert third is not None and at(third).place == "3 of 4"
    assert at(third).step(2) is None


def test_free_retries_of_one_number_are_told_apart_by_their_times() -> None:
    assert at(Pin("a", "run-1", 2, "W2", began=5.0)).place == "2 of 4"
    assert at(Pin("a", "run-1", 2, "W2", began=7.0)).place == "3 of 4"
    assert at(Pin("a", "run-1", 2, "W2", ended_at=BEGAN_AT + 6.0)).place == "2 of 4"
    assert at(Pin("a", "run-1", 2, "W2", ended_at=BEGAN_AT + 9.0)).place == "3 of 4"


def test_a_pin_without_a_number_is_the_newest_attempt() -> None:
    assert at(Pin("a", "run-2")).place == "4 of 4"


def test_an_attempt_that_no_journal_has_is_not_another_one() -> None:
    view = at(Pin("a", "run-1", 7))
    assert view.tried is None and view.step(1) is None and view.place == ""
    assert len(view.attempts) == 4 and view.pin.number == 7


def test_a_view_follows_an_attempt_from_its_beginning_to_its_end_and_no_further() -> None:
    view = at(Pin("a", "run-1", 2, "W2", began=5.0))
    assert view.tried is not None and view.tried.ended_at == BEGAN_AT + 6.0
    assert at(view.pin).pin == view.pin and view.pin.request_id


def test_in_a_replay_nothing_is_known_of_what_comes() -> None:
    view = at(Pin("a", "run-1", 2, "W2", began=5.0), until=5.5)
    assert view.place == "2 of 2" and view.tried is not None
    assert view.tried.attempt.outcome == "running" and view.tried.attempt.receipt is None


def test_an_attempt_has_the_keys_of_an_outcome_of_status() -> None:
    (outcome,) = after(*fleet(1, busy=1), ended("app-1"))["outcomes"]
    view = at(Pin("a", "run-1", 2, "W2", began=5.0))
    assert view.tried is not None and view.tried.row.keys() == outcome.keys()
    assert view.tried.row["agent"] == "claude" and view.tried.row["diffstat"] == "1 file changed"
    assert view.branch == "bw/a/2" and view.title == "a title"


# --- pins of rows --------------------------------------------------------------------------------


def test_what_a_worker_runs_is_pinned_and_its_next_attempt_is_not_it() -> None:
    records = fleet(2, busy=1)
    busy = after(*records, elapsed=10.0)
    pin = pin_worker(busy["workers"][0], busy)
    later = after(*records, elapsed=500.0)
    assert running(pin, later) == later["workers"][0]
    # A free retry of the same number, on the same worker.
    again = ended("app-1", outcome="retry", verdict="requeue", charged=0)
    next_one = after(*records, again, rec.Started("app-1", "W1", 1, "r9", "again"))
    assert running(pin, next_one) is None
    assert now(pin, next_one) == "app-1 runs: attempt 1 on W1"
    assert running(replace(pin, run_id="another"), later) is None


def test_what_runs_on_the_worker_of_an_ended_attempt_is_said_in_one_line() -> None:
    records = [*fleet(2, busy=1), ended("app-1", outcome="error", verdict="quarantined")]
    snapshot = after(*records, rec.Started("app-7", "W1", 1, "r7", "next"))
    pin = pin_outcome(snapshot["outcomes"][0], snapshot)
    assert now(pin, snapshot) == "app-1 is quarantined; W1 runs app-7"
    assert stamp("app-1", snapshot) != stamp("app-1", after(*fleet(2, busy=1)))


def test_the_newest_attempt_of_an_issue_is_the_running_one_else_the_last_that_ended() -> None:
    records = [*fleet(2, busy=1), ended("app-9", "W2")]
    snapshot = after(*records)
    assert pin_issue("app-1", snapshot).worker_id == "W1"
    assert pin_issue("app-9", snapshot).ended_at == snapshot["outcomes"][0]["at"]
    assert pin_issue("app-4", snapshot) == Pin("app-4", snapshot["run_id"])


# --- what a person can do ------------------------------------------------------------------------


def test_each_state_of_an_issue_has_its_actions() -> None:
    def keys(issue_id: str, *records: rec.Record) -> str:
        return "".join(each.key for each in actions(issue_id, after(*records)))

    quarantined = ended("app-1", outcome="error", verdict="quarantined", charged=3)
    assert keys("app-1", *fleet(1, busy=1)) == "x"
    assert keys("app-1", *fleet(1, busy=1), quarantined) == "r"
    assert keys("app-1", *to_decide()) == "i"
    assert keys("app-2", *to_decide()) == "vV"
    assert keys("app-9", *to_decide()) == ""
    over = rec.RunEnded(0)
    assert keys("app-1", *fleet(1, busy=1), quarantined, over) == "r", "the next start does it"
    assert keys("app-1", *fleet(1, busy=1), over) == ""


def test_each_action_is_a_key_of_an_attempt_and_a_button_of_the_page() -> None:
    for action in (RELEASE, RETRY, ANSWER, APPROVE, REJECT):
        keyed = [key for row in bindings.ROWS for key in row.keys if key.names == action.key]
        assert any(set(ATTEMPT) <= set(key.panes) for key in keyed), action
        assert action.button in {button.name for button in bindings.BUTTONS}


@pytest.mark.parametrize(
    ("issue_id", "said"),
    [("a", "a landed as 111111111111"), ("e", "e waits to land"), ("c", "c is quarantined")],
)
def test_what_became_of_a_branch_is_said(issue_id: str, said: str) -> None:
    snapshot = after(*fleet(2), *landings())
    assert now(Pin(issue_id, snapshot["run_id"], 1), snapshot) == said


# --- all about it --------------------------------------------------------------------------------


def test_beside_log_and_diff_stand_why_the_receipt_and_all_attempts() -> None:
    view = at(Pin("a", "run-1", 2, "W2", began=5.0))
    found = dict(sections(view, ["a Mend a", "  it runs"]))
    assert found["why a"] == ["a Mend a", "  it runs"]
    assert any("2 tests failed" in line for line in found["receipt of attempt 2"])
    lines = found["attempts"]
    assert [line[0] for line in lines] == [" ", ">", " ", " "]
    assert "failed after 2 s: E: 3 != 4" in lines[0] and "cut off after" in lines[3]


def test_what_hostile_attempts_say_is_safe_to_show() -> None:
    script = Script()
    bad = "\x1b[2J\u202e\n"
    receipt = replace(RECEIPT, branch=bad, lesson=bad, agent=bad)
    script.attempt("W1", "a", 1.0, 2.0, "error", "requeue", error=bad, receipt=receipt)
    view = attempt_view(Pin("a", "run-1"), [run(script, 1)])
    lines = [line for _, lines in sections(view, []) for line in lines]
    assert lines and all(line.isprintable() for line in lines)
