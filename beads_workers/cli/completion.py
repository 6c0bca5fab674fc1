"""Shell completion: issues, runs, workers, agents.

Typer calls these functions only for a shell. The user has not entered the command yet, so nothing
here raises, prints or takes long. Words that are not available within ``ASK_SECONDS`` are not
proposed.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from beads_workers.errors import CommandError

if TYPE_CHECKING:
    from beads_workers.runtime.run_directory import RunDirectory

ASK_SECONDS = 0.8
"""Time limit of one call of ``bd``, a fleet or a journal: people wait for a second at most."""

PROPOSED_MAX = 200
"""Maximum number of proposals: shells ask before they show more."""

AFTER_DASHES = "beads_workers.command"
"""Key in the context of a command line: the words after ``--``, which are the user's program."""

Completer = Callable[[typer.Context, str], list[str]]


def _completer(find: Callable[[typer.Context], Iterable[str]]) -> Completer:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        if AFTER_DASHES in ctx.meta:
            return []  # Nothing of ours: the shell proposes files.
        return _fitting(lambda: find(ctx), incomplete)

    return complete


def _fitting(find: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    """Return the words with this beginning; none if they are not available."""
    from beads_workers.core.base.source import SourceError

    try:
        # Words of a tracker go into a command line: only those that need no quoting.
        known = (each for each in find() if each.startswith(incomplete) and _is_plain(each))
        return list(islice(dict.fromkeys(known), PROPOSED_MAX))
    except (CommandError, SourceError, OSError, ValueError, LookupError, TypeError):
        return []


def _is_plain(word: str) -> bool:
    return bool(word) and not word.startswith("-") and shlex.quote(word) == word


def among(*names: str) -> Completer:
    """Return a completer for these words."""
    return _completer(lambda ctx: names)


# --- issues ----------------------------------------------------------------------------------


def _issues(ctx: typer.Context) -> Iterator[str]:
    """Yield the unfinished issues of ``bd`` or of the built-in tracker."""
    return _found(ctx, closed=False)


def _closed_issues(ctx: typer.Context) -> Iterator[str]:
    return _found(ctx, closed=True)


def _found(ctx: typer.Context, *, closed: bool) -> Iterator[str]:
    from beads_workers.cli.client import project_here

    project, source = project_here(), ctx.params.get("source")
    if project is None or source not in (None, "bd", "sqlite"):
        return
    if project.beads is not None and source != "sqlite":
        yield from _bd_issues(project.folder, closed=closed)
    elif project.tracker is not None:
        from beads_workers.trackers.sqlite.store import SqliteStore, connect, translated

        with closing(connect(project.tracker)) as connection, translated(project.tracker):
            store = SqliteStore(connection)
            unfinished = store.ids(finished=False)
            if not closed:
                yield from unfinished
                return
            yield from {*store.ids(finished=True)}.difference(unfinished)


def _bd_issues(folder: Path, *, closed: bool) -> Iterator[str]:
    from beads_workers.core.base.source import Calls
    from beads_workers.trackers.bd.calls import BdCalls
    from beads_workers.trackers.bd.tracker import CLOSED, rows

    calls = BdCalls("bd", folder, "", Calls(), call_seconds=ASK_SECONDS)
    only = ["--status=closed"] if closed else []
    listed = rows(calls.run(["list", "--json", f"--limit={PROPOSED_MAX}", *only]))
    yield from (row.issue_id for row in listed if (row.status == CLOSED) is closed)


def _quarantined(ctx: typer.Context) -> Iterator[str]:
    yield from _errors(ctx)


def _causes(ctx: typer.Context) -> Iterator[str]:
    """Yield one word of each cause, its longest that no other cause has: a shell takes no more."""
    from beads_workers.core.base.causes import cause_of, is_of

    causes = {cause_of(error, issue_id) for issue_id, error in _errors(ctx).items()}
    for cause in sorted(causes):
        words = sorted(WORDS.findall(cause), key=len, reverse=True)
        alone = (word for word in words if sum(is_of(word, each) for each in causes) == 1)
        yield from islice(alone, 1)


WORDS = re.compile(r"[A-Za-z_][\w.-]*\w")


def _errors(ctx: typer.Context) -> dict[str, str]:
    """Return the error of each quarantined issue."""
    directory = _directory(ctx)
    if (status := _status(directory.root)) is not None:
        return {row["issue_id"]: row["error"] for row in status["quarantined"]}
    remembered = directory.left_over()[1].retry_entries.items()
    return {issue_id: entry.error for issue_id, entry in remembered if entry.quarantined}


def _asked(ctx: typer.Context) -> Iterator[str]:
    from beads_workers.cli.waiting import waiting

    return (row["issue_id"] for row in waiting(_directory(ctx).root, look=False).questions)


def _to_approve(ctx: typer.Context) -> Iterator[str]:
    from beads_workers.cli.waiting import waiting

    return (row["issue_id"] for row in waiting(_directory(ctx).root, look=False).approvals)


def _under_way(ctx: typer.Context) -> Iterator[str]:
    status = _status(_directory(ctx).root)
    return (row["issue_id"] for row in (status or {"workers": []})["workers"] if row["issue_id"])


def _with_branches(ctx: typer.Context) -> Iterator[str]:
    from beads_workers.worktrees.records import Records

    return (record.issue_id for record in Records(_directory(ctx).root).all())


# --- runs and workers ------------------------------------------------------------------------


def _directory(ctx: typer.Context) -> RunDirectory:
    from beads_workers.cli.client import find_state_directory
    from beads_workers.runtime.run_directory import RunDirectory

    return RunDirectory(find_state_directory(ctx.params.get("state_dir")))


def _status(state_directory: Path) -> dict[str, Any] | None:
    """Return the fleet's status; None without a fleet."""
    from beads_workers.cli.client import try_to_connect

    client = try_to_connect(state_directory)
    if client is None:
        return None
    with closing(client):
        client.send("bw.status")
        return client.read(ASK_SECONDS)


def _runs(ctx: typer.Context) -> Iterator[str]:
    return reversed(_directory(ctx).run_ids())


def _workers(ctx: typer.Context) -> Iterator[str]:
    status = _status(_directory(ctx).root)
    return (row["worker_id"] for row in (status or {"workers": []})["workers"])


def _begun(ctx: typer.Context) -> Iterator[tuple[str, str]]:
    """Yield worker and issue of each attempt of the last run, as far as time allows."""
    from beads_workers.core.records.journal import Started
    from beads_workers.runtime.journal_file import read_journal

    directory, until = _directory(ctx), time.monotonic() + ASK_SECONDS
    if run_id := directory.last_run():
        for entry in read_journal(directory.run(run_id) / "journal.jsonl"):
            if isinstance(entry.record, Started):
                yield entry.record.worker_id, entry.record.issue_id
            if time.monotonic() > until:
                return


def _with_logs(ctx: typer.Context) -> Iterator[str]:
    return (each for attempt in _begun(ctx) for each in attempt)


def _may_be_undone(ctx: typer.Context) -> Iterator[str]:
    yield from _runs(ctx)
    yield from (issue_id for _, issue_id in _begun(ctx))


# --- agents ----------------------------------------------------------------------------------


def agents(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of agents, also after the last comma of several."""
    before, comma, last = incomplete.rpartition(",")
    earlier = before.split(",")
    return [
        f"{before}{comma}{name}"
        for name in _fitting(_agent_names, last)
        if name not in earlier and AFTER_DASHES not in ctx.meta
    ]


def _agent_names() -> Iterator[str]:
    import os

    from beads_workers.agents.presets import PRESETS
    from beads_workers.cli.config import resolve
    from beads_workers.options import TRUST_ALL

    yield from PRESETS
    # Names alone run nothing.
    yield from resolve({"trust": TRUST_ALL}, Path.cwd(), os.environ).agents


issues = _completer(_issues)
closed_issues = _completer(_closed_issues)
quarantined = _completer(_quarantined)
causes = _completer(_causes)
asked = _completer(_asked)
to_approve = _completer(_to_approve)
under_way = _completer(_under_way)
with_branches = _completer(_with_branches)
runs = _completer(_runs)
workers = _completer(_workers)
with_logs = _completer(_with_logs)
may_be_undone = _completer(_may_be_undone)
