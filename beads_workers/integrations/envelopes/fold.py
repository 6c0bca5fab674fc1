"""Jobs as envelopes: a fold over the journal, and issues of the built-in tracker.

Every transition of ``core.records.issues`` changes an envelope. Source: docs/ENVELOPE.md. A job is
known from its claim on, or from what an earlier run left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import floor
from typing import Any

from beads_workers.core.base.model import Arguments, Call, call_of
from beads_workers.core.base.ready import FINISHED
from beads_workers.core.base.source import PAST_DEADLINE, Action
from beads_workers.core.base.states import IssueState
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Issues, Transition
from beads_workers.core.records.journal import Entry
from beads_workers.core.schedule.inflight import ISSUE_PATH, stored_value
from beads_workers.integrations.envelopes.wire import ATTEMPT_MAX, SECONDS_MAX, Envelope, JobState
from beads_workers.trackers.issue import (
    BadIssue,
    TrackerIssue,
    checked_id,
    enqueued_at,
    from_object,
    time_text,
    to_object,
)
from beads_workers.trackers.settlement_rules import BLOCKED, CLOSED, IN_PROGRESS

SCRIPT_PATH = "hero.script"
_PATH_OF_SOURCE = {"hero": SCRIPT_PATH}

_REASONS = {
    "cancelled": "cancelled",
    "timeout": "timeout",
    "lost": "lost",
    "not_found": "not_found",
}

RELEASED = "released by a person"
WITHDRAWN = "its sender took it back, or the executor ended"
_SENT_TO_US = ("rrq",)
"""Sources that send their jobs: a job that is requeued unstarted is over for us."""


class Envelopes:
    """Envelopes of jobs: ``apply`` every entry of a run in order; several runs may follow.

    ``jobs``: by id, the one that changed last at the end. ``keep_done``: finished jobs are kept,
    too.
    """

    def __init__(self, *, keep_done: bool = True) -> None:
        self.jobs: dict[str, Envelope] = {}
        self._keep_done = keep_done
        self._issues = Issues()
        self.source = ""
        """Source of the run: a name such as ``bd``."""

    def apply(self, entry: Entry) -> Envelope | None:
        """Take in the next entry; return the envelope of the job that it changed, or None."""
        job = self._changed(entry)
        if job is None or not job.job_id or job == self.jobs.get(job.job_id):
            return None
        self.jobs.pop(job.job_id, None)
        if self._keep_done or job.state is not JobState.DONE:
            self.jobs[job.job_id] = job
        return job

    def _changed(self, entry: Entry) -> Envelope | None:
        change = self._issues.apply(entry)
        if change is None:
            if isinstance(entry.record, rec.RunStarted):
                self.source = entry.record.source
            return None
        at = _seconds(entry.at)
        match entry.record:
            case rec.Claimed() as claimed:
                return self._claimed(claimed, at)
            case rec.Started(issue_id, _, attempt):
                job = self._known(issue_id, at)
                return _moved(job, JobState.RUNNING, _attempt(attempt), ts_started=at)
            case rec.Finished() as finished:
                return _finished(self._known(finished.issue_id, at), finished, entry.at)
            case rec.SettledRecord() as settled:
                return self._settled(settled, change, at)
            case rec.Checkpointed() as retry_entry:
                return self._checkpointed(retry_entry, change, at)
            case _:
                return self._asked(entry.record, change, at)

    def _asked(self, record: rec.Record, change: Transition, at: int) -> Envelope | None:
        """Return the job after a person's decision about it, or after a refunded attempt."""
        job = self.jobs.get(change.issue.issue_id)
        waits = change.before not in _AT_WORK and job is not None and job.state is not JobState.DONE
        match record:
            case rec.PutOnHold() if job is not None:
                return _failed(job, RELEASED, "cancelled", at)
            case rec.RetryAsked() if job is not None and waits:
                return _moved(job, JobState.ENQUEUED, None)
            case rec.Refunded() if job is not None and waits:
                return _moved(job, JobState.ENQUEUED, _next(record.charged))
            case _:
                return None

    def _known(self, issue_id: str, at: int) -> Envelope:
        """Return the job; a minimal one if its claim was lost with a part of the journal."""
        job = self.jobs.get(issue_id)
        return job or Envelope(issue_id, self._path(""), JobState.ENQUEUED, at)

    def _path(self, path: str) -> str:
        return job_path(path) if path else _PATH_OF_SOURCE.get(self.source, ISSUE_PATH)

    def _described(self, record: rec.Claimed | rec.Checkpointed, at: int) -> Envelope:
        """Return the job as the record describes it, as if it were enqueued for the first time."""
        given = record.arguments or Arguments()
        old = self.jobs.get(record.issue_id)
        known = old.ts_enqueued if old else at
        return Envelope(
            job_id=record.issue_id,
            job_path=self._path(record.path),
            state=JobState.ENQUEUED,
            ts_enqueued=_seconds(record.enqueued_at) or known,
            args=given.args or (),
            kwargs=given.kwargs or {},
            omitted=given.omitted,
        )

    def _claimed(self, claimed: rec.Claimed, at: int) -> Envelope:
        job = self._described(claimed, at)
        old = self.jobs.get(claimed.issue_id)
        if old is None or old.state is not JobState.ENQUEUED:
            return job
        return replace(job, attempt=old.attempt, next_retry_at=old.next_retry_at)

    def _checkpointed(
        self, retry_entry: rec.Checkpointed, change: Transition, at: int
    ) -> Envelope | None:
        if retry_entry.claimed_by:
            return None  # The run that did the job has reported that it is done.
        job = self._described(retry_entry, at)
        if retry_entry.quarantined:
            if change.before in _FAILED and retry_entry.issue_id in self.jobs:
                return None
            reason, attempt = _REASONS.get(retry_entry.outcome), _attempt(retry_entry.charged)
            details = {"error": retry_entry.error or "failed", "reason": reason}
            return _moved(job, JobState.ERROR, attempt, **details)
        retry_at = _seconds(retry_entry.not_before) if retry_entry.not_before > at else None
        return _moved(job, JobState.ENQUEUED, _next(retry_entry.charged), next_retry_at=retry_at)

    def _settled(self, settled: rec.SettledRecord, change: Transition, at: int) -> Envelope | None:
        job, state = self.jobs.get(settled.issue_id), change.issue.state
        if job is None or job.state is JobState.DONE:
            return None
        if state is IssueState.CLOSED:
            # Somebody else has closed the job. A reopened one that is not ours is reported by
            # others.
            theirs = settled.action == Action.REOPEN.value
            return None if theirs else _moved(job, JobState.DONE, job.attempt, ts_finished=at)
        if state is IssueState.FOREIGN:
            del self.jobs[settled.issue_id]
            return None
        if settled.error == PAST_DEADLINE:
            # The sender got this answer, whether the job had begun or not.
            over = job if job.state is JobState.ERROR else _failed(job, "", None, at)
            return replace(over, error=PAST_DEADLINE, reason="timeout")
        if (settled.action, settled.result) != _REQUEUED:
            return None
        if change.before in _AT_WORK:
            # The run that worked on the job was killed, and a later one has requeued the job.
            return _moved(job, JobState.ENQUEUED, job.attempt)
        if self.source in _SENT_TO_US and job.state is JobState.ENQUEUED and job.attempt is None:
            return _failed(job, WITHDRAWN, "cancelled", at)
        return None


