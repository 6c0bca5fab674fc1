"""The hash of a job read: tolerant about forms, strict about meaning; an error names its field."""

from __future__ import annotations

import math
from collections.abc import Mapping

from beads_workers.core.json_fields import ProtocolError, is_deep, strict_loads
from beads_workers.protocols.hero.jobs import HeroJob, Status
from beads_workers.protocols.hero.keys import is_id
from beads_workers.protocols.times import read_time

RETRIES_MAX = 1_000
"""More would be a mistake: an attempt takes a millisecond at least."""
TIMEOUT_SECONDS_MAX = 366 * 86_400.0
IDS_MAX = 10_000
"""Jobs that one waits for, or that wait for one."""

_TRUE = frozenset(("true", "1", "yes", "on"))
_FALSE = frozenset(("", "false", "0", "no", "off"))


class WrongField(ProtocolError):
    """A field says nothing that could be meant. ``field`` names it; ``str()`` is one line."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


Hash = Mapping[bytes, bytes]
"""What HGETALL brings."""


def read_job(job_id: str, fields: Hash) -> HeroJob:
    """The job of this hash; raises ``WrongField``.

    ``job_id`` is the one in the key and in the queue: ``id`` may be missing, not another one.
    Missing and empty fields have their defaults, and unknown ones are passed over.
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


def read_status(fields: Hash) -> Status:
    """The state alone; ``dispatched`` where there is none. Raises ``WrongField``."""
    said = _text(fields, "status").strip()
    try:
        return Status(said.lower() or "dispatched")
    except ValueError:
        raise WrongField("status", f"{said[:40]!r} is none") from None


def read_ids(fields: Hash, name: str) -> tuple[str, ...]:
    """Ids of jobs: a JSON array, or ids with commas between them. Raises ``WrongField``."""
    said = _text(fields, name).strip()
    if said in ("", "null"):
        return ()
    if not said.startswith(("[", "{", '"')):
        values: object = [part.strip() for part in said.split(",")]
    else:
        values = _json(name, said)
    if not isinstance(values, list):
        raise WrongField(name, "no JSON array")
    if len(values) > IDS_MAX:
        raise WrongField(name, f"more than {IDS_MAX} ids")
    for value in values:
        if not (isinstance(value, str) and is_id(value)):
            raise WrongField(name, f"{str(value)[:40]!r} is no id")
    return tuple(values)


def _optional(fields: Hash, name: str) -> str | None:
    return _text(fields, name) if name.encode() in fields else None


def _text(fields: Hash, name: str) -> str:
    try:
        return fields.get(name.encode(), b"").decode("utf-8")
    except UnicodeDecodeError:
        raise WrongField(name, "not UTF-8") from None


def _timeout(fields: Hash) -> float | None:
    said = _text(fields, "timeout").strip()
    if not said:
        return None
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds <= TIMEOUT_SECONDS_MAX:  # False for what is no number.
        raise WrongField("timeout", f"{said[:40]!r} is no number of seconds")
    return seconds or None


def _retries(fields: Hash) -> int:
    said = _text(fields, "retries").strip()
    if not said:
        return 0
    if not (said.isascii() and said.isdecimal()) or int(said[:10]) > RETRIES_MAX:
        raise WrongField("retries", f"{said[:40]!r} is no number from 0 to {RETRIES_MAX}")
    return int(said)


def _flag(fields: Hash, name: str) -> bool:
    said = _text(fields, name).strip().lower()
    if said not in _TRUE | _FALSE:
        raise WrongField(name, f"{said[:40]!r} is neither true nor false")
    return said in _TRUE


def _time(fields: Hash, name: str) -> float | None:
    said = _text(fields, name).strip()
    try:
        return read_time(said) if said else None
    except ValueError as error:
        raise WrongField(name, str(error)) from None


def _variables(fields: Hash) -> dict[str, str]:
    said = _text(fields, "env_vars").strip()
    if said in ("", "null"):
        return {}
    value = _json("env_vars", said)
    if not isinstance(value, dict):
        raise WrongField("env_vars", "no JSON object")
    for name, text in value.items():
        # What ``execve`` does not take: it is better said here than met in the middle.
        if not name or "=" in name or "\0" in name:
            raise WrongField("env_vars", f"{name[:40]!r} is no name of a variable")
        if not isinstance(text, str) or "\0" in text:
            raise WrongField("env_vars", f"the value of {name[:40]!r} is no text")
    return value


def _json(name: str, said: str) -> object:
    try:
        value = strict_loads(said.encode())
    except (ValueError, RecursionError) as error:
        raise WrongField(name, f"not JSON: {str(error)[:80]}") from None
    if is_deep(value):
        raise WrongField(name, "nested too deeply")
    return value
