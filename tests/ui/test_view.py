"""The dashboard's picture: exactly as large as the terminal, whatever there is to show."""

from __future__ import annotations

import calendar
import re
import time
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.wire import Progress
from beads_workers.core.records import journal as rec
from beads_workers.core.views.history import LandingHistory
from beads_workers.ui.attempt_view import AttemptView, Pin, attempt_view, pin_issue, pin_worker
from beads_workers.ui.bindings import help_lines, press
from beads_workers.ui.dashboard import draw, page_rows, pointed_at, worker_rows
from beads_workers.ui.panels import sentences, short_diffstat
from beads_workers.ui.theme import styles
from beads_workers.ui.viewer import (
    OWN_PARTS,
    Pane,
    Part,
    Question,
    Renderer,
    Role,
    Screen,
    ShownLog,
    Writing,
    key_of,
    rows_of,
)
from tests.core.test_nights import run
from tests.support.journals import Script
from tests.support.landings import BRANCH, TIP, gate, night, refused, worked
from tests.support.shares import examples
from tests.ui.snapshots import BEGAN, EPOCH, after, agents_at_work, closed, ended, fleet, to_decide

LANDING_TIP = rec.LandingTip(TIP, BRANCH)
NASTY = ["日本語の題名 with wide ones", "\x1b[2J\x07 bell", "a\nb\tc", "\u202eright to left",
         "👩‍👩‍👧 family", "é" * 300, "[bold]markup[/bold] :smile:", "", " "]  # fmt: skip


def drawn(
    snapshot: dict[str, Any], screen: Screen, columns: int, rows: int, age: float = 0.0
) -> str:
    """The screen as text."""
    console = Console(
        width=columns, height=rows, file=StringIO(), force_terminal=True, color_system=None
    )
    console.push_theme(styles("dark", colours=256))
    with console.capture() as captured:
        console.print(draw(snapshot, screen, age, columns, rows))
    return captured.get()


def lines(
    snapshot: dict[str, Any],
    screen: Screen | None = None,
    *,
    columns: int = 80,
    rows: int = 24,
    age: float = 0.0,
) -> list[str]:
    """Its rows, without the blanks at their ends."""
    text = drawn(snapshot, screen or Screen(), columns, rows, age)
    return [line.rstrip() for line in Console().render_str(text).plain.splitlines()]


def test_eighty_by_twentyfour_shows_the_fleet_at_a_glance() -> None:
    records = [
        *fleet(8, busy=2),
        rec.Listed((1, 2, 0, 0, 0), False, 2),
        ended("app-9"),
        ended("app-8", outcome="error", verdict="requeue", error="tests fail", delay_seconds=10.0),
        rec.Spent(4, 2.0),
        rec.RoundTripBegan(3, 0, 8),
    ]
    shown = "\n".join(lines(after(*records), age=5.0))
    for expected in (
        "project  bd  20261121-031500.000-abcdef", "running", "up 15 s", "ready 3",
        "P0-4: 1 2 0 0 0", "blocked 2", "settling 3, claiming up to 8", "0.5 s each",
        "nothing needs you", "workers 1-8 of 8, 2 busy", "app-1", "Say what went wrong",
        "W8   idle", "failed, again in 10 s: tests fail",
    ):  # fmt: skip
        assert expected in shown


def test_before_the_first_listing_nothing_is_said_of_the_backlog() -> None:
    asking = [*fleet(2), rec.RoundTripBegan(0, 0, 8)]
    shown = "\n".join(lines(after(*asking)))
    assert "not listed yet" in shown
    assert "0/0" not in shown and "nothing needs you" not in shown
    shown = "\n".join(lines(after(*asking, rec.Spent(1, 0.1))))
    assert "0/0 closed" in shown and "nothing needs you" in shown


@pytest.mark.parametrize(
    ("charged", "delay", "said"),
    [
        (1, 10.0, "failed, again in 10 s"),
        (1, 0.0, "failed, again at once"),
        (0, 0.0, "not charged"),
    ],
)
def test_a_failure_says_what_comes_next(charged: int, delay: float, said: str) -> None:
    failed = ended(
        "app-8", outcome="error", verdict="requeue", charged=charged, delay_seconds=delay
    )
    assert any(said in line for line in lines(after(*fleet(1), failed)))


def test_a_task_shows_how_far_it_is_beside_its_title() -> None:
    said = rec.AsideHeard("W1", Progress(IssueId("app-1"), 40, "compiles"))
    (row,) = [line for line in lines(after(*fleet(2, busy=1), said)) if line.startswith(" W1")]
    assert " 40% compiles " in row and cell_len(row) <= 80
    (row,) = [line for line in lines(after(*fleet(2, busy=1))) if line.startswith(" W1")]
    assert "%" not in row


def test_titles_stand_below_each_other_whatever_attempt_it_is() -> None:
    again = rec.Started("app-1", "W1", 12, "r", "A title")
    shown = [x for x in lines(after(*fleet(3, busy=3, title="A title"), again)) if "A title" in x]
    assert len({each.index("A title") for each in shown[:3]}) == 1
    assert "A title  " in shown[0] and "attempt 12" in shown[0]


def test_ids_take_the_room_of_the_longest_and_titles_have_the_rest() -> None:
    def title_of(issue_id: str) -> int:
        began = rec.Started(issue_id, "W1", 1, "r1", "A title that is worth reading")
        records = [rec.Claimed(issue_id, "A title that is worth reading"), began]
        shown = lines(after(*fleet(1), *records))
        (row,) = [row for row in shown if row.startswith(" W1") and "A title" in row]
        return row.index("A title")

    assert title_of("app-1") == title_of("app-12") < title_of("app-1234567") <= 34


