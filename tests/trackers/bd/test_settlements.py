"""What a settlement means for an issue as it was seen: every status, every holder, every action."""

from __future__ import annotations

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, Result, Settlement
from beads_workers.trackers.bd.settlements import ConditionalWrite, decide
from beads_workers.trackers.bd.tracker import BdRow, held_by

US = "beads-workers/host/run-1"
W3, ALICE, NOBODY = f"{US}/W3", "alice", ""
KEY = IssueId("bw-1")

WRITE, DONE, CLOSED, LEAVE = "write", Result.APPLIED, Result.FOUND_CLOSED, Result.NOT_OURS
C, R, S, H, O, M = (  # noqa: E741 - one letter each keeps the table readable
    Action.CLOSE,
    Action.RELEASE,
    Action.QUARANTINE,
    Action.HAND_OVER,
    Action.REOPEN,
    Action.CONFIRM,
)

TABLE: dict[tuple[str, str], dict[Action, object]] = {
    ("in_progress", US): {C: WRITE, R: WRITE, S: WRITE, H: WRITE, O: WRITE, M: DONE},
    ("in_progress", W3): {C: WRITE, R: WRITE, S: WRITE, H: WRITE, O: WRITE, M: DONE},
    ("in_progress", NOBODY): {C: WRITE, R: LEAVE, S: LEAVE, H: DONE, O: LEAVE, M: LEAVE},
    ("in_progress", ALICE): {C: LEAVE, R: LEAVE, S: LEAVE, H: LEAVE, O: LEAVE, M: LEAVE},
    ("in_progress", f"{US}0"): {C: LEAVE, R: LEAVE, S: LEAVE, H: LEAVE, O: LEAVE, M: LEAVE},
    ("open", US): {C: WRITE, R: WRITE, S: WRITE, H: LEAVE, O: WRITE, M: DONE},
    ("open", NOBODY): {C: WRITE, R: DONE, S: WRITE, H: LEAVE, O: DONE, M: LEAVE},
    ("open", ALICE): {C: LEAVE, R: LEAVE, S: LEAVE, H: LEAVE, O: LEAVE, M: LEAVE},
    ("blocked", NOBODY): {C: LEAVE, R: LEAVE, S: DONE, H: LEAVE, O: WRITE, M: LEAVE},
    ("blocked", ALICE): {C: LEAVE, R: LEAVE, S: LEAVE, H: LEAVE, O: LEAVE, M: LEAVE},
    ("deferred", US): {C: LEAVE, R: LEAVE, S: LEAVE, H: LEAVE, O: LEAVE, M: LEAVE},
    ("closed", US): {C: CLOSED, R: CLOSED, S: CLOSED, H: CLOSED, O: CLOSED, M: DONE},
    ("closed", ALICE): {C: CLOSED, R: CLOSED, S: CLOSED, H: CLOSED, O: CLOSED, M: LEAVE},
}
for row in TABLE.values():
    row[Action.ASK] = row[S]


def seen(status: str, assignee: str) -> BdRow:
    return BdRow(KEY, "title", status, assignee, 2, "task", (), "", "old notes", {})


def verdict(settlement: Settlement, row: BdRow | None) -> object:
    decided = decide(settlement, row, US)
    if isinstance(decided, ConditionalWrite):
        assert row is not None
        assert (decided.status, decided.assignee, decided.notes) == (
            row.status,
            row.assignee,
            "old notes",
        )
        return WRITE
    assert bool(decided.error) == (decided.result is LEAVE)
    return decided.result


@pytest.mark.parametrize(("status", "assignee"), TABLE)
def test_every_case_is_decided_on_purpose(status: str, assignee: str) -> None:
    row = seen(status, assignee)
    decided = {a: verdict(Settlement(a, KEY, read_first=True), row) for a in Action}
    # What waits for its branch to land is blocked like what is quarantined.
    assert decided.pop(Action.SHELVE) == decided[S]
    assert decided == TABLE[status, assignee]


def test_what_was_shelved_may_land_though_it_is_blocked_in_nobodys_name() -> None:
    shelved = Settlement(M, KEY, read_first=True, by_agent=True, shelved=True)
    assert verdict(shelved, seen("blocked", NOBODY)) == DONE
    for other in (("blocked", ALICE), ("open", NOBODY), ("closed", NOBODY)):
        assert verdict(shelved, seen(*other)) == LEAVE


def test_what_was_shelved_is_closed_though_it_is_blocked_in_nobodys_name() -> None:
    shelved = Settlement(C, KEY, read_first=True, shelved=True)
    assert verdict(shelved, seen("blocked", NOBODY)) == WRITE
    assert verdict(shelved, seen("blocked", ALICE)) == LEAVE


@pytest.mark.parametrize("action", [C, R, S, O])
def test_what_was_handed_over_is_ours_in_nobodys_name(action: Action) -> None:
    handed_over = Settlement(action, KEY, read_first=True, handed_over=True)
    assert verdict(handed_over, seen("in_progress", NOBODY)) == WRITE
    assert verdict(handed_over, seen("in_progress", ALICE)) == LEAVE


def test_what_a_living_run_holds_is_not_reopened_under_its_hands() -> None:
    for holder in (US, W3):
        assert verdict(Settlement(Action.REOPEN, KEY), seen("in_progress", holder)) == LEAVE


@pytest.mark.parametrize("action", Action)
def test_what_is_gone_is_left_alone(action: Action) -> None:
    assert verdict(Settlement(action, KEY), None) == LEAVE


def test_a_run_is_not_mistaken_for_one_whose_name_begins_alike() -> None:
    assert held_by(US, US) and held_by(W3, US)
    assert not held_by(f"{US}0", US) and not held_by("", US)
