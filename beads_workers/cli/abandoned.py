"""``release`` without a fleet: open issues again that are in progress in no living run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from beads_workers.cli.tracker_access import open_tracker
from beads_workers.cli.trust import refuse_hooks
from beads_workers.cli.why import Scheduler
from beads_workers.core.base.model import FLEETS, IssueId
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import (
    Action,
    ClaimingSource,
    Result,
    Settled,
    Settlement,
    SourceError,
    TrackedIssue,
)
from beads_workers.core.base.text import json_line, printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_TRACKER, EXIT_UNKNOWN, EXIT_USAGE
from beads_workers.registry import kind_of
from beads_workers.runtime.abandoned import RunClaims, claims_of_runs, give_back
from beads_workers.runtime.run_directory import RunDirectory, tracker_folder
from beads_workers.runtime.sources import open_source
from beads_workers.trackers.settlement_rules import IN_PROGRESS


def release_abandoned(issues: Sequence[str], directory: Path, *, as_json: bool) -> None:
    """Release all issues that dead runs of this machine hold.

    With ids, release only these, also from a run of another machine: nobody here can tell whether
    that run is over.
    """
    refuse_hooks(None)
    settings = Scheduler(directory, None).settings
    with open_tracker(settings, "release") as source:
        if not isinstance(source, ClaimingSource):
            message = f"{settings.source} shows no claims of runs"
            raise CommandError(f"nothing to give back: {message}", "", EXIT_USAGE)
        folder = tracker_folder(settings.tracker)
        claims = claims_of_runs(source.held(), RunDirectory(directory), folder)
        _check(issues, claims)
        settled: list[tuple[str, Settled]] = []
        for each, wanted in _chosen(issues, claims):
            settled += [(each.actor, one) for one in give_back(source, each, wanted)]
    left = [] if issues else [each for each in claims if each.living or each.elsewhere]
    _tell(settled, left, as_json=as_json)


def release_stale(
    issues: Sequence[str], directory: Path, refusal: CommandError, *, as_json: bool
) -> None:
    """Open issues again that are in progress in no run's name, or in a dead run's name.

    Raise ``refusal`` if none of the issues is in progress: no fleet runs, or the fleet has none of
    them.
    """
    try:
        refuse_hooks(None)
        settings = Scheduler(directory, None).settings
    except CommandError:
        raise refusal from None
    if kind_of(settings.source).capabilities.push:
        raise refusal
    try:
        with open_tracker(settings, "release") as source:
            seen = source.look([IssueId(each) for each in issues])
        held = [each for each in seen.values() if each.status == IN_PROGRESS]
        if not held:
            raise refusal
        of_runs = [each.issue_id for each in held if each.assignee.startswith(FLEETS)]
        stale = [each for each in held if each.issue_id not in of_runs]
        settled = [(each.assignee or "nobody", _opened(settings, each)) for each in stale]
    except SourceError as error:
        raise CommandError(str(error), error.hint, EXIT_TRACKER) from error
    if of_runs:
        release_abandoned(of_runs, directory, as_json=as_json)
    if settled:
        _tell(settled, [], as_json=as_json)
    if left := [each for each in issues if each not in {one.issue_id for one in held}]:
        text = f"not in progress: {printable(' '.join(left))}"
        raise CommandError(text, "'beads-workers why ISSUE' says what it is", EXIT_UNKNOWN)


def _opened(settings: FleetSettings, seen: TrackedIssue) -> Settled:
    """Open the issue in the name that holds it, if nothing has changed meanwhile."""
    wanted = Settlement(Action.RELEASE, seen.issue_id, read_first=True, handed_over=True)
    with closing(open_source(settings, seen.assignee or "beads-workers/release")) as source:
        return source.settle([wanted])[0]


def _check(issues: Sequence[str], claims: Sequence[RunClaims]) -> None:
    holders = {issue_id: each for each in claims for issue_id in each.issue_ids}
    for issue in issues:
        holder = holders.get(IssueId(issue))
        if holder is None:
            hint = "'beads-workers why ISSUE' says what it is"
            raise CommandError(f"no run holds {printable(issue)}", hint, EXIT_UNKNOWN)
        if holder.living:
            hint = "if a fleet holds it, ask the fleet: 'beads-workers release' without --abandoned"
            raise CommandError(f"{printable(issue)} is held by {holder.living}", hint)


def _chosen(
    issues: Sequence[str], claims: Sequence[RunClaims]
) -> list[tuple[RunClaims, tuple[IssueId, ...]]]:
    if not issues:
        return [(each, each.issue_ids) for each in claims if not (each.living or each.elsewhere)]
    asked = set(issues)
    found = ((each, tuple(i for i in each.issue_ids if i in asked)) for each in claims)
    return [(each, wanted) for each, wanted in found if wanted]


def _tell(
    settled: Sequence[tuple[str, Settled]], left: Sequence[RunClaims], *, as_json: bool
) -> None:
    good = (Result.APPLIED, Result.NOT_OURS)  # NOT_OURS: somebody else released it first.
    failed = [one for _, one in settled if one.result not in good]
    if as_json:
        print(json_line(_as_json(settled, left)))
    else:
        for actor, one in settled:
            if one.result is Result.APPLIED:
                issue_id = printable(one.settlement.issue_id)
                print(f"{issue_id} is open again: {printable(actor)} had it")
        for each in left:
            why = each.living or "a run of another machine: name its issues, if that one is over"
            ids = printable(" ".join(each.issue_ids[:5]))
            print(f"left alone: {ids} of {printable(each.actor)}, {why}")
        if not settled and not left:
            print("no run that is over holds anything")
    if failed:
        raise CommandError(
            f"{printable(failed[0].settlement.issue_id)}: {printable(failed[0].error)}",
            "see what 'beads-workers doctor' says",
            EXIT_TRACKER,
        )


def _as_json(settled: Sequence[tuple[str, Settled]], left: Sequence[RunClaims]) -> dict[str, Any]:
    return {
        "released": [
            {"issue_id": one.settlement.issue_id, "actor": actor}
            for actor, one in settled
            if one.result is Result.APPLIED
        ],
        "left_alone": [
            {
                "issue_ids": list(each.issue_ids),
                "actor": each.actor,
                "why": each.living or "another machine",
            }
            for each in left
        ],
    }