def test_clocks_go_on_with_the_age_of_the_snapshot_until_the_run_is_over() -> None:
    running, over = after(*fleet(1, busy=1)), after(*fleet(1), rec.RunEnded(0))
    assert "up 10 s" in lines(running)[0] and "up 1 min" in lines(running, age=50)[0]
    assert "up 10 s" in lines(over, age=50)[0] and "ended" in lines(over)[0]


def test_what_needs_a_person_says_what_to_type() -> None:
    quarantined = ended("app-1", outcome="error", verdict="quarantined", charged=3, error="no way")
    trouble = rec.SourceTrouble("bd: locked", 8.0, "bd doctor", failures=3)
    shown = lines(after(*fleet(1), quarantined, trouble), columns=120, rows=40)
    assert any("the tracker does not answer: bd: locked" in line for line in shown)
    assert any("1 quarantined" in line and "retry app-1" in line for line in shown)
    assert any("failing" in line and "again in" in line for line in shown)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 50)])
def test_a_hundred_workers_come_in_pages_that_follow_the_chosen_one(
    columns: int, rows: int
) -> None:
    snapshot = after(*fleet(100, busy=100))
    count = page_rows(snapshot, Screen(), columns, rows)
    assert count >= 9
    seen = set()
    for number in range(1, 101, count):
        screen = Screen(chosen={Part.WORKERS: f"W{number}"})
        shown = lines(snapshot, screen, columns=columns, rows=rows)
        seen |= {word for line in shown for word in line.split()[:1] if word.startswith("W")}
    assert seen == {f"W{number}" for number in range(1, 101)}


def test_many_idle_workers_are_one_row_and_what_is_below_moves_up() -> None:
    def rule_at(shown: list[str]) -> int:
        return next(n for n, line in enumerate(shown) if line.startswith("── last outcomes"))

    idle = after(*fleet(100, busy=2), ended("app-9", "W9"))
    shown = lines(idle, columns=100, rows=40)
    at = next(n for n, line in enumerate(shown) if "workers 100, 2 busy" in line)
    assert [line.split()[0] for line in shown[at + 1 : at + 3]] == ["W1", "W2"]
    assert shown[at + 3].split() == ["98", "idle;", "f", "lists", "them", "1", "done"]
    assert rule_at(shown) == at + 4
    busy_once = Screen(tallest=20)
    assert rule_at(lines(idle, busy_once, columns=100, rows=40)) > at + 15, "nothing jumps"
    only = Screen(states={Part.WORKERS: "idle"})
    listed = "\n".join(lines(idle, only, columns=100, rows=40))
    assert "of 98" in listed and "W99" not in listed and "W7 " in listed
    few = "\n".join(lines(after(*fleet(9))))
    assert "W9 " in few and "lists them" not in few


def test_the_rows_of_all_workers_are_counted_whatever_is_filtered() -> None:
    assert worker_rows(after(*fleet(30, busy=30))) == 30
    assert worker_rows(after(*fleet(30, busy=2))) == 3


def test_a_paused_fleet_says_so_once() -> None:
    asked = [rec.WorkerPaused(f"W{number}", "the fleet") for number in range(1, 4)]
    snapshot = after(*fleet(3), *asked, rec.RunChanged("paused", "a person asked for it"))
    shown = lines(snapshot, columns=100, rows=30)
    assert sum(line.count("paused") for line in shown) == 1, shown
    said = "nothing new is handed out: a person asked for it"
    assert any(said in line and "-> resume" in line for line in shown)
    one = after(*fleet(3), asked[0])
    (row,) = [line for line in lines(one) if line.startswith(" W1 ")]
    assert "paused" in row, "one worker alone"


def test_outcomes_stay_where_they_are_when_workers_leave() -> None:
    many = [*fleet(8), ended("app-1")]
    left = [*many, *(rec.WorkerGone(f"W{number}") for number in range(3, 9))]
    before, after_that = lines(after(*many)), lines(after(*left))
    assert before.index("── last outcomes " + "─" * 63) == after_that.index(
        "── last outcomes " + "─" * 63
    )
    assert "workers 1-2 of 2" in "\n".join(after_that)


def test_a_question_a_message_and_a_caption_take_no_room_from_each_other() -> None:
    snapshot = after(*fleet(2))
    asked = lines(snapshot, Screen(question=Question("sure? y", {}), caption="just seen"))
    assert asked[-1].strip() == "sure? y" and asked[-2].strip() == "just seen"
    assert lines(snapshot, Screen(message="paused"))[-1].strip() == "paused"


def test_the_other_panes_show_a_log_the_reasons_and_the_keys() -> None:
    quarantined = ended(
        "app-1", outcome="error", verdict="quarantined", charged=3, error="E: 3 != 4"
    )
    snapshot = after(*fleet(1), quarantined)
    log = ShownLog("app-1-3.log", tuple(f"line {n}" for n in range(50)))
    opened = pin_issue("app-1", snapshot)
    followed = lines(snapshot, Screen(pane=Pane.LOG, log=log, opened=opened))
    assert "W1 ran app-1, attempt 1" in followed[1] and followed[-2].strip() == "line 49"
    assert any("3 attempts" in line and "E: 3 != 4" in line
               for line in lines(snapshot, Screen(pane=Pane.QUARANTINE)))  # fmt: skip
    helped = "\n".join(lines(snapshot, Screen(pane=Pane.HELP)))
    assert all(word in helped for word in ("pause", "its log", "release", "Ctrl-C"))


def test_a_run_that_is_over_does_not_say_how_to_start_workers() -> None:
    assert "'scale N' or + starts some" in lines(after())[6]
    assert lines(after(rec.RunEnded(0, "idle_timeout")))[6].strip() == "all have left"


