"""The backlog of this project: the tracker's issues by state, for ``list --status`` and dashboards.

print_backlog(directory, {State.READY}, labels=set(), order="", as_json=False)
watched = BacklogWatch(directory)      # asks in a thread of its own, at a calm rate
watched.of(snapshot)                   # the last answer; None before the first
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.cli.errors import CommandError
from beads_workers.cli.why import ISSUES_MAX, Scheduler, TrackerLook, look, look_at_all, picture_of
from beads_workers.core.facts import NO_FLEET, Facts
from beads_workers.core.source import Source, SourceError
from beads_workers.core.text import json_line
from beads_workers.exits import EXIT_TRACKER
from beads_workers.ui.backlog import IssueBacklog, as_json, backlog, grouped, lines, titles_of
from beads_workers.ui.words import State

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
LISTED_SECONDS = 5.0
"""Least time between two listings of the tracker."""
LISTED_SHARE = 20
"""A tracker that takes a second for a listing is asked every twenty seconds: a view that somebody
leaves open must not slow down the fleet."""


class BacklogWatch:
    """The backlog of a running fleet, asked for in a thread while somebody looks.

    The thread ends with each answer, and another one begins when ``of`` is called and it is time.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._asking: threading.Thread | None = None
        self._scheduler: Scheduler | None = None
        self._source: Source | None = None
        self._looked: TrackerLook | None = None
        self._listed_at = 0.0
        """Epoch seconds of the last listing."""
        self._found: IssueBacklog | None = None
        self._ask_at = self._list_at = 0.0
        self._titles: Mapping[str, str] = {}

    def of(self, snapshot: Fields) -> IssueBacklog | None:
        """Return the last answer; ask again beside it if that is old. Never waits."""
        now = self._clock()
        if now >= self._ask_at and (self._asking is None or not self._asking.is_alive()):
            self._ask_at = now + FACTS_SECONDS
            self._titles = titles_of(snapshot)
            self._asking = threading.Thread(target=self._ask, daemon=True)
            self._asking.start()
        return self._found

    def hurry(self) -> None:
        """Have fleet and tracker asked at the next call of ``of``."""
        self._ask_at = self._list_at = 0.0

    def _ask(self) -> None:
        try:
            if self._scheduler is None:
                self._scheduler = Scheduler(self._directory, None)
            scheduler = self._scheduler
            if self._looked is None or self._clock() >= self._list_at:
                self._looked = self._listed(scheduler)
            looked = self._looked
            picture = picture_of(facts_of(scheduler, looked), looked)
            ids = [each.issue_id for each in looked.listed]
            self._found = backlog(
                picture, ids, cut=looked.cut, listed_at=self._listed_at, titles=self._titles
            )
        except (CommandError, OSError) as error:
            # The fleet is ending, or has ended: what was known stays on the screen.
            self._scheduler = None
            self._found = replace(self._found or IssueBacklog(()), unseen=str(error))

    def _listed(self, scheduler: Scheduler) -> TrackerLook:
        from beads_workers.registry import kind_of
        from beads_workers.runtime.sources import open_source

        began, self._listed_at = self._clock(), time.time()
        if not kind_of(scheduler.settings.source).capabilities.looks:
            self._list_at = float("inf")
            return TrackerLook()
        try:
            if self._source is None:
                self._source = open_source(scheduler.settings, "beads-workers/watch")
            return look_at_all(self._source)
        except SourceError as error:
            return TrackerLook(error=str(error), hint=error.hint)
        finally:
            took = self._clock() - began
            self._list_at = began + max(LISTED_SECONDS, LISTED_SHARE * took)
