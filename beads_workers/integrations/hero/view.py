"""Hero jobs as people type them, and as they are shown. Output is always escaped."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.core.base.redaction import shown as without_values
from beads_workers.core.base.text import as_shown, counted, printable
from beads_workers.core.base.times import write_time
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.integrations.hero.client import JobRow
    from beads_workers.integrations.hero.wire import HeroJob


# --- hero jobs -----------------------------------------------------------------------------------
# Typed jobs and files of jobs: all are read before any is handed in.


STDIN = "-"
PROBLEMS_MAX = 20
"""Most wrong lines that are named: the same mistake is usually in all lines of a file."""

FIELDS = (
    "id",
    "caller_id",
    "worker_id",
    "context_id",
    "script",
    "timeout",
    "retries",
    "concurrent",
    "log_path",
    "env_vars",
    "prerequisites",
    "dependencies",
    "dependents",
)
"""Fields allowed in a line of a batch; the fleet that serves a job writes the others."""


def batch(files: Sequence[str], worker: str) -> list[HeroJob]:
    """Return the jobs in files of JSON Lines; raise ``CommandError`` that names all faults.

    ``worker``: for lines that name none.
    """
    jobs: list[HeroJob] = []
    problems: list[str] = []
    for file in files:
        for number, line in enumerate(text_of(file).split("\n"), 1):
            if not line.strip():
                continue
            try:
                jobs.append(_named(read_line(line), worker))
            except ValueError as error:
                where = "line" if file == STDIN else f"{file}, line"
                problems.append(f"{where} {number}: {error}")
    if problems:
        raise _refusal(problems)
    if not jobs:
        raise CommandError("no job was handed in", "a line is a JSON object", EXIT_USAGE)
    return jobs


def read_line(line: str) -> HeroJob:
    """Return the job in one line of a batch; raise ``ValueError``."""
    from beads_workers.core.base.framing import strict_loads

    try:
        fields = strict_loads(line.encode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("no JSON object")
    for name in fields:
        if name not in FIELDS:
            raise ValueError(f"no such field: {name[:60]!r}; known: {', '.join(FIELDS)}")
    if not isinstance(fields.get("script"), str):
        raise ValueError("script: missing, or no text")
    return job_of(fields)


def job_of(fields: Mapping[str, Any]) -> HeroJob:
    """Return a job from JSON values, read as its hash would be; raise ``ValueError``."""
    from beads_workers.integrations.hero.wire import WrongField, read_job

    given = fields.get("id") or ""
    if not isinstance(given, str):
        raise ValueError("id: no text")
    written = {name.encode(): text.encode() for name, text in _as_hash(fields)}
    try:
        # A job without an id is read under a temporary one.
        return replace(read_job(given or "new", written), id=given)
    except WrongField as error:
        raise ValueError(str(error)) from None


def default_caller() -> str:
    """Return the default caller: the user's name at this machine."""
    import getpass

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{os.uname().nodename}"


def _as_hash(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if value in (None, "", [], {}):
            continue
        match value:
            case str():
                yield name, value
            case bool():
                yield name, "true" if value else "false"
            case int() | float():
                yield name, f"{value:.15g}" if isinstance(value, float) else str(value)
            case _:
                yield name, json.dumps(value)


def _named(job: HeroJob, worker: str) -> HeroJob:
    if not job.worker_id and not worker:
        raise ValueError("worker_id: missing, and no --worker was given")
    return job if job.worker_id else replace(job, worker_id=worker)


def variable(text: str) -> tuple[str, str]:
    """Return a variable that was typed, NAME=VALUE or NAME; raises ``CommandError``."""
    name, given, value = text.partition("=")
    if given:
        return name, value
    if (found := os.environ.get(name)) is None:
        hint = f"set it, or write --env {printable(name)}=VALUE"
        raise CommandError(f"the variable {printable(name)} is not set here", hint, EXIT_USAGE)
    return name, found


def text_of(file: str) -> str:
    """Return the content of a file or of stdin; raise ``CommandError``."""
    if file == STDIN and sys.stdin.isatty():
        print("reading from the terminal; Ctrl-D ends", file=sys.stderr)
    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return content.decode("utf-8")
    except OSError as error:
        message = f"{printable(file)}: {error.strerror}"
        raise CommandError(message, exit_code=EXIT_USAGE) from None
    except UnicodeDecodeError:
        raise CommandError(f"{printable(file)} is not UTF-8", exit_code=EXIT_USAGE) from None


def _refusal(problems: Sequence[str]) -> CommandError:
    from beads_workers.cli.tracker_folder import warn

    if len(problems) == 1:
        return CommandError(f"nothing was handed in: {printable(problems[0], 300)}")
    for problem in problems[:PROBLEMS_MAX]:
        warn(printable(problem, 300))
    return CommandError(f"nothing was handed in: {len(problems)} lines are wrong, see above")


# --- hero text -----------------------------------------------------------------------------------
# Hero jobs as text. Everything is escaped, and values of variables are never shown.


_ERROR_COLUMNS = 60


def as_object(job: HeroJob) -> dict[str, Any]:
    """Return a job as JSON: names of its hash, typed values; variables without their values."""
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


def row_object(row: JobRow) -> dict[str, Any]:
    """Return one job of a list as JSON: only the fields that were read."""
    if row.job is None:
        return {"id": row.id, "status": None, "trouble": row.trouble}
    whole = as_object(row.job)
    read = ("id", "status", "caller_id", "worker_id", "context_id", "created_at", "updated_at")
    return {name: whole[name] for name in (*read, "retries", "error")}


def rows_text(rows: Sequence[JobRow]) -> Iterator[str]:
    """Yield one line for each job; columns are as wide as needed."""
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
    """Yield everything about a job, a line for each field that has a value."""
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
    """Return the number of jobs in each state, and a hint if some are not shown."""
    total = sum(counts.values())
    states = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
    more = f"; the newest {shown:,} are shown, --limit N shows more" if shown < total else ""
    return f"{counted(total, 'job')}{': ' + states if states else ''}{more}"


def print_output(text: str) -> None:
    """Print the output of a job: unchanged into a pipe, escaped on a terminal."""
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
