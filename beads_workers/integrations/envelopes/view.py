"""Jobs as envelopes, for ``list``, ``status`` and ``watch``: the client reads them in the journal.

The orchestrator has no work with them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.cli.client import tracker_here
from beads_workers.errors import CommandError

if TYPE_CHECKING:
    from beads_workers.cli.client import ControlClient
    from beads_workers.core.records.journal import Entry
    from beads_workers.integrations.envelopes.fold import Envelopes
    from beads_workers.integrations.envelopes.wire import Envelope


def unfinished(directory: Path) -> list[dict[str, Any]]:
    """Return the unfinished jobs of the running or last run, as JSON objects."""
    from beads_workers.integrations.envelopes.wire import JobState, to_fields

    jobs = of_last_run(directory).jobs.values()
    return [to_fields(job) for job in jobs if job.state is not JobState.DONE]


def of_last_run(directory: Path) -> Envelopes:
    """Return every job of the running or last run."""
    from beads_workers.integrations.envelopes.fold import Envelopes
    from beads_workers.runtime.journal_file import read_journal
    from beads_workers.runtime.run_directory import RunDirectory

    known = Envelopes()
    runs = RunDirectory(directory)
    if run_id := runs.last_run():
        for entry in read_journal(runs.run(run_id) / "journal.jsonl"):
            known.apply(entry)
    return known


def print_list(directory: Path, *, closed_too: bool, as_json: bool) -> None:
    """Print the jobs of the running or last run and, with a built-in tracker, its waiting jobs."""
    from beads_workers.cli.tracker import print_array
    from beads_workers.core.base.text import json_line
    from beads_workers.integrations.envelopes.wire import to_fields

    jobs = _all_jobs(directory, closed_too=closed_too)
    if as_json:
        print_array(json_line(to_fields(job)) for job in jobs)
        return
    width = max((len(job.job_id) for job in jobs), default=0)
    for job in jobs:
        print(_row(job, width))
    if not jobs:
        print("no jobs", file=sys.stderr)


def _all_jobs(directory: Path, *, closed_too: bool) -> list[Envelope]:
    from beads_workers.integrations.envelopes.wire import JobState

    known = of_last_run(directory)
    jobs = dict(known.jobs)
    if (database := tracker_here()) is not None:
        here = _of_tracker(jobs, closed_too=closed_too)
        elsewhere = known.source != "sqlite" or not database.is_relative_to(directory.resolve())
        jobs = (jobs | here) if elsewhere else here
    order = (JobState.RUNNING, JobState.ENQUEUED, JobState.ERROR, JobState.DONE)
    return sorted(jobs.values(), key=lambda job: order.index(job.state))


def _of_tracker(known: dict[str, Envelope], *, closed_too: bool) -> dict[str, Envelope]:
    from beads_workers.cli.tracker_folder import opened
    from beads_workers.integrations.envelopes.fold import to_envelope
    from beads_workers.trackers.settlement_rules import TOMBSTONE
    from beads_workers.trackers.sqlite.store import SqliteStore

    with opened() as connection:
        store = SqliteStore(connection)
        ids = dict.fromkeys([*store.ids(finished=closed_too), *known])
        issues = (i for i in store.in_batches(ids) if i.status != TOMBSTONE)
        return {issue.id: to_envelope(issue, known.get(issue.id)) for issue in issues}


def _row(job: Envelope, width: int) -> str:
    from beads_workers.core.base.text import printable

    parts = [f"{job.state.value:<8}", printable(job.job_id).ljust(width)]
    parts.append(printable(job.job_path, 60))
    if job.attempt is not None:
        parts.append(f"attempt {job.attempt}")
    if job.ts_started is not None and job.ts_finished is not None:
        parts.append(f"{job.ts_finished - job.ts_started} s")
    if job.error is not None:
        parts.append(printable(job.error, 120))
    return "  ".join(parts)


def watch(client: ControlClient, directory: Path) -> None:
    """Print the unfinished jobs, then every transition as it happens, until the run is over.

    The fleet's event only says when to read the journal.
    """
    from beads_workers.runtime.journal_file import JournalTail

    client.send("bw.follow")
    first = client.read()  # From here on, every write to the journal is followed by an event.
    if first is None:
        raise CommandError("the fleet ended before it answered")
    run_id = str(first["status"]["run_id"])
    tail = JournalTail(directory / "runs" / run_id / "journal.jsonl")
    transitions = _Transitions()
    transitions.print_unfinished(tail.read())
    while client.stirs():
        transitions.print_all(tail.read())
    transitions.print_all(tail.read())


class _Transitions:
    def __init__(self) -> None:
        from beads_workers.integrations.envelopes.fold import Envelopes

        self._known = Envelopes(keep_done=False)

    def print_unfinished(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._known.apply(entry)
        _print(self._known.jobs.values())

    def print_all(self, entries: Iterable[Entry]) -> None:
        _print(job for entry in entries if (job := self._known.apply(entry)) is not None)


def print_replay(entries: Iterator[Entry]) -> None:
    """Print every transition of a run."""
    _Transitions().print_all(entries)


def _print(jobs: Iterable[Envelope]) -> None:
    from beads_workers.core.base.text import json_line
    from beads_workers.integrations.envelopes.wire import to_fields

    for job in jobs:
        print(json_line(to_fields(job)))
    sys.stdout.flush()
