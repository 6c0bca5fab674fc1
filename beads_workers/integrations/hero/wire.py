"""The Hero dispatcher's protocol over Redis: names of keys, and the hash of a job; no I/O.

Source: docs/HERO.md, "The data in the Redis".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from enum import Enum

from beads_workers.core.base.framing import ProtocolError, is_deep, strict_loads
from beads_workers.core.base.model import value
from beads_workers.core.base.times import read_time, write_time

# --- jobs ----------------------------------------------------------------------------------------
# Hero jobs and their states.


class JobStatus(Enum):
    """State of a job; the values are those of the field ``status``."""

    DISPATCHED = "dispatched"
    """Created, in a queue, or between two attempts."""
    STARTED = "started"
    FINISHED = "finished"
    ERROR = "error"

    @property
    def is_final(self) -> bool:
        """Whether the state ends a job: its reply has been sent, or is being sent."""
        return self in (JobStatus.FINISHED, JobStatus.ERROR)


STOPPED = "stopped_by_request"
"""``error`` of a job that was stopped; we write this one of the specification's two spellings."""
TIMED_OUT = "timeout"
"""``error`` of a job that took longer than its ``timeout``."""
LOST = "lost"
"""``error`` of a job that was cut short and has no attempt left; a word of ours."""


@value
class HeroJob:
    """One job. Times are epoch seconds, None if the field is missing."""

    # "" before the job is handed in.
    id: str = ""
    caller_id: str = ""
    worker_id: str = ""
    context_id: str = ""
    script: str = ""
    # The time for one attempt; None: no limit.
    timeout_seconds: float | None = None
    # Attempts beyond the first.
    retries: int = 0
    # True: the job may run beside others of its context; False: beside no other job that says
    # False.
    concurrent: bool = False
    log_path: str | None = None
    created_at: float | None = None
    updated_at: float | None = None
    status: JobStatus = JobStatus.DISPATCHED
    env_vars: Mapping[str, str] = field(default_factory=dict)
    # ``prerequisites`` and ``dependencies`` mean the same: ``waits_for`` has both.
    prerequisites: tuple[str, ...] = ()
    dependents: tuple[str, ...] = ()
    output: str | None = None
    error: str | None = None
    dependencies: tuple[str, ...] = ()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The jobs that must be finished before this job: each once, in order."""
        return tuple(dict.fromkeys((*self.prerequisites, *self.dependencies)))

    @property
    def attempts_max(self) -> int:
        """Most attempts that may be started."""
        return self.retries + 1


# --- keys ----------------------------------------------------------------------------------------
# Names of all keys in Redis, as templates: another naming is a setting.
#
# ``{id}`` and ``{worker}`` are replaced; ``{{`` and ``}}`` are braces, which mark the hash tag of a
# cluster.


ID_CHARS_MAX = 500
"""Longest id of a job or a worker: ids are in key names and records; real ones are UUIDs."""


@value
class Keys:
    """The names of all keys."""

    # ``job`` and ``reply`` hold ``{id}``, ``work`` and ``stop`` hold ``{worker}``.
    job: str = "hero:job:{id}"
    work: str = "hero:work_queue:{worker}"
    stop: str = "hero:stop_queue:{worker}"
    reply: str = "hero:reply:{id}"
    # Prefix of our own keys beside those of the specification; may hold ``{worker}``.
    own: str = "hero:beads_workers:{worker}:"

    def __post_init__(self) -> None:
        """Raise ``ValueError`` that names an invalid template."""
        for name in ("job", "reply"):
            _check(name, getattr(self, name), "id", needed=True)
        for name in ("work", "stop"):
            _check(name, getattr(self, name), "worker", needed=True)
        _check("own", self.own, "worker", needed=False)
        if len({getattr(self, field.name) for field in fields(self)}) < len(fields(self)):
            raise ValueError("two of the key names are the same")

    def job_key(self, job_id: str) -> str:
        """Return the key of a job's hash."""
        return _fill(self.job, "id", job_id)

    def reply_key(self, job_id: str) -> str:
        """Return the key of the list in which clients that wait for a job find its result."""
        return _fill(self.reply, "id", job_id)

    def work_key(self, worker_id: str) -> str:
        """Return the key of a worker's queue: ids of jobs, pushed on the left."""
        return _fill(self.work, "worker", worker_id)

    def stop_key(self, worker_id: str) -> str:
        """Return the key of a worker's stop requests: ids of jobs."""
        return _fill(self.stop, "worker", worker_id)

    def own_key(self, worker_id: str, name: str) -> str:
        """Return a key of ours, common to all runs that serve this worker's queue."""
        return _fill(self.own, "worker", worker_id) + name

    def jobs_pattern(self) -> str:
        """Return the SCAN pattern that matches the hashes of all jobs."""
        before, after = self.around_job_id()
        return f"{escaped(before)}*{escaped(after)}"

    def job_id_of(self, key: str) -> str | None:
        """Return the id in the key of a job's hash; None for another key."""
        before, after = self.around_job_id()
        if not (key.startswith(before) and key.endswith(after)):
            return None
        return key[len(before) : len(key) - len(after)] or None

    def around_job_id(self) -> tuple[str, str]:
        """Return the text before and after the id in the key of a job."""
        return _around(self.job)

    def around_reply_id(self) -> tuple[str, str]:
        """Return the text before and after the id in the key of a reply."""
        return _around(self.reply)


