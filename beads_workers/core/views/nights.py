"""The history of a night: the sum of the histories of its runs.

``History`` tells of one run what happened to attempts, issues and workers. A night has the same
fields: its times count from its first run, an issue has the attempts of all runs and the last of
its fates. So all that is concluded from a run (``ui.findings``) and all that shows it hold for a
night, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from beads_workers.core.records.journal import Resumed
from beads_workers.core.views.history import (
    Attempt,
    Fate,
    History,
    Interval,
    IssueHistory,
    LandingHistory,
    Note,
    WorkerSpan,
)
from beads_workers.core.views.landing_board import LandingBoard

Timed = TypeVar("Timed", Attempt, WorkerSpan, Interval)


def with_found(run: History, later: Iterable[History]) -> History:
    """Return the history of a run with the usage that later runs found of its attempts."""
    found = {request_id: each for other in later for request_id, each in other.found.items()}
    if not found:
        return run
    attempts = tuple(a.with_usage(found.get(a.request_id)) for a in run.attempts)
    return replace(run, attempts=attempts)


def night(runs: Sequence[History]) -> History:
    """Return the sum of these runs, oldest first; ``runs`` of it has them. At least one is given.

    What a night has only one of (its state, the budget, the number of workers) is the last run's.
    """
    runs = [with_found(run, runs[number + 1 :]) for number, run in enumerate(runs)]
    first, last = runs[0], runs[-1]
    if first is last:
        return replace(last, runs=(last,))
    shifted = [(run, run.began_at - first.began_at) for run in runs]
    issues: dict[str, IssueHistory] = {}
    for run, offset in shifted:
        for issue in run.issues:
            _add_issue(issues, issue, offset)
    dropped = [run.dropped for run in runs if run.dropped is not None]
    return replace(
        last,
        began_at=first.began_at,
        seconds=last.began_at + last.seconds - first.began_at,
        settled=all(run.settled for run in runs),
        attempts=tuple(_moved(a, offset) for run, offset in shifted for a in run.attempts),
        workers=tuple(_ended(w, run, offset) for run, offset in shifted for w in run.workers),
        issues=tuple(issues.values()),
        outages=tuple(_ended(i, run, offset) for run, offset in shifted for i in run.outages),
        pauses=tuple(_ended(i, run, offset) for run, offset in shifted for i in run.pauses),
        waits=tuple(_ended(i, run, offset) for run, offset in shifted for i in run.waits),
        limits=tuple(_ended(i, run, offset) for run, offset in shifted for i in run.limits),
        notes=tuple(Note(n.at + offset, n.level, n.text) for r, offset in shifted for n in r.notes),
        tracker_calls=sum(run.tracker_calls for run in runs),
        tracker_seconds=sum(run.tracker_seconds for run in runs),
        landing=_landing(shifted),
        dropped=_sum_dropped(dropped) if dropped else None,
        dropped_seconds=sum(run.dropped_seconds for run in runs),
        runs=tuple(runs),
    )


def _moved(one: Timed, offset: float) -> Timed:
    """Return it with the times of a night that began ``offset`` seconds earlier than its run."""
    ended = None if one.ended is None else one.ended + offset
    return replace(one, began=one.began + offset, ended=ended)


def _ended(one: Timed, run: History, offset: float) -> Timed:
    """Return it with the times of the night; nothing of a run lasts longer than the run."""
    return _moved(replace(one, ended=run.seconds) if one.ended is None else one, offset)


def _add_issue(issues: dict[str, IssueHistory], one: IssueHistory, offset: float) -> None:
    later = replace(
        one,
        closed=None if one.closed is None else one.closed + offset,
        landing=_moved_landing(one.landing, offset),
    )
    before = issues.get(one.issue_id)
    if before is None:
        issues[one.issue_id] = later
        return
    # A run that only remembers an issue may settle what the run before it did.
    keeps = one.earlier and before.fate in (Fate.CLOSED, Fate.NOT_OURS)
    issues[one.issue_id] = replace(
        later,
        title=later.title or before.title,
        fate=before.fate if keeps else later.fate,
        attempts=before.attempts + later.attempts,
        charged=before.charged if keeps else later.charged,
        seconds=before.seconds + later.seconds,
        error=later.error or before.error,
        closed=before.closed if later.closed is None else later.closed,
        earlier=before.earlier and later.earlier,
        landing=_later_landing(before.landing, later.landing),
    )


def _moved_landing(one: LandingHistory | None, offset: float) -> LandingHistory | None:
    if one is None or one.landed is None:
        return one
    return replace(one, landed=one.landed + offset)


def _later_landing(
    before: LandingHistory | None, later: LandingHistory | None
) -> LandingHistory | None:
    if before is None or later is None:
        return later or before
    return replace(
        later if later.commit or later.refused or not before.commit else before,
        branch=later.branch or before.branch,
        repairs=before.repairs + later.repairs,
        refused=before.refused + later.refused,
        error=later.error or before.error,
        gate_runs=before.gate_runs + later.gate_runs,
        gate_seconds=before.gate_seconds + later.gate_seconds,
    )


def _landing(shifted: Iterable[tuple[History, float]]) -> LandingBoard | None:
    """Return the sums of the landings of all runs; None if nothing was to land."""
    found = [(run.landing, offset) for run, offset in shifted if run.landing is not None]
    if not found:
        return None
    total = LandingBoard()
    for board, offset in found:
        for each in fields(LandingBoard):
            if each.type == "int":
                setattr(total, each.name, getattr(total, each.name) + getattr(board, each.name))
        for state, count in board.gates.items():
            total.gates[state] = total.gates.get(state, 0) + count
        total.gate_seconds += board.gate_seconds
        total.branch, total.tip = board.branch or total.branch, board.tip or total.tip
        total.into = board.into or total.into
        total.running = {k: (gate, at + offset) for k, (gate, at) in board.running.items()}
        total.last.extend(board.last)
    return total


def _sum_dropped(dropped: Sequence[Resumed]) -> Resumed:
    *_, last = dropped
    names = [each.name for each in fields(Resumed) if each.type == "int" and each.name != "segment"]
    return replace(last, **{name: sum(getattr(each, name) for each in dropped) for name in names})
