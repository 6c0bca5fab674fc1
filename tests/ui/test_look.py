"""Keys: what each changes in the view, and what it asks of the fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core import journal as rec
from beads_workers.core.model import IssueId
from beads_workers.core.wire import Progress
from beads_workers.ui import bindings, viewer
from tests.ui.snapshots import EPOCH, after, ended, fleet, to_decide

BUSY = after(*fleet(10, busy=2))
QUARANTINE_RECORDS = (
    *fleet(2, busy=2),
    ended("app-1", outcome="error", verdict="quarantined", charged=3, error="no"),
    ended("app-2", "W2", outcome="error", verdict="quarantined", charged=3, error="no"),
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
COSTLY = after(
    *fleet(3),
    rec.Started("app-2", "W2", 1, "r2", "long"),
    rec.Started("app-1", "W1", 1, "r1", "dear", agent="claude"),
    rec.AsideHeard("W1", Progress(IssueId("app-1"), None, "edits", 900, 0.41, 0.5)),
)


def pressed(
    *keys: str, look: viewer.Look | None = None, snapshot: dict[str, Any] = BUSY
) -> tuple[viewer.Look, list[viewer.Wish]]:
    """The view after these keys, and all that was asked."""
    look, wishes = look or viewer.Look(), []
    for key in keys:
        look, wish = bindings.press(look, key, snapshot, page_rows=4)
        wishes += [] if wish is None else [wish]
    return look, wishes


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
    look, wishes = pressed(*keys)
    assert look.chosen == {viewer.Part.WORKERS: chosen} and not wishes
    found = viewer.chosen_row(look, BUSY, viewer.Part.WORKERS)
    assert found is not None and found["worker_id"] == chosen


def test_a_chosen_worker_that_is_gone_is_replaced_by_the_first() -> None:
    found = viewer.chosen_row(
        viewer.Look(chosen={viewer.Part.WORKERS: "W77"}), BUSY, viewer.Part.WORKERS
    )
    assert found is not None and found["worker_id"] == "W1"
    assert (
        viewer.chosen_row(
            viewer.Look(chosen={viewer.Part.WORKERS: "W1"}), after(), viewer.Part.WORKERS
        )
        is None
    )


def test_tab_leads_to_the_attempts_that_ended_where_the_newest_is_first() -> None:
    look, _ = pressed("tab", snapshot=NIGHT)
    shown = viewer.shown_attempt(look, NIGHT)
    assert shown is not None and (shown.issue_id, shown.running) == ("app-9", False)
    look, _ = pressed("j", "j", look=look, snapshot=NIGHT)
    shown = viewer.shown_attempt(look, NIGHT)
    assert shown is not None and shown.title == "W2 ran app-7, attempt 1"
    back, _ = pressed("shift+tab", look=look, snapshot=NIGHT)
    shown = viewer.shown_attempt(back, NIGHT)
    assert shown is not None and shown.title == "W1 runs app-1, attempt 1"


def test_what_a_chosen_attempt_is_stays_when_others_end() -> None:
    look, _ = pressed("tab", "j", snapshot=NIGHT)
    later = after(*NIGHT_RECORDS, ended("app-2", "W2"))
    shown = viewer.shown_attempt(look, later)
    assert shown is not None and shown.issue_id == "app-8"


def test_an_idle_worker_shows_what_it_ran_last_and_nothing_where_nothing_has_run() -> None:
    idle = after(*fleet(2), ended("app-9", "W1"))
    shown = viewer.shown_attempt(viewer.Look(), idle)
    assert shown is not None and shown.title == "W1 ran app-9, attempt 1"
    look, _ = pressed("down", "enter", snapshot=idle)
    assert look.pane is viewer.Pane.FLEET and "nothing has run there yet" in look.message


def test_f_shows_some_states_only_of_the_list_the_arrows_are_in() -> None:
    def listed(look: viewer.Look, part: viewer.Part) -> list[str]:
        return [viewer.key_of(part, row).split()[0] for row in viewer.rows_of(look, NIGHT, part)]

    look, _ = pressed("f", snapshot=NIGHT)
    assert listed(look, viewer.Part.WORKERS) == ["W1", "W2"]
    look, _ = pressed("f", look=look, snapshot=NIGHT)
    assert listed(look, viewer.Part.WORKERS) == ["W3", "W4"]
    look, _ = pressed("tab", "f", look=look, snapshot=NIGHT)
    assert listed(look, viewer.Part.ENDED) == ["app-8"] and listed(look, viewer.Part.WORKERS) == [
        "W3",
        "W4",
    ]
    look, _ = pressed("f", look=look, snapshot=NIGHT)
    assert listed(look, viewer.Part.ENDED) == ["app-9", "app-7"]
    look, _ = pressed("f", look=look, snapshot=NIGHT)
    assert len(listed(look, viewer.Part.ENDED)) == 3
    assert (
        viewer.rows_of(pressed("escape", look=look, snapshot=NIGHT)[0], NIGHT, viewer.Part.WORKERS)
        == (NIGHT["workers"])
    )


def test_s_puts_the_longest_first_then_the_dearest_then_names() -> None:
    def order(*keys: str) -> list[str]:
        look, _ = pressed(*keys, snapshot=COSTLY)
        return [row["worker_id"] for row in viewer.rows_of(look, COSTLY, viewer.Part.WORKERS)]

    assert order() == ["W1", "W2", "W3"]
    assert order("s") == ["W2", "W1", "W3"]
    assert order("s", "s") == ["W1", "W2", "W3"]
    assert order("s", "s", "s") == ["W1", "W2", "W3"]


def test_a_slash_shows_only_rows_with_a_text_and_every_letter_counts() -> None:
    look, _ = pressed("/", "a", "p", "p", "-", "2", snapshot=NIGHT)
    assert look.typed == "app-2" and [
        r["worker_id"] for r in viewer.rows_of(look, NIGHT, viewer.Part.WORKERS)
    ]
    look, wishes = pressed("enter", "q", look=look, snapshot=NIGHT)
    assert look.find == "app-2" and look.typed is None and wishes == [viewer.Leave()]
    assert [r["issue_id"] for r in viewer.rows_of(look, NIGHT, viewer.Part.WORKERS)] == ["app-2"]
    assert pressed("escape", look=look, snapshot=NIGHT)[0].find == ""
    typing, _ = pressed("/", "T", "backspace", "space", "p", "escape", snapshot=NIGHT)
    assert typing.typed is None and typing.find == ""


def test_keys_are_letters_while_one_types_and_ask_nothing() -> None:
    look, wishes = pressed("/", *"pxqa+-rty", "up", "tab", look=viewer.Look(viewer.Role.START))
    assert look.find == "pxqa+-rty" and not wishes and look.question is None


def test_small_letters_find_large_ones_and_large_ones_only_themselves() -> None:
    titled = after(*fleet(1, busy=1, title="Mend the Cart"))
    assert viewer.rows_of(viewer.Look(find="cart"), titled, viewer.Part.WORKERS)
    assert viewer.rows_of(viewer.Look(find="Cart"), titled, viewer.Part.WORKERS)
    assert not viewer.rows_of(viewer.Look(find="CART"), titled, viewer.Part.WORKERS)


# --- a log ---------------------------------------------------------------------------------------

LOG = viewer.ShownLog(
    "app-1.log", tuple(f"line {n}" + " error" * (n % 30 == 4) for n in range(100)), 50
)
FOLLOWED = viewer.Look(pane=viewer.Pane.LOG, log=LOG)


def test_enter_opens_a_log_and_goes_back() -> None:
    for key in ("enter", "l"):
        opened, _ = pressed(key)
        assert (
            opened.pane is viewer.Pane.LOG
            and pressed(key, look=opened)[0].pane is viewer.Pane.FLEET
        )
    back, _ = pressed("down", "l", "escape")
    assert back == viewer.Look(pane=viewer.Pane.FLEET, chosen={viewer.Part.WORKERS: "W2"})


def test_a_log_is_followed_until_one_scrolls_and_again_from_its_end_on() -> None:
    up, _ = pressed("k", look=FOLLOWED)
    assert up.log_end == 149
    more = replace(up, log=viewer.ShownLog("app-1.log", (*LOG.lines, "new"), 50))
    assert pressed("up", look=more)[0].log_end == 148, "what comes does not move it"
    assert pressed("G", look=more)[0].log_end is None
    assert pressed("down", "down", look=more)[0].log_end is None
    assert pressed("page_up", look=FOLLOWED)[0].log_end == 146
    top, _ = pressed("g", look=FOLLOWED)
    assert top.log_end == 54, "its first page"
    assert pressed("up", look=top)[0].log_end == 54


def test_a_log_is_searched_from_its_end_upwards_and_n_goes_on() -> None:
    look, _ = pressed("/", *"error", look=FOLLOWED)
    assert look.log_found == 50 + 94
    look, _ = pressed("enter", "N", look=look)
    assert look.log_found == 50 + 64 and look.log_end == 50 + 64 + 3
    assert pressed("n", look=look)[0].log_found == 50 + 94
    first, _ = pressed("N", "N", look=look)
    assert first.log_found == 50 + 4
    none, _ = pressed("N", look=first)
    assert none.log_found == 50 + 4 and "further up" in none.message
    assert "not in this log" in pressed("/", "y", look=FOLLOWED)[0].message
    assert "looks for a text" in pressed("n", look=FOLLOWED)[0].message


def test_a_short_log_does_not_scroll() -> None:
    short = viewer.Look(pane=viewer.Pane.LOG, log=viewer.ShownLog("a.log", ("one", "two")))
    assert pressed("up", "page_up", "g", look=short)[0].log_end is None


# --- what is asked of the fleet ------------------------------------------------------------------


def test_releasing_asks_first_and_does_it_only_after_a_yes() -> None:
    look, wishes = pressed("down", "x")
    assert not wishes and look.question is not None and "app-2" in look.question.text
    assert pressed("y", look=look)[1] == [viewer.Ask("bw.release", {"issue_ids": ["app-2"]})]
    for key in ("n", "escape", "q", "p", "enter"):
        stayed, wishes = pressed(key, look=look)
        assert not wishes and stayed.question is None


def test_what_does_not_run_cannot_be_released() -> None:
    for keys in (("end", "x"), ("tab", "x")):
        look, wishes = pressed(*keys)
        assert not wishes and look.question is None and "busy" in look.message


def test_r_tries_the_chosen_quarantined_issue_again_and_a_all_of_them() -> None:
    look, wishes = pressed("3", snapshot=QUARANTINE)
    assert look.pane is viewer.Pane.QUARANTINE and not wishes
    again = viewer.Ask("bw.retry", {"issue_ids": ["app-2"]})
    assert pressed("down", "down", "r", look=look, snapshot=QUARANTINE)[1] == [again]
    asked, wishes = pressed("a", look=look, snapshot=QUARANTINE)
    everything = viewer.Ask("bw.retry", {"issue_ids": ["app-1", "app-2"]})
    assert not wishes and pressed("y", look=asked, snapshot=QUARANTINE)[1] == [everything]
    assert pressed("a", look=look)[0].message == "nothing is quarantined"
    assert pressed("r", look=look)[0].message == "nothing is quarantined"
    busy = after(*fleet(2, busy=2), *QUARANTINE_RECORDS[-1:])
    assert "3 shows them" in pressed("r", snapshot=busy)[0].message
    ended_too, _ = pressed("tab", snapshot=QUARANTINE)
    assert pressed("r", look=ended_too, snapshot=QUARANTINE)[1] == [again]


def test_of_what_is_filtered_only_the_rows_that_are_seen_are_tried_again() -> None:
    look, _ = pressed("3", "/", *"app-2", "enter", "a", snapshot=QUARANTINE)
    assert pressed("y", look=look, snapshot=QUARANTINE)[1] == [
        viewer.Ask("bw.retry", {"issue_ids": ["app-2"]})
    ]


def test_a_log_opened_among_the_quarantined_leads_back_there() -> None:
    look, _ = pressed("3", "j", "enter", snapshot=QUARANTINE)
    assert look.pane is viewer.Pane.LOG
    assert viewer.shown_attempt(look, QUARANTINE) is not None
    assert pressed("escape", look=look, snapshot=QUARANTINE)[0].pane is viewer.Pane.QUARANTINE


def test_an_answer_is_typed_and_sent_with_enter() -> None:
    look, wishes = pressed("4", "i", *"use ", "space", *"q?", "backspace", snapshot=DECISIONS)
    assert not wishes and look.typed == "use  q"
    look, wishes = pressed("enter", look=look, snapshot=DECISIONS)
    assert wishes == [viewer.Ask("bw.answer", {"issue_ids": ["app-1"], "text": "use  q"})]
    assert look.typed is None and look.writing is None


def test_a_branch_is_approved_after_a_yes_at_the_commit_that_is_shown() -> None:
    commit = DECISIONS["approvals"][0]["commit"]
    look, wishes = pressed("4", "j", "v", snapshot=DECISIONS)
    assert not wishes and look.question is not None and commit[:12] in look.question.text
    assert not pressed("n", look=look, snapshot=DECISIONS)[1]
    wish = viewer.Ask("bw.approve", {"commits": {"app-2": commit}})
    assert pressed("y", look=look, snapshot=DECISIONS)[1] == [wish]


def test_a_branch_is_rejected_with_remarks_and_not_without() -> None:
    look, wishes = pressed("4", "j", "V", snapshot=DECISIONS)
    assert not wishes and look.writing is not None
    assert not pressed("enter", look=look, snapshot=DECISIONS)[1]
    assert not pressed(*"no", "escape", look=look, snapshot=DECISIONS)[1]
    wish = viewer.Ask("bw.reject", {"issue_ids": ["app-2"], "text": "too long"})
    assert pressed(*"too long", "enter", look=look, snapshot=DECISIONS)[1] == [wish]


@pytest.mark.parametrize(
    ("keys", "why"), [("ji", "i answers"), ("v", "approves"), ("V", "rejects")]
)
def test_the_keys_of_a_decision_do_nothing_on_the_other_kind(keys: str, why: str) -> None:
    look, wishes = pressed("4", *keys, snapshot=DECISIONS)
    assert not wishes and why in look.message and look.typed is None


def test_a_number_opens_its_pane_and_closes_it() -> None:
    for key, pane in (
        ("2", viewer.Pane.LANDING),
        ("3", viewer.Pane.QUARANTINE),
        ("4", viewer.Pane.DECISIONS),
        ("?", viewer.Pane.HELP),
    ):
        assert pressed(key)[0].pane is pane
        for back in (key, "1", "escape"):
            look, _ = pressed(key, back)
            assert look.pane is viewer.Pane.FLEET and look.part is viewer.Part.WORKERS


def test_t_wishes_for_other_colours() -> None:
    assert pressed("t")[1] == [viewer.OtherTheme()]
    assert pressed("t", look=viewer.Look(viewer.Role.REPLAY))[1] == [viewer.OtherTheme()]
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
    look, wishes = pressed("q", look=viewer.Look(viewer.Role.START))
    assert look.question is not None and not wishes
    assert pressed(key, look=look)[1] == ([wish] if wish else [])


def test_whoever_only_watches_leaves_at_once() -> None:
    assert pressed("q")[1] == [viewer.Leave()]
    assert pressed("q", look=viewer.Look(viewer.Role.REPLAY))[1] == [viewer.Leave()]
    over = after(rec.RunEnded(0, "idle_timeout"))
    assert pressed("q", look=viewer.Look(viewer.Role.START), snapshot=over)[1] == [viewer.Leave()]


def test_a_replay_is_held_and_sped_up_and_asks_nothing_of_a_fleet() -> None:
    wishes = pressed("space", "+", "-", "r", "x", "a", "l", look=viewer.Look(viewer.Role.REPLAY))[1]
    assert wishes == [viewer.Faster(0.0), viewer.Faster(2.0), viewer.Faster(0.5)]


@given(
    st.lists(
        st.sampled_from(
            ["up", "down", "page_up", "page_down", "left", "right", "home", "end", "enter",
             "escape", "tab", "p", "+", "-", "l", "r", "k", "q", "?", "a", "y", "n", "s", "ü", "x",
             "w", "1", "2", "3", "j", "g", "G", "N", "f", "t", "/", "backspace", "space"]
        ),
        max_size=40,
    ),
    st.sampled_from(list(viewer.Role)),
    st.sampled_from([BUSY, QUARANTINE, after()]),
)  # fmt: skip
def test_no_keys_break_the_view_or_take_anything_away_unasked(
    keys: list[str], role: viewer.Role, snapshot: dict[str, Any]
) -> None:
    look = viewer.Look(role)
    for key in keys:
        before = look.question
        look, wish = bindings.press(look, key, snapshot)
        look = replace(look, log=LOG if look.pane is viewer.Pane.LOG else None)
        if isinstance(wish, viewer.Ask) and wish.control in ("bw.release", "bw.stop"):
            assert before is not None, "asked first"
        assert role is not viewer.Role.REPLAY or not isinstance(wish, viewer.Ask)
    assert replace(look, question=None) is not look


@pytest.mark.parametrize(("key", "said"), [(":", ": does nothing here"), ("a", "3 shows it")])
def test_a_key_that_does_nothing_says_so_and_changes_nothing(key: str, said: str) -> None:
    look, wish = bindings.press(viewer.Look(), key, BUSY)
    assert wish is None and said in look.message
    assert replace(look, message="") == viewer.Look()
