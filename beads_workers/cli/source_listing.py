"""``list`` and ``show`` for a tracker that is not the built-in one: asked, as it is.

``beads-workers.toml`` says which one it is (``source``), or a folder ``.beads`` is here: then it is
bd, which is told as bd tells it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from beads_workers.cli.errors import CommandError
from beads_workers.core.model import IssueId
from beads_workers.core.source import SourceError
from beads_workers.core.text import printable
from beads_workers.exits import EXIT_TRACKER, EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.core.source import Seen, Source
    from beads_workers.trackers.bd.tracker import BdRow
    from beads_workers.trackers.issue import TrackerIssue

Listed = tuple["TrackerIssue", Mapping[str, Any]]
"""An issue as a row of a list shows it, and the object of its tracker."""


ROWS_MAX = 2000
"""Of a listing: more than anybody reads."""


class Listable(Protocol):
    """A tracker that can be listed."""

    def issues(self, *, closed_too: bool) -> list[Listed]:
        """Everything that is not closed, the most urgent first; or all."""

    def issue(self, issue_id: str) -> Listed | None:
        """One issue, closed or not; None if there is no such issue."""


class SourceListing:
    """A tracker that is asked through its source; what it does not tell raises ``CommandError``."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def issues(self, *, closed_too: bool) -> list[Listed]:
        """See ``Listable``; closed ones are not told."""
        if closed_too:
            raise CommandError(
                f"--all: {self._source.name} is asked for what is not closed",
                "leave it out; 'beads-workers show ID' shows a closed one",
                EXIT_USAGE,
            )
        return [_issue(each) for each in self._source.unfinished(ROWS_MAX)]

    def issue(self, issue_id: str) -> Listed | None:
        """See ``Listable``."""
        seen = self._source.look([IssueId(issue_id)]).get(IssueId(issue_id))
        return _issue(seen) if seen else None


class BdListing:
    """What ``bd`` says of the issues of a folder."""

    def __init__(self, folder: Path) -> None:
        from beads_workers.core.source import Calls
        from beads_workers.trackers.bd.calls import BdCalls
        from beads_workers.trackers.bd.tracker import BdTracker

        self._bd = BdTracker(BdCalls("bd", folder, "beads-workers/list", Calls()))

    def issues(self, *, closed_too: bool) -> list[Listed]:
        """See ``Listable``."""
        from beads_workers.trackers.bd.tracker import rows

        more = ["--all"] if closed_too else []
        more += ["--readonly"] if self._bd.abilities.readonly else []
        found = rows(self._bd.ask(["list", "--json", "--sort=priority", "--limit=0", *more]))
        return [_as_listed(row) for row in found]

    def issue(self, issue_id: str) -> Listed | None:
        """See ``Listable``."""
        from beads_workers.trackers.bd.tracker import is_safe_id

        found = self._bd.look([IssueId(issue_id)]) if is_safe_id(issue_id) else {}
        whole = self._bd.whole([*found])
        return next((_as_listed(row) for row in whole.values()), None)


@contextlib.contextmanager
def located() -> Iterator[Listable | None]:
    """The tracker of this folder, if it is not the built-in one; in trouble it ends the command."""
    if not _says_source(Path.cwd()):
        with _beads_here(None) as listing:
            yield listing
        return
    from beads_workers.cli.asked_tracker import open_tracker
    from beads_workers.cli.client import find_state_directory
    from beads_workers.cli.config import need_source, resolve
    from beads_workers.cli.kinds import kind_said
    from beads_workers.cli.preparation import find_tracker
    from beads_workers.core.settings import FleetSettings
    from beads_workers.options import Options

    resolved = resolve(Options(), Path.cwd(), os.environ)
    need_source(resolved)
    said = resolved.options.source
    kind = kind_said(said)
    if kind is None or kind.locate is None:
        with _beads_here(said) as listing:
            yield listing
        return
    found = find_tracker(said)
    place, folder, state = str(found.place), str(found.folder), str(find_state_directory())
    settings = FleetSettings(0, kind.name, place, folder, state, source_options=found.options)
    with open_tracker(settings, "list") as source:
        yield SourceListing(source)


@contextlib.contextmanager
def _beads_here(said: str | None) -> Iterator[BdListing | None]:
    """bd, if it is said, or if there is no built-in tracker."""
    from beads_workers.cli.client import project_here, tracker_here

    project = None if said == "sqlite" else project_here()
    if project is None or project.beads is None or (said != "bd" and tracker_here() is not None):
        yield None
        return
    try:
        yield BdListing(project.beads.parent)
    except SourceError as error:
        raise CommandError(printable(str(error)), error.hint, EXIT_TRACKER) from None


def _says_source(folder: Path) -> bool:
    # Only a file that speaks of it is worth reading the settings.
    for above in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return b"source" in (above / "beads-workers.toml").read_bytes()
    return False


def _as_listed(row: BdRow) -> Listed:
    from beads_workers.trackers.issue import TrackerIssue

    shown = TrackerIssue(
        id=row.issue_id,
        title=row.title,
        status=row.status,
        priority=row.priority,
        issue_type=row.issue_type,
        assignee=row.assignee,
        labels=row.labels,
    )
    return shown, row.original


def _issue(seen: Seen) -> Listed:
    """In the shape in which the built-in tracker's issues are shown."""
    from beads_workers.core.ready import PARENT_CHILD
    from beads_workers.trackers.issue import Dependency, TrackerIssue, to_object

    parents = [Dependency(each, PARENT_CHILD) for each in seen.parents]
    issue = TrackerIssue(
        id=seen.issue_id,
        title=seen.title,
        status=seen.status,
        priority=seen.priority,
        issue_type=seen.issue_type,
        assignee=seen.assignee,
        labels=seen.labels,
        closed_at=seen.closed_at,
        close_reason=seen.close_reason,
        dependencies=(*(Dependency(each) for each in seen.waits_for), *parents),
    )
    return issue, to_object(issue)
