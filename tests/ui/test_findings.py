"""What follows from a run's account: reasons, waste, figures, and what to do next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.core.views.history import History
from beads_workers.ui import findings
from beads_workers.ui.findings import next_steps, report
from tests.core.test_history import account, begun
from tests.support import landings
from tests.support.journals import BEGAN_AT, Script, agents_night, night


def ended(script: Script, code: int = 0, reason: str = "idle_timeout") -> History:
    """The account of a script that ends by itself."""
    script.add(100.0, rec.RunEnded(code, reason))
    return account(script)


def test_failures_are_grouped_and_the_most_frequent_stands_first() -> None:
    script = begun()
    script.attempt("W1", "a", 0.0, 9.0, "timeout", "requeue", error="timed out after 9 s")
    for n in range(3):
        script.attempt("W1", f"b{n}", 10.0 + n, 11.0 + n, "error", "requeue", error=f"line {n}")
    script.attempt("W1", "c", 20.0, 21.0, "cancelled", "requeue", error="released")
    first, second = findings.failures(ended(script))
    assert (first.reason, first.example, first.attempts, first.seconds) == (
        "line #", "line 2", 3, 3.0,
    )  # fmt: skip
    assert first.issue_ids == ("b0", "b1", "b2") and first.last == 13.0
    assert (second.reason, second.outcome) == ("timed out after 9 s", "timeout")


def test_waste_is_all_time_that_led_to_no_close() -> None:
    script = begun()
    script.attempt("W1", "good", 0.0, 10.0)
    script.attempt("W1", "bad", 10.0, 14.0, "error", "requeue", error="no")
    script.attempt("W1", "late", 14.0, 20.0, "timeout", "requeue", error="no")
    script.attempt("W1", "vain", 20.0, 25.0, settled=False)
    script.add(26.0, rec.SettledRecord("vain", "close", "not_ours"))
    lost = findings.waste_of(ended(script))
    assert (lost.seconds, lost.attempts, lost.share) == (15.0, 3, 0.6)
    assert lost.by_outcome == {"timeout": 6.0, "not_ours": 5.0, "error": 4.0}


def test_what_still_runs_is_no_waste() -> None:
    script = begun()
    script.attempt("W1", "a", 0.0, None)
    told = account(script, alive=True, now=BEGAN_AT + 50)
    assert findings.waste_of(told).seconds == 0.0
    assert findings.durations(told.attempts).count == 0


def test_median_and_ninety_percent_are_attempts_that_there_were() -> None:
    script = begun()
    for seconds in range(1, 11):
        script.attempt("W1", f"a{seconds}", seconds * 20.0, seconds * 21.0)
    found = findings.durations(account(script).attempts)
    assert (found.count, found.median, found.p90, found.longest) == (10, 5.0, 9.0, 10.0)


@given(st.integers(0, 80), st.integers(0, 50))
def test_throughput_counts_every_attempt_that_ended_once(attempts: int, seed: int) -> None:
    told = account(night(attempts, 3, seed))
    width, buckets = findings.throughput(told)
    assert len(buckets) <= findings.BUCKETS_MAX and width * len(buckets) >= told.seconds
    assert sum(b.done for b in buckets) == sum(a.outcome == "success" for a in told.attempts)
    assert sum(b.failed for b in buckets) == sum(f.attempts for f in findings.failures(told)) - sum(
        a.outcome == "retry" for a in told.attempts
    )


def test_the_issue_that_took_longest_over_all_attempts_is_the_slowest() -> None:
    script = begun()
    script.attempt("W1", "once", 0.0, 7.0)
    script.attempt("W1", "twice", 10.0, 15.0, "error", "requeue", error="no")
    script.attempt("W1", "twice", 20.0, 24.0, number=2)
    assert [i.issue_id for i in findings.slowest(ended(script))] == ["twice", "once"]
    assert [i.issue_id for i in findings.slowest(ended(script), 1)] == ["twice"]


AGAIN = "beads-workers start -n 2 -- ./do 'an {id}'"


def commands(history: History) -> list[str]:
    """What is suggested."""
    return [step.command for step in findings.next_steps(history)]


def test_what_needs_no_change_is_closed_and_not_tried_again() -> None:
    script = begun()
    flagged = Receipt("no_change", "it is there", flags=("says that no change is needed",))
    script.attempt(
        "W1", "a", 0.0, 1.0, "not_found", "quarantined", error="it is there", receipt=flagged
    )
    script.attempt("W1", "b", 1.0, 2.0, "error", "quarantined", error="no")
    suggested = commands(ended(script))
    assert "beads-workers close a" in suggested and "beads-workers retry b" in suggested
    assert not any("retry" in each and " a" in each for each in suggested)


def test_nothing_is_suggested_where_all_is_done() -> None:
    script = begun()
    script.attempt("W1", "a", 0.0, 1.0)
    assert commands(ended(script)) == []


def test_what_was_quarantined_can_be_retried_by_pasting_a_command() -> None:
    script = begun()
    for name in ("a", "b; rm -rf /"):
        script.attempt("W1", name, 0.0, 1.0, "error", "quarantined", error="no")
    assert commands(ended(script, 7)) == [
        "beads-workers logs a",
        "beads-workers retry a 'b; rm -rf /'",
    ]


def test_more_than_can_be_named_are_retried_all_at_once() -> None:
    script = begun()
    for number in range(findings.NAMED_MAX + 1):
        script.attempt("W1", f"a{number}", 0.0, 1.0, "error", "quarantined", error="no")
    assert commands(ended(script, 7))[-1] == "beads-workers retry --all"


def test_a_killed_run_is_started_again_unless_that_was_done() -> None:
    script = begun()
    script.attempt("W1", "a", 0.0, None)
    assert commands(account(script, settled=False)) == [AGAIN]
    told = account(script, settled=True)
    assert "settled" in findings.how_it_ended(told)
    assert commands(told) == [AGAIN]


def test_the_json_says_the_same_in_numbers() -> None:
    told = report(account(night(200, 5)))
    assert sum(told["attempts_by_outcome"].values()) == len(told["attempts"]) == 200
    assert told["issues_by_fate"]["closed"] == told["attempts_by_outcome"]["success"]
    assert told["tracker"]["calls_per_closed"] == pytest.approx(
        told["tracker"]["calls"] / told["issues_by_fate"]["closed"], abs=1e-3
    )
    assert told["ended_at"] - told["began_at"] == pytest.approx(told["seconds"], abs=0.002)


def test_money_is_told_by_issue_agent_and_outcome_and_what_was_wasted() -> None:
    money = report(account(agents_night()))["money"]
    assert (money["spent_usd"], money["budget"], money["unpriced_tokens"]) == (0.75, "$20", 5100)
    assert money["tokens"] == {
        "input": 7000, "output": 500, "cached_read": 0, "cached_write": 0, "total": 7500,
    }  # fmt: skip
    assert money["by_issue"] == {
        "a": {"usd": 0.75, "tokens": 2400},
        "b": {"usd": 0.0, "tokens": 5100},
    }
    assert money["by_agent"]["claude"] == money["by_issue"]["a"]
    assert money["by_outcome"]["error"] == {"usd": 0.5, "tokens": 1200}
    assert money["wasted"] == {"error": {"usd": 0.5, "tokens": 1200}}


def test_a_run_without_agents_has_spent_nothing() -> None:
    script = begun()
    script.attempt("W1", "a", 1.0, 2.0)
    money = report(account(script))["money"]
    assert (money["spent_usd"], money["tokens"]["total"], money["by_issue"]) == (0.0, 0, {})
    assert findings.money_of(account(script)) is None


def test_attempts_and_issues_say_who_worked_and_what_came_of_it() -> None:
    told = report(account(agents_night()))
    row = next(each for each in told["attempts"] if each["issue_id"] == "a")
    expected = {
        "issue_id": "a", "attempt": 1, "worker_id": "W1", "began": 1.0, "ended": 9.0,
        "outcome": "error", "charged": 1, "agent": "claude", "session": "s-1",
        "verdict": "unfinished", "decision": "requeue", "tokens": 1200, "money_usd": 0.5,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    issue = next(each for each in told["issues"] if each["issue_id"] == "a")
    names = ("outcome", "branch", "commit", "diffstat", "attempt_count")
    shown = {key: issue[key] for key in names}
    assert shown == {
        "outcome": "success", "branch": "bw/a/2", "commit": "d" * 40,
        "diffstat": "3 files changed", "attempt_count": 2,
    }  # fmt: skip
    assert [each["verdict"] for each in issue["attempts"]] == ["unfinished", "done"]
    assert issue["receipt"]["verified"] is True


def test_what_a_person_should_look_at_is_listed() -> None:
    (row,) = report(account(agents_night()))["to_review"]
    assert (row["issue_id"], row["flags"]) == ("c", ["says that no change is needed"])


def test_small_amounts_of_dollars_are_not_rounded_away() -> None:
    script = begun()
    receipt = Receipt("done", usage={"m": Tokens(1)}, money=0.000123)
    script.attempt("W1", "a", 1.0, 2.0, receipt=receipt)
    assert report(account(script))["money"]["spent_usd"] == 0.000123


def test_the_json_has_the_sums_of_landing_and_the_morning_list() -> None:
    script = begun()
    for number, record in enumerate(landings.night(), 1):
        script.add(float(number), record)
    told = report(account(script))
    landing = told["landing"]
    assert (landing["landed"], landing["gate_runs"], landing["gate_runs_per_landing"]) == (
        3,
        3,
        1.0,
    )
    assert landing["landed_per_hour"] == round(3 * 3600 / told["seconds"], 3)
    assert [row["issue_id"] for row in landing["landed_issues"]] == ["a", "b", "d"]
    (needs,) = landing["refused"]
    assert (needs["issue_id"], needs["branch"]) == ("c", "bw/c/1")
    assert needs["error"].endswith(": README")
    assert landing["waiting_to_land"] == [{"issue_id": "e", "branch": "bw/e/1"}]
    issues = {row["issue_id"]: row for row in told["issues"]}
    assert issues["d"]["landing"]["repairs"] == 1
    assert report(account(begun()))["landing"] is None


def test_a_user_branch_that_was_moved_leaves_nothing_to_type() -> None:
    script = begun()
    records = [landings.TIP_RECORD, *landings.worked("a"), *landings.landed("a")]
    for number, record in enumerate(records, 1):
        script.add(float(number), record)
    merge = f"git merge --ff-only {landings.BRANCH}"
    assert merge in [step.command for step in next_steps(account(script))]
    script.add(20.0, rec.LandingTip(landings.FIRST, "", "main"))
    assert "git" not in " ".join(step.command for step in next_steps(account(script)))
    script.add(21.0, rec.LandingTip(landings.FIRST, "", "main", "it is dirty", "git merge y"))
    assert "git merge y" in [step.command for step in next_steps(account(script))]