_AT_WORK = (IssueState.RUNNING, IssueState.ORPHANED)
_FAILED = (IssueState.QUARANTINING, IssueState.QUARANTINED)
_REQUEUED = ("release", "applied")


def job_path(path: str) -> str:
    """Return the ``job_path`` of a ``Call``'s path; ``rrq.<executor>.<fn>`` for an RRQ executor."""
    executor, mark, handler = path.partition("#")
    return f"rrq.{executor}.{handler}" if mark else path


def call_path(path: str) -> str:
    """Return the path of a ``Call`` for a ``job_path``: the inverse of ``job_path``."""
    kind, _, rest = path.partition(".")
    executor, dot, handler = rest.partition(".")
    return f"{executor}#{handler}" if kind == "rrq" and dot else path


def envelope(call: Call | None, job_id: str, enqueued_at: float, source: str = "") -> Envelope:
    """Return the envelope of a job that waits in its source."""
    path = job_path(call.path) if call else _PATH_OF_SOURCE.get(source, ISSUE_PATH)
    args, kwargs = (call.args, call.kwargs) if call else ((), {})
    return Envelope(job_id, path, JobState.ENQUEUED, _seconds(enqueued_at), args, kwargs)


def _moved(job: Envelope, state: JobState, attempt: int | None, **more: Any) -> Envelope:
    """Return the job in another state, without the fields of an attempt, and with ``more``."""
    nothing: dict[str, Any] = dict.fromkeys(_OF_ATTEMPT)
    return replace(job, **nothing | {"state": state, "attempt": attempt} | more)


