"""Promises of a fleet whatever is killed, checked in tracker, journals, task log and /proc."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from beads_workers.chaos import landed
from beads_workers.chaos.account import ChaosAccount, TaskLog, unasked
from beads_workers.chaos.injector import KillTally, TargetProcess, Targets
from beads_workers.chaos.workspace import ChaosWorkspace
from beads_workers.cli.throwaway import Promise

LEAVE_SECONDS = 2.0
"""Time for processes to be gone after the end of the orchestrator; those left then are orphans."""
LOOK_SECONDS = 0.02


def prove(
    workspace: ChaosWorkspace,
    targets: Targets,
    tally: KillTally,
    account: ChaosAccount,
    log: TaskLog,
    *,
    self_claiming: bool,
) -> list[Promise]:
    """Return every promise, kept or broken; call this when no orchestrator runs any more.

    ``self_claiming``: workers close issues themselves, so the tracker may have closes that no
    journal has.
    """
    left = _left_over(targets)
    statuses, closings = workspace.tracker.statuses(), workspace.tracker.closings()
    by_workers = log.done if self_claiming else Counter[str]()
    found = [*_promises(workspace, tally, account, log, statuses, closings, left, by_workers)]
    if workspace.landing:
        history = landed.read_history(workspace.project, workspace.folder / "green.jsonl")
        found += landed.promises(account, statuses, history)
    return found


def _promises(
    workspace: ChaosWorkspace,
    tally: KillTally,
    account: ChaosAccount,
    log: TaskLog,
    statuses: dict[str, str],
    closings: dict[str, int] | None,
    left: list[TargetProcess],
    by_workers: Counter[str],
) -> Iterator[Promise]:
    yield Promise("every start came to its end, and all work was done", tuple(tally.troubles))
    yield Promise(
        "every issue is closed, or quarantined after its last attempt",
        tuple(unsound(account, statuses, tally.issues, by_workers)),
    )
    yield Promise("none was closed twice", tuple(_closed_twice(account, statuses, closings)))
    yield Promise("every closed one was really done", tuple(_undone(log, statuses)))
    yield Promise("none was run again once its success was on file", tuple(account.run_again))
    yield Promise("no command ran that no journal names", tuple(unasked(account, log)))
    yield Promise("none was in two hands at once", (*account.at_once, *log.overlaps))
    yield Promise(
        "attempts were charged for failed tasks and killed workers only", tuple(account.charges)
    )
    yield Promise(
        "no process is left", tuple(f"pid {process.pid} ({process.name})" for process in left)
    )
    yield Promise("no socket and no lock is left", tuple(_leftovers(workspace, account)))


def unsound(
    account: ChaosAccount, statuses: dict[str, str], issues: int, by_workers: Counter[str]
) -> Iterator[str]:
    """Yield issues that have not ended, or whose end is not accounted for.

    ``by_workers``: number of successful commands by issue, if workers close issues themselves.
    """
    if len(statuses) != issues:
        yield f"{issues} issues were added, and {len(statuses)} are there"
    for issue_id, status in statuses.items():
        life = account.lives[issue_id]
        if status == "closed" and (life.done or by_workers[issue_id]):
            continue
        spent = life.charged == account.cap or bool(life.refused)
        if status == "blocked" and life.verdict == "quarantined" and spent:
            continue
        yield (
            f"{issue_id} is {status} after {life.charged} charged attempts"
            f" ({', '.join(life.outcomes[-6:]) or 'none'})"
        )


def _closed_twice(
    account: ChaosAccount, statuses: dict[str, str], closings: dict[str, int] | None
) -> Iterator[str]:
    for issue_id, life in account.lives.items():
        if life.closes > 1:
            yield f"{issue_id}: {life.closes} closes in the journals"
    for issue_id, status in statuses.items() if closings is not None else ():
        count = (closings or {}).get(issue_id, 0)
        if count != (status == "closed"):
            yield f"{issue_id} is {status}, and became closed {count} times"


def _undone(log: TaskLog, statuses: dict[str, str]) -> Iterator[str]:
    for issue_id, status in statuses.items():
        if status == "closed" and not log.done[issue_id]:
            yield issue_id


def _left_over(targets: Targets) -> list[TargetProcess]:
    limit = time.monotonic() + LEAVE_SECONDS
    while (left := targets.everybody()) and time.monotonic() < limit:
        time.sleep(LOOK_SECONDS)
    return left


def _leftovers(workspace: ChaosWorkspace, account: ChaosAccount) -> Iterator[str]:
    for path in sorted(set(account.sockets)):
        if path and Path(path).exists():
            yield path
    if workspace.state.is_locked():
        yield "the lock of the run directory is held"
    for run_id in workspace.state.run_ids():
        if workspace.state.is_alive(run_id):
            yield f"{run_id} is alive"
        if run_id in account.run_ids and not workspace.state.is_settled(run_id):
            yield f"{run_id} is not settled"
