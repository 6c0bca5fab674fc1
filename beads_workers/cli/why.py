"""``why``: reasons why an issue does not run, or why nothing happens. Reads only."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from beads_workers.cli import receipts
from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import (
    connect_if_running,
    find_state_directory,
)
from beads_workers.cli.completion import issues
from beads_workers.cli.receipts import find_receipts
from beads_workers.cli.tracker_access import settings_here
from beads_workers.core.base import limits
from beads_workers.core.base.facts import NO_FLEET, Facts, IssueFacts, facts_of
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import Source, SourceError, TrackedIssue
from beads_workers.core.base.text import json_line, printable
from beads_workers.core.records.journal import Checkpointed
from beads_workers.core.records.landing import Add, ahead_of, ahead_text, pull_text
from beads_workers.core.views.recovery import RecoveryState
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_TRACKER, EXIT_UNKNOWN
from beads_workers.registry import kind_of
from beads_workers.runtime.result_spool import replay_results
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.runtime.sources import open_source
from beads_workers.ui.reasons import Cause, Picture, Reason, chain, explain, headline
from beads_workers.ui.time_text import clock, done_about
from beads_workers.ui.why import Overview, issue_lines, overview_lines, survey

# --- dependency look-up --------------------------------------------------------------------------
# What is known of issues: in the tracker, with everything they wait for, and without a fleet in the
# journals. Reads only.


LEVELS_MAX = 30
"""Depth of the search: each level takes one or two calls of the tracker."""
ISSUES_MAX = 1000
"""Number of issues: more than anybody reads, and quick for any tracker."""
DONE = ("closed", "tombstone")


def look_down(
    source: Source, issue_ids: Iterable[IssueId], known: Iterable[TrackedIssue] = ()
) -> dict[IssueId, TrackedIssue]:
    """Return these issues, the issues they wait for and their parents, down to the roots.

    ``known``: issues that were read just now. Raise ``SourceError``.
    """
    seen = {each.issue_id: each for each in known}
    asked = set(seen)
    level = [i for i in dict.fromkeys(issue_ids) if i not in asked]
    level += _unknown_blockers(seen.values(), {*asked, *level})
    for _ in range(LEVELS_MAX):
        level = level[: ISSUES_MAX - len(seen)]
        if not level:
            break
        asked.update(level)
        found = source.look(level)
        seen |= found
        level = _unknown_blockers(found.values(), asked)
    return seen


def _unknown_blockers(seen: Iterable[TrackedIssue], asked: set[IssueId]) -> list[IssueId]:
    """Return unknown issues that block these; nothing blocks a finished issue."""
    named = (i for s in seen if s.status not in DONE for i in (*s.waits_for, *s.parents))
    return [i for i in dict.fromkeys(named) if i not in asked]


def remembered(directory: RunDirectory, settings: FleetSettings, now: float) -> Facts:
    """Return what the journals of ended runs know, as facts of a fleet that does not run.

    ``settings``: the tracker, and the filters that the next start would have; ``now``: epoch
    seconds.
    """
    unsettled, last = directory.left_over()
    for left in unsettled:
        late = replay_results(left, directory.run(left.run_id))
        last.unclosed.update(dict.fromkeys(late, left.actor))
    ids = dict.fromkeys([*last.unclosed, *last.retry_entries])
    waiting = (each for each in last.retry_entries.values() if not each.quarantined)
    shelved = [add for each in waiting if (add := each.landing)]
    issues = (_issue_facts(each, last, now, shelved) for each in ids)
    return facts_of(settings, NO_FLEET, run_id=last.run_id, issues=tuple(issues))


def _issue_facts(
    issue_id: str, last: RecoveryState, now: float, shelved: Sequence[Add]
) -> IssueFacts:
    retry_entry = last.retry_entries.get(issue_id, Checkpointed(issue_id))
    waits = not (issue_id in last.unclosed or retry_entry.quarantined)
    to_land = retry_entry.landing if waits else None
    left = min(retry_entry.not_before - now, limits.RETRY_AFTER_MAX_SECONDS)
    standing = "cooling" if left > 0 else ""
    out = "asked" if retry_entry.question else "quarantined"
    standing = out if retry_entry.quarantined else standing
    standing = "awaits_approval" if to_land and to_land.awaits else standing
    pull = retry_entry.in_review if to_land and not to_land.awaits else None
    standing = "in_review" if pull else standing
    standing = "unclosed" if issue_id in last.unclosed else standing
    return IssueFacts(
        issue_id,
        in_flight="shelved" if to_land else "",
        behind=ahead_of(to_land, shelved) if to_land else (),
        standing=standing,
        attempt=retry_entry.charged + 1,
        charged=retry_entry.charged,
        again_seconds=round(left, 1) if standing == "cooling" else None,
        error=retry_entry.error,
        ahead=pull_text(pull) if pull else ahead_text(retry_entry.ahead),
    )


# --- why -----------------------------------------------------------------------------------------


ROWS_MAX = 2000
"""Number of issues of a backlog that are sorted by reason."""


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("why", epilog="Example: beads-workers why proj-a1b")(why)


def why(
    issue: Annotated[
        str | None, typer.Argument(metavar="[ISSUE]", help="Which one.", autocompletion=issues)
    ] = None,
    source: Annotated[str | None, typer.Option(help="bd or sqlite.")] = None,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Say why an issue does not run; without one, why nothing happens."""
    directory = find_state_directory(state_dir)
    if issue is None:
        _why_nothing(directory, source, as_json=as_json)
    else:
        _why_issue(IssueId(issue), directory, source, as_json=as_json)


