"""``watch`` and ``replay``: the same dashboard, of a running fleet and of a journal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import connect, connect_if_running, find_state_directory
from beads_workers.cli.completion import runs
from beads_workers.cli.fleet import EnvelopesToo, refuse_without_json
from beads_workers.cli.kinds import need
from beads_workers.cli.parameters import with_options
from beads_workers.cli.runs import find_run
from beads_workers.cli.web import WithPort
from beads_workers.errors import CommandError
from beads_workers.options import Typed

if TYPE_CHECKING:
    from beads_workers.cli.client import ControlClient
    from beads_workers.core.records.journal import Entry


REPLAY_SPEED = 20.0
PAUSE_SECONDS_MAX = 2.0
"""Longest pause of a replay, however long it was in the run."""

Snapshots = Annotated[bool, typer.Option("--json", help="One snapshot a line, as 'status --json'.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("watch", cls=WithPort, epilog="Example: beads-workers watch")(watch)
    app.command("morning", epilog="Example: beads-workers morning")(morning)
    app.command("replay", epilog="Example: beads-workers replay --speed 50")(replay)


@with_options("watch", last=("state_dir",))
def watch(
    options: Typed,
    as_json: Snapshots = False,
    envelopes: EnvelopesToo = False,
    state_dir: StateDir = None,
) -> None:
    """Attach the dashboard from any terminal; leaving it stops nothing.

    With --web in a browser: the page waits for a fleet where none runs.
    """
    refuse_without_json(envelopes=envelopes, as_json=as_json)
    directory = find_state_directory(state_dir)
    port, controls = options.get("web"), options.get("web_control", False)
    if port is not None or controls:
        from beads_workers.cli import web

        web.watch(directory, port or 0, controls=controls)
        return
    client = connect(directory)
    if envelopes:
        need("envelopes").watch(client, directory)
        return
    if not as_json and _can_draw():
        _watch_drawn(client, directory)
        return
    if not as_json:
        _watch_lines(client)
        return
    client.send("bw.watch")
    for message in client.follow():
        if "snapshot" in message:
            print(json.dumps(message["snapshot"]), flush=True)


def _watch_lines(client: ControlClient) -> None:
    from beads_workers.core.records.journal import from_json, heads
    from beads_workers.ui.lines import SILENT, line

    client.skipped = heads(SILENT)
    client.send("bw.follow")
    for message in client.follow():
        entry = from_json(message)
        if entry is not None and (text := line(entry)) is not None:
            print(text)
        if client.drained:
            sys.stdout.flush()


def _watch_drawn(client: ControlClient, directory: Path) -> None:
    from beads_workers.cli import live
    from beads_workers.cli.feeds import FleetFeed
    from beads_workers.cli.launch import summary
    from beads_workers.ui.viewer import Role

    feed = FleetFeed(client, directory)
    seen = live.show(feed, Role.WATCH, (directory / "runs").joinpath, None)
    if seen.why is live.Left.ENDED and seen.ended is not None:
        for text in summary(seen.ended):
            print(text)
    elif seen.why is live.Left.LEFT:
        print("left; the fleet goes on ('beads-workers stop' ends it)")
    elif seen.signal is None:
        raise CommandError("the orchestrator ended without a word", "the next start settles it")


def morning(as_json: Json = False, state_dir: StateDir = None) -> None:
    """Decide what waits for you, whether or not a fleet runs.

    One list: questions, branches that await approval, quarantined issues, and what has landed.
    Without a fleet, the next start goes on with what you decide.
    """
    from beads_workers.cli.last_run import last_snapshot

    directory = find_state_directory(state_dir)
    client = connect_if_running(directory)
    snapshot = last_snapshot(directory) if client is None else client.ask("bw.status")
    if snapshot is None:
        raise CommandError("nothing has run here yet", "'beads-workers start' runs a fleet")
    if as_json or not _can_draw():
        _print_what_waits(snapshot, as_json=as_json)
        return
    from beads_workers.cli import live
    from beads_workers.cli.feeds import FleetFeed, MorningFeed
    from beads_workers.ui.viewer import Pane, Role

    runs = (directory / "runs").joinpath
    if client is None:
        live.show(MorningFeed(directory, snapshot), Role.MORNING, runs, pane=Pane.DECISIONS)
    else:
        live.show(FleetFeed(client, directory), Role.WATCH, runs, pane=Pane.DECISIONS)


def _print_what_waits(snapshot: dict[str, Any], *, as_json: bool) -> None:
    from beads_workers.core.base.text import json_line
    from beads_workers.ui.landing import to_type
    from beads_workers.ui.lines import by_cause, to_decide

    merge = to_type(snapshot["landing"])
    kinds = ("questions", "approvals", "quarantined")
    if as_json:
        print(json_line({kind: snapshot[kind] for kind in kinds} | {"merge": merge or None}))
        return
    lines = [
        *to_decide(snapshot),
        *(f"quarantined {text}" for text in by_cause(snapshot["quarantined"])),
    ]
    lines += [f"to merge: {merge}"] if merge else []
    for line in lines or ["nothing waits for you"]:
        print(line)


def _can_draw() -> bool:
    from beads_workers.ui.terminal import can_draw

    return can_draw()


def replay(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Default: the last one.", autocompletion=runs),
    ] = None,
    speed: Annotated[
        float | None, typer.Option(min=0.001, help="Times as fast; default 20 on a terminal.")
    ] = None,
    as_json: Snapshots = False,
    envelopes: EnvelopesToo = False,
    state_dir: StateDir = None,
) -> None:
    """Show a run again from its journal, as it was shown when it ran."""
    from beads_workers.runtime.journal_file import read_journal

    refuse_without_json(envelopes=envelopes, as_json=as_json)
    folder = find_run(find_state_directory(state_dir), run)
    entries = read_journal(folder / "journal.jsonl")
    if envelopes:
        need("envelopes").print_replay(entries)
        return
    if as_json:
        for snapshot in paced(frames(entries), speed):
            print(json.dumps(snapshot), flush=speed is not None)
        return
    if _can_draw():
        from beads_workers.cli import live
        from beads_workers.cli.feeds import ReplayFeed
        from beads_workers.ui.viewer import Role

        feed = ReplayFeed(frames(entries), speed or REPLAY_SPEED)
        live.show(feed, Role.REPLAY, folder.parent.joinpath, None)
        return
    _lines(entries, speed)


def frames(entries: Iterator[Entry]) -> Iterator[dict[str, Any]]:
    """Yield the snapshots that a viewer of the whole run was shown."""
    from beads_workers.core.views.snapshot import Board
    from beads_workers.core.views.status import Frames

    shown = Frames(Board(), watched=True)
    for entry in entries:
        if (snapshot := shown.add(entry)) is not None:
            yield snapshot
    if (snapshot := shown.rest()) is not None:
        yield snapshot


def paced(snapshots: Iterator[dict[str, Any]], speed: float | None) -> Iterator[dict[str, Any]]:
    """Yield each snapshot at its time, ``speed`` times as fast; None: at once."""
    last = 0.0
    for snapshot in snapshots:
        if speed is not None:
            pause = (snapshot["uptime_seconds"] - last) / speed
            time.sleep(min(max(0.0, pause), PAUSE_SECONDS_MAX))
            last = snapshot["uptime_seconds"]
        yield snapshot


def _lines(entries: Iterator[Entry], speed: float | None) -> None:
    from beads_workers.ui.lines import line

    last = 0.0
    for entry in entries:
        if speed is not None:
            time.sleep(min(max(0.0, entry.elapsed - last) / speed, PAUSE_SECONDS_MAX))
            last = entry.elapsed
        if (text := line(entry)) is not None:
            print(text, flush=speed is not None)
