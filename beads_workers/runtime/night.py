"""The night of a run, from the files of all runs: which runs are in it, and what they leave.

Each run notes the night that it goes on with in its first record. A run of an earlier version has
none, and is a night of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.night import NightSoFar
from beads_workers.runtime.endings import how_it_ended
from beads_workers.runtime.run_directory import RunDirectory


def runs_of_night(directory: RunDirectory, run_id: str) -> list[str]:
    """Return the last runs of the night of this run, oldest first; a start that was refused is in
    none.

    A run that has not begun is a night of its own.
    """
    first = _first(directory, run_id)
    # The night has the name of its first run, and the names of runs are in their order.
    later = [each for each in directory.run_ids() if first is not None and each >= first]
    last = later[-limits.NIGHT_RUNS_MAX :]
    return [each for each in last if _first(directory, each) == first] or [run_id]


def _first(directory: RunDirectory, run_id: str) -> str | None:
    """Return the first run of the night of this run; None if it has not begun."""
    began = directory.beginning(run_id)
    return None if began is None else began.night.first or run_id


def night_so_far(
    directory: RunDirectory,
    gap_seconds: float,
    now: float,
    is_merged: Callable[[Mapping[str, Any]], bool],
) -> NightSoFar:
    """Return what a run that starts ``now`` goes on with; a new night if the last one is over.

    ``gap_seconds``: this long without a run, and the night is over. ``is_merged``: whether what a
    run landed, as its ending tells, has been merged by a person.
    """
    last = directory.last_run()
    ending = how_it_ended(directory.run(last)) if last else None
    if ending is None or directory.is_told(last) or now - ending["ended_at"] > gap_seconds:
        return NightSoFar()
    run_ids = runs_of_night(directory, last)
    for run_id in reversed(run_ids):
        before = how_it_ended(directory.run(run_id))
        landing = before["landing"] if before is not None else None
        if landing is not None and landing["landed"]:
            if is_merged(landing):
                return NightSoFar()
            break
    night = ending["night"]
    spent = night["spent_usd"], night["tokens"], night["cut_attempts"]
    closed = night.get("closed", 0)
    return NightSoFar(night["first"], night["runs"], night["began_at"], *spent, closed)


def unread(directory: RunDirectory, night: NightSoFar) -> tuple[float, int]:
    """Return the dollars and tokens that killed runs of this night used beyond ``night``: nobody
    has read them yet, from spooled results and from what agents wrote down. The recovery of the
    next run counts them."""
    # Imported here: only a start with a budget, after a killed run, comes here.
    from beads_workers.core.records.journal import Finished
    from beads_workers.runtime.result_spool import replay_results
    from beads_workers.runtime.usage_file import usage_read

    unsettled, last = directory.left_over()
    money, tokens = 0.0, 0
    for left in (each for each in unsettled if each.run_id >= night.first):
        folder = directory.run(left.run_id)
        ends = [entry.record for entry in replay_results(left, folder).values()]
        found = [(e.issue_id, e.request_id, e.receipt) for e in ends if isinstance(e, Finished)]
        read = (usage_read(folder, each) for each in left.unread)
        found += [(each.issue_id, each.request_id, each.receipt) for each in read if each]
        for issue_id, request_id, receipt in found:
            if receipt is not None and not last.issues.is_counted(issue_id, request_id):
                money += receipt.money or 0.0
                tokens += receipt.tokens.total
    return money, tokens
