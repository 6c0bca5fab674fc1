"""The issues in the dashboard: by state and by cause, folded, filtered, sorted and retried."""

from __future__ import annotations

from typing import Any

import pytest

from beads_workers.core.base.facts import Facts, IssueFacts
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import TrackedIssue
from beads_workers.core.records import journal as rec
from beads_workers.ui import bindings, viewer
from beads_workers.ui.backlog import IssueBacklog, backlog
from beads_workers.ui.reasons import Picture
from beads_workers.ui.viewer import Ask, LookAgain, Pane, Part, Role, Screen
from tests.support.landings import night as landings
from tests.ui.snapshots import after, ended, fleet, to_decide
from tests.ui.test_view import lines

ERRORS = (
    "boom",
    "cannot parse conf/1.toml",
    "cannot parse conf/2.toml",
    "cannot parse conf/3.toml",
)
SNAPSHOT = after(
    *fleet(6, busy=5),
    *(ended(f"app-{n}", f"W{n}", outcome="error", verdict="quarantined", charged=3, error=error)
      for n, error in enumerate(ERRORS, 1)),
)  # fmt: skip
"""Four quarantined issues, of which three have one cause; W5 is at work on ``app-5``."""


NOW = 1_700_000_500.0


def answered(cut: bool = False) -> IssueBacklog:
    """What the tracker says of the same, with twenty more issues."""
    facts = [IssueFacts(f"app-{n}", standing="quarantined", charged=3, error=error)
             for n, error in enumerate(ERRORS, 1)]  # fmt: skip
    facts.append(IssueFacts("app-5", in_flight="running", worker_id="W5", running_seconds=90.0))
    facts.append(IssueFacts("late", standing="cooling", charged=1, again_seconds=20.0, error="no"))
    seen = [TrackedIssue(IssueId(f"app-{n}"), f"Title {n}", "blocked") for n in range(1, 5)]
    seen += [
        TrackedIssue(IssueId("app-5"), "Runs", "in_progress"),
        TrackedIssue(IssueId("late"), "Late", "open"),
    ]
    seen += [
        TrackedIssue(IssueId(f"r-{n}"), f"Ready {n}", "open", priority=n % 5) for n in range(18)
    ]
    seen.append(TrackedIssue(IssueId("waits"), "Waits", "open", waits_for=(IssueId("r-1"),)))
    fleet_facts = Facts("running", slots=6, busy=6, issues=tuple(facts))
    ready = frozenset(each.issue_id for each in seen if each.issue_id != "waits")
    picture = Picture(fleet_facts, NOW, str, {each.issue_id: each for each in seen}, ready)
    return backlog(picture, picture.seen, cut=cut)


ANSWERED = answered()


def pressed(
    *keys: str, snapshot: dict[str, Any] = SNAPSHOT, **fields: Any
) -> tuple[Screen, list[Any]]:
    screen, wishes = Screen(backlog=ANSWERED, now=NOW + 3.0, **fields), []
    for key in keys:
        screen, wish = bindings.press(screen, key, snapshot)
        wishes += [wish] if wish is not None else []
    return screen, wishes


def body(screen: Screen, snapshot: dict[str, Any] = SNAPSHOT, **size: int) -> list[str]:
    """The rows below the head, without blank ones, each with single blanks."""
    shown = [" ".join(line.split()) for line in lines(snapshot, screen, **size)]
    return [line for line in shown[5:-1] if line]


def test_every_issue_stands_below_its_state_with_its_reason() -> None:
    screen, _ = pressed("5")
    rule, *shown = body(screen, rows=50)
    assert rule.startswith("── issues: 25 not closed, asked 3 s ago ─")
    assert shown[:7] == [
        "quarantined 4",
        "▸ 3 x cannot parse #",
        "app-1 P2 Title 1 3 attempts: boom",
        "in progress 1",
        "app-5 P2 Runs W5, 1 min 33 s",
        "waiting for a retry 1",
        "late P2 Late again in 17 s: no",
    ]
    assert shown[7] == "ready 18" and shown[8] == "r-0 P0 Ready 0"
    assert shown[-2:] == ["blocked 1", "waits P2 Waits by r-1"]


