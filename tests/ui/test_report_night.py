"""The report of a night in its forms: its runs, what was closed for how long, and "at least"."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.core.views.history import Fate, History
from beads_workers.core.views.nights import night
from beads_workers.ui import findings
from beads_workers.ui.report_html import page
from beads_workers.ui.report_text import report_lines
from tests.core.test_nights import ended, found_by, killed, run
from tests.support.journals import Script


@pytest.fixture
def told() -> History:
    """A night of a killed run, one that found its usage, and one that met a limit."""
    last = Script()
    last.add(1.0, rec.AccountClosed("acc", "claude", "limited", "5-hour limit"))
    last.add(93.0, rec.AccountOpened("acc", "claude"))
    return night([run(killed(), 1), found_by(2, 60.0), run(ended(last, 95.0), 3, 200.0)])


def with_budget(history: History, budget: str, **fields: Any) -> History:
    return replace(history, start=replace(history.start, budget=budget), **fields)


def text(history: History, width: int = 100) -> str:
    """What a terminal of that width shows."""
    return "\n".join(line.plain for line in report_lines(history, width))


def test_a_terminal_shows_each_run_and_what_was_closed_for_how_long(told: History) -> None:
    shown = text(told)
    assert "a night of 3 runs, to run-3" in shown
    rows = re.findall(r"^  \d\d-\d\d \d\d:\d\d .*$", shown, re.MULTILINE)
    assert [row.rpartition("  ")[2] for row in rows] == [
        "closed 1, at least $2.00; killed",
        "closed 1, $0.50; ended: nothing was left to do",
        "closed 0; ended: nothing was left to do",
    ]
    assert "claude closed for 1 min 32 s: 5-hour limit" in shown
    assert "at least 1.1k tok $2.50" in shown


def test_the_page_shows_the_same(told: History) -> None:
    shown = re.sub(r"<[^>]+>", " ", page(told))
    for words in ("a night of 3 runs", "at least $2.00; killed", "Limits and pauses"):
        assert words in shown
    assert "claude was closed for 1 min 32 s: 5-hour limit" in shown


@pytest.fixture
def to_decide() -> History:
    """A night with an open question, and with a branch that awaits approval."""
    script = Script()
    asks = Receipt(agent="claude", question="FOO or BAR?\nFOO is shorter.")
    done = Receipt(agent="codex", head="1" * 40, branch="bw/b/1", diffstat="3 files changed")
    script.attempt("W1", "a", 1.0, 2.0, "question", "asked", error="FOO or BAR?", receipt=asks)
    script.attempt("W1", "b", 3.0, 4.0, "success", "land", receipt=done)
    return run(ended(script, 5.0), 1)


def test_a_question_is_told_whole_and_with_the_command_that_answers(to_decide: History) -> None:
    assert [i.fate for i in to_decide.issues] == [Fate.ASKED, Fate.AWAITS_APPROVAL]
    for shown in (text(to_decide), re.sub(r"<[^>]+>", " ", page(to_decide))):
        assert all(
            words in shown for words in ("FOO or BAR?", "FOO is shorter.", "3 files changed")
        )
        assert "beads-workers answer a" in shown and "beads-workers diff b" in shown
        assert "waits for an answer" in shown and "awaits approval" in shown
    assert "Q asked a question" in text(to_decide), "in the timeline, too"
    assert "FOO or BAR?</bdi><br /><bdi>FOO is shorter." in page(to_decide).replace(
        "<br>", "<br />"
    )


def test_counts_of_what_waits_are_grammatical_and_a_sum_that_lacks_some_says_so() -> None:
    script = Script()
    for number in range(2):
        asks = Receipt(agent="claude", question="?", money=0.5, usage={"m": Tokens(9)})
        times = (number, number + 0.5)
        script.attempt("W1", f"a{number}", *times, "question", "asked", error="?", receipt=asks)
    cut = replace(asks, money=None, question="")
    script.attempt("W1", "b", 3.0, 4.0, "success", "land", receipt=cut)
    found = with_budget(run(ended(script, 5.0), 1), "$2")
    shown = page(found)
    assert "2 wait for an answer" in shown and "2 wait for an answer" in text(found)
    assert "at least $1.00" in shown and "of $2, 27 tokens" in shown


def test_a_spent_budget_is_to_be_raised_and_not_typed_again() -> None:
    spent = with_budget(night([found_by(1, 0.0), found_by(2, 9.0)]), "$0.5", state="killed")
    step = findings.next_steps(replace(spent, settled=False))[0]
    assert step.command.startswith("beads-workers start --budget 1 ")
    each_run = with_budget(spent, "$0.5/run", settled=False)
    assert "--budget" not in findings.next_steps(each_run)[0].command


def test_long_reasons_that_differ_at_their_ends_are_told_apart() -> None:
    script = Script()
    for number, name in enumerate(("alpha", "omega")):
        error = f"verify failed: {'the same words again and ' * 5}{name}"
        script.attempt("W1", name, number, number + 0.5, "error", "requeue", error=error)
    shown = text(run(ended(script, 9.0), 1), 80)
    assert "alpha" in shown and "omega" in shown and max(map(len, shown.splitlines())) <= 80
