"""The tracker of this folder, for commands that list, show and change its issues.

The key ``source`` of ``beads-workers.toml`` selects the tracker. Without it, a folder ``.beads``
selects bd, whose issues are shown as bd reports them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from beads_workers.cli.tracker_folder import no_tracker, unopened, warn
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import SourceError
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_TRACKER, EXIT_UNKNOWN, EXIT_USAGE
from beads_workers.runtime.project import STATE_FOLDER

if TYPE_CHECKING:
    from beads_workers.core.base.source import EditableSource, NotDone, Source, TrackedIssue
    from beads_workers.trackers.bd.tracker import BdRow
    from beads_workers.trackers.issue import TrackerIssue

Listed = tuple["TrackerIssue", Mapping[str, Any]]
"""An issue as a row of a list, and the object of its tracker."""


ROWS_MAX = 2000
"""Number of issues in a listing: more than anybody reads."""


class Listable(Protocol):
    """A tracker that can be listed."""

    def issues(self, *, closed_too: bool) -> list[Listed]:
        """Return the issues that are not closed, the most urgent first; or all."""

    def issue(self, issue_id: str) -> Listed | None:
        """Return one issue, closed or not; None if it does not exist."""


class SourceListing:
    """Listing of a tracker through its source; raises ``CommandError`` for what it cannot list."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def issues(self, *, closed_too: bool) -> list[Listed]:
        """See ``Listable``; closed issues are not listed."""
        if closed_too:
            raise CommandError(
                f"--all: {self._source.name} is asked for what is not closed",
                "leave it out; 'beads-workers show ISSUE' shows a closed one",
                EXIT_USAGE,
            )
        found = self._source.unfinished(ROWS_MAX)
        if len(found) == ROWS_MAX:
            warn(f"these are the {ROWS_MAX} most urgent; there are more")
        return [_issue(each) for each in found]

    def issue(self, issue_id: str) -> Listed | None:
        """See ``Listable``."""
        from beads_workers.core.base.source import ReadableSource

        key = IssueId(issue_id)
        seen = self._source.look([key]).get(key)
        if seen is None:
            return None
        row, shown = _issue(seen)
        whole = (
            self._source.read([key]).get(key) if isinstance(self._source, ReadableSource) else None
        )
        return row, {**shown, **whole.original} if whole is not None else shown


class BdListing:
    """Listing of the issues of a folder through ``bd``."""

    def __init__(self, folder: Path) -> None:
        from beads_workers.core.base.source import Calls
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
        whole = self._bd.details([*found])
        return next((_as_listed(row) for row in whole.values()), None)


@contextlib.contextmanager
def located() -> Iterator[Listable | None]:
    """Provide the tracker of this folder, or None if it is the built-in one, or none.

    Raise ``CommandError`` if the tracker fails.
    """
    settings = tracker_settings()
    if settings is None or settings.source == "sqlite":
        yield None
    elif settings.source == "bd":
        try:
            yield BdListing(Path(settings.project))
        except SourceError as error:
            raise CommandError(printable(str(error)), error.hint, EXIT_TRACKER) from None
    else:
        from beads_workers.cli.tracker_access import open_tracker

        with open_tracker(settings, "list") as source:
            yield SourceListing(source)


@contextlib.contextmanager
def editable() -> Iterator[EditableSource]:
    """Provide the tracker of this folder for changes; raise ``CommandError`` if it refuses one."""
    from beads_workers.cli.person import author
    from beads_workers.cli.trust import refuse_hooks
    from beads_workers.core.base.source import EditableSource, NotDone
    from beads_workers.runtime.sources import open_source

    settings = tracker_settings()
    if settings is None:
        raise no_tracker()
    if settings.source == "bd":
        refuse_hooks(None)  # bd runs them when it writes.
    try:
        with contextlib.closing(open_source(settings, author())) as source:
            if not isinstance(source, EditableSource):
                hint = f"use the commands of {settings.source} itself"
                raise CommandError(f"{settings.source} is not changed from here", hint, EXIT_USAGE)
            yield source
    except NotDone as error:
        raise _not_done(error, settings) from None
    except SourceError as error:
        if settings.source == "sqlite":
            raise unopened(Path(settings.tracker), error) from error
        raise CommandError(printable(str(error)), error.hint, EXIT_TRACKER) from None