def test_what_a_person_decides_is_shown_with_all_that_is_asked() -> None:
    snapshot = after(*to_decide())
    screen = Screen(pane=Pane.DECISIONS, part=Part.DECISIONS)
    shown = "\n".join(lines(snapshot, screen))
    assert all(text in shown for text in ("to decide: 2", "asks", "FOO is shorter.", "to approve"))
    branch = "\n".join(lines(snapshot, replace(screen, chosen={Part.DECISIONS: "app-2"})))
    assert "0123456789ab on bw/app-2/1 by codex, verified" in branch and "3 files changed" in branch


def test_what_is_to_be_typed_is_seen_whole_in_a_narrow_terminal() -> None:
    shown = lines(after(*to_decide()), columns=60, rows=20)
    (row,) = [line for line in shown if line.startswith(" ! ")]
    assert "-> answer app-1  (and 1 more)" in row


def test_what_is_typed_is_seen_to_its_end() -> None:
    writing = Writing("answer to", "bw.answer", "app-1")
    screen = Screen(
        pane=Pane.DECISIONS, part=Part.DECISIONS, typed="x" * 90 + "end", writing=writing
    )
    foot = lines(after(*to_decide()), screen)[-1]
    assert "answer to app-1: " in foot and foot.rstrip().endswith("end_")


QUARANTINED = {"outcome": "error", "verdict": "quarantined", "charged": 2}


def test_what_is_quarantined_leads_to_the_newest_failure() -> None:
    failures = (
        ended("app-1", error="first", **QUARANTINED),
        ended("app-2", error="then", **QUARANTINED),
    )
    snapshot = after(*fleet(2, busy=2), *failures)
    (row,) = [line for line in lines(snapshot, columns=120) if line.startswith(" ! ")]
    assert "2 quarantined, the newest: then" in row and "-> logs app-2; retry app-1 app-2" in row
    screen, _ = press(Screen(), "!", snapshot)
    assert screen.opened is not None and screen.opened.issue_id == "app-2"


def test_the_reason_of_a_failure_is_seen_before_the_number_of_its_attempts() -> None:
    long = ended("app-1", error="AssertionError: " + "1 != 2 " * 9, **QUARANTINED)
    snapshot = after(*fleet(1, busy=1), long)
    narrow, wide = lines(snapshot), lines(snapshot, columns=149)
    assert any("  quarantined: AssertionError: 1 != 2" in line for line in narrow)
    assert any("  quarantined after 1 attempt: AssertionError" in line for line in wide)


def test_on_a_small_screen_the_head_is_folded_and_the_tracker_is_seen_in_trouble() -> None:
    snapshot = after(*fleet(3, busy=2), *night())
    small, whole = lines(snapshot, columns=60, rows=20), lines(snapshot, columns=60)
    assert "closed" in small[0] and "ready" in small[1] and small[2].startswith(" ! 1 quar")
    assert whole[3].startswith(" tracker ") and not any("tracker" in line for line in small)
    assert any("landed on" in line for line in small)
    broken = after(*fleet(1), rec.SourceTrouble("no such file", 4.0, failures=3))
    assert lines(broken, columns=60, rows=20)[1].startswith(" tracker ")


def test_one_try_is_one_try() -> None:
    quarantined = ended(
        "app-1", outcome="error", verdict="quarantined", charged=1, error="E: 3 != 4"
    )
    snapshot = after(*fleet(1), quarantined)
    assert any("quarantined after 1 attempt: E" in line for line in lines(snapshot))
    assert any("1 attempt: E" in line for line in lines(snapshot, Screen(pane=Pane.QUARANTINE)))


def test_the_hours_of_a_run_stand_beside_its_state() -> None:
    def clock(at: float) -> str:
        return time.strftime("%H:%M", time.localtime(at))

    began, begins, ends = after().get("run_id"), EPOCH + 3600.0, EPOCH + 9 * 3600.0
    run = rec.RunStarted(str(began), 1, "actor", "bd", "/project", workers=1, until=ends)
    waiting = after(run, rec.RunChanged("waiting", "--start-at", begins))
    running = after(run, rec.RunChanged("running"))
    for columns in (60, 80, 150):
        assert f"waiting until {clock(begins)}" in lines(waiting, columns=columns)[0]
        assert f"running until {clock(ends)}" in lines(running, columns=columns)[0]
    assert "until" not in lines(after())[0]


CLOSED = rec.SettledRecord("app-9", "close", "applied")


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_a_time_of_day_says_when_it_is_done(columns: int) -> None:
    def clock(seconds: float) -> str:
        began = calendar.timegm((2026, 11, 21, 3, 15, 0))
        return time.strftime("%H:%M", time.localtime(began + seconds))

    records = [*fleet(1), rec.Listed((120, 0, 0, 0, 0)), ended("app-9"), CLOSED]
    snapshot = after(*records)
    assert snapshot["eta_seconds"] > 600
    first, second = lines(snapshot, columns=columns, age=50.0)[:2]
    assert (f" {clock(60)}  up 1 min" in first) is (columns > 80)
    assert f"done about {clock(10 + snapshot['eta_seconds'])}" in second
    later = lines(snapshot, columns=columns, age=49.0)[1]
    assert later == second, "it is no countdown"
    for state in ("paused", "draining"):
        still = lines(after(*records, rec.RunChanged(state)), columns=columns)[1]
        assert "/min" in still and "done about" not in still


