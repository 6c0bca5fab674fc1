"""A night: the sum of its runs, each issue with its last fate, each dollar once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.records.landing import Add
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.core.views.history import Fate, History, fold
from beads_workers.core.views.nights import night, with_found
from beads_workers.ui import findings
from tests.support.journals import BEGAN_AT, Script, started

FOUND = Receipt("unfinished", agent="claude", session="s", usage={"m": Tokens(900, 100)}, money=2.0)
DONE = Receipt("done", agent="claude", session="s", usage={"m": Tokens(90, 10)}, money=0.5)


def run(script: Script, number: int, later: float = 0.0, *, settled: bool = True) -> History:
    """The history of a run of the night that began ``later`` than the first."""
    first = replace(started(1), run_id=f"run-{number}")
    begun = [Entry(first, BEGAN_AT + later, 0.0)]
    entries = [replace(each, at=each.at + later) for each in script.entries]
    history = fold([*begun, *sorted(entries, key=lambda e: e.elapsed)], settled=settled)
    assert history is not None
    return history


def ended(script: Script, at: float) -> Script:
    """The run ends by itself."""
    script.add(at, rec.RunChanged("ended"), rec.RunEnded(0, "idle_timeout"))
    return script


def killed() -> Script:
    """A run that is killed while an agent works on ``a``; ``b`` is done and not closed."""
    script = Script()
    script.attempt("W1", "b", 1.0, 2.0, settled=False)
    script.attempt("W1", "a", 3.0, None, agent="claude")
    script.add(9.0, rec.Noted("info", "still there"))
    return script


def test_what_a_killed_run_left_has_the_fate_that_the_next_run_gave_it() -> None:
    second = Script()
    second.attempt("W1", "a", 1.0, 5.0, agent="claude", receipt=DONE, number=2)
    whole = night([run(killed(), 1), run(ended(second, 6.0), 2, 100.0)])
    assert {i.issue_id: (i.fate, i.attempts) for i in whole.issues} == {
        "b": (Fate.CLOSED, 1),
        "a": (Fate.CLOSED, 2),
    }
    assert [(a.issue_id, a.outcome, a.began) for a in whole.attempts] == [
        ("b", "success", 1.0),
        ("a", "cut_off", 3.0),
        ("a", "success", 101.0),
    ]
    assert (whole.seconds, whole.state, [r.state for r in whole.runs]) == (
        106.0,
        "ended",
        ["killed", "ended"],
    )


def test_a_killed_run_that_was_settled_leaves_nothing_unfinished() -> None:
    fates = {i.issue_id: i.fate for i in run(killed(), 1).issues}
    assert fates == {"b": Fate.CLOSED, "a": Fate.REQUEUED}
    fates = {i.issue_id: i.fate for i in run(killed(), 1, settled=False).issues}
    assert fates == {"b": Fate.UNCLOSED, "a": Fate.UNFINISHED}


def found_by(number: int, at: float) -> History:
    """A run that finds what the agent of the first had used."""
    script = Script()
    script.add(0.1, rec.UsageFound("a", 1, "20261121-222640.000-abcdef.2", FOUND))
    script.attempt("W1", "a", 1.0, 5.0, agent="claude", receipt=DONE, number=2)
    return run(ended(script, 6.0), number, at)


def test_usage_that_is_found_later_counts_once_and_for_the_attempt_it_came_from() -> None:
    first, second = run(killed(), 1), found_by(2, 100.0)
    whole = night([first, second])
    money = findings.money_of(whole)
    assert money is not None and (money.total.money, money.total.cut) == (2.5, 1)
    assert [findings.figures(each)["spent_usd"] for each in whole.runs] == [2.0, 0.5]
    alone = findings.money_of(with_found(first, [second]))
    assert alone is not None and alone.total.money == 2.0
    # It went on in the same session, and came to its end.
    assert not money.wasted and "cut_off" not in findings.waste_of(whole).by_outcome


def test_work_of_one_run_that_lands_in_the_next_is_the_nexts() -> None:
    add = Add("a", 1, "run-1", "c" * 40, "b" * 40, "bw/a/1", "Do a")
    script = Script()
    script.add(0.5, rec.Checkpointed("a", title="Do a", landing=add))
    script.add(1.0, rec.BranchLanded("a", 1, "d" * 40, verified="t" * 40))
    script.add(2.0, rec.SettledRecord("a", "close", "applied"))
    second = run(ended(script, 3.0), 2, 60.0)
    assert [i.issue_id for i in second.with_fate(Fate.CLOSED)] == ["a"]
    whole = night([run(killed(), 1), second])
    assert {i.issue_id for i in whole.with_fate(Fate.CLOSED)} == {"a", "b"}
    (landed,) = [each for each in findings.branches(whole) if each.landing.commit]
    assert landed.landing.landed == 61.0


def test_closed_accounts_and_pauses_are_stretches_of_their_run() -> None:
    script = killed()
    closed = rec.AccountClosed("acc", "claude", "limited", "5-hour limit", todo="wait")
    script.add(4.0, closed, rec.RunChanged("paused", "a landing is paused"))
    second = Script()
    second.add(1.0, closed)
    second.add(3.5, rec.AccountOpened("acc", "claude"))
    whole = night([run(script, 1), run(ended(second, 9.0), 2, 50.0)])
    assert [(i.name, i.text, i.began, i.ended) for i in whole.limits] == [
        ("claude", "5-hour limit", 4.0, 9.0),
        ("claude", "5-hour limit", 51.0, 53.5),
    ]
    assert [(i.text, i.began, i.ended) for i in whole.pauses] == [("a landing is paused", 4.0, 9.0)]


@pytest.mark.parametrize("runs", [1, 2])
def test_the_sums_of_a_night_are_those_of_its_runs(runs: int) -> None:
    each = [found_by(number + 1, 100.0 * number) for number in range(runs)]
    whole = night(each)
    assert len(whole.runs) == runs
    assert len(whole.attempts) == sum(len(one.attempts) for one in each)
    assert whole.tracker_calls == sum(one.tracker_calls for one in each)
    assert (whole.began_at, whole.start.run_id) == (each[0].began_at, each[-1].start.run_id)
