"""``bd`` as a kind of source."""

from __future__ import annotations

from beads_workers.core.base.source import Source
from beads_workers.kinds import Capabilities, Late, Opening, SourceKind


def _open(opening: Opening) -> Source:
    from beads_workers.trackers.bd.source import BdSource

    settings = opening.settings
    return BdSource(
        opening.place.parent,
        actor=opening.actor,
        filters=settings.filters,
        listed_max=opening.listed_max,
        call_log=opening.call_log,
        call_seconds=settings.tracking.bd_seconds,
        shared=settings.tracking.shared,
        with_details=settings.work.reads_issues,
    )


KIND = SourceKind(
    name="bd",
    called="bd",
    open=_open,
    capabilities=Capabilities(dependencies=True, parents=True, leases=True, hand_over=True),
    forms=("bd",),
    checks=Late("beads_workers.checks.tracker:bd"),
)