def test_a_duration_of_an_attempt_has_its_time_of_day_beside_it() -> None:
    failed = ended("app-9", "W2", outcome="error", verdict="requeue", error="no")
    snapshot = after(*fleet(2, busy=1), failed)
    at = time.strftime("%H:%M", time.localtime(snapshot["outcomes"][0]["at"]))
    began = time.strftime("%H:%M", time.localtime(calendar.timegm((2026, 11, 21, 3, 15, 0))))
    runs = Screen(pane=Pane.LOG, opened=pin_worker(snapshot["workers"][0], snapshot))
    ran = Screen(pane=Pane.LOG, opened=pin_issue("app-9", snapshot))
    assert f" 9 s since {began}" in lines(snapshot, runs)[2]
    assert f" 4.2 s to {at}  requeued" in lines(snapshot, ran)[2]


def test_what_stands_beside_the_progress_does_not_move_when_issues_come() -> None:
    def place(ready: int) -> int:
        listed = rec.Listed((ready, 0, 0, 0, 0), False, 0)
        return lines(after(*fleet(1), listed))[1].index("/min")

    assert place(0) == place(7) == place(40) == place(300)


@pytest.mark.parametrize(("columns", "rows"), [(60, 20), (80, 24), (120, 35), (200, 50)])
@pytest.mark.parametrize("pane", [Pane.FLEET, Pane.LANDING, Pane.QUARANTINE, Pane.DECISIONS])
def test_each_row_of_a_list_is_known_by_its_place(columns: int, rows: int, pane: Pane) -> None:
    gave = [
        ended(f"bad-{n}", outcome="error", verdict="quarantined", charged=1, error="no")
        for n in range(3)
    ]
    snapshot = after(*to_decide(), *gave, *night())
    part = OWN_PARTS.get(pane, Part.WORKERS)
    screen = Screen(pane=pane, part=part)
    picture = draw(snapshot, screen, 0.0, columns, rows)
    shown = lines(snapshot, screen, columns=columns, rows=rows)
    found = {}
    for at in range(1, rows + 1):
        if (name := pointed_at(picture, 3, at)) is not None:
            found[name] = shown[at - 1]
    for each in rows_of(screen, snapshot, part):
        if (part, key_of(part, each)) in found:
            folded = "issue_ids" in each
            words = each["error"] if folded else each["issue_id"] or each["worker_id"]
            assert words in found[part, key_of(part, each)]
    assert {name[0] for name in found} >= {part}, found
    assert pointed_at(picture, 3, 1) is None and pointed_at(picture, 3, rows) is None
    assert pointed_at(picture, 3, 0) is pointed_at(picture, 3, rows + 50) is None
    if columns == 200 and pane is Pane.FLEET:
        at = next(n for n in range(1, rows + 1) if pointed_at(picture, 3, n))
        assert pointed_at(picture, 199, at) is None, "beside it is the chosen attempt"


def test_a_title_from_right_to_left_moves_nothing_beside_it() -> None:
    hebrew = "\u05ea\u05e7\u05df \u05d0\u05ea 3"
    (row,) = [x for x in lines(after(*fleet(2, busy=1, title=hebrew))) if x.startswith(" W1")]
    assert f"\u2068{hebrew}\u2069" in row
    assert cell_len(row) <= 80 and row.endswith("0 ok")
    (plain,) = [x for x in lines(after(*fleet(2, busy=1, title="Ann"))) if x.startswith(" W1")]
    assert "\u2068" not in plain and cell_len(plain) == cell_len(row)


def test_without_unicode_the_frame_is_ascii() -> None:
    records = [*fleet(3, busy=1), ended("app-1"), rec.Noted("warning", "careful")]
    assert drawn(after(*records), Screen(unicode=False), 80, 24).isascii()


