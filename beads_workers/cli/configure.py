"""``config show``, ``config path`` and ``config verify``."""

from __future__ import annotations

import json as json_text
import os
from pathlib import Path

import typer

from beads_workers.cli import proposals
from beads_workers.cli.config import find_file, render, resolve, to_json
from beads_workers.core.base.text import json_line
from beads_workers.errors import CommandError
from beads_workers.options import FILE_NAME


def register(app: typer.Typer) -> None:
    """Add ``config show``, ``config path`` and ``config verify``."""
    group = typer.Typer(
        no_args_is_help=True, help="Show the settings in force and where they come from."
    )
    app.add_typer(group, name="config")
    group.command("show", epilog="Example: beads-workers config show --origin")(_show)
    group.command("path", epilog="Example: beads-workers config path")(_path)
    group.command("verify", epilog="Example: beads-workers config verify --write")(_verify)


def _show(origin: bool = False, json: bool = False) -> None:
    """Every setting that holds here, and with --origin who said so."""
    resolved = resolve({}, Path.cwd(), os.environ)
    if json:
        print(json_text.dumps(to_json(resolved), indent=2))
    else:
        print("\n".join(render(resolved, origin=origin)))


def _path() -> None:
    """The beads-workers.toml that holds here; exit 1 without one."""
    path = find_file(Path.cwd())
    if path is None:
        raise CommandError(f"no {FILE_NAME} here or above", "beads-workers init writes one")
    print(path)


def _verify(write: bool = False, json: bool = False) -> None:
    """A command that could check the work; --write sets it.

    It is recognised from the project's files. Nothing is run, and what is set already stays.
    """
    found = proposals.current_setting(write=write)
    if json:
        print(json_line(found.as_json()))
        return
    for line in found.lines():
        print(line)
    if found.already is None and not (found.proposal and found.proposal.line):
        raise CommandError("no command that checks the work was recognised", proposals.NONE_HINT)
