"""The tracker for single commands, without a fleet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import SourceError
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_TRACKER, EXIT_USAGE
from beads_workers.registry import kind_of
from beads_workers.runtime.sources import open_source

if TYPE_CHECKING:
    from beads_workers.core.base.source import Source
    from beads_workers.options import Resolved


def settings_here(
    directory: Path, source: str | None = None, resolved: Resolved | None = None
) -> FleetSettings:
    """Return the settings of a ``start`` without options: tracker, filters, attempts.

    ``resolved``: options, settings and trust, if they are already known.
    """
    from beads_workers.checks.project import source_options
    from beads_workers.cli.config import need_source, resolve
    from beads_workers.cli.kinds import kind_said
    from beads_workers.cli.preparation import find_tracker
    from beads_workers.options import given

    resolved = resolved or resolve(given({"source": source}), Path.cwd(), os.environ)
    need_source(resolved)
    options = resolved.options
    kind = kind_said(options.source)
    if kind is not None and kind.client_settings is not None:
        return kind.client_settings(resolved, directory)
    if kind is not None and kind.capabilities.push:
        return FleetSettings(0, kind.name, str(directory), str(Path.cwd()), str(directory))
    tracker = find_tracker(options.source)
    place, folder = str(tracker.place), str(tracker.folder)
    return FleetSettings(
        0,
        tracker.source,
        place,
        folder,
        str(directory),
        filters=options.filters,
        policy=options.policy,
        source_options=source_options(tracker, options),
    )


def settings_to_write(
    directory: Path, source: str | None = None, resolved: Resolved | None = None
) -> FleetSettings:
    """Return ``settings_here`` for a command that changes issues.

    Raise ``CommandError`` for a push source.
    """
    settings = settings_here(directory, source, resolved)
    if kind_of(settings.source).capabilities.push:
        error = f"{settings.source} sends jobs, and decides about them itself"
        raise CommandError(error, "there is no issue to change here", EXIT_USAGE)
    return settings


@contextmanager
def open_tracker(settings: FleetSettings, name: str) -> Iterator[Source]:
    """Open the tracker under the name of a command; raise ``CommandError`` if it fails."""
    try:
        with closing(open_source(settings, f"beads-workers/{name}")) as source:
            yield source
    except SourceError as error:
        raise CommandError(str(error), error.hint, EXIT_TRACKER) from error