@settings(max_examples=examples(150), deadline=None)
@given(
    st.integers(1, 240),
    st.integers(1, 80),
    st.integers(0, 40),
    st.sampled_from(NASTY),
    st.sampled_from(list(Pane)),
    st.sampled_from(list(Part)),
    st.sampled_from(list(Role)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_every_row_is_as_wide_as_the_screen_and_there_are_as_many_as_it_has(
    columns: int,
    rows: int,
    workers: int,
    text: str,
    pane: Pane,
    part: Part,
    role: Role,
    unicode: bool,
    typed: bool,
    full: bool,
) -> None:
    records = [
        *fleet(workers, busy=workers // 2, title=text),
        *(ended(f"{text[:9]}-{n}", outcome="error", verdict="quarantined", error=text)
          for n in range(workers // 3)),
        rec.Noted("error", text),
        rec.SourceTrouble(text, 3.0, text, failures=4),
        rec.LandingTip(TIP, text),
        gate("began", text, f"{text}-2"),
        rec.BranchLanded(text[:9], 1, TIP, text),
        rec.LandingEnded(text[:8], "mend", "conflict", text, (text,), TIP, (text,)),
    ]  # fmt: skip
    screen = Screen(
        role,
        pane,
        part,
        chosen={Part.WORKERS: "W3"},
        finds=dict.fromkeys(Pane, text[:1]) if typed else {},
        opened=Pin(text, str(BEGAN.run_id), 1, "W1") if typed else None,
        wrap=typed,
        times=typed,
        full=full,
        log_end=7 if typed else None,
        log_find=text[:1],
        typed=text if typed else None,
        message=text,
        caption=text,
        log=ShownLog(text, (text,) * 60, 3, text, cuts=(1, 2, 30), times=("12:00:00",) * 60),
        unicode=unicode,
    )
    console = Console(width=columns, height=rows, file=StringIO(), force_terminal=True)
    console.push_theme(styles("dark", colours=256))
    rendered = console.render_lines(
        draw(after(*records), screen, 3.0, columns, rows), pad=False, new_lines=False
    )
    assert len(rendered) == rows
    for row in rendered:
        assert cell_len("".join(segment.text for segment in row)) == columns


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (100, 30), (148, 40), (200, 50)])
def test_an_agent_shows_what_it_does_and_what_it_costs(columns: int, rows: int) -> None:
    shown = lines(after(*agents_at_work()), columns=columns, rows=rows)
    (row,) = [line for line in shown if line.startswith(" W1")]
    assert "claude" in row
    assert "editing shop/c" in row
    assert ("12.3k $0.41" if columns == 80 else "12.3k tok $0.41") in row
    assert ("Mend the cart" in row[: columns // 2 if columns == 200 else columns]) == (
        columns == 148
    )
    (money,) = [line for line in shown if line.startswith(" agents ")]
    assert money.endswith("$0.41 of $20, 12.3k tok")


def test_an_agent_that_has_not_said_anything_shows_its_title() -> None:
    records = agents_at_work()[:-1]
    (row,) = [line for line in lines(after(*records)) if line.startswith(" W1")]
    assert "claude Mend the cart" in row


def test_a_limit_is_counted_down_while_one_looks() -> None:
    other = rec.AccountClosed("x", "codex", "limited", "usage limit", "", EPOCH + 7200)
    snapshot = after(*agents_at_work(), rec.Listed((0, 12, 0, 0, 0)), closed(), other)
    first, second = (lines(snapshot, columns=120, rows=30, age=age)[4] for age in (0.0, 3 * 60.0))
    clock = time.strftime("%H:%M", time.localtime(EPOCH + 41 * 60))
    assert f"claude: 5-hour limit until {clock} (41 min), 12 wait" in first
    assert "(38 min)" in second


def test_on_a_small_screen_the_limit_is_whole_and_the_tokens_give_way() -> None:
    other = rec.AccountClosed("x", "codex", "limited", "usage limit", "", EPOCH + 7200)
    waiting = rec.Listed((0, 12, 0, 0, 0))
    run = [replace(agents_at_work()[0], agents=("claude",)), *agents_at_work()[1:]]
    (row,) = [line for line in lines(after(*run, waiting, closed())) if line.startswith(" agents")]
    assert " ".join(row.split()).endswith("(41 min), 12 wait $0.41 of $20"), row
    (both,) = [
        line
        for line in lines(after(*agents_at_work(), waiting, closed(), other))
        if line.startswith(" agents")
    ]
    assert both.endswith("$0.41 of $20") and cell_len(both) == 80


def test_what_an_account_refused_is_back_and_has_not_failed() -> None:
    refused = ended("app-8", outcome="retry", verdict="requeue", charged=0, error="its limit")
    (row,) = [line for line in lines(after(*fleet(1), refused)) if " ↻ app-8" in line]
    assert row.endswith("requeued, not charged: its limit")


def test_nothing_is_foretold_while_every_account_is_closed() -> None:
    done = [rec.Listed((0, 12, 0, 0, 0)), rec.Claimed("app-2", "B"), ended("app-2")]
    done.append(rec.SettledRecord("app-2", "close", "applied"))
    run = [replace(agents_at_work()[0], agents=("claude",)), *agents_at_work()[1:], *done]
    assert after(*run)["eta_seconds"] is not None
    assert after(*run, closed())["eta_seconds"] is None


def test_an_account_that_needs_a_person_says_what_to_type() -> None:
    login = closed("needs_person", "not logged in", "claude /login")
    snapshot = after(*agents_at_work(), login)
    shown = lines(snapshot, columns=140, rows=30)
    said = "claude: not logged in - mend it with 'claude /login', then 'beads-workers resume'"
    assert any(said in line for line in shown)
    (need,) = [line for line in lines(snapshot) if line.startswith(" !")]
    assert need == " ! claude: not logged in                   -> claude /login, then resume"


def test_agents_take_their_rows_from_the_start_so_that_nothing_jumps() -> None:
    run = agents_at_work()[0]
    for rows in (24, 30):
        before = lines(after(run), rows=rows, columns=100)
        later = lines(after(*agents_at_work(), closed()), rows=rows, columns=100)
        at = [[n for n, line in enumerate(each) if "workers" in line and "busy" in line]
              for each in (before, later)]  # fmt: skip
        assert at[0] == at[1]


# --- landing --------------------------------------------------------------------------------------


def gate_rows(shown: list[str]) -> list[str]:
    """Those that say how long a gate has run."""
    return [line for line in shown if " gate " in line]


def test_what_lands_has_a_pane_with_trains_waits_and_the_last_of_them() -> None:
    shown = lines(after(*fleet(2), *night(), elapsed=50.0), age=2.0)
    assert "── 3 landed on bw-landing/main, 1 to land, 1 did not land ─" in "\n".join(shown)
    (row,) = gate_rows(shown)
    assert row.endswith(" e") and " gate 2 " in row and re.search(r"(49|48) s", row)
    at = shown.index(row)
    assert "✓ d" in shown[at + 2] and "3" * 12 in shown[at + 2] and "Do d" in shown[at + 2]
    assert "↻ d" in shown[at + 3] and "back to its agent: its branch conflicts" in shown[at + 3]
    assert "✗ c" in shown[at + 4] and "quarantined: its branch" in shown[at + 4]


def test_an_outcome_that_has_not_landed_says_that_it_waits() -> None:
    shown = "\n".join(lines(after(*fleet(2), *night())))
    waiting = [
        line.split("  waits to land")[0] for line in shown.splitlines() if "waits to" in line
    ]
    assert any("Do e" in line for line in waiting)
    assert not any("Do a" in line for line in waiting)


def test_a_train_is_named_by_its_issues_and_its_length() -> None:
    train = gate("began", "app-1", "app-2", "app-3")
    tip = gate("began", lane=1)
    shown = gate_rows(lines(after(LANDING_TIP, train, tip)))
    assert shown[0].endswith("app-1 app-2 app-3  (a train of 3)")
    assert shown[1].endswith("the branch as it is")
    many = gate("began", *(f"application-{n}" for n in range(40)))
    (row,) = gate_rows(lines(after(LANDING_TIP, many)))
    assert row.endswith("(a train of 40)")


def test_while_nothing_lands_the_pane_says_why() -> None:
    paused = rec.DegradedBegan("landing", "nothing lands, main does not merge: a.py", "resume")
    shown = "\n".join(lines(after(LANDING_TIP, paused)))
    assert " nothing lands, main does not merge: a.py\n" in shown
    assert "nothing to land" in "\n".join(lines(after(LANDING_TIP)))


def test_above_what_was_refused_nobody_reads_that_there_is_nothing_to_land() -> None:
    one = [*worked("c"), *refused("c")]
    shown = "\n".join(lines(after(*fleet(2), LANDING_TIP, *one)))
    assert "0 landed on bw-landing/main, 1 did not land" in shown
    assert "nothing else to land" in shown and "nothing to land" not in shown


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 35), (200, 50)])
@pytest.mark.parametrize("workers", [2, 8, 30])
def test_what_lands_takes_no_row_from_the_workers_and_moves_nothing(
    columns: int, rows: int, workers: int
) -> None:
    def rules(*records: rec.Record) -> list[int]:
        shown = lines(after(*fleet(workers), *records), columns=columns, rows=rows)
        return [n for n, line in enumerate(shown) if "── last outcomes" in line]

    def of_workers(*records: rec.Record) -> int:
        shown = lines(after(*fleet(workers), *records), columns=columns, rows=rows)
        return sum(bool(re.match(r" W\d+ ", line)) for line in shown)

    assert of_workers() == of_workers(LANDING_TIP) == of_workers(*night())
    assert rules(LANDING_TIP) == rules(LANDING_TIP, gate("began", "a")) == rules(*night())


def test_without_landing_there_is_no_pane() -> None:
    assert "to land" not in "\n".join(lines(after(*fleet(2)), columns=200, rows=50))


# --- the chosen attempt ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "short"),
    [
        ("3 files changed, 41 insertions(+), 7 deletions(-)", "3 files +41 -7"),
        ("1 file changed, 1 deletion(-), 2 new files", "1 file -1, 2 new files"),
        ("1 file changed, 1 insertion(+)", "1 file +1"),
        ("4 new files", "4 new files"),
        ("", ""),
    ],
)
def test_what_git_says_of_changes_is_said_shorter(told: str, short: str) -> None:
    assert short_diffstat(told) == short


