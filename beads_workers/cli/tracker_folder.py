"""The folder of the built-in tracker: ``init`` makes it, the other commands find it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.client import project_here, tracker_here
from beads_workers.core.base.source import SourceError
from beads_workers.core.base.text import json_line, printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_TRACKER, EXIT_USAGE
from beads_workers.runtime.project import STATE_FOLDER, TRACKER_FILE, is_tracker

if TYPE_CHECKING:
    import sqlite3


CONFIG_FILE = "beads-workers.toml"

_CONFIG = """\
# Settings of `beads-workers start` in this project: long option names with underscores.
# `beads-workers config show --origin` says which value won, and why.

# workers = 8
# command = ["make", "test"]    # or, for instance: ["sh", "-c", "echo \\"$BW_ISSUE_TITLE\\""]
# agent = "claude"              # instead of a command: an AI agent
# verify = "make test"          # must succeed, too, before an issue is closed
# timeout = 1800                # seconds for one issue
# max_attempts = 3
"""

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def init(
    prefix: Annotated[
        str, typer.Option("--prefix", help="How issue ids begin; the folder's name unless given.")
    ] = "",
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Set the command that checks the work, as recognised here."),
    ] = False,
    json: Json = False,
) -> None:
    """Make a tracker and a settings file in this folder.

    Files that exist are kept. A command that checks the work is proposed if one is recognised.
    """
    from beads_workers.cli import proposals

    here = Path.cwd()
    database, made, config_made = make_tracker(here, prefix)
    if is_tracker(here / ".beads"):
        warn("there is a .beads folder here too: 'start' takes it, unless --source sqlite is given")
    found = proposals.current_setting(write=verify)
    if config_made and not found.written:
        proposals.trust_settings()
    if json:
        what = {"tracker": str(database), "created": made, "config_created": config_made}
        print(json_line(what | {"verify": found.as_json()}))
        return
    print(f"{'created' if made else 'already there'}: {printable(str(database))}")
    if config_made:
        print(f"created: {printable(str(here / CONFIG_FILE))}")
    for line in found.lines():
        print(line)
    if verify and not found.lines():
        warn(f"no command that checks the work was recognised; {proposals.NONE_HINT}")
    from beads_workers.agents.presets import find_agents

    if agents := find_agents(os.environ.get("PATH", "")):
        print(f"next: beads-workers setup makes it ready for {agents[0]}")
        return
    print("next: beads-workers add 'my first issue' -- echo hello")


def make_tracker(here: Path, prefix: str = "") -> tuple[Path, bool, bool]:
    """Make a tracker and a settings file; return the tracker, and whether each was made now.

    Raise ``CommandError``.
    """
    from beads_workers.trackers.sqlite.store import create

    prefix = _checked_prefix(prefix) if prefix else _prefix_of(here)
    database = here / STATE_FOLDER / TRACKER_FILE
    try:
        _make_folder(database.parent)
        config_made = _write_new(here / CONFIG_FILE, _CONFIG)
    except OSError as error:
        raise CommandError(f"{printable(str(error.filename))}: {error.strerror}") from error
    with tracker_errors(database):
        return database, create(database, prefix), config_made


@contextlib.contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    """Provide a connection to the nearest tracker above; raise ``CommandError`` without one."""
    from beads_workers.trackers.sqlite.store import connect, translated

    database = tracker_here()
    if database is None:
        project = project_here()
        if project is not None and project.beads is not None:
            hint = "use bd: 'bd import', 'bd export'"
            raise CommandError("the tracker of this project is bd", hint, EXIT_TRACKER)
        raise no_tracker()
    with tracker_errors(database):
        connection = connect(database)
        try:
            with translated(database):
                yield connection
        finally:
            connection.close()


def no_tracker() -> CommandError:
    """Return the error of a command in a folder without issues."""
    hint = "run 'beads-workers init' here, or go to a folder below one"
    return CommandError("no tracker here", hint, EXIT_TRACKER)


@contextlib.contextmanager
def tracker_errors(database: Path) -> Iterator[None]:
    """Turn a tracker's errors into a ``CommandError`` with exit code 6."""
    try:
        yield
    except SourceError as error:
        raise unopened(database, error) from error


def unopened(database: Path, error: SourceError) -> CommandError:
    """Return the error for a tracker that cannot be used, with what mends it."""
    from beads_workers.checks.project import cannot_open
    from beads_workers.cli.refusals import refusal

    return refusal(cannot_open(database, error))


def warn(text: str) -> None:
    """Print a warning to stderr; the command continues."""
    print(f"warning: {text}", file=sys.stderr)


def _make_folder(folder: Path) -> None:
    """Make a folder that only the user can read (it has logs) and that git ignores."""
    folder.mkdir(mode=0o700, exist_ok=True)
    _write_new(folder / ".gitignore", "*\n", mode=0o600)


def _write_new(path: Path, text: str, mode: int = 0o666) -> bool:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(path, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _checked_prefix(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise CommandError(
            f"{printable(prefix, 40)!r} cannot begin an issue id",
            "a prefix is made of letters, digits, - and _",
            EXIT_USAGE,
        )
    return prefix


def _prefix_of(folder: Path) -> str:
    words = re.findall(r"[a-z0-9]+", folder.name.lower())
    return "-".join(words)[:40].strip("-") or "bw"