def test_titles_and_reasons_stand_below_each_other() -> None:
    screen, _ = pressed("5")
    shown = lines(SNAPSHOT, screen, rows=50)
    titles = {line.index(" P") for line in shown if " P2 " in line or " P0 " in line}
    notes = {line.index(note) for line in shown for note in ("W5, 1", "again in", "by r-1")
             if note in line}  # fmt: skip
    assert len(titles) == 1 and len(notes) == 1


@pytest.mark.parametrize("view", ["3", "5"])
def test_all_of_one_cause_are_three_keys_away(view: str) -> None:
    screen, wishes = pressed(view, "r")
    assert screen.question is not None and "try 3 issues again?" in screen.question.text
    assert not wishes
    assert pressed(view, "r", "n")[1] == []
    assert pressed(view, "r", "y")[1] == [
        Ask("bw.retry", {"issue_ids": ["app-2", "app-3", "app-4"]})
    ]


@pytest.mark.parametrize("view", ["3", "5"])
def test_a_cause_is_opened_and_closed_and_the_selection_stays_with_it(view: str) -> None:
    opened, _ = pressed(view, "e")
    shown = body(opened, rows=50)
    at = shown.index("▾ 3 x cannot parse #")
    assert [line.split()[0] for line in shown[at + 1 : at + 5]] == [
        "app-2",
        "app-3",
        "app-4",
        "app-1",
    ]
    inside, wishes = pressed(view, "e", "down", "down", "r")
    assert wishes == [Ask("bw.retry", {"issue_ids": ["app-3"]})]
    closed, _ = bindings.press(inside, "e", SNAPSHOT)
    row = viewer.chosen_row(closed, SNAPSHOT, closed.part)
    assert not closed.unfolded and row is not None and len(row["issue_ids"]) == 3
    alone, _ = pressed(view, "down", "e")
    assert "one cause" in alone.message and not alone.unfolded


def test_a_means_every_quarantined_issue_whether_its_cause_is_open_or_not() -> None:
    everything = Ask("bw.retry", {"issue_ids": ["app-2", "app-3", "app-4", "app-1"]})
    assert pressed("3", "a", "y")[1] == pressed("3", "e", "a", "y")[1] == [everything]


def test_enter_on_a_cause_opens_an_attempt_of_it() -> None:
    screen, _ = pressed("5", "enter")
    assert screen.opened is not None and screen.opened.issue_id == "app-2"
    back, _ = bindings.press(screen, "escape", SNAPSHOT)
    assert back.pane is Pane.ISSUES


def test_f_shows_one_state_after_the_other_and_passes_over_empty_ones() -> None:
    seen, screen = [], pressed("5")[0]
    for _ in range(6):
        screen, _ = bindings.press(screen, "f", SNAPSHOT)
        seen.append(screen.states[Part.ISSUES])
    assert seen == ["quarantined", "in progress", "waiting for a retry", "ready", "blocked", ""]
    only, _ = pressed("5", "f", "f", "f", "f")
    shown = body(only, rows=50)
    assert ", ready only" in shown[0] and len(shown) == 20


def test_a_state_that_is_shown_and_becomes_empty_can_be_left() -> None:
    screen, _ = pressed("5", states={Part.ISSUES: "needs you"})
    assert body(screen)[1:] == ["none of them"]
    assert bindings.press(screen, "f", SNAPSHOT)[0].states[Part.ISSUES] == ""


def test_s_sorts_the_issues_and_leaves_the_workers_alone() -> None:
    screen, _ = pressed("5", "f", "f", "f", "f", "s", "s")
    assert (screen.issue_order, screen.order) == ("id", "")
    shown = body(screen, rows=50)
    assert ", by id, ready only" in shown[0]
    assert [line.split()[0] for line in shown[2:5]] == ["r-0", "r-1", "r-2"]
    assert pressed("5", "s", "s", "s", "s")[0].issue_order == ""


def test_a_text_that_is_searched_holds_for_the_issues_below_a_cause() -> None:
    screen, _ = pressed("5", "/", *"title 3", "enter")
    assert body(screen)[1:] == [
        "quarantined 1",
        "app-3 P2 Title 3 3 attempts: cannot parse conf/…",
    ]
    assert pressed("5", "/", *"title 3", "enter", "r")[1] == [
        Ask("bw.retry", {"issue_ids": ["app-3"]})
    ]


