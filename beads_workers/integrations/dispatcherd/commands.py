"""``dispatcherd-config``: settings with which dispatcherd's ``dispatcherctl`` finds a fleet."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import find_state_directory
from beads_workers.errors import CommandError
from beads_workers.runtime.locks import is_locked

EXAMPLE = "Example: beads-workers dispatcherd-config --write dispatcher.yml && dispatcherctl status"
Write = Annotated[
    Path | None, typer.Option("--write", metavar="FILE", help="Write it there instead.")
]


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("dispatcherd-config", epilog=EXAMPLE)(dispatcherd_config)


def dispatcherd_config(
    write: Write = None, as_json: Json = False, state_dir: StateDir = None
) -> None:
    """Print the settings with which 'dispatcherctl' finds this fleet.

    They stay the same from run to run. docs/DISPATCHERD.md says what can be asked.
    """
    from beads_workers.runtime.run_directory import RunDirectory

    directory = find_state_directory(state_dir).absolute()
    socket = RunDirectory(directory).control_socket
    settings = {
        "version": 2,
        "brokers": {"socket": {"socket_path": str(socket)}},
        "publish": {"default_broker": "socket", "default_control_broker": "socket"},
    }
    if not is_locked(directory / "lock"):
        print("note: no fleet is running here now", file=sys.stderr)
    # JSON is also YAML; a line for each broker is easier to read and to change.
    text = json.dumps(settings) if as_json else json.dumps(settings, indent=2)
    if write is None:
        print(text)
        return
    try:
        write.write_text(f"{text}\n")
    except OSError as error:
        raise CommandError(f"cannot write {write}: {error.strerror}") from None
