"""The process that exports spans: ``python -m beads_workers.edge.tracing.exporting JOURNAL``.

Its stdin ends with the orchestrator; then it exports what is left, and ends. On stdout it says what
became of the spans, a JSON line whenever some were dropped, and one at its end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

from beads_workers.edge.tracing.batches import Account, Batches, bounds
from beads_workers.edge.tracing.otlp import Exporter

LAST_SECONDS = 3.0
"""For what is left at the end: a collector that is there takes it in a fraction of that."""


def main(journal: str) -> None:
    """Until the orchestrator has ended."""
    # It goes when its parent has gone, and not before.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    limits = bounds(os.environ)
    batches = Batches(Path(journal), Exporter().export, limits)
    threading.Thread(target=_send, args=(batches,), daemon=True).start()
    told = 0
    while not select.select([0], [], [], limits.delay_seconds)[0]:
        batches.look()
        if batches.account.dropped != told:
            told = batches.account.dropped
            _say(batches.account)
    batches.finish(time.time(), LAST_SECONDS)
    _say(batches.account)


def _send(batches: Batches) -> None:
    while batches.send():
        pass


def _say(account: Account) -> None:
    try:
        os.write(1, json.dumps(account.to_json()).encode() + b"\n")
    except BrokenPipeError:
        pass  # The orchestrator was killed: nobody is left to be told.


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main(sys.argv[1])
    # Whoever still waits for a collector waits for nothing.
    os._exit(0)
