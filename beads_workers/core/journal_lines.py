"""The journal's lines: a record with its two times, as one JSON object, and back.

    {"v": 1, "e": <kind>, "t": <epoch seconds>, "m": <seconds since the run began>, ...fields}

``m`` is monotonic; fields that hold their default are left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import MISSING, fields
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from beads_workers.core import records as rec
from beads_workers.core.checkpoint_records import Owing, Resumed
from beads_workers.core.flat import BAD_VALUE, finite, readers_of
from beads_workers.core.records import Record
from beads_workers.core.values import value

JOURNAL_VERSION = 1

LINE_START = b'{"v":'
"""How every line begins; never within one, where a quote is escaped and objects have no ``v``."""

_REPEATED = LINE_START + b'%d,"c":1,' % JOURNAL_VERSION

KINDS: dict[str, type[Record]] = {
    "run_started": rec.RunStarted,
    "carried": rec.Carried,
    "checkpoint_ended": rec.CheckpointEnded,
    "run_changed": rec.RunChanged,
    "worker_started": rec.WorkerStarted,
    "worker_joined": rec.WorkerJoined,
    "worker_left": rec.WorkerLeft,
    "worker_stopping": rec.WorkerStopping,
    "worker_exited": rec.WorkerExited,
    "worker_gone": rec.WorkerGone,
    "listed": rec.Listed,
    "claimed": rec.Claimed,
    "handing_over": rec.HandingOver,
    "started": rec.Started,
    "holder_lost": rec.HolderLost,
    "finished": rec.Finished,
    "settled": rec.SettledRecord,
    "settlement_failed": rec.SettlementFailed,
    "requeued": rec.Requeued,
    "withheld": rec.Withheld,
    "retry_asked": rec.RetryAsked,
    "forgiven": rec.Forgiven,
    "source_trouble": rec.SourceTrouble,
    "source_recovered": rec.SourceRecovered,
    "hindrance": rec.Hindrance,
    "hindrance_over": rec.HindranceOver,
    "turn_began": rec.TurnBegan,
    "call_started": rec.CallStarted,
    "call_ended": rec.CallEnded,
    "spent": rec.Spent,
    "noted": rec.Noted,
    "recovered": rec.Recovered,
    "run_ended": rec.RunEnded,
    "resumed": Resumed,
    "owing": Owing,
}

_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Made once: ``json.dumps`` with separators makes one for every call."""

_NAMES = {record: name for name, record in KINDS.items()}

_HEADS = {
    record: f'{{"v":{JOURNAL_VERSION},"e":{quoted(name)},"t":' for record, name in _NAMES.items()
}
_FIELDS: dict[type[Record], tuple[tuple[str, str, Any], ...]] = {
    record: tuple((f.name, f",{quoted(f.name)}:", f.default) for f in fields(record))
    for record in _NAMES
}
"""What of a line is the same each time: there are four for each issue, and most fields are text."""


@value
class Entry:
    """A record with its two times: ``at`` epoch seconds, ``elapsed`` seconds of the run."""

    record: Record
    at: float
    elapsed: float


def encode(entry: Entry) -> bytes:
    """One journal line with its end."""
    record = entry.record
    kind = type(record)
    line = f'{_HEADS[kind]}{entry.at:.3f},"m":{entry.elapsed:.6f}'
    for name, key, default in _FIELDS[kind]:
        value = getattr(record, name)
        if default is MISSING or value != default:
            line += key + (quoted(value) if type(value) is str else _json(value))
    return line.encode("ascii") + b"}\n"


def _json(value: Any) -> str:
    kind = type(value)
    return repr(value) if kind is int or kind is float else _ENCODER.encode(value)


def encode_repeated(entry: Entry) -> bytes:
    """A line of a checkpoint within a run: for whoever has not read what stands before it."""
    line = encode(entry)
    return _REPEATED + line[line.index(b",") + 1 :]


def heads(kinds: Collection[str]) -> tuple[bytes, ...]:
    """How the lines of these kinds begin; nothing else that is written holds these bytes.

    A kind that is not known has no lines.
    """
    return tuple(_HEADS[KINDS[kind]].encode("ascii") for kind in sorted(kinds) if kind in KINDS)


def is_repeated(line: bytes) -> bool:
    """Whether ``encode_repeated`` wrote it."""
    return line.startswith(_REPEATED)


def decode(line: bytes) -> Entry | None:
    """Read one line; None for a torn or damaged one, or a kind that a newer version wrote."""
    try:
        return from_json(json.loads(line))
    except (ValueError, RecursionError):
        return None


def from_json(values: Any) -> Entry | None:
    """Read one entry that is parsed already; None where it is none that we know.

    Every field is of its type: whatever folds the entries need not ask again.
    """
    try:
        kind = KINDS[values["e"]]
        at, elapsed = finite(values["t"]), finite(values["m"])
        if elapsed < 0:
            return None
        known = {n: read(values[n]) for n, read in _READERS[kind].items() if n in values}
        return Entry(kind(**known), at, elapsed)
    except BAD_VALUE:
        return None


_READERS = {record: readers_of(record) for record in _NAMES}
