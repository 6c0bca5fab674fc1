"""Plain lines: what is said of which record, and when."""

from __future__ import annotations

import shlex
import time

import pytest

from beads_workers.core.base.causes import is_of
from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.ui.lines import SILENT, by_cause, line, status_lines
from tests.core.test_journal import bare, filled
from tests.ui.snapshots import EPOCH, after, agents_at_work, closed, fleet


def test_a_fleet_that_waits_says_until_when_and_how_to_begin() -> None:
    said = line(rec.Entry(rec.RunChanged("waiting", "--start-at", 3600.0), 1.0, 2.0))
    there = time.strftime("%Y-%m-%d %H:%M", time.localtime(3600.0))
    assert said is not None
    assert said.endswith(f"fleet is waiting until {there} ('beads-workers resume' begins now)")


@pytest.mark.parametrize("kind", sorted(SILENT))
def test_what_readers_pass_over_unread_would_have_said_nothing(kind: str) -> None:
    for make in (bare, filled):
        assert line(rec.Entry(make(rec.KINDS[kind]), 1.0, 2.0)) is None


def test_a_limit_that_is_reached_is_no_empty_backlog() -> None:
    said = line(rec.Entry(rec.RunChanged("stopping", "idle_timeout"), 1.0, 2.0))
    assert said is not None and said.endswith("fleet is stopping (nothing more is begun)")


def test_each_line_begins_with_its_own_second() -> None:
    for at in (1_700_000_000.999, 1_700_000_001.0, 1_700_000_000.0, 1_700_086_400.5):
        clock = time.strftime("%H:%M:%S", time.localtime(at))
        assert line(rec.Entry(rec.Noted("info", "x"), at, 2.0)) == f"{clock}      info: x"


def clock(at: float) -> str:
    """As people here read it."""
    return time.strftime("%H:%M", time.localtime(at))


RECEIPT = Receipt("done", agent="claude", usage={"m": Tokens(12_000, 300)}, money=0.41)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            rec.Started("a", "W1", 1, "r", "Mend it", agent="claude"),
            "W1 started  a P2 by claude Mend",
        ),
        (
            rec.Finished(
                "a", "W1", 1, "r", "success", "finish", "", 4200, note="n", receipt=RECEIPT
            ),
            "W1 done     a in 4.2 s (12.3k tok $0.41): n",
        ),
        (
            rec.Finished("a", "W1", 1, "r", "retry", "requeue", "its limit", 4200),
            "W1 returned a in 4.2 s: its limit (requeued, not charged)",
        ),
        (
            rec.AccountClosed(
                "c", "claude", "limited", "5-hour limit", "", EPOCH, EPOCH + 30, EPOCH
            ),
            f"claude: 5-hour limit until {clock(EPOCH)}",
        ),
        (
            rec.AccountClosed("c", "claude", "limited", "limit", "opus", 0, EPOCH + 30, EPOCH),
            f"claude (opus only): limit tried again at {clock(EPOCH + 30)}",
        ),
        (
            rec.AccountClosed("c", "claude", "needs_person", "Not logged in", todo="claude /login"),
            "claude: Not logged in - mend it with 'claude /login', then 'beads-workers resume'",
        ),
        (rec.AccountOpened("c", "claude", ""), "claude: takes work again"),
    ],
)
def test_agents_and_their_accounts_have_lines(record: rec.Record, said: str) -> None:
    shown = line(rec.Entry(record, EPOCH, 2.0))
    assert shown is not None
    assert said in shown


def test_status_shows_agents_money_and_what_they_do() -> None:
    shown = list(status_lines(after(*agents_at_work(), closed())))
    assert f"agent claude: 5-hour limit until {clock(EPOCH + 41 * 60)} (41 min)" in shown
    assert "agent codex" in shown
    assert "spent: $0.41 of $20, 12.3k tok" in shown
    assert any("[claude, editing shop/cart.py, 12.3k tok $0.41]" in each for each in shown)


def test_the_titles_of_status_stand_below_each_other() -> None:
    records = fleet(10, busy=10, title="A title")
    shown = [each for each in status_lines(after(*records, elapsed=90.0)) if "A title" in each]
    assert len(shown) == 10 and len({each.index("A title") for each in shown}) == 1


def test_status_folds_many_workers_without_an_issue_and_shows_each_that_has_one() -> None:
    several = [each for each in status_lines(after(*fleet(10, busy=1))) if " W" in each]
    assert len(several) == 10
    many = list(status_lines(after(*fleet(1000, busy=2))))[3:]
    assert [each.split()[:2] for each in many[:2]] == [["W1", "busy"], ["W2", "busy"]]
    assert many[2:] == ["998 workers idle: done 0, failed 0"]


def clockless(record: rec.Record) -> str | None:
    """Without its clock."""
    shown = line(rec.Entry(record, 1.0, 2.0))
    return None if shown is None else shown[9:].strip()