def keys_of(naming: str = "text", templates: Mapping[str, str] | None = None) -> Keys:
    """Return a naming with some of its templates replaced. Raises ``ValueError``."""
    known = NAMINGS.get(naming)
    if known is None:
        raise ValueError(f"no such naming: {naming[:40]!r}; known: {', '.join(NAMINGS)}")
    made = {field.name: str(getattr(known, field.name)) for field in fields(known)}
    for name, template in (templates or {}).items():
        if name not in made:
            raise ValueError(f"no such key: {name[:40]!r}; known: {', '.join(made)}")
        made[name] = template
    return Keys(**made)


def is_id(text: str) -> bool:
    """Return whether a text can be the id of a job or a worker: printable, and not too long."""
    return 0 < len(text) <= ID_CHARS_MAX and text.isprintable()


def _fill(template: str, name: str, value: str) -> str:
    # Values are inserted last: a value with braces is left unchanged.
    parts = template.replace("{{", "\1").replace("}}", "\2").split("{" + name + "}")
    return value.join(part.replace("\1", "{").replace("\2", "}") for part in parts)


def _around(template: str) -> tuple[str, str]:
    # The mark "\0" is in no template: ``_fill`` tells braces from placeholders.
    before, _, after = _fill(template, "id", "\0").partition("\0")
    return before, after


def escaped(text: str) -> str:
    """Return a text escaped for a SCAN pattern: every character matches only itself."""
    return "".join("\\" + c if c in "*?[]^\\" else c for c in text)


def _check(name: str, template: str, wanted: str, *, needed: bool) -> None:
    if not template or not template.isprintable():
        raise ValueError(f"the key name {name} is empty, or not printable")
    rest = template.replace("{{", "").replace("}}", "")
    count = rest.count("{" + wanted + "}")
    if count > 1 or (needed and not count):
        raise ValueError(f"the key name {name} holds {{{wanted}}} once: {template[:80]!r}")
    left = rest.replace("{" + wanted + "}", "")
    if "{" in left or "}" in left:
        raise ValueError(f"the key name {name} has a stray brace: {template[:80]!r}")


DEFAULT = Keys()
"""The naming of the specification."""

LATER = Keys(
    work="hero:q:work:type:{worker}",
    stop="hero:q:ctl:type:{worker}",
    reply="hero:q:reply:{id}",
)
"""The naming that later programs use."""

CLUSTER = Keys(
    job="{{hero}}:job:{id}",
    work="{{hero}}:work_queue:{worker}",
    stop="{{hero}}:stop_queue:{worker}",
    reply="{{hero}}:reply:{id}",
    own="{{hero}}:beads_workers:{worker}:",
)
"""The specification's names behind one hash tag: all keys are on one node of a cluster."""

NAMINGS = {"text": DEFAULT, "later": LATER, "cluster": CLUSTER}


# --- readers -------------------------------------------------------------------------------------
# Readers of a job's hash: tolerant about forms, strict about meaning; an error names its field.


RETRIES_MAX = 1_000
"""Most retries: more would be a mistake, since an attempt takes at least a millisecond."""
TIMEOUT_SECONDS_MAX = 366 * 86_400.0
IDS_MAX = 10_000
"""Most jobs that one job waits for, or that wait for one job."""

_TRUE = frozenset(("true", "1", "yes", "on"))
_FALSE = frozenset(("", "false", "0", "no", "off"))


