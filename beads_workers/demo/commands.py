"""``demo``: a complete run of the real engine, with everything that can go wrong, in a minute."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beads_workers.cli.client import ControlClient
from beads_workers.cli.launch import Interrupts, WatchResult
from beads_workers.core.records.journal import from_json
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import FRAME_SECONDS, Frames
from beads_workers.demo.captions import Narrator
from beads_workers.errors import CommandError
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.ui.lines import line
from beads_workers.ui.terminal import can_draw

if TYPE_CHECKING:
    from beads_workers.core.base.settings import FleetSettings
    from beads_workers.demo.account import Killed
    from beads_workers.demo.workspace import DemoWorkspace


# --- display -------------------------------------------------------------------------------------
# A running demo: the dashboard with its captions, or lines with the captions in between.


def show(client: ControlClient, state: RunDirectory, *, as_json: bool) -> WatchResult:
    """Show the demo to its end, or until the viewer leaves."""
    if as_json or not can_draw():
        return _Lines(client, as_json=as_json).run()
    from beads_workers.cli import live
    from beads_workers.cli.feeds import FleetFeed
    from beads_workers.ui.viewer import Role

    seen = live.show(FleetFeed(client), Role.START, state.run, Narrator())
    return WatchResult(seen.ended, seen.signal, detached=seen.why is live.Left.DETACHED)


class _Lines:
    """Prints the lines of ``start``, and each caption when its time has come."""

    def __init__(self, client: ControlClient, *, as_json: bool) -> None:
        self._client = client
        self._as_json = as_json
        # The same snapshots as those of ``bw.watch``, made from the entries that arrive anyway.
        self._frames = Frames(Board(), watched=True)
        self._narrator = Narrator()
        self._snapshot: dict[str, Any] | None = None
        self._caption = ""
        self._last = 0.0, time.monotonic()
        """Time of the last entry: seconds of the run, and our clock."""

    def run(self) -> WatchResult:
        interrupts, over = Interrupts(self._client), False
        while not over:
            select.select([self._client], [], [], FRAME_SECONDS)
            messages, over = self._client.receive()
            for message in messages:
                if "ended" in message:
                    return WatchResult(message["ended"], interrupts.first)
                self._handle_message(message)
            self._narrate()
            sys.stdout.flush()
        return WatchResult(None, interrupts.first)

    def _handle_message(self, message: dict[str, Any]) -> None:
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


# --- demo ----------------------------------------------------------------------------------------
# A demo is ``start`` in a folder of its own with the built-in tracker. Only the backlog, the
# captions and the thread that kills a worker belong to the demo.


LEAVE_SECONDS = 20.0
"""Longest time for the end of the fleet: more than the limits of a graceful stop and of the
tracker thread."""


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("demo", epilog="Example: beads-workers demo")(demo)


def demo(
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per event and caption.")
    ] = False,
) -> None:
    """Show a whole run in under a minute, mishaps included.

    8 workers, 44 issues, and what can go wrong with them.

    It runs in a folder of its own and needs no bd, no key and no network. Workers are killed,
    tasks fail and time out for real; what is promised about that is checked at the end.
    """
    from beads_workers.core.base.source import SourceError
    from beads_workers.demo.workspace import DemoWorkspace

    _leave_in_order()
    with DemoWorkspace() as workspace:
        try:
            workspace.fill()
        except (OSError, SourceError) as error:
            hint = "set BW_CACHE to a folder with a few megabytes to spare"
            raise CommandError(f"the demo cannot be set up: {error}", hint) from None
        os.chdir(workspace.folder)
        raise typer.Exit(_run(workspace, as_json=as_json))


def _leave_in_order() -> None:
    """Exit on TERM and HUP, like on Ctrl-C, until the fleet runs: the folder is removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))


def _run(workspace: DemoWorkspace, *, as_json: bool) -> int:
    from beads_workers.cli.client import wait_for_exit
    from beads_workers.cli.launch import Launch
    from beads_workers.demo.account import Hand
    from beads_workers.demo.backlog import ItemFate, of_fate

    launch = Launch()
    hand = Hand(workspace.state, of_fate(ItemFate.KILLED)[0])
    watched = None
    try:
        # If anything fails from here on, the end of this connection stops the fleet.
        with closing(launch.client):
            started = launch.tell(_settings(workspace))
            hand.start()
            watched = show(launch.client, workspace.state, as_json=as_json)
    finally:
        if watched is None or not watched.detached:
            wait_for_exit(launch.pid, LEAVE_SECONDS)
    if watched.detached:
        workspace.keep()
        print(f"the demo goes on by itself: cd {workspace.folder} && beads-workers watch")
        return 0
    if watched.ended is None and watched.signal is None:
        workspace.keep()
        raise CommandError(
            "the orchestrator ended without a word",
            f"its log is {workspace.state.run(started['run_id'])}/orchestrator.log",
        )
    return _conclude(workspace, watched, hand.killed, as_json=as_json)


def _conclude(
    workspace: DemoWorkspace, watched: WatchResult, killed: Killed | None, *, as_json: bool
) -> int:
    """Print what was seen and whether the promises were kept; return the exit code."""
    from beads_workers.demo import account as closing_words
    from beads_workers.demo.account import DemoAccount, promises
    from beads_workers.runtime import sessions
    from beads_workers.runtime.journal_file import read_journal

    account, ended = DemoAccount(), watched.ended
    run = workspace.state.run(ended["run_id"]) if ended else None
    for entry in read_journal(run / "journal.jsonl") if run else ():
        account.add(entry)
    if run is None or ended is None or account.stopped:
        print("stopped; nothing is left running, and nothing on the disk", file=sys.stderr)
        return 128 + watched.signal if watched.signal else 0
    workspace.keep()
    living = sessions.living(ended["run_id"], run / "alive")
    checked = list(promises(account, ended, workspace.statuses(), living, killed))
    if as_json:
        print(json.dumps(closing_words.as_object(workspace.folder, ended, killed, checked)))
    else:
        for text in closing_words.everything(workspace.folder, account, ended, killed, checked):
            print(text)
    return 1 if any(promise.broken for promise in checked) else 0


def _settings(workspace: DemoWorkspace) -> FleetSettings:
    """Return the settings of ``start --until-empty`` there, independent of the environment."""
    from beads_workers.cli.config import resolve
    from beads_workers.cli.preparation import prepare
    from beads_workers.options import TRUST_ALL

    options = {"until_empty": True, "trust": TRUST_ALL}
    return prepare(resolve(options, workspace.folder, {}), (), owned=True)
