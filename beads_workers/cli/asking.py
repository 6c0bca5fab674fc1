"""Commands that send one request of the same name to a running fleet, and print the answer.

An entry of ``registry.COMMANDS["cli.asking"]`` and a file of ``core.requests`` make one.
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
    "pause": "With workers: only to these; 'start --suspend' stops their commands, too.",
    "resume": "The fleet and all its workers; with workers: these.",
}
"""Additional help of the commands that take workers."""


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for name, sentence in COMMANDS["cli.asking"].items():
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
