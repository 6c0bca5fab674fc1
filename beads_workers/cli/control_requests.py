"""Commands that send one request of the same name to a running fleet, and print the answer.

Each entry of ``registry.COMMANDS["cli.control_requests"]`` becomes a command here. It sends the
request ``bw.NAME``, which is a file of ``core.requests``, or, as for ``pause`` and ``resume``, an
event of ``core.schedule.events`` (read by ``runtime.control_socket``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import connect, find_state_directory
from beads_workers.cli.completion import workers
from beads_workers.cli.fleet import report
from beads_workers.registry import COMMANDS

MORE = {
    "pause": "If workers are named, only these get nothing new. With 'start --suspend', their"
    " commands are stopped, too.",
    "resume": "Resumes the fleet and all its workers; if workers are named, only these.",
}
"""Additional help of the commands that take workers."""


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for name, sentence in COMMANDS["cli.control_requests"].items():
        help_text = f"{sentence}\n\n{MORE.get(name, '')}".rstrip()
        asks = _asks_for_workers(name) if name in MORE else _asks(name)
        app.command(name, help=help_text, epilog=f"Example: beads-workers {name}")(asks)


def _asks(name: str) -> Callable[..., None]:
    def ask(as_json: Json = False, state_dir: StateDir = None) -> None:
        _ask(name, {}, state_dir, as_json=as_json)

    return ask


def _asks_for_workers(name: str) -> Callable[..., None]:
    def ask(
        workers: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[WORKER]...", help="Only these: W1 W3.", autocompletion=workers
            ),
        ] = None,
        as_json: Json = False,
        state_dir: StateDir = None,
    ) -> None:
        _ask(name, {"worker_ids": workers or []}, state_dir, as_json=as_json)

    return ask


def _ask(name: str, data: dict[str, Any], state_dir: str | None, *, as_json: bool) -> None:
    answer = connect(find_state_directory(state_dir)).ask(f"bw.{name}", data)
    report(answer, as_json=as_json)
