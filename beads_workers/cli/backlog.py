"""The backlog of this project: the tracker's issues by state, for ``list --status`` and dashboards.

print_backlog(directory, {State.READY}, labels=set(), order="", as_json=False)
watched = BacklogWatch(directory)      # asks in a thread of its own, at a calm rate
watched.of(snapshot)                   # the last answer; None before the first
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.cli.why import ISSUES_MAX, Scheduler, TrackerLook, look, look_at_all, picture_of
from beads_workers.core.base.facts import NO_FLEET, Facts
from beads_workers.core.base.source import Source, SourceError
from beads_workers.core.base.text import json_line
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_TRACKER
from beads_workers.ui.backlog import IssueBacklog, as_json, backlog, grouped, lines, titles_of
from beads_workers.ui.words import State
from beads_workers.views.background import BackgroundAnswer

if TYPE_CHECKING:
    from beads_workers.ui.viewer import Fields

# --- list ----------------------------------------------------------------------------------------


def print_backlog(
    directory: Path,
    states: Collection[State],
    labels: Collection[str],
    order: str,
    *,
    json: bool,
) -> int:
    """Print the issues of these states that have all these labels; return their number.

    ``order``: of ``ui.backlog.ORDERS``, or "". Raise ``CommandError``.
    """
    scheduler = Scheduler(directory, None)
    looked = look(scheduler.settings, None)
    facts = facts_of(scheduler, looked)
    if looked.error and facts.state == NO_FLEET:
        raise CommandError(looked.error, looked.hint, EXIT_TRACKER)
    picture = picture_of(facts, looked)
    labelled = {each.issue_id for each in looked.listed if {*labels} <= {*each.labels}}
    found = backlog(picture, [each.issue_id for each in looked.listed], cut=looked.cut)
    rows = [
        row
        for row in found.rows()
        if row.state in states and (not labels or row.issue_id in labelled)
    ]
    found = replace(found, groups=grouped(rows, order))
    if json:
        print(json_line({"running": picture.has_fleet, **as_json(found)}))
        return len(rows)
    if found.unseen:
        print(f"the tracker could not be looked at: {found.unseen}", file=sys.stderr)
    for line in lines(found, picture.now):
        print(line)
    return len(rows)


def facts_of(scheduler: Scheduler, looked: TrackerLook) -> Facts:
    """Return the facts about all that is in flight, remembered or listed, however many."""
    facts = scheduler.facts([])
    if facts.more:
        known = {each.issue_id for each in facts.issues}
        rest = [each.issue_id for each in looked.listed if each.issue_id not in known]
        for start in range(0, len(rest), ISSUES_MAX):
            more = scheduler.facts(rest[start : start + ISSUES_MAX]).issues
            facts = replace(facts, issues=(*facts.issues, *more))
    return facts


# --- watch ---------------------------------------------------------------------------------------


FACTS_SECONDS = 1.0
"""Time between two questions to the fleet, which answers from memory."""
LISTED_SECONDS, LISTED_SECONDS_MAX = 5.0, 60.0
"""Least and longest time between two listings of the tracker."""
LISTED_SHARE = 20
"""A tracker that takes a second for a listing is asked every twenty seconds: a view that somebody
leaves open must not slow down the fleet."""


def pause_seconds(took: float) -> float:
    """Return the time from one listing to the next; ``took``: seconds of the last one."""
    return max(LISTED_SECONDS, min(LISTED_SHARE * took, LISTED_SECONDS_MAX))


@dataclass(frozen=True, slots=True)
class _Listing:
    """An answer of the tracker. ``at``: epoch seconds at which it was asked; ``took``: seconds."""

    looked: TrackerLook
    at: float | None = None
    took: float = 0.0


UNASKED = _Listing(TrackerLook(error="it is being asked"))


class BacklogWatch:
    """The backlog of a fleet, asked for in threads beside the dashboard, while somebody looks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listing: BackgroundAnswer[_Listing] = BackgroundAnswer()
        self._known: BackgroundAnswer[IssueBacklog] = BackgroundAnswer()
        self._hurried = 0
        """Number of times that somebody did not want to wait."""
        self._source: Source | None = None
        self._scheduler: Scheduler | None = None
        self._last = IssueBacklog(())

    def of(self, snapshot: Fields) -> IssueBacklog | None:
        """Return the last answer; ask again beside it if that is old. Never waits."""
        before = self._listing.answer or UNASKED
        pause = pause_seconds(before.took)
        listing = self._listing.of("", self._list, stamp=self._hurried, seconds=pause) or UNASKED
        ask, stamp = partial(self._ask, listing, titles_of(snapshot)), (self._hurried, listing.at)
        return self._known.of("", ask, stamp=stamp, seconds=FACTS_SECONDS)

    def hurry(self) -> None:
        """Have fleet and tracker asked at the next call of ``of``."""
        self._hurried += 1

    def _ask(self, listing: _Listing, titles: Mapping[str, str]) -> IssueBacklog:
        try:
            self._scheduler = self._scheduler or Scheduler(self._directory, None)
            looked = listing.looked
            picture = picture_of(facts_of(self._scheduler, looked), looked)
        except (CommandError, OSError) as error:
            # The fleet is ending, or has ended: what was known stays on the screen.
            self._scheduler = None
            return replace(self._last, unseen=str(error))
        ids = [each.issue_id for each in looked.listed]
        found = backlog(picture, ids, cut=looked.cut, listed_at=listing.at, titles=titles)
        self._last = found
        return found

    def _list(self) -> _Listing:
        from beads_workers.registry import kind_of
        from beads_workers.runtime.sources import open_source

        at, began = time.time(), time.monotonic()
        try:
            if self._source is None:
                settings = Scheduler(self._directory, None).settings
                if not kind_of(settings.source).capabilities.looks:
                    return _Listing(TrackerLook(), at)
                self._source = open_source(settings, "beads-workers/watch")
                began = time.monotonic()
            looked = look_at_all(self._source)
        except SourceError as error:
            looked = TrackerLook(error=str(error), hint=error.hint)
        except (CommandError, OSError) as error:
            looked = TrackerLook(error=str(error))
        return _Listing(looked, at, time.monotonic() - began)