def test_u_asks_the_tracker_now() -> None:
    assert pressed("5", "u")[1] == [LookAgain()]


def test_before_the_tracker_has_answered_there_is_what_the_fleet_knows() -> None:
    snapshot = after(*to_decide(), ended("app-3", "W3"))
    shown = body(Screen(pane=Pane.ISSUES, part=Part.ISSUES), snapshot)
    assert ", the tracker is asked" in shown[0]
    assert shown[1] == "needs you 2" and "asks: FOO or BAR?" in shown[2]
    assert "awaits approval" in shown[3] and shown[4] == "closed 1, the last ones"
    replay = body(Screen(Role.REPLAY, Pane.ISSUES, Part.ISSUES), snapshot)
    assert "that the run had, without the tracker" in replay[0]


def test_what_has_landed_is_closed_and_what_waits_to_land_is_on_the_way_in() -> None:
    snapshot = after(*fleet(2), *landings())
    shown = "\n".join(body(Screen(pane=Pane.ISSUES, part=Part.ISSUES), snapshot, rows=50))
    assert "waiting to land" in shown and "closed" in shown


def test_an_issue_that_was_closed_after_the_listing_is_not_listed_as_open() -> None:
    closed = ended("app-5", "W5")
    snapshot = after(*fleet(5, busy=5), closed)
    later = [{**row, "at": NOW + 1} for row in snapshot["outcomes"]]
    screen, _ = pressed("5")
    rows = viewer.rows_of(screen, snapshot | {"outcomes": later}, Part.ISSUES)
    assert [row["state"] for row in rows if row["issue_id"] == "app-5"] == ["closed"]
    before = viewer.rows_of(screen, snapshot, Part.ISSUES)
    assert "running" in [row["state"] for row in before if row["issue_id"] == "app-5"]


def test_what_the_list_leaves_out_is_said() -> None:
    screen = Screen(pane=Pane.ISSUES, part=Part.ISSUES, backlog=answered(cut=True))
    assert "not closed of more" in body(screen)[0]
    unseen = IssueBacklog((), unseen="database is locked", listed_at=1.0)
    shown = body(Screen(pane=Pane.ISSUES, part=Part.ISSUES, backlog=unseen))
    assert "without the tracker: database is locked" in shown[0]


@pytest.mark.parametrize(("columns", "rows"), [(60, 14), (60, 20), (80, 24), (120, 35), (200, 50)])
def test_the_chosen_issue_is_on_the_screen_wherever_it_is(columns: int, rows: int) -> None:
    screen, _ = pressed("5", "G")
    assert any("Waits" in line for line in body(screen, columns=columns, rows=rows))
    middle, _ = pressed("5", *["down"] * 12)
    row = viewer.chosen_row(middle, SNAPSHOT, Part.ISSUES)
    assert row is not None
    assert any(row["title"] in line for line in body(middle, columns=columns, rows=rows))
    assert len(lines(SNAPSHOT, screen, columns=columns, rows=rows)) == rows


def test_without_unicode_a_cause_has_its_mark_too() -> None:
    screen, _ = pressed("5", unicode=False)
    shown = lines(SNAPSHOT, screen)
    assert any(line.startswith(" + 3 x") for line in shown)
    opened, _ = pressed("5", "e", unicode=False)
    assert any(line.startswith(" - 3 x") for line in lines(SNAPSHOT, opened))


def test_a_night_of_quarantined_issues_is_a_few_rows() -> None:
    records: list[rec.Record] = [*fleet(50, busy=50)]
    records += [
        ended(f"app-{n}", f"W{n}", outcome="error", verdict="quarantined", charged=1,
              error=f"app-{n}: cannot parse config/{n}.toml")
        for n in range(1, 51)
    ]  # fmt: skip
    snapshot = after(*records)
    shown = body(Screen(pane=Pane.QUARANTINE, part=Part.QUARANTINED), snapshot)
    assert shown[1:] == ["▸ 50 x #: cannot parse #"] and "quarantined: 50" in shown[0]
