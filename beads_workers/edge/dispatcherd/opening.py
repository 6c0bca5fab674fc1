"""A front with its brokers."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beads_workers.core.events import Event
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Source
from beads_workers.edge.dispatcherd.front import DispatcherdFront
from beads_workers.edge.dispatcherd.unix_broker import UnixBroker
from beads_workers.sources.dispatcherd.brokers import Brokers, brokers_from_json
from beads_workers.sources.dispatcherd.source import DispatcherdSource


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


def open_ingress(
    settings: FleetSettings,
    source: Source,
    selector: selectors.BaseSelector,
    tell: Callable[[Event], None],
    control: Callable[[], Any],
) -> DispatcherdFront:
    """See ``sources.kind.SourceKind.ingress``; what the brokers ask of the fleet is answered."""
    assert isinstance(source, DispatcherdSource)
    brokers = brokers_from_json(dict(settings.source_private))
    front = open_dispatcherd(brokers, source, selector, tell)
    answering = control()
    front.answerer, answering.front = answering.ask, front
    return front