@dataclass(frozen=True, slots=True)
class TrackerLook:
    """Answers of the tracker, or why it could not be read. ``listed``: the whole backlog."""

    seen: dict[IssueId, TrackedIssue] = field(default_factory=dict)
    listed: tuple[TrackedIssue, ...] = ()
    ready: frozenset[IssueId] | None = None
    error: str = ""
    hint: str = ""

    @property
    def cut(self) -> bool:
        """Whether there are more issues, less urgent ones."""
        return len(self.listed) == ROWS_MAX


def why_lines(issue: str, directory: Path) -> list[str]:
    """Return what ``why ISSUE`` prints about the issue itself, without receipts and log.

    Raise ``CommandError``.
    """
    issue_id = IssueId(issue)
    picture, reasons = _explained(issue_id, directory, None)
    head, links = headline(issue_id, reasons, picture), chain(issue_id, picture)
    return list(issue_lines(issue_id, picture.seen.get(issue_id), head, reasons, links))


def _explained(
    issue_id: IssueId, directory: Path, source: str | None
) -> tuple[Picture, list[Reason]]:
    scheduler = Scheduler(directory, source)
    looked = look(scheduler.settings, issue_id)
    # The tracker first: the fleet may hold issues that this one waits for.
    facts = scheduler.facts([issue_id, *looked.seen])
    if looked.error and facts.state == NO_FLEET:
        raise CommandError(looked.error, looked.hint, EXIT_TRACKER)
    picture = picture_of(facts, looked)
    return picture, explain(issue_id, picture)


def _why_issue(issue_id: IssueId, directory: Path, source: str | None, *, as_json: bool) -> None:
    picture, reasons = _explained(issue_id, directory, source)
    head, links = headline(issue_id, reasons, picture), chain(issue_id, picture)
    seen, log = picture.seen.get(issue_id), _log(directory, issue_id, picture)
    attempts = find_receipts(directory, issue_id)
    if as_json:
        shown = {
            "running": picture.has_fleet,
            "issue_id": issue_id,
            "title": seen.title if seen else None,
            "status": seen.status if seen else None,
            "headline": head,
            "reasons": [_reason_json(each) for each in reasons],
            "waits_for": [
                {"depth": x.depth, "issue_id": x.issue_id, "title": x.title, "state": x.state}
                for x in links
            ],
            "log": log,
            "attempts": [receipts.as_json(each) for each in attempts],
        }
        print(json_line(shown))
    else:
        _say_no_fleet(picture)
        for line in issue_lines(issue_id, seen, head, reasons, links):
            print(line)
        for number, line in enumerate(receipts.shown(attempts)):
            print(line if number else f"\n{line}")
        if log:
            print(f"\nlog: {printable(log)}")
    if reasons[0].cause is Cause.NOT_FOUND:
        raise typer.Exit(EXIT_UNKNOWN)


def _why_nothing(directory: Path, source: str | None, *, as_json: bool) -> None:
    scheduler = Scheduler(directory, source)
    looked = look(scheduler.settings, None)
    facts = scheduler.facts([])
    if looked.error and facts.state == NO_FLEET:
        raise CommandError(looked.error, looked.hint, EXIT_TRACKER)
    picture = picture_of(facts, looked)
    found = survey((each.issue_id for each in looked.listed), picture)
    if as_json:
        print(json_line(_overview_json(found, picture)))
        return
    _say_no_fleet(picture)
    if looked.cut:
        print(f"of the {ROWS_MAX} most urgent issues (there are more):")
    for line in overview_lines(found, picture):
        print(line)
    if estimate := scheduler.estimate():
        print(f"{estimate}, at this rate")


