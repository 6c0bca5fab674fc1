"""The hash of a Hero job, which any client of a Redis may have written."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

from beads_workers.integrations.hero import wire
from beads_workers.integrations.hero.view import read_line
from beads_workers.integrations.hero.wire import HeroJob, JobStatus, WrongField, write_job
from tests.fuzz.inputs import any_of, hostile
from tests.fuzz.parser import Parser, require, well_typed

REASON_CHARS_MAX = 300

HASH = {
    "id": "j", "caller_id": "c", "worker_id": "w", "context_id": "x", "script": "print(1)",
    "timeout": "300", "retries": "2", "concurrent": "true", "log_path": "/var/log/j.log",
    "created_at": "2025-07-01T12:00:00Z", "updated_at": "2025-07-01T12:00:00.25+02:00",
    "status": "dispatched", "env_vars": '{"A": "1"}', "prerequisites": '["p"]',
    "dependents": '["d"]', "output": "o", "error": "e", "dependencies": "p, q",
}  # fmt: skip

VALUES = (
    "", "0", "-1", "1e9", "nan", "inf", "9" * 5000, "true", "FALSE", "null", "[]", "{}", '["a", 1]',
    '{"A": 1}', '{"": ""}', '{"A": "\\u0000"}', "[" * 400, '["\\ud800"]', "started", "Finished",
    "2025-07-01", "9999-12-31T23:59:59.999999-23:59", "a,b,,c", "\x00", "\u2028",
)  # fmt: skip


def _hash(rng: Random) -> bytes:
    # One field a line, as ``redis-cli`` shows it; ``parsed`` makes it a hash again.
    fields = dict(HASH)
    for _ in range(rng.randrange(4)):
        fields[any_of(rng, list(HASH))] = any_of(rng, list(VALUES))
    for _ in range(rng.randrange(3)):
        fields.pop(any_of(rng, list(HASH)), None)
    return b"\n".join(f"{name}\t{value}".encode() for name, value in fields.items())


def parsed(data: bytes) -> dict[bytes, bytes]:
    """A hash as Redis brings it."""
    pairs = (line.split(b"\t", 1) for line in data.split(b"\n"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def hashes_hold(read: Any, data: bytes) -> None:
    try:
        job = read("j", parsed(data))
    except WrongField as error:
        require(error.field in HASH, f"{error.field} is no field")
        require(len(str(error)) <= REASON_CHARS_MAX, "the reason is as long as the field")
        return
    well_typed(job)
    require(job.id == "j" and job.retries >= 0, "another job, or no attempt at all")
    require(job.timeout_seconds is None or job.timeout_seconds > 0, "no time at all")
    for name, value in job.env_vars.items():
        require("\0" not in name + value and "=" not in name, "nothing for execve")
    written = {k.encode(): v.encode() for k, v in write_job(job).items()}
    require(read("j", written) == job, "it is another one when it is read again")


def _trusting(job_id: str, fields: dict[bytes, bytes]) -> HeroJob:
    """Planted bug: takes what is an object for one of texts."""
    job = wire.read_job(job_id, {**fields, b"env_vars": b""})
    try:
        variables = json.loads(fields.get(b"env_vars", b"{}"))
    except ValueError:
        return job
    return HeroJob(job_id, env_vars=variables) if isinstance(variables, dict) else job


LINE = {
    "script": "print(1)", "id": "j", "timeout": 2.5, "retries": 2, "concurrent": True,
    "env_vars": {"A": "1"}, "prerequisites": ["p"], "log_path": "a/b.log", "worker_id": "w",
}  # fmt: skip

LINE_VALUES: tuple[Any, ...] = (
    None, "", 0, -1, 1e300, 10**30, True, [], {}, ["a", 1], {"A": 1}, {"": ""}, "\0", "\ud800",
)  # fmt: skip


def _line(rng: Random) -> bytes:
    fields: dict[str, Any] = dict(LINE)
    for _ in range(rng.randrange(4)):
        fields[any_of(rng, [*LINE, "status", "x"])] = any_of(rng, list(LINE_VALUES))
    return json.dumps(fields).encode()


def lines_hold(read: Any, data: bytes) -> None:
    try:
        job = read(data.decode("utf-8", "replace"))
    except ValueError as error:
        require(len(str(error)) <= 2 * REASON_CHARS_MAX, "the reason is as long as the line")
        return
    well_typed(job)
    require(not job.status.is_final, "handed in as ended")
    write_job(job)


def _ending(line: str) -> HeroJob:
    """Planted bug: takes a state from who hands the job in."""
    job = read_line(line.replace('"status"', '"caller_id"'))
    ended = '"status": "' in line
    return replace(job, status=JobStatus.FINISHED) if ended else job


PARSERS = [
    Parser("lines of a batch of hero jobs", ("integrations/hero/view.py",), read_line,
           hostile(_line), lines_hold, {"takes a state": _ending}),
    Parser("hero jobs", ("integrations/hero/wire.py",), wire.read_job, hostile(_hash), hashes_hold,
           {"trusts objects": _trusting}),
]  # fmt: skip