def refuse_elsewhere(command: str) -> None:
    """Refuse a command that only the built-in tracker has, if the issues are somewhere else."""
    settings = tracker_settings()
    if settings is not None and settings.source not in ("sqlite", "bd"):
        error = f"no {command} for the issues of a {settings.source}"
        raise CommandError(
            error, "'beads-workers add' adds one, 'list --json' prints them", EXIT_USAGE
        )


def unknown(issue_id: str) -> CommandError:
    """Return the error for an issue that the tracker does not have."""
    hint = "'beads-workers list' shows what is open"
    return CommandError(f"no such issue: {printable(issue_id, 60)}", hint, EXIT_UNKNOWN)


def _not_done(error: NotDone, settings: FleetSettings) -> CommandError:
    from beads_workers.core.base.source import HeldByRun, NoSuchIssue

    hint = error.hint
    if isinstance(error, NoSuchIssue):
        return unknown(error.issue_id)
    if isinstance(error, HeldByRun) and _has_crashed(error.run, settings):
        hint = "that run has crashed: 'beads-workers start' settles it first; then do this again"
    return CommandError(printable(str(error), 300), hint)


def _has_crashed(run: str, settings: FleetSettings) -> bool:
    """Return whether a run of this project ended before it could settle what it held."""
    from beads_workers.cli.client import find_state_directory
    from beads_workers.core.base.source import HeldElsewhere
    from beads_workers.runtime.abandoned import CRASHED, claims_of_runs
    from beads_workers.runtime.run_directory import RunDirectory, tracker_folder

    directory, folder = RunDirectory(find_state_directory()), tracker_folder(settings.tracker)
    held = [HeldElsewhere(IssueId(""), run)]
    return [each.living for each in claims_of_runs(held, directory, folder)] == [CRASHED]


def tracker_settings() -> FleetSettings | None:
    """Return where the issues of this folder are, for opening their source; None: nowhere."""
    if not _says_source(Path.cwd()):
        return _found(None)
    from beads_workers.checks.project import source_options
    from beads_workers.cli.client import find_state_directory
    from beads_workers.cli.config import need_source, resolve
    from beads_workers.cli.kinds import kind_said
    from beads_workers.cli.preparation import find_tracker

    resolved = resolve({}, Path.cwd(), os.environ)
    need_source(resolved)
    wanted = resolved.options.source
    kind = kind_said(wanted)
    if kind is None or kind.locate is None:
        return _found(wanted)
    found = find_tracker(wanted)
    place, folder, state = str(found.place), str(found.folder), str(find_state_directory())
    opened = source_options(found, resolved.options)
    return FleetSettings(0, kind.name, place, folder, state, source_options=opened)


def _found(source: str | None) -> FleetSettings | None:
    """Return bd if it is selected, or if there is no built-in tracker."""
    from beads_workers.cli.client import project_here, tracker_here

    database = tracker_here()
    project = None if source == "sqlite" else project_here()
    if project is not None and project.beads and (source == "bd" or database is None):
        name, tracker, folder = "bd", project.beads, project.beads.parent
    elif database is not None:
        name, tracker, folder = "sqlite", database, database.parent.parent
    else:
        return None
    return FleetSettings(0, name, str(tracker), str(folder), str(folder / STATE_FOLDER))


def _says_source(folder: Path) -> bool:
    # Settings are read only for a file that has this key.
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


def _issue(seen: TrackedIssue) -> Listed:
    """Return an issue in the form of the built-in tracker's issues."""
    from beads_workers.core.base.ready import PARENT_CHILD
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
