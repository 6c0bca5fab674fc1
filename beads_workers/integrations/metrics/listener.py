"""The port of the loopback interface on which figures are served, taken before a fleet starts.

The server itself is loaded only if it is wanted.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING

from beads_workers.core.schedule.events import Event
from beads_workers.core.views.snapshot import Board
from beads_workers.runtime.handshake import StartRefused
from beads_workers.runtime.sockets import TcpListener

if TYPE_CHECKING:
    from beads_workers.integrations.metrics.server import MetricsServer


LOOPBACK = "127.0.0.1"


def listen(port: int) -> TcpListener:
    """Take the port; 0: any free one. Raises ``StartRefused``."""
    try:
        return TcpListener(LOOPBACK, port)
    except OSError as error:
        why = f"metrics cannot be served on {LOOPBACK}:{port}: {os.strerror(error.errno or 0)}"
        raise StartRefused(why, "see who is there: ss -ltnp; or take any free one: 0", 1) from None


def url_of(listener: TcpListener) -> str:
    """Return the URL of the figures."""
    return f"http://{LOOPBACK}:{listener.port}/metrics"


def serve(
    listener: TcpListener,
    selector: selectors.BaseSelector,
    tell: Callable[[Event], None],
    look: Callable[[], tuple[Board, float]],
) -> MetricsServer:
    """Return the server, which the loop ticks."""
    from beads_workers.integrations.metrics.server import MetricsServer

    return MetricsServer(listener, selector, tell, look)
