"""The histories of runs and of nights, read from their journals."""

from __future__ import annotations

import re
import time

from beads_workers.core.base.times import parse_duration
from beads_workers.core.views.history import History, fold
from beads_workers.core.views.nights import night, with_found
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_UNKNOWN, EXIT_USAGE
from beads_workers.runtime.journal_file import read_journal
from beads_workers.runtime.night import runs_of_night
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.ui.time_text import moment


def read_night(
    directory: RunDirectory, run_id: str, since: str | None = None, about: str = ""
) -> History:
    """Return the history of the night of this run, or of all runs ``since`` then.

    ``about``: as in ``read_run``.
    """
    if since is not None:
        return night(_since(directory, since))
    return night([read_run(directory, each, about) for each in runs_of_night(directory, run_id)])


def read_run(directory: RunDirectory, run_id: str, about: str = "") -> History:
    """Return the history of a run, also while it runs; raise ``CommandError`` without one.

    What later runs found out about it is not in it. ``about``: only this issue and its attempts
    are wanted; of all else there is only a part.
    """
    info = directory.read_info()
    # The lock before the journal: a run that lives now may still write, but not the reverse.
    alive = info is not None and info.run_id == run_id and directory.is_locked()
    history = fold(
        read_journal(directory.run(run_id) / "journal.jsonl", about),
        alive=alive,
        now=time.time(),
        settled=directory.is_settled(run_id),
    )
    if history is None:
        raise CommandError(f"run {run_id} has not written anything", "", EXIT_UNKNOWN)
    return history


def read_history(directory: RunDirectory, run_id: str) -> History:
    """Return the history of a run, with the usage that later runs found of its attempts."""
    history = read_run(directory, run_id)
    if all(attempt.receipt for attempt in history.attempts if attempt.agent):
        return history
    later = [each for each in directory.run_ids() if each > run_id and directory.beginning(each)]
    return with_found(history, [read_run(directory, each) for each in later])


def _since(directory: RunDirectory, text: str) -> list[History]:
    """Return the runs that went on at this time or later; raise ``CommandError`` without one."""
    at = _time(text)
    found: list[History] = []
    for run_id in reversed(directory.run_ids()):
        if directory.beginning(run_id) is None:
            continue
        run = read_run(directory, run_id)
        if run.began_at + run.seconds < at:
            break
        found.insert(0, run)
    if not found:
        when = moment(at, seconds=False)
        raise CommandError(f"nothing has run since {when}", "beads-workers runs", EXIT_UNKNOWN)
    return found


def _time(text: str) -> float:
    """Return the last time of this clock, or so long ago, in epoch seconds."""
    now = time.time()
    clock = re.fullmatch(r"(\d{1,2}):(\d\d)", text)
    try:
        if clock is None:
            return now - parse_duration(text)
        here = time.localtime(now)
        at = time.mktime((*here[:3], int(clock[1]), int(clock[2]), 0, 0, 0, -1))
        if int(clock[1]) < 24 and int(clock[2]) < 60:
            # Not 24 hours: days may have 23 or 25.
            yesterday = (here[0], here[1], here[2] - 1)
            past = (*yesterday, int(clock[1]), int(clock[2]), 0, 0, 0, -1)
            return at if at <= now else time.mktime(past)
    except (ValueError, OverflowError):
        pass
    raise CommandError(f"{text!r} is no time", "22:00 on the clock, or 10h ago", EXIT_USAGE)
