"""A job as people are shown it who ask. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from beads_workers.core.jobs import IssueId
from beads_workers.core.source import Seen
from beads_workers.protocols.hero.jobs import Status
from beads_workers.protocols.hero.reading import WrongField, read_job

STATUS = {
    Status.DISPATCHED: "open",
    Status.STARTED: "in_progress",
    Status.FINISHED: "closed",
    Status.ERROR: "closed",
}
"""A job that failed is closed as well: nobody takes it again."""


def seen_of(job_id: IssueId, fields: Mapping[bytes, bytes]) -> Seen:
    """A hash that makes no sense is shown as ``blocked``, with what is wrong in its title."""
    try:
        job = read_job(job_id, fields)
    except WrongField as error:
        return Seen(job_id, str(error), "blocked", issue_type="script")
    whose = f" for {job.caller_id}" if job.caller_id else ""
    return Seen(
        job_id,
        f"{job.context_id or 'script'}{whose}",
        STATUS[job.status],
        issue_type="script",
        waits_for=tuple(IssueId(other) for other in job.waits_for),
        close_reason=job.error or "",
    )