class WrongField(ProtocolError):
    """A field without a valid value. ``field`` names it; ``str()`` is one line."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


Hash = Mapping[bytes, bytes]
"""The result of HGETALL."""


def read_job(job_id: str, fields: Hash) -> HeroJob:
    """Return the job of this hash; raise ``WrongField``.

    ``job_id`` is the one in the key and in the queue: the field ``id`` may be missing, but must not
    differ. Missing and empty fields have their defaults, and unknown fields are ignored.
    """
    if not is_id(job_id):
        raise WrongField("id", "empty, too long, or not printable")
    if _text(fields, "id") not in ("", job_id):
        raise WrongField("id", "another one than in the key's name")
    return HeroJob(
        id=job_id,
        caller_id=_text(fields, "caller_id"),
        worker_id=_text(fields, "worker_id"),
        context_id=_text(fields, "context_id"),
        script=_text(fields, "script"),
        timeout_seconds=_timeout(fields),
        retries=_retries(fields),
        concurrent=_flag(fields, "concurrent"),
        log_path=_text(fields, "log_path") or None,
        created_at=_time(fields, "created_at"),
        updated_at=_time(fields, "updated_at"),
        status=read_status(fields),
        env_vars=_variables(fields),
        prerequisites=read_ids(fields, "prerequisites"),
        dependents=read_ids(fields, "dependents"),
        output=_optional(fields, "output"),
        error=_optional(fields, "error"),
        dependencies=read_ids(fields, "dependencies"),
    )


def read_status(fields: Hash) -> JobStatus:
    """Return only the state; ``dispatched`` if there is none. Raises ``WrongField``."""
    text = _text(fields, "status").strip()
    try:
        return JobStatus(text.lower() or "dispatched")
    except ValueError:
        raise WrongField("status", f"{text[:40]!r} is none") from None


WAITS = ("prerequisites", "dependencies")
"""The fields that name the jobs a job waits for."""


def read_ids(fields: Hash, name: str) -> tuple[str, ...]:
    """Return ids of jobs from a JSON array, or from ids separated by commas.

    Raises ``WrongField``.
    """
    text = _text(fields, name).strip()
    if text in ("", "null"):
        return ()
    if not text.startswith(("[", "{", '"')):
        values: object = [part.strip() for part in text.split(",")]
    else:
        values = _json(name, text)
    if not isinstance(values, list):
        raise WrongField(name, "no JSON array")
    if len(values) > IDS_MAX:
        raise WrongField(name, f"more than {IDS_MAX} ids")
    for one in values:
        if not (isinstance(one, str) and is_id(one)):
            raise WrongField(name, f"{str(one)[:40]!r} is no id")
    return tuple(values)


def _optional(fields: Hash, name: str) -> str | None:
    return _text(fields, name) if name.encode() in fields else None


def _text(fields: Hash, name: str) -> str:
    try:
        return fields.get(name.encode(), b"").decode("utf-8")
    except UnicodeDecodeError:
        raise WrongField(name, "not UTF-8") from None


_SECONDS = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,20})?")


def _timeout(fields: Hash) -> float | None:
    text = _text(fields, "timeout").strip()
    if not text:
        return None
    # As in ``retries``: digits only, not all forms that Python accepts ("1_0", "1e3", "nan").
    seconds = float(text) if _SECONDS.fullmatch(text) else TIMEOUT_SECONDS_MAX + 1
    if seconds > TIMEOUT_SECONDS_MAX:
        raise WrongField("timeout", f"{text[:40]!r} is no number of seconds")
    return seconds or None


def _retries(fields: Hash) -> int:
    text = _text(fields, "retries").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()) or int(text[:10]) > RETRIES_MAX:
        raise WrongField("retries", f"{text[:40]!r} is no number from 0 to {RETRIES_MAX}")
    return int(text)


def _flag(fields: Hash, name: str) -> bool:
    text = _text(fields, name).strip().lower()
    if text not in _TRUE | _FALSE:
        raise WrongField(name, f"{text[:40]!r} is neither true nor false")
    return text in _TRUE


def _time(fields: Hash, name: str) -> float | None:
    text = _text(fields, name).strip()
    try:
        return read_time(text) if text else None
    except ValueError as error:
        raise WrongField(name, str(error)) from None


def _variables(fields: Hash) -> dict[str, str]:
    raw = _text(fields, "env_vars").strip()
    if raw in ("", "null"):
        return {}
    value = _json("env_vars", raw)
    if not isinstance(value, dict):
        raise WrongField("env_vars", "no JSON object")
    for name, text in value.items():
        # ``execve`` refuses these; an error here is clearer than one at the start of the job.
        if not name or "=" in name or "\0" in name:
            raise WrongField("env_vars", f"{name[:40]!r} is no name of a variable")
        if not isinstance(text, str) or "\0" in text:
            raise WrongField("env_vars", f"the value of {name[:40]!r} is no text")
    return value


def _json(name: str, text: str) -> object:
    try:
        value = strict_loads(text.encode())
    except (ValueError, RecursionError) as error:
        raise WrongField(name, f"not JSON: {str(error)[:80]}") from None
    if is_deep(value):
        raise WrongField(name, "nested too deeply")
    return value


# --- writers -------------------------------------------------------------------------------------
# Writers of a job's hash: texts, "true" and "false", RFC 3339 in UTC, and JSON where needed.


def write_job(job: HeroJob) -> dict[str, str]:
    """Return all known fields, in the order of the specification.

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
        "env_vars": _as_json(dict(job.env_vars)) if job.env_vars else None,
        "prerequisites": write_ids(job.prerequisites) if job.prerequisites else None,
        "dependents": write_ids(job.dependents) if job.dependents else None,
        "output": job.output,
        "error": job.error,
        "dependencies": write_ids(job.dependencies) if job.dependencies else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def status_fields(status: JobStatus, now: float) -> dict[str, str]:
    """Return the fields that a change of state writes. ``now``: epoch seconds."""
    return {"status": status.value, "updated_at": write_time(now)}


def write_ids(ids: Sequence[str]) -> str:
    """Return a JSON array of ids."""
    return _as_json(list(ids))


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
