"""The night that a start goes on with, and its budget."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from beads_workers.checks.rules import Check, fail
from beads_workers.core.base.budget import Budget
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.base.text import counted
from beads_workers.exits import EXIT_UNFINISHED
from beads_workers.runtime.night import night_so_far, unread
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.ui.lines import another_night, with_budget
from beads_workers.ui.time_text import moment
from beads_workers.worktrees.git import is_ancestor
from beads_workers.worktrees.landed import branches_with


def found(state: Path, folder: Path, gap_seconds: float) -> NightSoFar:
    """Return the night that a start goes on with now."""
    is_merged = partial(_is_merged, str(folder))
    try:
        return night_so_far(RunDirectory(state), gap_seconds, time.time(), is_merged)
    except OSError:
        return NightSoFar()  # The conditions of the run directory say what is wrong with it.


def _is_merged(folder: str, landing: Mapping[str, Any]) -> bool:
    """Return whether the user's branch has by a person's merge what a run landed."""
    into = landing["into"]
    if into is not None and not into["reason"]:
        return False  # The fleet moves the user's branch by itself.
    name = landing["branch"].partition("/")[2]
    merged = is_ancestor(folder, landing["tip"], f"refs/heads/{name}")
    # A branch that was merged is usually deleted, or renamed: then any other one has the work.
    return bool(branches_with(folder, landing["tip"])) if merged is None else merged


def spent(state: Path, budget: Budget, night: NightSoFar) -> Check | None:
    """Refuse a budget that the earlier runs of the night have spent, also if a killed run did not
    come to count it."""
    if budget.per_run or not night.first:
        return None
    more = unread(RunDirectory(state), night)
    money, tokens = night.money + more[0], night.tokens + more[1]
    if not budget.is_spent(money, tokens):
        return None
    runs = counted(night.runs, "run")
    used = budget.used(money, tokens)
    argv = sys.argv[1:]
    higher, another = with_budget(argv, budget.doubled()), another_night(argv)
    return fail(
        "budget",
        f"{used} of {budget} is spent, by {runs} of the night since {since(night)}",
        hint=f"'{higher}' gives this night more; '{another}' begins another",
        exit_code=EXIT_UNFINISHED,
    )


def since(night: NightSoFar) -> str:
    """Return when the night began, without seconds."""
    return moment(night.began_at, seconds=False)
