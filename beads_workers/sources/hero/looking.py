"""A job as people are shown it who ask. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from beads_workers.core.jobs import IssueId
from beads_workers.core.source import Seen
from beads_workers.protocols.hero.jobs import HeroJob, Status
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
    return Seen(
        job_id,
        title_of(job),
        STATUS[job.status],
        issue_type="script",
        waits_for=tuple(IssueId(other) for other in job.waits_for),
        close_reason=job.error or "",
    )


def title_of(job: HeroJob) -> str:
    """What people are shown: the script itself may hold what is nobody's business."""
    whose = f" for {job.caller_id}" if job.caller_id else ""
    return f"{job.context_id or 'script'}{whose}"


def read_names(job_id: str, fields: Mapping[bytes, bytes]) -> HeroJob:
    """As much of a job as its title takes; whatever else it has may be wrong."""
    texts = {name: fields.get(name, b"").decode("utf-8", "replace") for name in fields}
    return HeroJob(
        job_id, context_id=texts.get(b"context_id", ""), caller_id=texts.get(b"caller_id", "")
    )
