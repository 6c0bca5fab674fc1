"""What the client finds, and what it raises where it finds something else."""

from __future__ import annotations

from collections.abc import Sequence

from beads_workers.core.values import value
from beads_workers.protocols.hero import HeroJob, WrongField, read_job

ROW_FIELDS = (
    "id",
    "status",
    "caller_id",
    "worker_id",
    "context_id",
    "retries",
    "created_at",
    "updated_at",
    "error",
)
"""What ``rows`` reads of each job: nothing that is long, and no secret."""


class NoSuchJob(LookupError):
    """There is no job of this id. ``str()`` is one line."""


class JobExists(ValueError):
    """There is a job of this id already, and nothing was handed in. ``str()`` is one line."""


class StillUnderWay(TimeoutError):
    """The job had not ended when the time to wait was over. ``str()`` is one line."""


@value
class Row:
    """One job of a list: with ``ROW_FIELDS`` only, or ``trouble``, why it cannot be read."""

    id: str
    job: HeroJob | None
    trouble: str = ""


def row_of(job_id: str, values: Sequence[bytes | None]) -> Row:
    """The row of a job from the values of its ``ROW_FIELDS``."""
    fields = {
        name.encode(): value
        for name, value in zip(ROW_FIELDS, values, strict=True)
        if value is not None
    }
    try:
        return Row(job_id, read_job(job_id, fields))
    except WrongField as error:
        return Row(job_id, None, str(error))
