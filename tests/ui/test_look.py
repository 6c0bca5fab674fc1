"""Keys: what each changes in the view, and what it asks of the fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core import journal as rec
from beads_workers.ui.viewer import (
    Ask,
    Detach,
    Faster,
    Leave,
    Look,
    Pane,
    Role,
    Wish,
    chosen_worker,
    press,
)
from tests.ui.snapshots import after, ended, fleet

BUSY = after(*fleet(10, busy=2))
QUARANTINE = after(
    *fleet(2, busy=2),
    ended("app-1", outcome="error", verdict="quarantined", charged=3, error="no"),
    ended("app-2", "W2", outcome="error", verdict="quarantined", charged=3, error="no"),
)


def pressed(
    *keys: str, look: Look | None = None, snapshot: dict[str, Any] = BUSY
) -> tuple[Look, list[Wish]]:
    """The view after these keys, and all that was asked."""
    look, wishes = look or Look(), []
    for key in keys:
        look, wish = press(look, key, snapshot, page_rows=4)
        wishes += [] if wish is None else [wish]
    return look, wishes


def test_p_pauses_and_resumes_what_is_paused() -> None:
    assert pressed("p")[1] == [Ask("bw.pause")]
    paused = after(rec.RunChanged("paused"))
    assert pressed("p", snapshot=paused)[1] == [Ask("bw.resume")]


def test_plus_and_minus_count_our_own_workers_only() -> None:
    foreign = after(*fleet(2), rec.WorkerJoined("W3", 77, "their-name", own=False))
    assert pressed("+", "-", snapshot=foreign)[1] == [
        Ask("bw.scale", {"workers": 3}),
        Ask("bw.scale", {"workers": 1}),
    ]
    assert pressed("-", snapshot=after())[1] == [Ask("bw.scale", {"workers": 0})]


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
    assert look.chosen == chosen and not wishes
    found = chosen_worker(look, BUSY)
    assert found is not None and found["worker_id"] == chosen


def test_a_chosen_worker_that_is_gone_is_replaced_by_the_first() -> None:
    found = chosen_worker(Look(chosen="W77"), BUSY)
    assert found is not None and found["worker_id"] == "W1"
    assert chosen_worker(Look(chosen="W1"), after()) is None


def test_taking_away_asks_first_and_does_it_only_after_a_yes() -> None:
    look, wishes = pressed("down", "k")
    assert not wishes and look.question is not None and "app-2" in look.question.text
    assert pressed("y", look=look)[1] == [Ask("bw.release", {"issue_ids": ["app-2"]})]
    for key in ("n", "escape", "q", "p", "enter"):
        stayed, wishes = pressed(key, look=look)
        assert not wishes and stayed.question is None


def test_an_idle_worker_has_nothing_to_release() -> None:
    look, wishes = pressed("end", "k")
    assert not wishes and look.question is None and "busy" in look.message


def test_l_follows_a_log_and_goes_back() -> None:
    assert pressed("l")[0].pane is Pane.LOG
    assert pressed("l", "l")[0].pane is Pane.FLEET
    assert pressed("l", "down", "escape")[0] == Look(pane=Pane.FLEET, chosen="W2")


def test_r_shows_what_is_quarantined_and_enter_tries_the_chosen_one_again() -> None:
    look, wishes = pressed("r", snapshot=QUARANTINE)
    assert look.pane is Pane.QUARANTINE and not wishes
    again = Ask("bw.retry", {"issue_ids": ["app-2"]})
    assert pressed("down", "down", "enter", look=look, snapshot=QUARANTINE)[1] == [again]
    everything = Ask("bw.retry", {"issue_ids": ["app-1", "app-2"]})
    assert pressed("a", look=look, snapshot=QUARANTINE)[1] == [everything]
    assert pressed("a", look=look)[0].message == "nothing is quarantined"


@pytest.mark.parametrize(
    ("key", "wish"),
    [("s", Ask("bw.stop")), ("d", Ask("bw.stop", {"drain": True})), ("b", Detach()), ("n", None)],
)
def test_where_the_fleet_was_started_leaving_asks_how(key: str, wish: Wish | None) -> None:
    look, wishes = pressed("q", look=Look(Role.START))
    assert look.question is not None and not wishes
    assert pressed(key, look=look)[1] == ([wish] if wish else [])


def test_whoever_only_watches_leaves_at_once() -> None:
    assert pressed("q")[1] == [Leave()]
    assert pressed("q", look=Look(Role.REPLAY))[1] == [Leave()]
    over = after(rec.RunEnded(0, "idle_timeout"))
    assert pressed("q", look=Look(Role.START), snapshot=over)[1] == [Leave()]


def test_a_replay_is_held_and_sped_up_and_asks_nothing_of_a_fleet() -> None:
    wishes = pressed("space", "+", "-", "r", "k", "l", look=Look(Role.REPLAY))[1]
    assert wishes == [Faster(0.0), Faster(2.0), Faster(0.5)]


@given(
    st.lists(
        st.sampled_from(
            ["up", "down", "page_up", "page_down", "left", "right", "home", "end", "enter",
             "escape", "tab", "p", "+", "-", "l", "r", "k", "q", "?", "a", "y", "n", "s", "ü"]
        ),
        max_size=30,
    ),
    st.sampled_from(list(Role)),
    st.sampled_from([BUSY, QUARANTINE, after()]),
)  # fmt: skip
def test_no_keys_break_the_view_or_take_anything_away_unasked(
    keys: list[str], role: Role, snapshot: dict[str, Any]
) -> None:
    look = Look(role)
    for key in keys:
        before = look.question
        look, wish = press(look, key, snapshot)
        if isinstance(wish, Ask) and wish.control in ("bw.release", "bw.stop"):
            assert before is not None, "asked first"
        assert role is not Role.REPLAY or not isinstance(wish, Ask)
    assert replace(look, question=None) is not look
