"""A front with its brokers."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from pathlib import Path

from beads_workers.core.brokers import Brokers
from beads_workers.core.events import Event
from beads_workers.edge.dispatcherd.front import DispatcherdFront
from beads_workers.edge.dispatcherd.unix_broker import UnixBroker
from beads_workers.sources.dispatcherd import DispatcherdSource


def open_dispatcherd(
    brokers: Brokers,
    source: DispatcherdSource,
    selector: selectors.BaseSelector,
    tell: Callable[[Event], None],
) -> DispatcherdFront:
    """Listens everywhere. Raises ``OSError`` where something is in the way."""
    source.open()
    front = DispatcherdFront(
        source, tell, chunk_seconds=brokers.chunk_seconds, node_id=brokers.node_id
    )
    for path in brokers.sockets:
        front.brokers.append(UnixBroker(Path(path), selector, tell, front))
    for settings in brokers.postgres:
        # Few fleets need it, and it takes longer to load than all the rest.
        from beads_workers.edge.dispatcherd.postgres_broker import PostgresBroker

        front.brokers.append(PostgresBroker(settings, selector, tell, front))
    return front
