"""How Hero jobs are shown. Nothing from a job is printed unescaped, and no value of a variable."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from beads_workers.core.secrets import shown as without_values
from beads_workers.core.text import as_shown, counted, printable
from beads_workers.protocols.times import write_time

if TYPE_CHECKING:
    from beads_workers.edge.hero.answers import Row
    from beads_workers.protocols.hero import HeroJob

_ERROR_COLUMNS = 60


def as_object(job: HeroJob) -> dict[str, Any]:
    """A job as JSON: the names of its hash, values of their own types; variables without values."""
    return {
        "id": job.id,
        "caller_id": job.caller_id,
        "worker_id": job.worker_id,
        "context_id": job.context_id,
        "script": job.script,
        "timeout": job.timeout_seconds,
        "retries": job.retries,
        "concurrent": job.concurrent,
        "log_path": job.log_path,
        "created_at": _time(job.created_at),
        "updated_at": _time(job.updated_at),
        "status": job.status.value,
        "env_vars": without_values(job.env_vars),
        "prerequisites": list(job.prerequisites),
        "dependents": list(job.dependents),
        "dependencies": list(job.dependencies),
        "output": job.output,
        "error": job.error,
    }


def _place(job: HeroJob) -> str:
    return printable(f"{job.worker_id}/{job.context_id or '-'}", 40)


def row_object(row: Row) -> dict[str, Any]:
    """One job of a list as JSON: only what was read of it."""
    if row.job is None:
        return {"id": row.id, "status": None, "trouble": row.trouble}
    whole = as_object(row.job)
    read = ("id", "status", "caller_id", "worker_id", "context_id", "created_at", "updated_at")
    return {name: whole[name] for name in (*read, "retries", "error")}


def rows_text(rows: Sequence[Row]) -> Iterator[str]:
    """One line for each; columns as wide as they need to be."""
    width = max((len(printable(row.id)) for row in rows), default=0)
    places = max((len(_place(row.job)) for row in rows if row.job), default=0)
    for row in rows:
        if row.job is None:
            yield f"{printable(row.id):<{width}}  {'?':<10}  {printable(row.trouble, 80)}"
            continue
        job = row.job
        parts = [f"{printable(row.id):<{width}}", f"{job.status.value:<10}"]
        parts.append(f"{_time(job.created_at and int(job.created_at)) or '-':<20}")
        parts.append(f"{_place(job):<{places}}")
        parts.append(printable(job.caller_id, 40))
        if job.error:
            parts.append(printable(job.error, _ERROR_COLUMNS))
        yield "  ".join(parts).rstrip()


def details(job: HeroJob) -> Iterator[str]:
    """Everything about one, a line for each field that says anything."""
    for name, value in as_object(job).items():
        if value in (None, "", [], {}, False):
            continue
        if isinstance(value, dict | list):
            value = ", ".join(value)
        lines = [printable(line) for line in str(value).rstrip("\n").split("\n")]
        yield f"{name}: {lines[0]}" if len(lines) == 1 else f"{name}:"
        if len(lines) > 1:
            yield from (f"  {line}" for line in lines)


def summary(counts: dict[str, int], shown: int) -> str:
    """How many there are of each state, and how many of them are not shown."""
    total = sum(counts.values())
    states = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
    more = f"; the newest {shown:,} are shown, --limit N shows more" if shown < total else ""
    return f"{counted(total, 'job')}{': ' + states if states else ''}{more}"


def print_output(text: str) -> None:
    """What a job printed: as it is into a pipe, made safe for a terminal."""
    if not sys.stdout.isatty():
        sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")
        return
    for line in text.removesuffix("\n").split("\n"):
        print(printable(as_shown(line)))


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    try:
        return write_time(round(seconds, 3))
    except ValueError:
        return None
