"""``restart``: stop the fleet and start it again, with the options it was started with."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from beads_workers.cli.arguments import Trust
from beads_workers.cli.client import connect, find_state_directory, wait_for_exit
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("restart", epilog="Example: beads-workers restart")(restart)


def restart(
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Return at once.")] = False,
    state_dir: Annotated[str | None, typer.Option(metavar="DIR")] = None,
    trust: Trust = False,
) -> None:
    """Stop the fleet and start it again as it was started."""
    from beads_workers.checks.hours import no_time_left
    from beads_workers.cli.start import StartView, run_start
    from beads_workers.cli.trust import refuse_untrusted, settle
    from beads_workers.options import TRUST_ALL, given, options_of
    from beads_workers.runtime.endings import RESTART_FILE
    from beads_workers.runtime.run_directory import RunDirectory, write_private

    directory = find_state_directory(state_dir)
    client = connect(directory)
    info = json.loads((directory / "run.json").read_bytes())
    earlier = RunDirectory(directory).read_settings(info["run_id"])
    if earlier is None or earlier.typed is None:
        raise CommandError("that fleet was not started by 'start'", "start it anew", EXIT_USAGE)
    os.chdir(earlier.folder)
    options = given({**earlier.typed, "new_night": None, "trust": TRUST_ALL if trust else None})
    if (wrong := no_time_left(options_of(options))) is not None:
        raise CommandError(wrong.text, "start it anew, with another --until", EXIT_USAGE)
    if client.ask("bw.status")["state"] != "waiting":
        options = given({**options, "start_at": None})  # Its time has come, or a person began.
    resolved = settle(options)
    refuse_untrusted(resolved)  # While there still is a fleet.
    write_private(directory / "runs" / info["run_id"] / RESTART_FILE, str(os.getpid()))
    client.send("bw.stop")
    for message in client.follow():
        if "ended" in message:
            break
    wait_for_exit(info["pid"], 30.0)
    how = StartView(detach=detach or not earlier.owned)
    options = given({**options, "trust": resolved.options.trust})
    run_start(options, earlier.filters.only, how, earlier.argv)
