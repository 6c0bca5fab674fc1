"""``config show``, ``config path``, ``config verify`` and ``config worktree``."""

from __future__ import annotations

import json as json_text
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from beads_workers.checks.needs import Needs
from beads_workers.cli import proposals
from beads_workers.cli.config import find_file, render, resolve, to_json
from beads_workers.core.base.text import json_line, printable
from beads_workers.errors import CommandError
from beads_workers.options import FILE_NAME, as_toml


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    group = typer.Typer(
        no_args_is_help=True, help="Show the settings in force and where they come from."
    )
    app.add_typer(group, name="config")
    group.command("show", epilog="Example: beads-workers config show --origin")(_show)
    group.command("path", epilog="Example: beads-workers config path")(_path)
    group.command("verify", epilog="Example: beads-workers config verify --write")(_verify)
    group.command("worktree", epilog="Example: beads-workers config worktree --write")(_worktree)


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


def _worktree(write: bool = False, json: bool = False) -> None:
    """Say what a new worktree needs beside git's files; --write sets it, and a terminal is asked.

    It is recognised from the project's files: packages to install, files that git ignores, ports,
    databases. Nothing is run, and what is set already stays.
    """
    found, already = proposals.worktree_needs()
    wanted = {key: text for key, text in found.all().items() if key not in already}
    if not json:
        print("\n".join(_of_worktree(found, wanted, already)))
    asks = not (write or json) and sys.stdin.isatty() and sys.stdout.isatty()
    if wanted and (write or (asks and _agrees())):
        proposals.write_needs(wanted)
        if not json:
            print(f"written to {FILE_NAME}; 'beads-workers doctor --worktree' tries it")
    if json:
        proposal = {**found.settings, "env": found.env}
        about = {"already": sorted(already), "why": found.why, "notes": found.notes}
        print(json_line({"proposal": proposal, **about, "written": write}))


def _of_worktree(
    found: Needs, wanted: Mapping[str, Any], already: Mapping[str, Any]
) -> Iterator[str]:
    if not (found.all() or found.notes):
        yield "a new worktree of this project needs nothing but git's files"
    plain = {key: text for key, text in wanted.items() if key != "env"}
    for key, text in (
        plain | {f"env.{name}": text for name, text in wanted.get("env", ())}
    ).items():
        yield f"{key} = {as_toml(text)}  ({printable(found.why[key.removeprefix('env.')])})"
    yield from (f"{key} is set already, and stays" for key in already)
    yield from (f"not in it: {printable(note)}" for note in found.notes)


def _agrees() -> bool:
    print(f"write this to {FILE_NAME}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
