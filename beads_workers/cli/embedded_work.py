"""What the issues of the embedded tracker bring along to be run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from beads_workers.cli.errors import EXIT_TRACKER, CommandError
from beads_workers.core.source import SourceError
from beads_workers.core.text import printable

if TYPE_CHECKING:
    import sqlite3

    from beads_workers.cli.preparing import Tracker


def issues_bring_commands(tracker: Tracker) -> bool:
    """Whether any issue has a command of its own, so that the fleet needs none."""
    if tracker.source != "sqlite":
        return False
    from beads_workers.sources.sqlite.store import any_command

    with _embedded(tracker) as connection:
        return any_command(connection)


def allow_functions(tracker: Tracker) -> str:
    """What has the functions called that issues name; "" where none does."""
    if tracker.source != "sqlite":
        return ""
    from beads_workers.sources.sqlite.store import a_function

    with _embedded(tracker) as connection:
        path = printable(a_function(connection), 60)
    if not path or "#" in path:  # Of an RRQ executor: it is that which calls it.
        return ""
    return f"to call {path}: beads-workers start --allow-module {path.partition('.')[0]}"


@contextlib.contextmanager
def _embedded(tracker: Tracker) -> Iterator[sqlite3.Connection]:
    from beads_workers.sources.sqlite.schema import connect

    try:
        with contextlib.closing(connect(tracker.place)) as connection:
            yield connection
    except SourceError as error:
        raise CommandError(str(error), error.hint, EXIT_TRACKER) from None
