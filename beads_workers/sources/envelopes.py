"""An issue of our own tracker as a job envelope: what waits, and what runs have made of it.

Source: docs/ENVELOPE.md, "Where they come from".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import floor
from typing import Any

from beads_workers.core.envelopes import SCRIPT_PATH, call_path, envelope
from beads_workers.core.jobs import call_of
from beads_workers.core.kept import ISSUE_PATH
from beads_workers.protocols.envelope import Envelope, State
from beads_workers.sources.issue import (
    BadIssue,
    Issue,
    checked_id,
    enqueued_at,
    from_object,
    time_text,
    to_object,
)
from beads_workers.sources.settling import BLOCKED, CLOSED, FINISHED, IN_PROGRESS

EXTRA = "envelope"
"""The key of an issue under which it keeps what else stood in the envelope that it came with."""

TAKEN = frozenset(
    {"title", "description", "priority", "labels", "timeout_seconds"}
    | {"trace_context", "correlation_context"}
)
"""Keys of an envelope that mean for its issue what they mean for any; never ``command``: what
others hand in names functions, and runs nothing of their own."""

NO_CALLS = (ISSUE_PATH, SCRIPT_PATH)
TITLE_CHARS_MAX = 200

NEVER_SAID = "it is blocked in the tracker"


def to_envelope(issue: Issue, known: Envelope | None = None) -> Envelope:
    """``known``: what the journal of the running or last run says of it.

    Calls are told whole here. Where tracker and journal differ, the tracker has the last word.
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
        return replace(waiting, state=State.ERROR, error=last or NEVER_SAID)
    running = issue.status == IN_PROGRESS and known is None
    return replace(waiting, state=State.RUNNING) if running else waiting


def to_issue(job: Envelope, position: int) -> tuple[Issue, tuple[str, ...]]:
    """The issue of a job that is handed in, and what in it was no use; raises ``BadIssue``.

    ``position``: how many of its submission come before it; among equals they are taken in order.
    """
    if job.job_path in NO_CALLS or not job.job_path.strip():
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
    useless: list[str] = []
    for name in TAKEN & job.extra.keys():
        try:
            from_object(fields | {name: job.extra[name]})
            fields[name] = job.extra[name]
        except BadIssue as error:
            useless.append(f"{name}: kept without a meaning, for {error}")
    if job.extra:
        fields[EXTRA] = dict(job.extra)
    return from_object(fields), tuple(sorted(useless))


def _waiting(issue: Issue) -> Envelope:
    call = call_of(to_object(issue), issue.labels)
    extra = issue.extra.get(EXTRA)
    job = envelope(call, issue.id, enqueued_at(issue.created_at))
    return replace(job, extra=extra if isinstance(extra, dict) else {})


def _agrees(issue: Issue, known: Envelope) -> bool:
    match known.state:
        case State.DONE:
            # Its close may be on its way; an open one was opened again.
            return issue.status in (CLOSED, IN_PROGRESS)
        case State.ERROR:
            return issue.status == BLOCKED or known.reason == "cancelled"
        case _:
            return issue.status not in FINISHED and issue.status != BLOCKED


def _closed(issue: Issue, waiting: Envelope) -> Envelope:
    extra: Mapping[str, Any] = issue.extra
    file = extra.get("result_file")
    return replace(
        waiting,
        state=State.DONE,
        ts_finished=floor(enqueued_at(issue.closed_at)) or None,
        result=extra.get("result"),
        result_file=file if isinstance(file, str) and file else None,
    )