_OF_ATTEMPT = (
    "ts_started",
    "ts_finished",
    "error",
    "next_retry_at",
    "reason",
    "result",
    "result_file",
)


def _failed(job: Envelope, error: str, reason: str | None, at: int) -> Envelope:
    began = job.ts_started
    more = {"ts_started": began, "ts_finished": at, "error": error, "reason": reason}
    return _moved(job, JobState.ERROR, job.attempt, **more)


def _finished(job: Envelope, finished: rec.Finished, at: float) -> Envelope:
    job = replace(job, attempt=_attempt(finished.attempt))
    match finished.verdict:
        case "finish":
            more = {
                "ts_started": job.ts_started,
                "ts_finished": _seconds(at),
                "result": stored_value(finished.result) if finished.result else None,
                "result_file": finished.result_file or None,
            }
            return _moved(job, JobState.DONE, job.attempt, **more)
        case "land":
            return job  # The job is done once its issue is closed, after landing.
        case "hand_back" if finished.outcome == "retry":
            return _moved(job, JobState.ENQUEUED, _attempt(finished.attempt + 1))
        case "quarantined" | "hand_back":
            reason = _REASONS.get(finished.outcome)
            return _failed(job, finished.error or finished.outcome, reason, _seconds(at))
        case _:
            delay = finished.delay_seconds
            retry_at = _seconds(at + delay) if delay else None
            return _moved(
                job, JobState.ENQUEUED, _attempt(finished.charged + 1), next_retry_at=retry_at
            )


def _seconds(at: float) -> int:
    """Return a time in whole seconds; a time of a damaged journal becomes the nearest valid one."""
    return floor(min(max(at, 0.0), SECONDS_MAX))


def _next(charged: int) -> int | None:
    """Return the number of the next attempt; None if there was none yet."""
    return _attempt(charged + 1) if charged else None


def _attempt(number: int) -> int:
    return min(max(number, 1), ATTEMPT_MAX)


# --- envelopes -----------------------------------------------------------------------------------
# An issue of the built-in tracker as a job envelope: waiting jobs, and the results of runs.
#
# Source: docs/ENVELOPE.md, "Where they come from".


EXTRA = "envelope"
"""Key of an issue that keeps the other fields of its envelope."""

TAKEN = frozenset(
    {"title", "description", "priority", "labels", "timeout_seconds"}
    | {"trace_context", "correlation_context"}
)
"""Keys of an envelope with the same meaning for its issue as for any issue. Never ``command``:
submitted jobs name functions, and run no commands of their own."""

NO_CALLS = (ISSUE_PATH, SCRIPT_PATH)
TITLE_CHARS_MAX = 200

