"""The tracker as one command asks it, without a fleet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.cli.errors import CommandError
from beads_workers.core.policy import Policy
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import SourceError
from beads_workers.exits import EXIT_TRACKER
from beads_workers.runtime.sources import open_source

if TYPE_CHECKING:
    from beads_workers.core.source import Source


def settings_here(directory: Path, source: str | None = None) -> FleetSettings:
    """As a ``start`` without options would have them here: tracker, filters, attempts."""
    from beads_workers.checks.fleet import filters_of
    from beads_workers.cli.config import need_source, resolve
    from beads_workers.cli.kinds import kind_said
    from beads_workers.cli.preparation import find_tracker
    from beads_workers.options import Options

    resolved = resolve(Options(source=source), Path.cwd(), os.environ)
    need_source(resolved)
    options = resolved.options
    kind = kind_said(options.source)
    if kind is not None and kind.beside is not None:
        return kind.beside(resolved, directory)
    if kind is not None and kind.capabilities.push:
        return FleetSettings(0, kind.name, str(directory), str(Path.cwd()), str(directory))
    tracker = find_tracker(options.source)
    filters = filters_of(options)
    policy = Policy(attempts_max=options.max_attempts or Policy().attempts_max)
    place, folder = str(tracker.place), str(tracker.folder)
    return FleetSettings(
        0,
        tracker.source,
        place,
        folder,
        str(directory),
        filters=filters,
        policy=policy,
        source_options=tracker.options,
    )


@contextmanager
def asked(settings: FleetSettings, name: str) -> Iterator[Source]:
    """It, open under this command's name; raises ``CommandError`` where it fails."""
    try:
        with closing(open_source(settings, f"beads-workers/{name}")) as source:
            yield source
    except SourceError as error:
        raise CommandError(str(error), error.hint, EXIT_TRACKER) from error