def test_a_quarantine_is_said_once() -> None:
    gave = rec.Finished("a", "W1", 3, "r", "error", "quarantined", charged=3, error="no rule")
    assert clockless(gave) == "W1 quarantined a after 3 attempts: no rule"
    assert clockless(rec.SettledRecord("a", "quarantined", "applied")) is None


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (rec.BranchLanded("a", 1, "1" * 40, "bw-landing/main", "f" * 40),
         "landed   a as 111111111111 on bw-landing/main"),
        (rec.BranchLanded("a", 1, "1" * 40, "bw-landing/main"),
         "landed   a as 111111111111 on bw-landing/main, without a gate"),
        (rec.BranchLanded("a", 1, "1" * 40, "bw-landing/main", contained=True),
         "landed   a: nothing new, it is in 111111111111 on bw-landing/main"),
        (rec.LandingEnded("a", "mend", "verify", against=("b",)),
         "did not land a: verify fails on its branch together with what has landed (landed by b)"
         " (its agent mends it)"),
        (rec.LandingEnded("a", "quarantined", "conflict", files=("x", "y")),
         "did not land a: its branch conflicts with what has landed: x, y"
         " (quarantined with its branch)"),
        (rec.LandingEnded("a", "shelve"), "unlanded a: 'land' or the next start lands it"),
        (rec.LandingEnded("a", "shelve", text="awaits approval"),
         "awaits approval a: 'approve' lands it"),
        (rec.LandingEnded("a", "requeue"), None),
        (rec.GateRan(0, "began", "f" * 40, ("a",)), None),
        (rec.GateRan(0, "green", "f" * 40, ("a",), 2.0), None),
        (rec.GateRan(0, "green", "f" * 40, ("a",), 2.0, flaky=True),
         "gate     flaky: green after 2.0 s, and was red before, with a"),
        (rec.GateRan(0, "red", "f" * 40, ("a", "b"), 2.0, "exit status 1"),
         "gate     red, after 2.0 s, with a b: exit status 1"),
        (rec.GateRan(0, "red", "f" * 40, kept=True),
         "gate     red, known already, with the branch as it is"),
        (rec.GateRan(0, "none", "f" * 40, ("a",), 9.0, "timed out"),
         "gate     without a verdict, after 9.0 s, with a: timed out"),
        (rec.LandingTip("1" * 40, "bw-landing/main"), None),
        (rec.LandingTip("1" * 40, "", "main"), "landed   main is at 111111111111 as well"),
        (rec.LandingTip("1" * 40, "", "main", "it is dirty"), None),
    ],
)  # fmt: skip
def test_what_lands_and_what_does_not_is_one_line_each(
    record: rec.Record, text: str | None
) -> None:
    assert clockless(record) == text


def quarantined(*errors: str) -> list[dict[str, object]]:
    return [
        {"issue_id": f"bw-{n}", "title": f"Title {n}", "attempts": 3, "error": error}
        for n, error in enumerate(errors, 1)
    ]


def test_quarantined_issues_are_a_line_for_each_cause() -> None:
    rows = quarantined("no rule", *(f"cannot parse conf/{n}.toml, line {n}" for n in range(7)))
    assert list(by_cause(rows)) == [
        "7 x cannot parse #, line #: bw-2 bw-3 bw-4 bw-5 bw-6 ...;"
        " beads-workers retry --cause 'cannot parse #, line #'",
        "bw-1 (Title 1) after 3 attempts: no rule",
    ]


def test_the_command_of_a_cause_stops_before_a_quote_unless_that_names_another_cause() -> None:
    no_module = ("no module 'a'",) * 2
    (text,) = by_cause(quarantined(*no_module))
    assert text.endswith("; beads-workers retry --cause 'no module'")
    text, _ = by_cause(quarantined(*no_module, "no module at all"))
    assert shlex.split(text)[-1] == "no module 'a'"


@pytest.mark.parametrize(
    "errors",
    [
        ("it's broken", "it's broken"),
        ("a\nb", "a  b"),
        ("\x1b[31mred\x1b[0m 1", "\x1b[31mred\x1b[0m 2"),
        (f"{'long ' * 50} 1", f"{'long ' * 50} 2"),
    ],
)
def test_the_command_of_a_cause_retries_that_cause_as_it_is_pasted(errors: tuple[str, str]) -> None:
    (text,) = by_cause(quarantined(*errors))
    *_, typed = shlex.split(text.rpartition("; ")[2])
    assert text.isprintable() and all(is_of(typed, error) for error in errors)


def test_without_an_error_or_a_title_a_line_does_without() -> None:
    rows = [{"issue_id": "bw-1", "attempts": 1, "error": "boom"}]
    assert list(by_cause(rows)) == ["bw-1 after 1 attempt: boom"]
    assert list(by_cause(quarantined("", ""))) == ["2 x no error was given: bw-1 bw-2"]


def test_status_says_for_how_long_a_fleet_is_up_in_the_words_of_people() -> None:
    assert next(iter(status_lines(after(elapsed=28_800.0)))).endswith(", up 8 h")
    assert next(iter(status_lines(after(elapsed=100.4)))).endswith(", up 1 min 40 s")
