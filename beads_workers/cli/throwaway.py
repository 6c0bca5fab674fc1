"""A temporary folder with a built-in tracker for one demonstration, and the checks at its end."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from beads_workers.core.base.text import printable

BROKEN_SHOWN = 5
"""Number of examples for a broken promise: a thousand examples are one bug."""


class Throwaway:
    """A folder that is removed at the end of a ``with``, unless ``keep`` was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept = False

    def keep(self) -> None:
        """Keep the folder."""
        self._kept = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._kept:
            shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise; ``broken``: how it was broken, empty if it was kept."""

    text: str
    broken: tuple[str, ...] = ()


def what_was_checked(promises: Sequence[Promise], where: str) -> Iterator[str]:
    """Yield one sentence for all kept promises, and a line for each broken one."""
    kept = [promise.text for promise in promises if not promise.broken]
    if kept:
        yield f"Checked, in {where}:"
        yield from (f"  ok {text}" for text in kept)
    for promise in promises:
        if promise.broken:
            shown = "; ".join(map(printable, promise.broken[:BROKEN_SHOWN]))
            more = len(promise.broken) - BROKEN_SHOWN
            yield f"  BROKEN {promise.text}: {shown}{f'; and {more} more' if more > 0 else ''}"


def make_tracker(path: Path, prefix: str, issue_lines: Iterable[bytes]) -> None:
    """Make a built-in tracker and fill it; raise ``SourceError``."""
    from beads_workers.trackers.sqlite.store import create

    create(path, prefix)
    add_issues(path, issue_lines)


def add_issues(path: Path, issue_lines: Iterable[bytes]) -> None:
    """Import beads' JSON Lines into a built-in tracker; raise ``SourceError``."""
    import time
    from contextlib import closing

    from beads_workers.trackers.issue import time_text
    from beads_workers.trackers.sqlite.exchange import import_lines
    from beads_workers.trackers.sqlite.store import connect

    with closing(connect(path)) as connection:
        import_lines(connection, issue_lines, now=time_text(time.time()), allow_commands=False)


def statuses(path: Path) -> dict[str, str]:
    """Return the status of every issue in a built-in tracker; raise ``SourceError``."""
    from contextlib import closing

    from beads_workers.trackers.sqlite.store import SqliteStore, connect

    with closing(connect(path)) as connection:
        store = SqliteStore(connection)
        return {i.id: i.status for i in store.in_batches(store.ids(finished=True))}
