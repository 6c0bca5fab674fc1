"""dispatcherd's wire: messages, chunks of them in any order, and what workers say."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

from beads_workers.core.base.framing import ProtocolError, parse_object
from beads_workers.core.base.plain import from_plain, to_plain
from beads_workers.integrations.dispatcherd import configuration, spool, wire, wire_chunks
from beads_workers.integrations.dispatcherd.configuration import Brokers, Postgres
from tests.fuzz.inputs import as_json, hostile, hostile_object, objects
from tests.fuzz.parser import Parser, require, well_typed

REASON_CHARS_MAX = 600
"""An id of ours at its longest, and a sentence."""

TASK = {
    "uuid": "u-1", "args": [1, "two", None], "kwargs": {"flag": True}, "task": "pkg.mod.fn",
    "time_pub": 1727354869.5, "guid": "g", "timeout": 2.5, "delay": 0.25,
    "on_duplicate": "queue_one", "bind": True, "reply_to": "channel",
    "callbacks": [{"task": "a.b", "args": [], "errbacks": [{"task": "lambda: 1"}]}],
}  # fmt: skip
CONTROL = {"control": "running", "control_data": {"task": "a.b"}, "reply_to": "channel"}


def messages_hold(parse: Any, data: bytes) -> None:
    try:
        message = parse(data)
    except ProtocolError as error:
        require(len(str(error)) <= REASON_CHARS_MAX, "the reason is as long as the message")
        return
    well_typed(message)
    # A control without a name is answered as an unknown command, and nobody sends one.
    nameless = isinstance(message, wire.ControlRequest) and not message.control
    written = json.dumps(wire.to_fields(message)) if nameless else wire.encode(message)
    again = parse(written.encode())
    require(again == message, f"{again} is not {message}")
    if isinstance(message, wire.TaskCall):
        require("lambda" not in message.task[:6], "code is no name")
        # A timeout may be negative: it is over at once, as with the real dispatcherd.
        require(message.delay >= 0, "a time before now")


def _evaluating(payload: bytes) -> Any:
    """Planted bug: any text is the name of a task."""
    fields = parse_object(payload)
    task = fields.get("task")
    return wire.TaskCall(task) if isinstance(task, str) else wire.parse(payload)


# --- chunks -----------------------------------------------------------------------------------

PENDING_BYTES_MAX, PENDING_MAX = 4000, 8


def chunks_hold(make: Any, data: bytes) -> None:
    accumulator = make(
        message_timeout_seconds=5.0, pending_bytes_max=PENDING_BYTES_MAX, pending_max=PENDING_MAX
    )
    whole = 0
    for number, line in enumerate(data.split(b"\n")):
        try:
            fields = wire_chunks.read_object(line)
        except ProtocolError:
            continue
        is_chunk, message, _ = accumulator.ingest_dict(fields, float(number))
        require(is_chunk == (wire_chunks.MARKER in fields), "taken for what it is not")
        whole += is_chunk and message is not None
        if message is not None and is_chunk:
            json.dumps(message).encode()
        require(accumulator._bytes <= PENDING_BYTES_MAX, "more than there is room for")
        require(accumulator.active_messages <= PENDING_MAX, "more than may wait")
    require(accumulator.successful_assemblies == whole, "counted wrong")
    for partial in accumulator.partials(99.0):
        require(0 < len(partial.chunks) < partial.expected_total, f"{partial} is whole")
    accumulator.expire_partial_messages(1e9)
    require(accumulator.active_messages == accumulator._bytes == 0, "something is left")


def _chunks(rng: Random) -> bytes:
    made: list[dict[str, Any]] = []
    for number in range(1 + int(rng.random() * 3)):
        text = json.dumps({"task": "a.b", "args": ['é"x' * int(rng.random() * 60)]})
        cut = wire_chunks.split_message(text, max_bytes=200, message_id=f"m{number}")
        made += [json.loads(each) for each in cut]
    rng.shuffle(made)
    if rng.random() < 0.5:
        at = int(rng.random() * len(made))
        made[at] = hostile_object(rng, made[at])
    return b"\n".join(as_json(rng, each) for each in made)


class Boundless(wire_chunks.ChunkAccumulator):
    """Planted bug: keeps whatever it is sent."""

    def _make_room(self) -> None:
        """Never enough."""


class Last(wire_chunks.ChunkAccumulator):
    """Planted bug: the last piece that says how many there are is believed."""

    def _add(self, received: Any) -> Any:
        begun = self._pending.get(str(received.get("message_id")))
        if begun is not None and type(received.get("total")) is int:
            begun.total = received["total"]
        return super()._add(received)


# --- workers ----------------------------------------------------------------------------------

SAID = [
    {"worker": 3, "event": "ready"},
    {"worker": 3, "event": "done", "result": [1], "uuid": "u", "time_started": 1.5,
     "time_finish": 2.5, "is_stopping": True, "error": "no"},
    {"worker": 3, "event": "control", "command": "running", "control_data": {}},
    {"worker": 3, "event": "shutdown"},
]  # fmt: skip


def workers_hold(read: Any, data: bytes) -> None:
    try:
        fields = parse_object(data)
    except ProtocolError:
        return
    try:
        said = read(fields)
    except ProtocolError as error:
        require(len(str(error)) <= REASON_CHARS_MAX, "the reason is as long as the message")
        return
    well_typed(said)


def _careless(fields: Any) -> Any:
    """Planted bug: anything is a result's id."""
    if fields.get("event") == "done":
        return wire.TaskDone(fields.get("worker"), fields.get("uuid"), 0.0, 0.0)
    return wire.from_worker_fields(fields)


