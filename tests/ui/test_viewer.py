"""Keys: what each changes in the view, and what it asks of the fleet."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.wire import Progress
from beads_workers.core.records import journal as rec
from beads_workers.ui import bindings, viewer
from beads_workers.ui.attempt_view import AttemptView, Pin, attempt_view, pin_issue
from beads_workers.ui.wrapping import Wrapping
from tests.core.test_nights import run
from tests.support.journals import Script
from tests.support.landings import night as landings
from tests.ui.snapshots import BEGAN, EPOCH, after, ended, fleet, to_decide

BUSY = after(*fleet(10, busy=2))
QUARANTINE_RECORDS = (
    *fleet(2, busy=2),
    ended("app-1", outcome="error", verdict="quarantined", charged=3, error="no"),
    ended("app-2", "W2", outcome="error", verdict="quarantined", charged=3, error="never"),
)
QUARANTINE = after(*QUARANTINE_RECORDS)
NIGHT_RECORDS = (
    *fleet(4, busy=2),
    ended("app-7", "W2"),
    ended("app-8", "W3", outcome="error", verdict="requeue", charged=1, error="no"),
    ended("app-9", "W4"),
)
DECISIONS = after(*to_decide())
NIGHT = after(*NIGHT_RECORDS)
ENDED_KEY = viewer.key_of(viewer.Part.ENDED, NIGHT["outcomes"][1])
COSTLY = after(
    *fleet(3),
    rec.Started("app-2", "W2", 1, "r2", "long"),
    rec.Started("app-1", "W1", 1, "r1", "dear", agent="claude"),
    rec.AsideHeard("W1", Progress(IssueId("app-1"), None, "edits", 900, 0.41, 0.5)),
)


def pressed(
    *keys: str, screen: viewer.Screen | None = None, snapshot: dict[str, Any] = BUSY
) -> tuple[viewer.Screen, list[viewer.Wish]]:
    """The view after these keys, and all that was asked."""
    screen, wishes = screen or viewer.Screen(), []
    for key in keys:
        screen, wish = bindings.press(screen, key, snapshot, page_rows=4)
        wishes += [] if wish is None else [wish]
    return screen, wishes


def test_p_pauses_and_resumes_what_is_paused() -> None:
    assert pressed("p")[1] == [viewer.Ask("bw.pause")]
    paused = after(rec.RunChanged("paused"))
    assert pressed("p", snapshot=paused)[1] == [viewer.Ask("bw.resume")]


def test_p_begins_what_waits_for_its_time() -> None:
    waiting = after(rec.RunChanged("waiting", "--start-at", EPOCH + 3600.0))
    assert pressed("p", snapshot=waiting)[1] == [viewer.Ask("bw.resume")]


def test_plus_and_minus_count_our_own_workers_only() -> None:
    foreign = after(*fleet(2), rec.WorkerJoined("W3", 77, "their-name", own=False))
    assert pressed("+", "-", snapshot=foreign)[1] == [
        viewer.Ask("bw.scale", {"workers": 3}),
        viewer.Ask("bw.scale", {"workers": 1}),
    ]
    assert pressed("-", snapshot=after())[1] == [viewer.Ask("bw.scale", {"workers": 0})]


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (("down",), "W2"), (("up",), "W1"), (("page_down",), "W5"), (("end",), "W10"),
        (("end", "up"), "W9"), (("end", "page_down"), "W10"), (("end", "home"), "W1"),
        (("right", "left"), "W1"),
    ],
)  # fmt: skip
def test_arrows_choose_a_worker_and_stop_at_the_ends(keys: tuple[str, ...], chosen: str) -> None:
    screen, wishes = pressed(*keys)
    assert screen.chosen == {viewer.Part.WORKERS: chosen} and not wishes
    found = viewer.chosen_row(screen, BUSY, viewer.Part.WORKERS)
    assert found is not None and found["worker_id"] == chosen


def test_a_chosen_worker_that_is_gone_is_replaced_by_the_first() -> None:
    found = viewer.chosen_row(
        viewer.Screen(chosen={viewer.Part.WORKERS: "W77"}), BUSY, viewer.Part.WORKERS
    )
    assert found is not None and found["worker_id"] == "W1"
    assert (
        viewer.chosen_row(
            viewer.Screen(chosen={viewer.Part.WORKERS: "W1"}), after(), viewer.Part.WORKERS
        )
        is None
    )


def test_tab_leads_to_the_attempts_that_ended_where_the_newest_is_first() -> None:
    screen, _ = pressed("tab", snapshot=NIGHT)
    shown = viewer.shown_attempt(screen, NIGHT)
    assert shown is not None and (shown.issue_id, shown.running) == ("app-9", False)
    screen, _ = pressed("j", "j", screen=screen, snapshot=NIGHT)
    shown = viewer.shown_attempt(screen, NIGHT)
    assert shown is not None and shown.title == "W2 ran app-7, attempt 1"
    back, _ = pressed("shift+tab", screen=screen, snapshot=NIGHT)
    shown = viewer.shown_attempt(back, NIGHT)
    assert shown is not None and shown.title == "W1 runs app-1, attempt 1"


def test_what_a_chosen_attempt_is_stays_when_others_end() -> None:
    screen, _ = pressed("tab", "j", snapshot=NIGHT)
    later = after(*NIGHT_RECORDS, ended("app-2", "W2"))
    shown = viewer.shown_attempt(screen, later)
    assert shown is not None and shown.issue_id == "app-8"


def test_an_idle_worker_shows_what_it_ran_last_and_nothing_where_nothing_has_run() -> None:
    idle = after(*fleet(2), ended("app-9", "W1"))
    shown = viewer.shown_attempt(viewer.Screen(), idle)
    assert shown is not None and shown.title == "W1 ran app-9, attempt 1"
    screen, _ = pressed("down", "enter", snapshot=idle)
    assert screen.pane is viewer.Pane.FLEET and "nothing has run there yet" in screen.message


def test_f_shows_some_states_only_of_the_list_the_arrows_are_in() -> None:
    def listed(screen: viewer.Screen, part: viewer.Part) -> list[str]:
        return [viewer.key_of(part, row).split()[0] for row in viewer.rows_of(screen, NIGHT, part)]

    screen, _ = pressed("f", snapshot=NIGHT)
    assert listed(screen, viewer.Part.WORKERS) == ["W1", "W2"]
    screen, _ = pressed("f", screen=screen, snapshot=NIGHT)
    assert listed(screen, viewer.Part.WORKERS) == ["W3", "W4"]
    screen, _ = pressed("tab", "f", screen=screen, snapshot=NIGHT)
    assert listed(screen, viewer.Part.ENDED) == ["app-8"] and listed(
        screen, viewer.Part.WORKERS
    ) == [
        "W3",
        "W4",
    ]
    screen, _ = pressed("f", screen=screen, snapshot=NIGHT)
    assert listed(screen, viewer.Part.ENDED) == ["app-9", "app-7"]
    screen, _ = pressed("f", screen=screen, snapshot=NIGHT)
    assert len(listed(screen, viewer.Part.ENDED)) == 3
    assert (
        viewer.rows_of(
            pressed("escape", screen=screen, snapshot=NIGHT)[0], NIGHT, viewer.Part.WORKERS
        )
        == (NIGHT["workers"])
    )


def test_s_puts_the_longest_first_then_the_dearest_then_names() -> None:
    def order(*keys: str) -> list[str]:
        screen, _ = pressed(*keys, snapshot=COSTLY)
        return [row["worker_id"] for row in viewer.rows_of(screen, COSTLY, viewer.Part.WORKERS)]

    assert order() == ["W1", "W2", "W3"]
    assert order("s") == ["W2", "W1", "W3"]
    assert order("s", "s") == ["W1", "W2", "W3"]
    assert order("s", "s", "s") == ["W1", "W2", "W3"]


def test_a_slash_shows_only_rows_with_a_text_and_every_letter_counts() -> None:
    screen, _ = pressed("/", "a", "p", "p", "-", "2", snapshot=NIGHT)
    assert screen.typed == "app-2" and [
        r["worker_id"] for r in viewer.rows_of(screen, NIGHT, viewer.Part.WORKERS)
    ]
    screen, wishes = pressed("enter", "q", screen=screen, snapshot=NIGHT)
    assert screen.find == "app-2" and screen.typed is None and wishes == [viewer.Leave()]
    assert [r["issue_id"] for r in viewer.rows_of(screen, NIGHT, viewer.Part.WORKERS)] == ["app-2"]
    assert pressed("escape", screen=screen, snapshot=NIGHT)[0].find == ""
    typing, _ = pressed("/", "T", "backspace", "space", "p", "escape", snapshot=NIGHT)
    assert typing.typed is None and typing.find == ""


def test_keys_are_letters_while_one_types_and_ask_nothing() -> None:
    screen, wishes = pressed(
        "/", *"pxqa+-rty", "up", "tab", screen=viewer.Screen(viewer.Role.START)
    )
    assert screen.find == "pxqa+-rty" and not wishes and screen.question is None


def test_small_letters_find_large_ones_and_large_ones_only_themselves() -> None:
    titled = after(*fleet(1, busy=1, title="Mend the Cart"))

    def found(text: str) -> bool:
        screen = viewer.Screen(finds={viewer.Pane.FLEET: text})
        return bool(viewer.rows_of(screen, titled, viewer.Part.WORKERS))

    assert found("cart") and found("Cart") and not found("CART")


# --- a log ---------------------------------------------------------------------------------------

LOG = viewer.ShownLog(
    "app-1.log", tuple(f"line {n}" + " error" * (n % 30 == 4) for n in range(100)), 50
)
PIN = pin_issue("app-1", BUSY)
FOLLOWED = viewer.Screen(pane=viewer.Pane.LOG, log=LOG, opened=PIN)


def test_enter_opens_a_log_and_goes_back() -> None:
    for key in ("enter", "l"):
        opened, _ = pressed(key)
        assert (
            opened.pane is viewer.Pane.LOG
            and pressed(key, screen=opened)[0].pane is viewer.Pane.FLEET
        )
    back, _ = pressed("down", "l", "escape")
    assert back == viewer.Screen(pane=viewer.Pane.FLEET, chosen={viewer.Part.WORKERS: "W2"})


def test_a_log_is_followed_until_one_scrolls_and_again_from_its_end_on() -> None:
    up, _ = pressed("k", screen=FOLLOWED)
    assert up.log_end == 149
    more = replace(up, log=viewer.ShownLog("app-1.log", (*LOG.lines, "new"), 50))
    assert pressed("up", screen=more)[0].log_end == 148, "what comes does not move it"
    assert pressed("G", screen=more)[0].log_end is None
    assert pressed("down", "down", screen=more)[0].log_end is None
    assert pressed("page_up", screen=FOLLOWED)[0].log_end == 146
    top, _ = pressed("g", screen=FOLLOWED)
    assert top.log_end == 54, "its first page"
    assert pressed("up", screen=top)[0].log_end == 54


def test_a_log_is_searched_from_its_end_upwards_and_n_goes_on() -> None:
    screen, _ = pressed("/", *"error", screen=FOLLOWED)
    assert screen.log_found == 50 + 94
    screen, _ = pressed("enter", "N", screen=screen)
    assert screen.log_found == 50 + 64 and screen.log_end == 50 + 64 + 3
    assert pressed("n", screen=screen)[0].log_found == 50 + 94
    first, _ = pressed("N", "N", screen=screen)
    assert first.log_found == 50 + 4
    none, _ = pressed("N", screen=first)
    assert none.log_found == 50 + 4 and "further up" in none.message
    assert "not in this text" in pressed("/", "y", screen=FOLLOWED)[0].message
    assert "looks for a text" in pressed("n", screen=FOLLOWED)[0].message


def test_a_short_log_does_not_scroll() -> None:
    short = viewer.Screen(pane=viewer.Pane.LOG, log=viewer.ShownLog("a.log", ("one", "two")))
    assert pressed("up", "page_up", "g", screen=short)[0].log_end is None


# --- an attempt that is open ----------------------------------------------------------------------


def title_of(screen: viewer.Screen, snapshot: dict[str, Any]) -> str:
    """The attempt that is shown."""
    shown = viewer.shown_attempt(screen, snapshot)
    assert shown is not None
    return shown.title


def test_enter_without_a_selection_opens_what_stands_first_and_keeps_it_open() -> None:
    records = fleet(2, busy=2)
    screen, _ = pressed("enter", snapshot=after(*records))
    assert screen.chosen == {viewer.Part.WORKERS: "W1"}
    assert title_of(screen, after(*records)) == "W1 runs app-1, attempt 1"
    records += [ended("app-1"), rec.Started("app-7", "W1", 1, "r7", "next")]
    assert title_of(screen, after(*records)) == "W1 ran app-1, attempt 1"
    records += [ended("app-7"), rec.Started("app-1", "W1", 1, "r8", "again")]
    assert title_of(screen, after(*records)) == "W1 ran app-1, attempt 1", "not its free retry"
    newest, _ = pressed("tab", "enter", snapshot=after(*records))
    records += [ended("app-2", "W2")]
    assert title_of(newest, after(*records)) == "W1 ran app-7, attempt 1"


def test_an_open_attempt_stays_when_the_fleet_is_started_again() -> None:
    screen, _ = pressed("2", "1", "/", *"app-1", "enter", "enter", snapshot=BUSY)
    began = replace(BEGAN, run_id="20261122-031500.000-aaaaaa")
    again = after(began, rec.RunChanged("running"), *fleet(10, busy=2))
    assert title_of(screen, again) == "app-1, attempt 1" and screen.opened == PIN
    closed, _ = pressed("q", screen=screen, snapshot=again)
    assert closed.find == "app-1" and closed.chosen == {viewer.Part.WORKERS: "W1"}


def test_the_newest_failure_and_what_landed_are_three_keys_away() -> None:
    screen, _ = pressed("tab", "f", "enter", snapshot=NIGHT)
    assert title_of(screen, NIGHT) == "W3 ran app-8, attempt 1" and screen.pane is viewer.Pane.LOG
    landed = after(*fleet(2), *landings())
    screen, _ = pressed("2", "f", "d", snapshot=landed)
    assert screen.pane is viewer.Pane.DIFF and screen.opened is not None
    assert screen.opened.issue_id == landed["landing"]["last"][-1]["issue_id"] == "d"
    refused, _ = pressed("2", "f", "f", snapshot=landed)
    rows = viewer.rows_of(refused, landed, viewer.Part.LANDING)
    assert [row["verdict"] for row in rows] == ["refused", "mend"]


@pytest.mark.parametrize(
    ("keys", "snapshot", "issue_id"),
    [
        ("1", BUSY, "app-1"),
        ("3j", QUARANTINE, "app-2"),
        ("4j", DECISIONS, "app-2"),
        ("2", after(*fleet(2), *landings()), "e"),
    ],
)
def test_enter_opens_an_attempt_from_every_list_and_back_leads_there(
    keys: str, snapshot: dict[str, Any], issue_id: str
) -> None:
    listed, _ = pressed(*keys, snapshot=snapshot)
    for key, pane in zip(("enter", "d", "y"), viewer.ATTEMPT, strict=True):
        screen, _ = pressed(key, screen=listed, snapshot=snapshot)
        assert screen.pane is pane and screen.opened is not None
        assert screen.opened.issue_id == issue_id
        back, _ = pressed("escape", screen=screen, snapshot=snapshot)
        assert back.pane is listed.pane and back.part is listed.part and back.opened is None


def test_the_sections_of_an_attempt_are_walked_through_and_read_from_their_beginning() -> None:
    screen, _ = pressed("enter", "/", "x", "enter")
    seen = []
    for _ in range(4):
        seen.append((screen.pane, screen.log_end, screen.log_find))
        screen, _ = pressed("tab", screen=screen)
    log, diff, why = viewer.ATTEMPT
    assert seen == [(log, None, "x"), (diff, 0, ""), (why, 0, ""), (log, None, "")]
    assert pressed("shift+tab", screen=screen)[0].pane is log
    assert screen.pane is diff and pressed("d", screen=screen)[0].pane is log
    assert pressed("y", "d", screen=screen)[0].pane is diff


def test_the_first_step_down_in_a_text_that_is_read_from_its_beginning_goes_down() -> None:
    screen = replace(FOLLOWED, pane=viewer.Pane.ABOUT, log_end=0)
    assert pressed("j", screen=screen)[0].log_end == 50 + 5
    assert pressed("k", screen=screen)[0].log_end == 50 + 4


def test_a_line_of_a_diff_is_chosen_and_the_text_follows_it() -> None:
    screen = replace(FOLLOWED, pane=viewer.Pane.DIFF, log_end=0)
    below = pressed("j", screen=screen)[0]
    assert (below.log_found, below.log_end) == (51, 54), "it is on the screen"
    for _ in range(3):
        below = pressed("j", screen=below)[0]
    assert (below.log_found, below.log_end) == (54, 55)
    assert pressed("k", screen=screen)[0].log_found == 50
    last = pressed("G", screen=screen)[0]
    assert (last.log_found, last.log_end) == (149, 150)
    page = pressed("page_down", screen=screen)[0]
    assert (page.log_found, page.log_end) == (54, 58)


def told() -> AttemptView:
    """Three attempts of an issue."""
    script = Script()
    for number in (1, 2, 3):
        script.attempt("W1", "a", number * 10.0, number * 10.0 + 5, "error", number=number)
    return attempt_view(Pin("a", "run-1", 2), [run(script, 1)])


def test_one_walks_through_the_attempts_of_an_issue_and_stops_at_the_ends() -> None:
    screen = replace(FOLLOWED, opened=told().pin, view=told())
    before, _ = pressed("[", screen=screen)
    assert before.opened is not None and before.opened.number == 1 and before.log is None
    after_it, _ = pressed("]", screen=screen)
    assert after_it.opened is not None and after_it.opened.number == 3
    last, _ = pressed("]", screen=replace(after_it, view=told().pinned(after_it.opened)))
    assert last.message == "this is the last attempt of a"
    assert "not read yet" in pressed("[", screen=FOLLOWED)[0].message


def test_help_leads_back_to_the_attempt_and_the_fleet_out_of_it() -> None:
    opened, _ = pressed("enter", "d")
    screen, _ = pressed("?", "j", "q", screen=opened)
    assert screen.pane is viewer.Pane.DIFF and screen.opened == opened.opened
    assert pressed("q", screen=screen)[0].pane is viewer.Pane.FLEET
    assert pressed("?", "?", screen=opened)[0].pane is viewer.Pane.DIFF
    assert pressed("1", screen=opened)[0].opened is None


def test_what_needs_a_person_is_opened_one_after_the_other() -> None:
    screen, _ = pressed("!", snapshot=DECISIONS)
    assert screen.opened is not None and screen.opened.issue_id == "app-1"
    screen, _ = pressed("!", screen=screen, snapshot=DECISIONS)
    assert screen.opened is not None and screen.opened.issue_id == "app-2"
    screen, _ = pressed("!", screen=screen, snapshot=DECISIONS)
    assert screen.opened is not None and screen.opened.issue_id == "app-1"
    assert pressed("q", screen=screen, snapshot=DECISIONS)[0].pane is viewer.Pane.FLEET
    assert pressed("!")[0].message == "no issue needs you"


@pytest.mark.parametrize("section", viewer.ATTEMPT)
def test_what_can_be_done_about_an_issue_is_done_in_its_attempt(section: viewer.Pane) -> None:
    def asked(issue_id: str, snapshot: dict[str, Any], *keys: str) -> list[viewer.Wish]:
        opened = pin_issue(issue_id, snapshot)
        screen = viewer.Screen(pane=section, opened=opened, log=LOG)
        return pressed(*keys, screen=screen, snapshot=snapshot)[1]

    (commit,) = (row["commit"] for row in DECISIONS["approvals"])
    ids = {"issue_ids": ["app-2"]}
    assert asked("app-2", QUARANTINE, "r") == [viewer.Ask("bw.retry", ids)]
    assert asked("app-2", BUSY, "x", "y") == [viewer.Ask("bw.release", ids)]
    approved = viewer.Ask("bw.approve", {"commits": {"app-2": commit}})
    assert asked("app-2", DECISIONS, "v", "y") == [approved]
    rejected = viewer.Ask("bw.reject", {**ids, "text": "no"})
    assert asked("app-2", DECISIONS, "V", "n", "o", "enter") == [rejected]
    answered = viewer.Ask("bw.answer", {"issue_ids": ["app-1"], "text": "foo"})
    assert asked("app-1", DECISIONS, "i", *"foo", "enter") == [answered]
    assert not asked("app-1", DECISIONS, "v") and not asked("app-2", DECISIONS, "i", *"x", "enter")


def test_a_filter_holds_only_in_the_view_in_which_it_was_typed() -> None:
    screen, _ = pressed("/", *"app-2", "enter", snapshot=QUARANTINE)
    other, _ = pressed("3", screen=screen, snapshot=QUARANTINE)
    assert other.find == "" and len(viewer.rows_of(other, QUARANTINE, other.part)) == 2
    other, _ = pressed("/", *"app-1", "enter", screen=other, snapshot=QUARANTINE)
    fleet_again, _ = pressed("1", screen=other, snapshot=QUARANTINE)
    assert fleet_again.find == "app-2"
    cleared, _ = pressed("3", "escape", screen=fleet_again, snapshot=QUARANTINE)
    assert cleared.pane is viewer.Pane.QUARANTINE and cleared.find == ""
    assert pressed("1", screen=cleared, snapshot=QUARANTINE)[0].find == "app-2"


def test_a_text_is_wrapped_timed_and_shown_alone_until_one_leaves() -> None:
    screen, _ = pressed("w", "f", "T", screen=FOLLOWED)
    assert screen.wrap and screen.full and screen.times
    stays, _ = pressed("q", screen=screen)
    assert stays.pane is viewer.Pane.LOG and not stays.full and stays.wrap
    assert pressed("q", screen=stays)[0].pane is viewer.Pane.FLEET


def test_a_text_is_saved_where_a_person_says_and_nothing_is_asked_of_the_fleet() -> None:
    screen, _ = pressed("S", screen=FOLLOWED)
    assert screen.typed == "~/app-1.1.log" and screen.writing is not None
    assert pressed("backspace", "enter", screen=screen)[1] == [viewer.Save("~/app-1.1.lo")]
    assert pressed("escape", screen=screen)[1] == []
    assert pressed("ctrl+u", "x", "enter", screen=screen)[1] == [viewer.Save("x")]
    odd = replace(FOLLOWED, pane=viewer.Pane.DIFF, opened=Pin("../../etc/x y", "run", 2))
    assert pressed("S", screen=odd)[0].typed == "~/_.._etc_x_y.2.diff"


# --- lines that go on ----------------------------------------------------------------------------


def rows_for(lines: list[str], width: int, first: int = 0) -> viewer.ShownLog:
    """These lines, wrapped."""
    return Wrapping().of(viewer.ShownLog("x", lines, first), width)


@given(
    st.lists(st.text("ab\u65e5 ", max_size=30), min_size=1), st.integers(2, 9), st.integers(0, 99)
)
def test_lines_and_rows_are_found_from_each_other(lines: list[str], width: int, first: int) -> None:
    log = rows_for(lines, width, first)
    assert [line for _, line in log.whole_lines()] == lines
    for number in range(first + 1, first + len(lines) + 1):
        row = log.row_of(number)
        assert log.line_of(row) == number and row - first - 1 not in log.cuts
    assert log.line_of(log.end) == first + len(lines)


def test_wrapping_keeps_the_line_that_one_reads() -> None:
    lines = [f"{number} " + "x" * 30 for number in range(100)]
    plain = viewer.ShownLog("x", lines)
    screen = replace(FOLLOWED, log=plain, log_end=40)
    narrow = viewer.placed(screen, rows_for(lines, 10))
    assert narrow.log is not None and narrow.log_end is not None
    assert narrow.log.lines[narrow.log_end - 1].startswith("39 ")
    assert viewer.placed(narrow, plain).log_end == 40
    followed = viewer.placed(replace(screen, log_end=None), rows_for(lines, 10))
    assert followed.log_end is None


def test_a_text_is_found_although_it_goes_on_in_the_next_row() -> None:
    log = rows_for(["one", "the error is here", "two"], 6)
    assert list(log.lines) == ["one", "the er", "ror is", " here", "two"]
    screen, _ = pressed("/", *"error", screen=replace(FOLLOWED, log=log))
    assert screen.log_found == 1
    screen, _ = pressed("backspace", *["backspace"] * 4, *"here", screen=screen)
    assert screen.log_found == 3


# --- what is asked of the fleet ------------------------------------------------------------------


def test_releasing_asks_first_and_does_it_only_after_a_yes() -> None:
    screen, wishes = pressed("down", "x")
    assert not wishes and screen.question is not None and "app-2" in screen.question.text
    assert pressed("y", screen=screen)[1] == [viewer.Ask("bw.release", {"issue_ids": ["app-2"]})]
    for key in ("n", "escape", "q", "p", "enter"):
        stayed, wishes = pressed(key, screen=screen)
        assert not wishes and stayed.question is None


def test_what_does_not_run_cannot_be_released() -> None:
    for keys in (("end", "x"), ("tab", "x")):
        screen, wishes = pressed(*keys)
        assert not wishes and screen.question is None and "busy" in screen.message


def test_r_tries_the_chosen_quarantined_issue_again_and_a_all_of_them() -> None:
    screen, wishes = pressed("3", snapshot=QUARANTINE)
    assert screen.pane is viewer.Pane.QUARANTINE and not wishes
    again = viewer.Ask("bw.retry", {"issue_ids": ["app-2"]})
    assert pressed("down", "down", "r", screen=screen, snapshot=QUARANTINE)[1] == [again]
    asked, wishes = pressed("a", screen=screen, snapshot=QUARANTINE)
    everything = viewer.Ask("bw.retry", {"issue_ids": ["app-1", "app-2"]})
    assert not wishes and pressed("y", screen=asked, snapshot=QUARANTINE)[1] == [everything]
    assert pressed("a", screen=screen)[0].message == "nothing is quarantined"
    assert pressed("r", screen=screen)[0].message == "nothing is quarantined"
    busy = after(*fleet(2, busy=2), *QUARANTINE_RECORDS[-1:])
    assert "3 shows them" in pressed("r", snapshot=busy)[0].message
    ended_too, _ = pressed("tab", snapshot=QUARANTINE)
    assert pressed("r", screen=ended_too, snapshot=QUARANTINE)[1] == [again]


def test_of_what_is_filtered_only_the_rows_that_are_seen_are_tried_again() -> None:
    _, wishes = pressed("3", "/", *"app-2", "enter", "a", snapshot=QUARANTINE)
    assert wishes == [viewer.Ask("bw.retry", {"issue_ids": ["app-2"]})]


def typed(words: str, screen: viewer.Screen | None = None, **more: Any) -> Any:
    """The view and the wishes after a name was typed into the palette."""
    keys = ("space" if each == " " else each for each in words)
    return pressed(":", *keys, "enter", screen=screen, **more)


def test_every_key_with_a_word_does_the_same_by_its_word() -> None:
    for snapshot in (BUSY, QUARANTINE, NIGHT):
        for row in bindings.ROWS:
            for key in row.keys:
                for role, pane in product(row.roles, key.panes):
                    if not (key.word and key.names):
                        continue
                    screen = viewer.Screen(
                        role, pane, viewer.OWN_PARTS.get(pane, viewer.Part.WORKERS)
                    )
                    by_key = pressed(key.names.split()[0], screen=screen, snapshot=snapshot)
                    assert typed(key.word, screen, snapshot=snapshot) == by_key, key.word


def test_the_palette_completes_and_does_the_first_word_that_fits() -> None:
    screen, _ = pressed(":", "p", "a")
    assert bindings.matching(screen)[:2] == ["pause or resume", "page"]
    assert pressed("g", "tab", screen=screen)[0].typed == "page"
    assert typed("pau")[1] == [viewer.Ask("bw.pause")]
    assert typed("more")[1] == [viewer.Ask("bw.scale", {"workers": 11})]
    assert "no command 'zz' here" in typed("zz")[0].message
    for keys in (("escape",), ("enter",), ("backspace",)):
        screen, wishes = pressed(":", *keys)
        assert screen == viewer.Screen() and not wishes
    assert "approve" not in bindings.matching(pressed(":")[0]), "only what can be done here"


def test_the_palette_stops_a_fleet_but_asks_first() -> None:
    for word, fields in (("stop", {}), ("drain", {"drain": True})):
        screen, wishes = typed(word)
        assert not wishes and screen.question is not None
        assert pressed("y", screen=screen)[1] == [viewer.Ask("bw.stop", fields)]


def test_an_id_a_command_and_a_line_are_copied() -> None:
    asked, wishes = pressed("c")
    assert not wishes
    assert pressed("i", screen=asked)[1] == [viewer.Copy("the id", "app-1")]
    (log,) = pressed("c", screen=asked)[1]
    assert log == viewer.Copy("the command", "beads-workers logs app-1")
    again = pressed("3", "c", "c", snapshot=QUARANTINE)[1]
    assert again == [viewer.Copy("the command", "beads-workers retry app-1")]
    text = viewer.ShownLog("app-1.log", ("one", "a long ", "line", "three"), 7, cuts=(2,))
    read, _ = pressed("enter")
    read = replace(read, log=text)
    assert pressed("c", "l", screen=read)[1] == [viewer.Copy("the line", "three")]
    found = replace(read, log_found=8)
    assert pressed("c", "l", screen=found)[1] == [viewer.Copy("the line", "a long line")]
    assert "nothing to copy" in pressed("c", snapshot=after())[0].message


def test_a_command_that_is_copied_is_safe_in_a_shell() -> None:
    evil = after(*fleet(1), rec.Claimed("a;rm -rf", "x"), rec.Started("a;rm -rf", "W1", 1, "r"))
    assert pressed("c", "c", snapshot=evil)[1] == [
        viewer.Copy("the command", "beads-workers logs 'a;rm -rf'")
    ]


def test_a_click_chooses_a_row_and_a_second_one_opens_it() -> None:
    screen, wish = bindings.point(viewer.Screen(), (viewer.Part.ENDED, ENDED_KEY), NIGHT)
    assert wish is None and screen.part is viewer.Part.ENDED and screen.pane is viewer.Pane.FLEET
    chosen = viewer.chosen_row(screen, NIGHT, viewer.Part.ENDED)
    assert chosen is not None and chosen["issue_id"] == "app-8"
    opened, _ = bindings.point(screen, (viewer.Part.ENDED, ENDED_KEY), NIGHT)
    assert opened.pane is viewer.Pane.LOG and bindings.pin_name(opened) == "app-8"


def test_a_click_answers_nothing_and_ends_no_typing() -> None:
    at = (viewer.Part.WORKERS, "W2")
    for keys in (("x",), ("/", "a")):
        screen, _ = pressed(*keys)
        assert bindings.point(screen, at, BUSY) == (screen, None)


def test_the_wheel_moves_three_rows_and_m_leaves_the_mouse_to_the_terminal() -> None:
    screen, _ = pressed("wheel_down", "wheel_down", "wheel_up")
    assert screen.chosen == {viewer.Part.WORKERS: "W4"}
    assert pressed("m")[1] == [viewer.Mouse()]


def test_opening_many_idle_workers_lists_them() -> None:
    idle = after(*fleet(30))
    screen, _ = pressed("enter", snapshot=idle)
    assert screen.pane is viewer.Pane.FLEET
    assert len(viewer.rows_of(screen, idle, viewer.Part.WORKERS)) == 30
    back, _ = pressed("escape", screen=screen, snapshot=idle)
    assert len(viewer.rows_of(back, idle, viewer.Part.WORKERS)) == 1


def test_a_log_opened_among_the_quarantined_leads_back_there() -> None:
    screen, _ = pressed("3", "j", "enter", snapshot=QUARANTINE)
    assert screen.pane is viewer.Pane.LOG
    assert viewer.shown_attempt(screen, QUARANTINE) is not None
    assert pressed("escape", screen=screen, snapshot=QUARANTINE)[0].pane is viewer.Pane.QUARANTINE


def test_an_answer_is_typed_and_sent_with_enter() -> None:
    screen, wishes = pressed("4", "i", *"use ", "space", *"q?", "backspace", snapshot=DECISIONS)
    assert not wishes and screen.typed == "use  q"
    screen, wishes = pressed("enter", screen=screen, snapshot=DECISIONS)
    assert wishes == [viewer.Ask("bw.answer", {"issue_ids": ["app-1"], "text": "use  q"})]
    assert screen.typed is None and screen.writing is None


def test_a_branch_is_approved_after_a_yes_at_the_commit_that_is_shown() -> None:
    commit = DECISIONS["approvals"][0]["commit"]
    screen, wishes = pressed("4", "j", "v", snapshot=DECISIONS)
    assert not wishes and screen.question is not None and commit[:12] in screen.question.text
    assert not pressed("n", screen=screen, snapshot=DECISIONS)[1]
    wish = viewer.Ask("bw.approve", {"commits": {"app-2": commit}})
    assert pressed("y", screen=screen, snapshot=DECISIONS)[1] == [wish]


def test_a_branch_is_rejected_with_remarks_and_not_without() -> None:
    screen, wishes = pressed("4", "j", "V", snapshot=DECISIONS)
    assert not wishes and screen.writing is not None
    assert not pressed("enter", screen=screen, snapshot=DECISIONS)[1]
    assert not pressed(*"no", "escape", screen=screen, snapshot=DECISIONS)[1]
    wish = viewer.Ask("bw.reject", {"issue_ids": ["app-2"], "text": "too long"})
    assert pressed(*"too long", "enter", screen=screen, snapshot=DECISIONS)[1] == [wish]


@pytest.mark.parametrize(
    ("keys", "why"), [("ji", "i answers"), ("v", "approves"), ("V", "rejects")]
)
def test_the_keys_of_a_decision_do_nothing_on_the_other_kind(keys: str, why: str) -> None:
    screen, wishes = pressed("4", *keys, snapshot=DECISIONS)
    assert not wishes and why in screen.message and screen.typed is None


def test_a_number_opens_its_pane_and_closes_it() -> None:
    for key, pane in (
        ("2", viewer.Pane.LANDING),
        ("3", viewer.Pane.QUARANTINE),
        ("4", viewer.Pane.DECISIONS),
        ("?", viewer.Pane.HELP),
    ):
        assert pressed(key)[0].pane is pane
        for back in (key, "1", "escape"):
            screen, _ = pressed(key, back)
            assert screen.pane is viewer.Pane.FLEET and screen.part is viewer.Part.WORKERS


def test_t_wishes_for_other_colours() -> None:
    assert pressed("t")[1] == [viewer.OtherTheme()]
    assert pressed("t", screen=viewer.Screen(viewer.Role.REPLAY))[1] == [viewer.OtherTheme()]
    assert pressed("w")[1] == [viewer.SayPage()]


@pytest.mark.parametrize(
    ("key", "wish"),
    [
        ("s", viewer.Ask("bw.stop")),
        ("d", viewer.Ask("bw.stop", {"drain": True})),
        ("b", viewer.Detach()),
        ("n", None),
    ],
)
def test_where_the_fleet_was_started_leaving_asks_how(key: str, wish: viewer.Wish | None) -> None:
    screen, wishes = pressed("q", screen=viewer.Screen(viewer.Role.START))
    assert screen.question is not None and not wishes
    assert pressed(key, screen=screen)[1] == ([wish] if wish else [])


def test_whoever_only_watches_leaves_at_once() -> None:
    assert pressed("q")[1] == [viewer.Leave()]
    assert pressed("q", screen=viewer.Screen(viewer.Role.REPLAY))[1] == [viewer.Leave()]
    over = after(rec.RunEnded(0, "idle_timeout"))
    assert pressed("q", screen=viewer.Screen(viewer.Role.START), snapshot=over)[1] == [
        viewer.Leave()
    ]


def test_a_replay_is_held_and_sped_up_and_asks_nothing_of_a_fleet() -> None:
    wishes = pressed(
        "space", "+", "-", "r", "x", "a", "l", screen=viewer.Screen(viewer.Role.REPLAY)
    )[1]
    assert wishes == [viewer.Faster(0.0), viewer.Faster(2.0), viewer.Faster(0.5)]


@given(
    st.lists(
        st.sampled_from(
            ["up", "down", "page_up", "page_down", "left", "right", "home", "end", "enter",
             "escape", "tab", "p", "+", "-", "l", "r", "k", "q", "?", "a", "y", "n", "s", "ü", "x",
             "w", "1", "2", "3", "j", "g", "G", "N", "f", "t", "/", "backspace", "space", "d",
             "[", "]", "!", "T", "S", "i", "v", "V", "4"]
        ),
        max_size=40,
    ),
    st.sampled_from(list(viewer.Role)),
    st.sampled_from([BUSY, QUARANTINE, DECISIONS, after()]),
)  # fmt: skip
def test_no_keys_break_the_view_or_take_anything_away_unasked(
    keys: list[str], role: viewer.Role, snapshot: dict[str, Any]
) -> None:
    screen = viewer.Screen(role)
    for key in keys:
        before = screen.question
        screen, wish = bindings.press(screen, key, snapshot)
        screen = replace(screen, log=LOG if screen.pane in viewer.ATTEMPT else None)
        if isinstance(wish, viewer.Ask) and wish.control in ("bw.release", "bw.stop"):
            assert before is not None, "asked first"
        assert role is not viewer.Role.REPLAY or not isinstance(wish, viewer.Ask)
    assert replace(screen, question=None) is not screen


@pytest.mark.parametrize(("key", "said"), [("z", "z does nothing here"), ("a", "3 shows it")])
def test_a_key_that_does_nothing_says_so_and_changes_nothing(key: str, said: str) -> None:
    screen, wish = bindings.press(viewer.Screen(), key, BUSY)
    assert wish is None and said in screen.message
    assert replace(screen, message="") == viewer.Screen()
