"""A demo while it runs: the dashboard with its captions, or lines with the captions in between."""

from __future__ import annotations

import json
import select
import sys
import time
from typing import Any

from beads_workers.cli.client import Client
from beads_workers.cli.demo.captions import Narrator
from beads_workers.cli.launching import Interrupts, Watched
from beads_workers.core.board import Board
from beads_workers.core.frames import FRAME_SECONDS, Frames
from beads_workers.core.journal_lines import from_json
from beads_workers.dashboard.lines import line
from beads_workers.edge.run_directory import RunDirectory
from beads_workers.edge.terminal import can_draw


def show(client: Client, state: RunDirectory, *, as_json: bool) -> Watched:
    """To its end, or until the viewer leaves."""
    if as_json or not can_draw():
        return _Lines(client, as_json=as_json).run()
    from beads_workers.cli import live
    from beads_workers.cli.feeds import FleetFeed
    from beads_workers.dashboard.look import Role

    seen = live.show(FleetFeed(client), Role.START, state.run, Narrator())
    return Watched(seen.ended, seen.signal, detached=seen.why is live.Left.DETACHED)


class _Lines:
    """What ``start`` prints, and each caption when its time has come."""

    def __init__(self, client: Client, *, as_json: bool) -> None:
        self._client = client
        self._as_json = as_json
        # The snapshots are those of ``bw.watch``: a function of the lines that come anyway.
        self._frames = Frames(Board(), watched=True)
        self._narrator = Narrator()
        self._snapshot: dict[str, Any] | None = None
        self._caption = ""
        self._last = 0.0, time.monotonic()
        """When the last entry was written: seconds of the run, and by our clock."""

    def run(self) -> Watched:
        interrupts, over = Interrupts(self._client), False
        while not over:
            select.select([self._client], [], [], FRAME_SECONDS)
            messages, over = self._client.receive()
            for message in messages:
                if "ended" in message:
                    return Watched(message["ended"], interrupts.first)
                self._heard(message)
            self._narrate()
            sys.stdout.flush()
        return Watched(None, interrupts.first)

    def _heard(self, message: dict[str, Any]) -> None:
        if (entry := from_json(message)) is None:
            return
        self._last = entry.elapsed, time.monotonic()
        self._snapshot = self._frames.add(entry) or self._snapshot
        if self._as_json:
            print(json.dumps(message))
        elif (text := line(entry)) is not None:
            print(text)

    def _narrate(self) -> None:
        elapsed, heard_at = self._last
        elapsed += time.monotonic() - heard_at
        self._snapshot = shown = self._frames.due(elapsed) or self._snapshot
        if shown is None:
            return
        caption = self._narrator(shown, max(0.0, elapsed - shown["uptime_seconds"]))
        if caption != self._caption:
            self._caption = caption
            print(json.dumps({"caption": caption}) if self._as_json else f"-- {caption}")