@pytest.mark.parametrize(("columns", "rows"), [(200, 40), (100, 40)])
def test_the_chosen_attempt_shows_what_it_does_its_cost_its_changes_and_its_last_lines(
    columns: int, rows: int
) -> None:
    log = ShownLog("a.log", tuple(f"line {n}" for n in range(50)), 0, "1 file changed, 2 new files")
    shown = "\n".join(lines(after(*agents_at_work()), Screen(log=log), columns=columns, rows=rows))
    assert "W1 runs app-1, attempt 1" in shown and "editing shop/cart.py" in shown
    assert "12.3k tok $0.41  1 file, 2 new files" in shown
    assert "line 49\n" in shown and "line 0\n" not in shown


def test_a_row_that_is_chosen_does_not_mark_what_stands_beside_it() -> None:
    log = ShownLog("a.log", ("beside",) * 60)
    console = Console(width=200, height=50, file=StringIO(), force_terminal=True)
    console.push_theme(styles("dark", colours=256))
    picture = draw(after(*fleet(2, busy=2)), Screen(log=log), 0.0, 200, 50)
    segments = [part for row in console.render_lines(picture, pad=False) for part in row]
    assert any(part.style and part.style.reverse for part in segments), "one is chosen"
    beside = [part.style for part in segments if "beside" in part.text]
    assert len(beside) > 30 and not any(beside)


def test_the_keys_can_be_read_whole_on_the_smallest_screen() -> None:
    for role in Role:
        shown = lines(after(*fleet(2)), Screen(role, Pane.HELP), columns=60, rows=20)
        assert not [line for line in shown[1:] if "…" in line]
        assert sum(line.startswith(" ") for line in shown[2:-1]) >= len(help_lines(role))
    assert "twice: now" in "\n".join(lines(after(), Screen(pane=Pane.HELP), columns=60, rows=20))


def test_on_a_small_screen_the_lists_have_the_room() -> None:
    log = ShownLog("a.log", ("a line of it",))
    shown = "\n".join(lines(after(*fleet(8, busy=8)), Screen(log=log)))
    assert "a line of it" not in shown and "attempt 1" not in shown


def test_a_log_that_is_scrolled_says_where_and_marks_what_was_found() -> None:
    log = ShownLog("a.log", tuple(f"line {n}" for n in range(50)), 100)
    snapshot = after(*fleet(1, busy=1))
    opened = pin_issue("app-1", snapshot)
    screen = Screen(
        pane=Pane.LOG, log=log, opened=opened, log_end=130, log_find="ne 2", log_found=125
    )
    shown = lines(snapshot, screen)
    assert shown[3].endswith("/ ne 2, line 130 of 150") and shown[-2].strip() == "line 29"
    styled = Renderer({"TERM": "xterm-256color"}, "dark").lines(
        draw(snapshot, screen, 0.0, 80, 24), 80, 24
    )
    assert sum("\x1b[1;7m" in line for line in styled) == 1, "the row is marked"
    assert sum("\x1b[1;4mne 2" in line for line in styled) == 9, "each other place is"


