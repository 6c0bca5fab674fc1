"""The live page without a browser: the snapshot that it gets, and the end of its server."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from typing import Any

from beads_workers.runtime import sessions
from beads_workers.runtime.locks import is_locked
from tests.night.ground import wait_until
from tests.support.fleet import Fleet


def snapshot(fleet: Fleet) -> dict[str, Any]:
    """The snapshot that a browser gets."""
    url = re.search(r"ok web +(http\S+)", fleet.errors)
    assert url is not None, fleet.said()
    with urllib.request.urlopen(f"{url[1].rstrip('/')}/events", timeout=30) as stream:
        found: dict[str, Any] = next(_snapshots(stream))
    return found


def _snapshots(stream: Any) -> Iterator[dict[str, Any]]:
    event = ""
    for line in stream:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        event = value if name == "event" else event
        if name == "data" and event == "snapshot":
            yield json.loads(value)


def end_page(fleet: Fleet) -> None:
    """The server of the page outlives its fleets; a person ends it."""
    file = fleet.state_directory / "web.json"
    if file.exists() and is_locked(file):
        pid = json.loads(file.read_bytes())["pid"]
        if (started := sessions.start_time(pid)) is not None:
            sessions.kill(pid, started, signal.SIGTERM)
            wait_until(lambda: sessions.start_time(pid) != started, 10, "the page's server ends")
