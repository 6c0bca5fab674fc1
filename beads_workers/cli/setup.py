"""``setup``: from a clone to the line that starts a fleet, in one command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from beads_workers.cli import proposals
from beads_workers.cli.arguments import Json
from beads_workers.cli.client import project_here, tracker_here
from beads_workers.cli.config import find_file, read_file, set_key
from beads_workers.core.base.text import json_line, printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE
from beads_workers.options import FILE_NAME, given


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("setup", epilog="Example: beads-workers setup --yes")(setup)


def setup(
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="Otherwise the first one that is installed."),
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Ask nothing.")] = False,
    json: Json = False,
) -> None:
    """Find what a fleet needs here, write it down, and try the check once.

    It finds the tracker, an agent, the command that checks the work, and what a new worktree needs
    first. Settings that are there stay. The check runs once in a worktree of its own.
    """
    found = _found(agent)
    if not json:
        for name, text in found.items():
            print(f"{name:<8} {printable(text)}")
    if not (yes or json or _agrees()):
        raise CommandError("nothing was changed", exit_code=EXIT_USAGE)
    _write(found.get("agent", ""))
    _try(quiet=json)
    line = "beads-workers start"
    print(json_line({**found, "start": line}) if json else f"start it with: {line}")


def _found(agent: str | None) -> dict[str, str]:
    """Return what there is, by name; raise ``CommandError`` if no agent is installed."""
    from beads_workers.agents.presets import PRESETS, find_agents

    file = find_file(Path.cwd())
    said = read_file(file)[0] if file else {}
    here = find_agents(os.environ.get("PATH", ""))
    chosen = agent or _text(said.get("agent")) or next(iter(here), "")
    if not chosen and said.get("command") is None:
        known = ", ".join(PRESETS)
        raise CommandError("no agent is installed here", f"install one of: {known}", EXIT_USAGE)
    project, setting = project_here(), proposals.current_setting(write=False)
    proposal = setting.proposal
    is_bd = project is not None and project.beads is not None
    tracker = "bd" if is_bd else "of its own" + ("" if tracker_here() else " (is made)")
    rows = {
        "tracker": tracker,
        "agent": chosen,
        "verify": setting.already or (proposal.line if proposal else ""),
        "setup": _text(said.get("worktree_setup")) or (proposal.setup if proposal else ""),
        "file": str(setting.file),
    }
    return {name: text for name, text in rows.items() if text}


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value or "")


def _agrees() -> bool:
    if not sys.stdin.isatty():
        raise CommandError("nobody to ask", "say --yes", EXIT_USAGE)
    print(f"write this to {FILE_NAME}, and run the check once? [Y/n] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _write(agent: str) -> None:
    from beads_workers.cli.tracker_folder import make_tracker

    project = project_here()
    if tracker_here() is None and (project is None or project.beads is None):
        make_tracker(Path.cwd())
    place = proposals.current_setting(write=True).file
    if agent and set_key(place, "agent", agent) is None:
        proposals.trust_settings("agent")


def _try(*, quiet: bool) -> None:
    """Check all that ``start`` checks, and run the check; raise ``CommandError`` for a failure."""
    from beads_workers.cli.checking import Drawn, check_start
    from beads_workers.cli.preparation import plan_of
    from beads_workers.cli.trust import settle

    resolved = settle(given({}), may_ask=not quiet)
    check_start(plan_of(resolved, (), owned=True, progress=Drawn(quiet=quiet)), quiet=quiet)