NEVER_SAID = "it is blocked in the tracker"


def to_envelope(issue: TrackerIssue, known: Envelope | None = None) -> Envelope:
    """Return the envelope of an issue. ``known``: the journal's, of the running or last run.

    Calls are complete here. If tracker and journal differ, the tracker counts.
    """
    waiting = _waiting(issue)
    if known is not None and _agrees(issue, known):
        return replace(
            known,
            job_path=waiting.job_path,
            args=waiting.args,
            kwargs=waiting.kwargs,
            ts_enqueued=waiting.ts_enqueued,
            omitted=(),
            extra=waiting.extra,
        )
    if issue.status in FINISHED:
        return _closed(issue, waiting)
    if issue.status == BLOCKED:
        last = issue.notes.rstrip().rpartition("\n")[2]
        return replace(waiting, state=JobState.ERROR, error=last or NEVER_SAID)
    running = issue.status == IN_PROGRESS and known is None
    return replace(waiting, state=JobState.RUNNING) if running else waiting


def to_issue(job: Envelope, position: int) -> tuple[TrackerIssue, tuple[str, ...]]:
    """Return the issue of a submitted job, and warnings about ignored fields; raise ``BadIssue``.

    ``position``: number of jobs before it in its submission; equal jobs are taken in this order.
    """
    if job.job_path in NO_CALLS or not _is_name(job.job_path):
        raise BadIssue(f"job_path: {job.job_path!r} names no callable")
    try:
        checked_id(job.job_id, "job_id")
    except BadIssue as error:
        raise BadIssue(f"job_id: {error}") from None
    made = time_text(job.ts_enqueued + min(position, 999_999) / 1_000_000)
    fields: dict[str, Any] = {
        "id": job.job_id,
        "title": job.job_path[:TITLE_CHARS_MAX],
        "created_at": made,
        "updated_at": made,
        "job_path": call_path(job.job_path),
        "args": list(job.args),
        "kwargs": dict(job.kwargs),
    }
    useless = [
        f"{name}: not kept, for the job has not begun"
        for name in (*_OF_ATTEMPT, "attempt", "omitted")
        if getattr(job, name) not in (None, ())
    ]
    for name in TAKEN & job.extra.keys():
        try:
            from_object(fields | {name: job.extra[name]})
            fields[name] = job.extra[name]
        except BadIssue as error:
            useless.append(f"{name}: kept without a meaning, for {error}")
    if job.extra:
        fields[EXTRA] = dict(job.extra)
    return from_object(fields), tuple(sorted(useless))


def _is_name(path: str) -> bool:
    """Return whether a path is names separated by dots: printable, and no path of a file."""
    return path.isprintable() and all(path.split(".")) and not _NO_NAME.search(path)


_NO_NAME = re.compile(r"[\s/\\]")


def _waiting(issue: TrackerIssue) -> Envelope:
    call = call_of(to_object(issue), issue.labels)
    extra = issue.extra.get(EXTRA)
    job = envelope(call, issue.id, enqueued_at(issue.created_at))
    return replace(job, extra=extra if isinstance(extra, dict) else {})


def _agrees(issue: TrackerIssue, known: Envelope) -> bool:
    match known.state:
        case JobState.DONE:
            # The close may be pending; an open issue was opened again.
            return issue.status in (CLOSED, IN_PROGRESS)
        case JobState.ERROR:
            return issue.status == BLOCKED or known.reason == "cancelled"
        case _:
            return issue.status not in FINISHED and issue.status != BLOCKED


def _closed(issue: TrackerIssue, waiting: Envelope) -> Envelope:
    extra: Mapping[str, Any] = issue.extra
    file = extra.get("result_file")
    return replace(
        waiting,
        state=JobState.DONE,
        ts_finished=floor(enqueued_at(issue.closed_at)) or None,
        result=extra.get("result"),
        result_file=file if isinstance(file, str) and file else None,
    )