def look(settings: FleetSettings, issue_id: IssueId | None) -> TrackerLook:
    """Read one issue with everything it waits for, or the whole backlog."""
    if not kind_of(settings.source).capabilities.looks:
        return TrackerLook({})  # Only the sender sees jobs outside the fleet.
    with closing(open_source(settings, "beads-workers/why")) as source:
        try:
            return _look_at(source, issue_id) if issue_id else look_at_all(source)
        except SourceError as error:
            return TrackerLook({}, error=str(error), hint=error.hint)


def _look_at(source: Source, issue_id: IssueId) -> TrackerLook:
    seen = look_down(source, [issue_id])
    found = seen.get(issue_id)
    might_run = found is not None and found.status == "open"
    return TrackerLook(seen, ready=source.ready() if might_run else None)


def look_at_all(source: Source) -> TrackerLook:
    """Return the whole backlog, up to ``ROWS_MAX`` issues. Raise ``SourceError``."""
    listed = source.unfinished(ROWS_MAX)
    # Issues that are missing in a complete list are finished, and block nothing.
    cut = len(listed) == ROWS_MAX
    seen = look_down(source, (), listed) if cut else {each.issue_id: each for each in listed}
    return TrackerLook(seen, tuple(listed), source.ready())


class Scheduler:
    """The running fleet, or what the journal of the last one remembers.

    ``settings``: the tracker, and the filters of the fleet.
    """

    def __init__(self, directory: Path, source: str | None) -> None:
        self._directory = directory
        self._client = connect_if_running(directory)
        if self._client is None:
            self.settings = settings_here(directory, source)
            return
        running = self.facts([])
        self.settings = FleetSettings(
            0,
            running.source,
            running.tracker,
            running.project,
            str(directory),
            filters=running.filters,
            source_options=running.source_options,
        )

    def facts(self, issue_ids: list[IssueId]) -> Facts:
        """Return the facts about these issues, or about all that are remembered."""
        if self._client is None:
            return remembered(RunDirectory(self._directory), self.settings, time.time())
        answer = self._client.ask("bw.why", {"issue_ids": issue_ids})
        if "facts" not in answer:
            raise CommandError(str(answer.get("error") or "the fleet did not answer"))
        return from_plain(Facts, answer["facts"])

    def estimate(self) -> str:
        """Return when all that is known will be closed: ``done about 03:40``; "" if nothing
        tells."""
        return done_about(self._client.ask("bw.status")) if self._client is not None else ""


def picture_of(facts: Facts, looked: TrackerLook) -> Picture:
    """Return what is known now: of the fleet, and of the tracker."""
    now = time.time()
    return Picture(
        facts,
        now,
        lambda at: clock(at, now),
        looked.seen,
        looked.ready,
        looked.error,
        is_pushed=bool(facts.source) and kind_of(facts.source).capabilities.push,
    )


def _log(directory: Path, issue_id: IssueId, picture: Picture) -> str | None:
    """Return the log of the running attempt, or of the last one in this run."""
    from beads_workers.executors.files import log_file, output_file

    facts = picture.known.get(issue_id)
    if facts is None or not picture.facts.run_id:
        return None
    run = str((directory / "runs" / picture.facts.run_id).absolute())
    names = [log_file(run, issue_id, number) for number in range(facts.attempt, 0, -1)]
    if facts.in_flight == "running":
        names.insert(0, output_file(run, facts.worker_id))
    return next((name for name in names if Path(name).exists()), None)


def _say_no_fleet(picture: Picture) -> None:
    if not picture.has_fleet:
        run = f"; the last run was {picture.facts.run_id}" if picture.facts.run_id else ""
        print(f"no fleet is running here{run}\n")


def _reason_json(reason: Reason) -> dict[str, Any]:
    return {
        "cause": reason.cause.value,
        "text": reason.text,
        "remedy": reason.remedy,
        "issue_ids": list(reason.issue_ids),
        "until": None if reason.until is None else round(reason.until, 3),
    }


def _overview_json(found: Overview, picture: Picture) -> dict[str, Any]:
    return {
        "running": picture.has_fleet,
        "headline": found.headline,
        "fleet_reasons": [_reason_json(each) for each in found.fleet],
        "groups": [
            {
                "cause": "ready" if each.cause is Cause.DUE else each.cause.value,
                "count": each.count,
                "issue_ids": list(each.issue_ids),
            }
            for each in found.groups
        ],
        "next": {"at": round(found.next_up.at, 3), "text": found.next_up.text}
        if found.next_up
        else None,
    }
