"""The hash of a job written: texts, "true" and "false", RFC 3339 in UTC, JSON where it is JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from beads_workers.protocols.hero.jobs import HeroJob, Status
from beads_workers.protocols.times import write_time


def write_job(job: HeroJob) -> dict[str, str]:
    """All fields, in the text's order; what is not known is left out.

    Raises ``ValueError`` for a time that cannot be written.
    """
    fields = {
        "id": job.id,
        "caller_id": job.caller_id,
        "worker_id": job.worker_id,
        "context_id": job.context_id,
        "script": job.script,
        "timeout": None if job.timeout_seconds is None else f"{job.timeout_seconds:.15g}",
        "retries": str(job.retries),
        "concurrent": "true" if job.concurrent else "false",
        "log_path": job.log_path,
        "created_at": None if job.created_at is None else write_time(job.created_at),
        "updated_at": None if job.updated_at is None else write_time(job.updated_at),
        "status": job.status.value,
        "env_vars": _json(dict(job.env_vars)) if job.env_vars else None,
        "prerequisites": write_ids(job.prerequisites) if job.prerequisites else None,
        "dependents": write_ids(job.dependents) if job.dependents else None,
        "output": job.output,
        "error": job.error,
        "dependencies": write_ids(job.dependencies) if job.dependencies else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def status_fields(status: Status, now: float) -> dict[str, str]:
    """What a change of state writes. ``now``: epoch seconds."""
    return {"status": status.value, "updated_at": write_time(now)}


def ended_fields(
    *, output: str | None = None, error: str | None = None, now: float
) -> dict[str, str]:
    """What ends a job: ``output`` where it finished, ``error`` where it did not; one of them."""
    assert (output is None) != (error is None), "a job ends in one way"
    if error is None:
        return {**status_fields(Status.FINISHED, now), "output": output or ""}
    return {**status_fields(Status.ERROR, now), "error": error}


def write_ids(ids: Sequence[str]) -> str:
    """A JSON array of ids."""
    return _json(list(ids))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
