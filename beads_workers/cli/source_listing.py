"""``list`` and ``show`` for a tracker that is neither bd nor the embedded one: asked, as it is.

Which one it is stands in ``beads-workers.toml``: ``source``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.cli.errors import CommandError
from beads_workers.core.model import IssueId
from beads_workers.core.source import SourceError
from beads_workers.exits import EXIT_TRACKER, EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.core.source import Seen, Source
    from beads_workers.trackers.issue import TrackerIssue


ROWS_MAX = 2000
"""Of a listing: more than anybody reads."""


class SourceListing:
    """A tracker that is asked through its source; what it does not tell raises ``CommandError``."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def issues(self, *, closed_too: bool) -> list[TrackerIssue]:
        """Everything that is not closed, the most urgent first."""
        if closed_too:
            raise CommandError(
                f"--all: {self._source.name} is asked for what is not closed",
                "leave it out; 'beads-workers show ID' shows a closed one",
                EXIT_USAGE,
            )
        return [_issue(each) for each in self._source.unfinished(ROWS_MAX)]

    def issue(self, issue_id: str) -> TrackerIssue | None:
        """One issue, closed or not; None where there is no such issue."""
        seen = self._source.look([IssueId(issue_id)]).get(IssueId(issue_id))
        return _issue(seen) if seen else None


@contextlib.contextmanager
def located() -> Iterator[SourceListing | None]:
    """The tracker that the settings name, if it is one of these; in trouble it ends the command."""
    if not _says_source(Path.cwd()):
        yield None
        return
    from beads_workers.cli.client import find_state_directory
    from beads_workers.cli.config import need_source, resolve
    from beads_workers.cli.kinds import kind_said
    from beads_workers.cli.preparation import find_tracker
    from beads_workers.core.settings import FleetSettings
    from beads_workers.options import Options
    from beads_workers.runtime.sources import open_source

    resolved = resolve(Options(), Path.cwd(), os.environ)
    need_source(resolved)
    said = resolved.options.source
    kind = kind_said(said)
    if kind is None or kind.locate is None:
        yield None
        return
    found = find_tracker(said)
    place, folder, state = str(found.place), str(found.folder), str(find_state_directory())
    settings = FleetSettings(0, kind.name, place, folder, state, source_options=found.options)
    try:
        with contextlib.closing(open_source(settings, "beads-workers/list")) as source:
            yield SourceListing(source)
    except SourceError as error:
        raise CommandError(str(error), error.hint, EXIT_TRACKER) from None


def _says_source(folder: Path) -> bool:
    # Only a file that speaks of it is worth reading the settings.
    for above in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return b"source" in (above / "beads-workers.toml").read_bytes()
    return False


def _issue(seen: Seen) -> TrackerIssue:
    """In the shape in which the embedded tracker's issues are shown."""
    from beads_workers.core.ready import PARENT_CHILD
    from beads_workers.trackers.issue import Dependency, TrackerIssue

    parents = [Dependency(each, PARENT_CHILD) for each in seen.parents]
    return TrackerIssue(
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
