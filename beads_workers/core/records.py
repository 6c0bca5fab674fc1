"""The lines of the journal: one frozen dataclass per kind of transition.

The journal is the one account of a run. The dashboard, ``status``, the plain lines of ``start``
and the recovery after a crash are all folds over these records, so whatever any of them needs
must be here. Written as JSON Lines: ``{"v": 1, "e": <kind>, "t": <epoch seconds>, "m": <seconds
since the run began, monotonic>, ...fields}``; fields that hold their default are left out.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

JOURNAL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """Base of all records."""


@dataclass(frozen=True, slots=True)
class RunStarted(Record):
    """The first line of a run."""

    run_id: str
    pid: int
    actor: str
    source: str
    project: str
    socket: str = ""
    control_socket: str = ""
    workers: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True)
class Carried(Record):
    """Checkpoint: what earlier runs left to remember of one unfinished issue.

    ``not_before`` in epoch seconds. ``held_by``: the actor in whose name a done issue is still
    to be closed.
    """

    issue_id: str
    title: str = ""
    charged: int = 0
    free_in_a_row: int = 0
    not_before: float = 0.0
    set_aside: bool = False
    error: str = ""
    held_by: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointEnded(Record):
    """Everything carried over is written: older runs are disposable from here on."""


@dataclass(frozen=True, slots=True)
class RunChanged(Record):
    """The orchestrator's state: a name of ``RunState``. ``reason``: a SHUTDOWN reason, or why."""

    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkerStarted(Record):
    """We started a worker process."""

    worker_id: str
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerJoined(Record):
    """A worker said its first valid word. ``called``: what it calls itself; ``own``: ours."""

    worker_id: str
    pid: int
    called: str = ""
    own: bool = True
    version: str = "1"


@dataclass(frozen=True, slots=True)
class WorkerLeft(Record):
    """A worker's connection is gone."""

    worker_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkerExited(Record):
    """A worker process of ours ended; ``status`` as the shell says it (128+N for a signal)."""

    worker_id: str
    pid: int
    status: int


@dataclass(frozen=True, slots=True)
class WorkerGone(Record):
    """A worker of ours is not started again: scaled down, or it crashed too often."""

    worker_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Listed(Record):
    """What the tracker showed: takeable issues by priority (0 to 4), and blocked ones."""

    by_priority: tuple[int, ...] = (0, 0, 0, 0, 0)
    more: bool = False
    blocked: int = 0


@dataclass(frozen=True, slots=True)
class Claimed(Record):
    """An issue is ours in the tracker."""

    issue_id: str
    title: str = ""
    priority: int = 2


@dataclass(frozen=True, slots=True)
class HandingOver(Record):
    """From here on an issue may be in progress in nobody's name: its worker claims by itself."""

    issue_id: str
    worker_id: str


@dataclass(frozen=True, slots=True)
class Started(Record):
    """An attempt begins: the TASK follows."""

    issue_id: str
    worker_id: str
    attempt: int
    request_id: str
    title: str = ""
    priority: int = 2


@dataclass(frozen=True, slots=True)
class HolderLost(Record):
    """The worker of a running attempt is gone from us, and not yet known to be dead."""

    issue_id: str
    worker_id: str
    pid: int


@dataclass(frozen=True, slots=True)
class Finished(Record):
    """An attempt ended. ``verdict``: ``finish``, ``requeue`` or ``set_aside``.

    ``charged`` and ``free_in_a_row`` are the history after it; ``delay_seconds`` until the next
    try; ``duration_ms`` as the worker measured it, or as we did where it said nothing.
    """

    issue_id: str
    worker_id: str
    attempt: int
    request_id: str
    outcome: str
    verdict: str
    error: str = ""
    duration_ms: int = 0
    charged: int = 0
    free_in_a_row: int = 0
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SettledRecord(Record):
    """The tracker answered: names of ``Action`` and ``Result``."""

    issue_id: str
    action: str
    result: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Withheld(Record):
    """A person took the issue away (``release``); this run leaves it alone until ``retry``."""

    issue_id: str


@dataclass(frozen=True, slots=True)
class RetryAsked(Record):
    """A person wants the issue tried again, with a clean history."""

    issue_id: str


@dataclass(frozen=True, slots=True)
class SourceTrouble(Record):
    """The tracker could not be asked; nothing was concluded from that."""

    error: str
    retry_in_seconds: float = 0.0
    hint: str = ""
    failures: int = 1


@dataclass(frozen=True, slots=True)
class SourceRecovered(Record):
    """The tracker answers again."""


@dataclass(frozen=True, slots=True)
class CallStarted(Record):
    """A process of the tracker was started; written before anything is read from it."""

    pid: int
    start_time: int
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallEnded(Record):
    """That process has ended."""

    pid: int


@dataclass(frozen=True, slots=True)
class Spent(Record):
    """What asking the tracker has cost in this run so far."""

    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Noted(Record):
    """Something a person may want to read. ``level``: ``info``, ``warning`` or ``error``."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Recovered(Record):
    """What an earlier run had left was settled."""

    run_id: str


@dataclass(frozen=True, slots=True)
class RunEnded(Record):
    """The last line of a run that ended by itself."""

    exit_code: int
    reason: str = ""


KINDS: dict[str, type[Record]] = {
    "run_started": RunStarted,
    "carried": Carried,
    "checkpoint_ended": CheckpointEnded,
    "run_changed": RunChanged,
    "worker_started": WorkerStarted,
    "worker_joined": WorkerJoined,
    "worker_left": WorkerLeft,
    "worker_exited": WorkerExited,
    "worker_gone": WorkerGone,
    "listed": Listed,
    "claimed": Claimed,
    "handing_over": HandingOver,
    "started": Started,
    "holder_lost": HolderLost,
    "finished": Finished,
    "settled": SettledRecord,
    "withheld": Withheld,
    "retry_asked": RetryAsked,
    "source_trouble": SourceTrouble,
    "source_recovered": SourceRecovered,
    "call_started": CallStarted,
    "call_ended": CallEnded,
    "spent": Spent,
    "noted": Noted,
    "recovered": Recovered,
    "run_ended": RunEnded,
}

_NAMES = {record: name for name, record in KINDS.items()}

R = TypeVar("R", bound=Record)

_FIELDS: dict[type[Record], tuple[tuple[str, Any], ...]] = {
    record: tuple((f.name, f.default) for f in fields(record)) for record in _NAMES
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A record with its two times: ``at`` epoch seconds, ``elapsed`` seconds of the run."""

    record: Record
    at: float
    elapsed: float


def encode(entry: Entry) -> bytes:
    """One journal line with its end."""
    kind = type(entry.record)
    line: dict[str, Any] = {
        "v": JOURNAL_VERSION,
        "e": _NAMES[kind],
        "t": round(entry.at, 3),
        "m": round(entry.elapsed, 6),
    }
    for name, default in _FIELDS[kind]:
        value = getattr(entry.record, name)
        if default is MISSING or value != default:
            line[name] = value
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Entry | None:
    """Read one line; None for a torn one, or a kind that a newer version wrote."""
    try:
        return from_json(json.loads(line))
    except ValueError:
        return None


def from_json(values: Any) -> Entry | None:
    """Read one entry that is parsed already; None where it is none that we know."""
    try:
        kind = KINDS[values["e"]]
        known = {name: values[name] for name, _ in _FIELDS[kind] if name in values}
        for name, value in known.items():
            if isinstance(value, list):
                known[name] = tuple(value)
        return Entry(kind(**known), float(values["t"]), float(values["m"]))
    except (ValueError, KeyError, TypeError):
        return None
