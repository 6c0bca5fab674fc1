"""The report on a terminal: fits the width, safe to show, and says what matters."""

from __future__ import annotations

import re
import time

import pytest

from beads_workers.core.base.text import columns
from beads_workers.core.records import journal as rec
from beads_workers.ui.report_text import report_lines
from tests.core.test_history import account, begun
from tests.support import landings
from tests.support.journals import agents_night, night


def lines(script: object, width: int = 80, *, unicode: bool = True) -> list[str]:
    """The report's lines."""
    return [line.plain for line in report_lines(account(script), width, unicode=unicode)]  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("workers", [1, 8, 100])
def test_no_line_is_wider_than_the_terminal_or_obeyed_by_it(width: int, workers: int) -> None:
    shown = lines(night(200, workers), width)
    assert max(map(columns, shown)) <= width
    assert all(line.isprintable() for line in shown)


def test_without_unicode_it_is_ascii() -> None:
    assert all(line.isascii() for line in lines(night(60, 3), unicode=False))


def test_it_says_what_failed_what_was_quarantined_and_what_to_type() -> None:
    script = begun()
    script.attempt("W1", "good", 1.0, 2.0)
    script.attempt("W1", "bad", 2.0, 7.0, "error", "quarantined", error="no such file", number=3,
                   reached="40 %, compiles")  # fmt: skip
    script.add(7.0, rec.RunEnded(7, "idle_timeout"))
    shown = "\n".join(lines(script))
    assert "ended: nothing else was left to do (exit 7)" in shown
    assert "1 closed, 1 quarantined" in shown
    assert "no such file  (bad)" in shown
    assert "bad  3 attempts (last step: 40 %, compiles): no such file" in shown
    assert "beads-workers retry bad" in shown


def test_quarantined_issues_of_one_cause_are_two_lines() -> None:
    script = begun()
    for n in range(9):
        script.attempt("W1", f"bad-{n}", n, n + 1.0, "error", "quarantined", error=f"no conf/{n}.x")
    script.attempt("W1", "other", 10.0, 11.0, "error", "quarantined", error="boom", number=3)
    shown = lines(script)
    at = shown.index("quarantined")
    assert shown[at + 1 : at + 4] == [
        "  9 x  no #",
        "      bad-0 bad-1 bad-2 bad-3 bad-4 ...",
        "  other  3 attempts: boom",
    ]


def test_a_reason_that_has_no_room_beside_its_issue_has_a_line_of_its_own() -> None:
    script = begun()
    script.attempt("W1", "bad", 2.0, 7.0, "error", "quarantined", error="why " * 20, number=3,
                   reached="80 %, all tests but one")  # fmt: skip
    shown = lines(script)
    row = shown.index("  bad  3 attempts (last step: 80 %, all tests but…):")
    assert shown[row + 1].startswith("      why why why") and len(shown[row + 1]) > 70


def test_a_worker_s_row_shows_when_it_did_what() -> None:
    script = begun()
    script.attempt("W1", "a", 0.0, 5.0)
    script.attempt("W1", "b", 5.0, 10.0, "timeout", "requeue", error="late", settled=False)
    (row,) = (line for line in lines(script, 27) if line.startswith("   W1"))
    assert row == "   W1  " + "█" * 10 + "T" * 10


@pytest.mark.parametrize(("width", "hours"), [(40, 5), (80, 5), (120, 30)])
def test_the_timeline_says_at_which_time_of_day(width: int, hours: int) -> None:
    script = begun()
    script.attempt("W1", "a", 0.0, 3600.0 * hours)
    script.add(3600.0 * hours, rec.RunEnded(0, "idle_timeout"))
    history = account(script)
    shown = [line.plain for line in report_lines(history, width)]
    axis = shown[next(n for n, line in enumerate(shown) if line.startswith("   W1")) + 1]
    clocks = re.findall(r"\|(\S+(?: \d\d)?)", axis)
    assert len(clocks) >= (2 if width > 40 else 1)
    for name in clocks:
        share = (axis.index(f"|{name}") - 7) / (width - 7)
        at = history.began_at + share * history.seconds
        near = [at + minutes * 60 for minutes in range(-90, 91)]
        form = "%H:%M" if ":" in name else "%a %d"
        assert name in {time.strftime(form, time.localtime(each)) for each in near}


def test_a_run_in_which_nothing_happened_can_be_told() -> None:
    shown = "\n".join(lines(begun()))
    assert "none taken" in shown and "killed" in shown


@pytest.mark.parametrize("width", [40, 80, 120])
def test_what_agents_cost_fits_every_width(width: int) -> None:
    assert max(map(columns, lines(agents_night(), width))) <= width


def test_it_says_what_agents_cost_and_what_is_to_be_looked_at() -> None:
    shown = "\n".join(lines(agents_night(), 120))
    for said in (
        "7.5k tok $0.75 of $20; 5.1k tok without a price; wasted: failed $0.50",
        "for you to look at", "c  says that no change is needed",
        "claude: 2.4k tok $0.75", "codex: 5.1k tok",
    ):  # fmt: skip
        assert said in shown
    assert "what it cost" not in "\n".join(lines(night(20, 2)))


def test_the_morning_list_says_what_landed_and_what_needs_a_person() -> None:
    script = begun()
    for number, record in enumerate(landings.night(), 1):
        script.add(float(number), record)
    script.add(700.0, rec.RunEnded(0, "user_requested"))
    shown = lines(script, 120)
    text = "\n".join(shown)
    assert "landed 3 on bw-landing/main (333333333333), 1 without a gate" in text
    assert "15.4 an hour; 3 gate runs in 7.0 s, 1 red" in " ".join(text.split())
    assert "1.0 a landing; 1 repair by agents" in " ".join(text.split())
    at = shown.index("landed")
    assert shown[at + 1 : at + 4] == [
        "  a  111111111111  Do a  (1 file changed, 2 gate runs)",
        "  b  222222222222  Do b  (1 file changed, no gate)",
        "  d  333333333333  Do d  (1 file changed, 1 repair)",
    ]
    assert "  c  did not land (bw/c/1): its branch conflicts with what has landed" in text
    assert shown[shown.index("waiting to land") + 1] == "  e  bw/e/1 (1 file changed)"
    assert "  beads-workers land" in shown and "  git merge --ff-only bw-landing/main" in shown
