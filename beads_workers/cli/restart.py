"""``restart``: stop the fleet and start it again, with the words it was started with."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from beads_workers.cli.client import connect, find_state_directory, wait_for_exit
from beads_workers.cli.errors import EXIT_USAGE, CommandError


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("restart", epilog="Example: beads-workers restart")(restart)


def restart(
    detach: Annotated[bool, typer.Option("-d", "--detach", help="Return at once.")] = False,
    state_dir: Annotated[str | None, typer.Option(metavar="DIR")] = None,
) -> None:
    """Stop the fleet and start it again as it was started."""
    directory = find_state_directory(state_dir)
    client = connect(directory)
    info = json.loads((directory / "run.json").read_bytes())
    client.send("bw.stop")
    for message in client.follow():
        if "ended" in message:
            break
    wait_for_exit(info["pid"], 30.0)
    argv = [a for a in info["argv"] if not detach or a not in ("-d", "--detach")]
    if not argv or argv[0] not in ("start", "restart"):
        raise CommandError("that fleet was not started by 'start'", "start it anew", EXIT_USAGE)
    argv = [*argv[:1], "--detach", *argv[1:]] if detach else argv
    os.chdir(info["folder"])
    os.execv(sys.executable, [sys.executable, "-P", "-m", "beads_workers", *argv])
