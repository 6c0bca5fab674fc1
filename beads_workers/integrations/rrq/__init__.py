"""The source kind "an RRQ orchestrator": this fleet is an RRQ executor (``rrq-executor``)."""

from __future__ import annotations

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.source import Source
from beads_workers.kinds import Capabilities, Late, Opening, SourceKind


@value
class RrqExecutor:
    """The options of an RRQ executor."""

    # Text form of an address in ``integrations.rrq.source``.
    address: str
    # Prefix of every function name, joined by a dot.
    function_prefix: str = ""
    # Process id; the executor ends with that process; 0 for none.
    parent: int = 0
    # The executor ends if nobody has connected for this long.
    alone_seconds: float | None = None
    # The executor listens as soon as a worker is ready, and at this time at the latest (monotonic
    # seconds).
    open_by: float = 0.0


def _open(opening: Opening) -> Source:
    from beads_workers.integrations.rrq.request_table import RequestTable
    from beads_workers.integrations.rrq.source import RrqSource

    settings = opening.settings
    rrq = from_plain(RrqExecutor, settings.source_options)
    return RrqSource(
        RequestTable(),
        actor=opening.actor,
        place=rrq.address,
        calls_functions=settings.work.command is None,
        prefix=rrq.function_prefix,
        attempt_seconds=settings.work.timeout_seconds,
    )


KIND = SourceKind(
    name="rrq",
    called="an RRQ orchestrator",
    open=_open,
    capabilities=Capabilities(push=True, looks=False),
    named=False,
    ingress=Late("beads_workers.integrations.rrq.ingress:open_ingress"),
    prompt=True,
)
