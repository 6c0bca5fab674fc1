"""Abandoned claims: claims of runs that left no journal here, found in the tracker and given back.

The next start settles a crashed run from its journal. If the journal is gone, or the run was on
another machine, only the tracker shows what the run held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from beads_workers.core.base.model import FLEETS, IssueId, value
from beads_workers.core.base.source import CrashedRun, HeldElsewhere, Settled, Source
from beads_workers.core.views.recovery import host_of
from beads_workers.runtime import sessions
from beads_workers.runtime.run_directory import RunDirectory, host_name

CRASHED = "a crashed run, which the next start settles"
"""``RunClaims.living`` of a run of this machine whose journal has more to say."""


@value
class RunClaims:
    """Claims that one run of beads-workers holds. ``living``: why they must not be touched; empty
    if the run is over, or if this machine cannot tell (``elsewhere``: a run of another machine)."""

    actor: str
    issue_ids: tuple[IssueId, ...]
    living: str = ""
    elsewhere: bool = False


def claims_of_runs(
    held: Iterable[HeldElsewhere], directory: RunDirectory, tracker_folder: Path
) -> list[RunClaims]:
    """Return the claims that the tracker shows in the name of any run of beads-workers, by run."""
    by_actor: dict[str, list[IssueId]] = {}
    for each in (each for each in held if each.actor.startswith(FLEETS)):
        by_actor.setdefault(each.actor, []).append(each.issue_id)
    if not by_actor:
        return []
    unsettled = {left.run_id for left in directory.left_over()[0]}
    found = []
    for actor, issue_ids in by_actor.items():
        elsewhere = host_of(actor) != host_name()
        living = "" if elsewhere else _living(actor, directory, unsettled, tracker_folder)
        found.append(RunClaims(actor, tuple(issue_ids), living, elsewhere))
    return found


def _living(
    actor: str, directory: RunDirectory, unsettled: Collection[str], tracker_folder: Path
) -> str:
    run_id = actor.rsplit("/", 1)[1]
    info = directory.read_info() if directory.is_locked() else None
    if info is not None and info.run_id == run_id:
        return "the fleet that runs here"
    if (directory.run(run_id)).is_dir() and directory.is_alive(run_id):
        return "a run of which processes still live"
    if pids := sessions.token_holders(run_id):
        return f"a run of which processes still live ({' '.join(map(str, pids[:5]))})"
    if run_id in unsettled:
        return CRASHED
    ours = info.pid if info is not None else None
    open_there = [p.pid for p in sessions.owners(tracker_folder) if p.pid != ours]
    others = [pid for pid in open_there if sessions.is_orchestrator(pid)]
    if others and not directory.run(run_id).is_dir():
        return f"perhaps the orchestrator with another run directory (pid {others[0]})"
    return ""


def give_back(source: Source, claims: RunClaims, issue_ids: Sequence[IssueId]) -> list[Settled]:
    """Requeue these issues, in the name of the run that holds them. Raises ``SourceError``."""
    kept = tuple(each for each in claims.issue_ids if each not in issue_ids)
    return source.recover(CrashedRun(claims.actor, kept=kept))
