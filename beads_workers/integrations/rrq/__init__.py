"""What being an RRQ executor is as a kind of source; ``beads-workers rrq-executor`` starts it."""

from __future__ import annotations

from beads_workers.core.model import value
from beads_workers.core.plain import from_plain
from beads_workers.core.source import Source
from beads_workers.kinds import Capabilities, Late, Opening, SourceKind


@value
class RrqExecutor:
    """Being an RRQ executor. ``address``: ``integrations.rrq.source``, as text; ``function_prefix``
    stands before the names of functions, with a dot. ``parent``: the process with which it ends; 0
    for none. ``alone_seconds``: it ends when nobody has connected for so long. ``open_by``: it
    listens when a worker is ready, and by then at the latest (monotonic seconds)."""

    address: str
    function_prefix: str = ""
    parent: int = 0
    alone_seconds: float | None = None
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