def test_the_pane_of_what_lands_scrolls_through_waits_refusals_and_landings() -> None:
    snapshot = after(*fleet(2), *night())
    shown = lines(snapshot, Screen(pane=Pane.LANDING))
    text = "\n".join(shown)
    assert all(word in text for word in (" waits ", "Do a", "quarantined: its branch"))
    first = next(n for n, line in enumerate(shown) if line.startswith(" waits "))
    (quarantined,) = [line for line in shown if "✗" in line]
    assert shown[first + 1] == quarantined and re.match(r" \d\d:\d\d:\d\d ✗ c ", quarantined)
    one_more = after(*fleet(2), *night(), *[rec.BranchLanded("a", 9, TIP, BRANCH)] * 3)
    last = key_of(Part.LANDING, rows_of(Screen(), one_more, Part.LANDING)[-1])
    screen = Screen(pane=Pane.LANDING, part=Part.LANDING, chosen={Part.LANDING: last})
    small = lines(one_more, screen, rows=14)
    assert small[-2].endswith("Do a") and not [row for row in small if row.startswith(" waits ")]
    (nothing,) = [
        line
        for line in lines(after(*fleet(2)), Screen(pane=Pane.LANDING))
        if "nothing lands here" in line
    ]
    assert "--land" in nothing


def test_only_what_is_filtered_is_listed_and_the_list_says_so() -> None:
    many = [*fleet(4, busy=2), ended("app-9"), ended("app-8", outcome="error", verdict="requeue")]
    many += [ended("app-7", outcome="question", verdict="asked", error="FOO?")]
    many += [ended("app-6", outcome="cancelled", verdict="requeue")]
    screen = Screen(states={Part.WORKERS: "idle", Part.ENDED: "failed"})
    shown = lines(after(*many), screen)
    assert "workers 1-2 of 2, idle only" in shown[5] and shown[6].startswith(" W3   idle")
    text = "\n".join(shown).partition("last outcomes, failed only")[2]
    assert "app-8" in text
    assert not any(each in text for each in ("app-9", "app-7", "app-6")), "they did not fail"
    typed = lines(after(*many), Screen(finds={Pane.FLEET: "nowhere"}, typed="nowhere"))
    assert any("with 'nowhere'" in line for line in typed) and " none of them" in typed
    assert typed[-1].startswith(" /nowhere_")


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize("pane", list(Pane))
def test_the_last_row_always_says_how_to_get_help_and_out(columns: int, pane: Pane) -> None:
    (*_, last) = lines(after(*fleet(2)), Screen(pane=pane), columns=columns)
    assert "? help" in last and ("q leave" if pane is Pane.FLEET else "q back") in last


# --- one attempt that is open ---------------------------------------------------------------------

FAILED = ended("app-1", outcome="error", verdict="quarantined", charged=3, error="E: 3 != 4")
LONG = ShownLog("a.log", tuple(f"line {n}" for n in range(200)))


def opened(snapshot: dict[str, Any], pane: Pane = Pane.LOG, **fields: Any) -> Screen:
    """The view of the newest attempt of ``app-1``."""
    pin = pin_issue("app-1", snapshot)
    return Screen(pane=pane, opened=pin, **{"log": LONG, **fields})


@pytest.mark.parametrize(("columns", "rows"), [(60, 20), (80, 24), (120, 35), (200, 50)])
def test_an_open_attempt_has_four_rows_of_header_and_the_log_has_the_others(
    columns: int, rows: int
) -> None:
    snapshot = after(*agents_at_work(), rec.Listed((0, 12, 0, 0, 0)), closed())
    shown = lines(snapshot, opened(snapshot), columns=columns, rows=rows)
    logged = [line for line in shown if re.fullmatch(r" line \d+", line)]
    assert len(logged) == rows - 5 and shown[-2] == " line 199"
    assert page_rows(snapshot, opened(snapshot), columns, rows) == rows - 5
    assert "  running  0/13 closed  1 running" in f" {shown[0]}"
    assert shown[1].startswith("── W1 runs app-1, attempt 1") and shown[1].endswith("d diff  y why")
    assert shown[3].startswith(" x release") and shown[3].endswith("following")


def test_on_the_full_screen_one_row_says_what_it_is_and_how_to_get_back() -> None:
    snapshot = after(*fleet(1, busy=1))
    screen = opened(snapshot, full=True)
    shown = lines(snapshot, screen)
    assert shown[0].endswith("following  f back") and shown[1:] == [
        f" line {n}" for n in range(177, 200)
    ]
    assert page_rows(snapshot, screen, 80, 24) == 23
    typing = replace(screen, typed="x")
    assert lines(snapshot, typing)[-1].startswith(" /x_")
    assert page_rows(snapshot, typing, 80, 24) == 22


def test_when_an_open_attempt_ends_one_line_says_what_became_of_it_and_what_runs_now() -> None:
    before = after(*fleet(1, busy=1))
    screen = opened(before)
    later = after(*fleet(1, busy=1), FAILED, rec.Started("app-7", "W1", 1, "r7", "next"))
    first, second = lines(before, screen), lines(later, screen)
    assert "W1 runs app-1, attempt 1" in first[1] and "W1 ran app-1, attempt 1" in second[1]
    assert "quarantined after 1 attempt: E: 3 != 4" in second[2]
    assert second[3].startswith(" app-1 is quarantined: r try again; W1 runs app-7")
    assert first[4:-1] == second[4:-1], "the log stays where it is"


def test_a_text_that_is_read_from_its_beginning_shows_its_first_page() -> None:
    snapshot = after(*fleet(1, busy=1), FAILED)
    shown = lines(snapshot, opened(snapshot, Pane.DIFF, log_end=0))
    assert shown[4] == " line 0" and shown[3].endswith("line 19 of 200")
    short = lines(snapshot, opened(snapshot, Pane.DIFF, log_end=0, log=ShownLog("", ("one",))))
    assert short[4] == " one" and short[3].endswith("1 line")


