"""The built-in tracker as a kind of source."""

from __future__ import annotations

from beads_workers.core.base.source import Source
from beads_workers.kinds import Capabilities, Late, Opening, SourceKind


def _open(opening: Opening) -> Source:
    from beads_workers.trackers.sqlite.source import SqliteSource

    return SqliteSource(
        opening.place,
        actor=opening.actor,
        filters=opening.settings.filters,
        listed_max=opening.listed_max,
        with_details=opening.settings.work.reads_issues,
    )


KIND = SourceKind(
    name="sqlite",
    called="the built-in tracker",
    open=_open,
    capabilities=Capabilities(dependencies=True, parents=True),
    forms=("sqlite",),
    checks=Late("beads_workers.checks.tracker:embedded"),
)
