"""When a worktree may go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from beads_workers.worktrees.removal import Found, reasons_to_keep

WORK = {
    "changes": ("a.py",),
    "operation": "a rebase",
    "stashes": 1,
    "commits": 2,
    "branch_used_at": "/review",
    "submodules": True,
    "locked": "mine",
    "trouble": "cannot look at it",
    "in_use": True,
}


def test_one_in_which_nothing_was_found_may_go() -> None:
    assert reasons_to_keep(Found()) == ()


@pytest.mark.parametrize("name", WORK)
def test_each_thing_alone_keeps_it(name: str) -> None:
    assert len(reasons_to_keep(replace(Found(), **{name: WORK[name]}))) == 1


def test_before_any_task_only_its_changes_do_not_keep_it() -> None:
    unprepared = Found(prepared=False)
    assert reasons_to_keep(replace(unprepared, changes=("half", "made"))) == ()
    assert reasons_to_keep(replace(unprepared, commits=1)) == ("1 commit on no other branch",)


def test_all_reasons_are_said_and_files_are_counted() -> None:
    found = Found(changes=("a", "b", "c", "d"), commits=2, stashes=2, locked="")
    assert reasons_to_keep(found) == (
        "locked by 'git worktree lock'",
        "2 commits on no other branch",
        "4 changes not committed: a, b, c, ...",
        "2 stashes",
    )