def test_a_diff_has_the_colours_of_a_diff_and_each_line_says_so_itself() -> None:
    snapshot = after(*fleet(1, busy=1), FAILED)
    text = ShownLog("", ("+more", "-less", "@@ -1 +1 @@", " same", "--- a/x", "+++ b/x"))
    renderer = Renderer({"TERM": "xterm-256color"}, "dark")
    picture = draw(snapshot, opened(snapshot, Pane.DIFF, log_end=0, log=text), 0.0, 80, 24)
    rows = renderer.lines(picture, 80, 24)[4:10]
    assert ["38;5;78m" in row for row in rows] == [True, *[False] * 5]
    assert ["38;5;210m" in row for row in rows] == [False, True, *[False] * 4]
    log = draw(snapshot, opened(snapshot, log=text), 0.0, 80, 24)
    assert "38;5" not in "".join(renderer.lines(log, 80, 24)[4:8])


def test_keys_are_told_from_what_they_do() -> None:
    picture = draw(after(*fleet(2, busy=2)), Screen(), 0.0, 100, 24)
    last = Renderer({"TERM": "xterm-256color"}, "dark").lines(picture, 100, 24)[-1]
    for columns in range(60, 130):
        for pane in (Pane.FLEET, Pane.DIFF, Pane.LOG, Pane.ISSUES, Pane.QUARANTINE):
            foot = lines(after(*fleet(2, busy=2)), Screen(pane=pane), columns=columns)[-1]
            assert foot.endswith(("q leave", "q back")), foot
    bold = re.findall("\x1b\\[1m([^\x1b]+)\x1b", last)
    assert [key.strip() for key in bold] == ["Enter", "2", "5", "Tab", "p", "+ -", "?", "q"]


def test_times_stand_before_the_lines_of_a_log_only_if_they_are_wanted() -> None:
    snapshot = after(*fleet(1, busy=1))
    text = ShownLog("a.log", ("one", "two"), times=("", "12:00:07"))
    timed = lines(snapshot, opened(snapshot, log=text, times=True))
    assert timed[4:6] == ["          one", " 12:00:07 two"]
    assert lines(snapshot, opened(snapshot, log=text))[5] == " two"


def test_where_a_search_stands_is_told_in_lines_though_lines_go_on() -> None:
    snapshot = after(*fleet(1, busy=1))
    rows = tuple(f"row {n}" for n in range(100))
    text = ShownLog("a.log", rows, cuts=tuple(range(1, 100, 2)))
    shown = lines(snapshot, opened(snapshot, log=text, log_end=60))
    assert shown[3].endswith("line 30 of 50") and shown[-2] == " row 59"


def test_the_keys_can_be_read_to_the_last_on_the_smallest_dashboard() -> None:
    snapshot = after(*fleet(2))
    screen = Screen(pane=Pane.HELP)
    assert "twice: now" not in "\n".join(lines(snapshot, screen, columns=60, rows=14))
    page = page_rows(snapshot, screen, 60, 14)
    screen, _ = press(screen, "G", snapshot, page)
    shown = lines(snapshot, screen, columns=60, rows=14)
    assert "twice: now" in shown[-2] and press(screen, "j", snapshot, page)[0] == screen
    assert press(screen, "g", snapshot, page)[0].top == 0


def test_sentences_go_on_below_their_beginning_and_nothing_of_them_is_cut() -> None:
    words = "quarantined after two attempts because the sum of the cart is three and not four"
    rows = list(sentences([("why", [f"  {words}", ""]), ("attempts", ["one"])], 40))
    assert rows[0] == "why" and rows[-2:] == ["attempts", "  one"] and rows[-3] == ""
    assert rows[1].startswith("    quarantined") and rows[2].startswith("      ")
    assert " ".join(row.strip() for row in rows[1:4]).strip() == words
    assert all(len(row) <= 40 for row in rows)


def test_an_attempt_that_was_tried_again_does_not_say_when_that_will_be() -> None:
    script = Script()
    script.attempt("W1", "app-1", 1.0, 2.0, "error", "requeue", error="E: 3 != 4")
    script.attempt("W1", "app-1", 3.0, 4.0, "error", "requeue", number=2, error="E: 3 != 4")
    snapshot = after(*fleet(1))
    script.attempt("W1", "app-1", 5.0, 6.0, "question", "asked", number=3, error="A or B?")
    script.attempt("W1", "app-1", 7.0, 8.0, "error", "requeue", number=4, error="E: 3 != 4")
    for number, said in (
        (1, "failed, tried again: E"),
        (3, "asked, and went on: A or B?"),
        (4, "failed, again at once: E"),
    ):
        pin = Pin("app-1", "run-1", number)
        screen = Screen(pane=Pane.LOG, opened=pin, view=attempt_view(pin, [run(script, 1)]))
        assert said in lines(snapshot, screen)[2]


def test_what_landed_in_an_earlier_run_is_known_in_the_next() -> None:
    pin = Pin("app-1", "run-1", 1)
    view = replace(AttemptView(pin), landing=LandingHistory(commit="1" * 40))
    shown = lines(after(*fleet(1)), Screen(pane=Pane.LOG, opened=pin, view=view))
    assert shown[3].strip() == "app-1 landed as 111111111111"


def test_the_sections_are_named_and_the_open_one_stands_out() -> None:
    snapshot = after(*fleet(1, busy=1))
    for pane, name in ((Pane.LOG, "log"), (Pane.DIFF, "d diff"), (Pane.ABOUT, "y why")):
        picture = draw(snapshot, opened(snapshot, pane), 0.0, 80, 24)
        row = Renderer({"TERM": "xterm", "NO_COLOR": "1"}, "dark").lines(picture, 80, 24)[1]
        assert f"\x1b[1m{name}" in row, "also without colours"