# --- what is kept, and what is said ---------------------------------------------------------------


def spool_holds(read: Any, data: bytes) -> None:
    found = read(data)
    require(found.damaged <= data.count(b"\n"), "more damage than lines")
    for number, entry in found.entries.items():
        well_typed(entry.task)
        require(entry.number == number <= found.last, "numbers do not agree")
        again = read(spool.write_entry(entry)).entries[number]
        require((again.task, again.issue_id) == (entry.task, entry.issue_id), "not the same again")


def _spool(rng: Random) -> bytes:
    lines: list[bytes] = []
    for number in range(1, 2 + int(rng.random() * 4)):
        line = {
            "n": number,
            "id": f"u{number}",
            "at": 1.5,
            "c": "ch",
            "m": TASK | {"callbacks": []},
        }
        over = {"d": [int(rng.random() * 5)]}
        fields = hostile_object(rng, line) if rng.random() < 0.3 else line
        lines.append(as_json(rng, over if rng.random() < 0.3 else fields))
    return b"\n".join(lines) + b"\n"


def _undead(content: bytes) -> Any:
    """Planted bug: a number that stands twice is believed."""
    found = spool.read_spool(content)
    for number in list(found.entries):
        found.entries[number + 1] = found.entries[number]
    return found


SETTINGS = {
    "version": 2,
    "service": {"pool_kwargs": {"max_workers": 4}, "chunk_message_timeout_seconds": 9,
                "main_kwargs": {"node_id": "n", "chunk_message_timeout_seconds": 60}},
    "brokers": {
        "pg_notify": {"config": {"conninfo": "dbname=x"}, "channels": ["a", "b"],
                      "max_connection_idle_seconds": 5},
        "socket": {"socket_path": "/run/d.sock"},
    },
}  # fmt: skip


def settings_hold(read: Any, data: bytes) -> None:
    try:
        config = parse_object(data)
        brokers = read(config)
    except (ProtocolError, ValueError) as error:
        require(len(str(error)) <= REASON_CHARS_MAX, "the reason is as long as the file")
        return
    well_typed(brokers)
    configuration.workers_of(config)
    require(bool(brokers.sockets or brokers.postgres), "nowhere to listen")
    require(all(each.channels for each in brokers.postgres), "nothing to listen to")
    again = from_plain(Brokers, json.loads(json.dumps(to_plain(brokers))))
    require(again == brokers, f"{again} is not {brokers}")


def _lax(config: Any) -> Any:
    """Planted bug: any channels are channels."""
    brokers = configuration.from_config(config)
    given = config["brokers"].get("pg_notify")
    if given:
        return replace(brokers, postgres=(Postgres(given["config"], given["channels"]),))
    return brokers


PARSERS = [
    Parser("dispatcherd messages", ("integrations/dispatcherd/wire.py",), wire.parse,
           objects([TASK, CONTROL]), messages_hold, {"evaluating": _evaluating}),
    Parser("dispatcherd chunks", ("integrations/dispatcherd/wire_chunks.py",),
           wire_chunks.ChunkAccumulator, hostile(_chunks, (b"\n", b"0", b"1", b"2", b'"total":3')),
           chunks_hold, {"boundless": Boundless, "believes the last": Last}),
    Parser("dispatcherd workers", ("integrations/dispatcherd/wire.py",), wire.from_worker_fields,
           objects(SAID), workers_hold, {"careless": _careless}),
    Parser("dispatcherd spool", ("integrations/dispatcherd/spool.py",), spool.read_spool,
           hostile(_spool), spool_holds, {"undead": _undead}),
    Parser("dispatcherd settings", ("integrations/dispatcherd/configuration.py",),
           configuration.from_config, objects([SETTINGS]), settings_hold, {"lax": _lax}),
]  # fmt: skip
