"""The worker socket: connections become events, messages become bytes."""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from beads_workers.core.base import limits, wire
from beads_workers.core.base.framing import Framed, Line, ProtocolError, TooLong
from beads_workers.core.base.text import printable
from beads_workers.core.base.wire import (
    Batch,
    ControlAsked,
    ControlReply,
    FromWorker,
    Heartbeat,
    Task,
)
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Send
from beads_workers.core.schedule.events import ConnId, Event
from beads_workers.runtime.sessions import start_time
from beads_workers.runtime.sockets import Acceptor, Peers, Stream


class WorkerServer:
    """Server of the worker socket. ``tell`` takes every event. ``before_serving`` reports new
    workers of our own first.

    ``acceptor``: ticked by the loop.
    """

    def __init__(
        self,
        path: Path,
        selector: selectors.BaseSelector,
        tell: Callable[[Event], None],
        before_serving: Callable[[], None],
        payload_directory: Path,
        is_ours: Callable[[int], bool] = lambda pid: False,
    ) -> None:
        self._selector = selector
        self._tell = tell
        self._before_serving = before_serving
        self._payloads = payload_directory
        self._is_ours = is_ours
        self._foreign: dict[ConnId, int] = {}
        """Pids of foreign workers, by connection."""
        self._busy: dict[ConnId, int] = {}
        """Pids of those foreign workers that were sent a task last."""
        self._streams: dict[ConnId, Stream] = {}
        self._unsent: set[ConnId] = set()
        self._named: dict[ConnId, str] = {}
        """Ids of workers that speak 1.1, as they were last told."""
        self._known: set[ConnId] = set()
        """Connections whose last line was a valid message: they are read at once."""
        self._waiting: dict[ConnId, None] = {}
        """Connections with more to read, in order: those not ``_known``, and those that send much
        at once. The selector does not watch them for reading until they are read."""
        self._read_at = 0.0
        self._masks: dict[ConnId, int] = {}
        """Events for which the selector watches each connection."""
        self._last = 0
        self._files = 0
        self.on_first_message: Callable[[], None] = lambda: None
        """Called when a connection has sent a valid message for the first time."""
        self.asked: Callable[[ConnId, ControlAsked], None] = self._not_asked
        """Called with a running task's request; the answer is sent with ``reply``."""
        self.acceptor = Acceptor("the worker socket", path, selector, tell, self._enter)

    def deadline(self) -> float | None:
        """Return when ``read_waiting`` is due (monotonic seconds); None while no connection waits
        to be read."""
        return self._read_at if self._waiting else None

    def read_waiting(self, now: float) -> None:
        """Read a little from a few of the waiting connections; call once in each turn."""
        if now < self._read_at:
            return
        for conn_id in list(islice(self._waiting, limits.STRANGERS_AT_ONCE)):
            del self._waiting[conn_id]
            if self._read(conn_id, self._streams[conn_id]):
                self._read_at = now + limits.NONSENSE_PAUSE_SECONDS

    def send(self, command: Send) -> None:
        """Queue a message; ``flush`` sends it."""
        stream = self._streams.get(command.conn_id)
        if stream is None:
            return
        stream.queue(self._encode(command))
        self._unsent.add(command.conn_id)
        if command.conn_id in self._foreign:
            if isinstance(command.message, Task | Batch):
                self._busy[command.conn_id] = self._foreign[command.conn_id]
            elif isinstance(command.message, wire.Wait):
                self._busy.pop(command.conn_id, None)
        if not command.v1:
            self._named[command.conn_id] = command.worker_id

    def busy(self) -> set[int]:
        """Return the pids of foreign workers that may have a task."""
        return {*self._busy.values()}

    def reply(self, conn_id: ConnId, answer: Mapping[str, Any]) -> None:
        """Queue the answer to a task's request; ``flush`` sends it."""
        stream = self._streams.get(conn_id)
        if stream is None:
            return
        name = self._named[conn_id]
        line = wire.encode(ControlReply(answer), name, time.time(), v1=False)
        if len(line) > limits.LINE_BYTES_MAX:
            short = {"error": f"the answer is {len(line)} bytes long: ask for less"}
            line = wire.encode(ControlReply(short), name, time.time(), v1=False)
        stream.queue(line)
        self._unsent.add(conn_id)

    def hang_up(self, conn_id: ConnId, reason: str) -> None:
        """Close a connection from our side."""
        stream = self._streams.get(conn_id)
        if stream is not None:
            stream.flush()  # The last message, as far as the socket takes it.
            stream.hang_up(reason)
            self._drop(stream)

    def flush(self) -> None:
        """Write once per connection and turn; what does not fit waits for the selector."""
        for conn_id in list(self._unsent):
            stream = self._streams.get(conn_id)
            if stream is None:
                self._unsent.discard(conn_id)
                continue
            left = stream.flush()
            if stream.closed:
                self._drop(stream)
            elif left:
                self._watch(conn_id, stream, writes=True)
            else:
                self._unsent.discard(conn_id)

    def close(self) -> None:
        """Close all connections, and remove the socket file."""
        for conn_id, stream in self._streams.items():
            if self._masks.pop(conn_id):
                self._selector.unregister(stream)
            stream.release()
        self._streams.clear()
        self.acceptor.close()

    # --- inside -------------------------------------------------------------------------------

    def _enter(self, peers: Peers) -> None:
        # A worker of ours was reported before it could connect: its pid is known now.
        self._before_serving()
        for sock, pid in peers:
            self._add(sock, pid)

    def _add(self, sock: socket.socket, pid: int) -> None:
        self._last += 1
        stream = Stream(sock, self._last)
        conn_id = ConnId(self._last)
        self._streams[conn_id] = stream
        if not self._is_ours(pid):
            self._foreign[conn_id] = pid
        self._tell(ev.Connected(conn_id, pid, start_time(pid) or 0))
        self._watch(conn_id, stream)

    def _watch(self, conn_id: ConnId, stream: Stream, *, writes: bool = False) -> None:
        before = self._masks.get(conn_id, 0)
        mask = 0 if conn_id in self._waiting else selectors.EVENT_READ
        mask |= selectors.EVENT_WRITE if writes else 0
        self._masks[conn_id] = mask
        try:
            if not mask and before:
                self._selector.unregister(stream)
            elif mask and not before:
                self._selector.register(stream, mask, partial(self._ready, conn_id, stream))
            elif mask != before:
                self._selector.modify(stream, mask, partial(self._ready, conn_id, stream))
        except OSError as error:  # The kernel cannot watch more (ENOSPC, ENOMEM).
            self._masks[conn_id] = 0
            stream.hang_up(f"cannot be watched: {error.strerror}")
            self._drop(stream)

    def _ready(self, conn_id: ConnId, stream: Stream, mask: int) -> None:
        if mask & selectors.EVENT_WRITE and not stream.flush():
            self._unsent.discard(conn_id)
            self._watch(conn_id, stream)
        if stream.closed:
            self._drop(stream)
        elif mask & selectors.EVENT_READ and conn_id in self._known:
            self._read(conn_id, stream)
        elif mask & selectors.EVENT_READ:
            self._let_wait(conn_id, stream)

    def _let_wait(self, conn_id: ConnId, stream: Stream) -> None:
        self._waiting[conn_id] = None
        self._watch(conn_id, stream, writes=bool(self._masks[conn_id] & selectors.EVENT_WRITE))

    def _read(self, conn_id: ConnId, stream: Stream) -> bool:
        """Pass on a few lines; return whether there was an invalid one among them."""
        nonsense = False
        known = conn_id in self._known
        for framed in stream.read(limits.LINES_OF_A_WORKER if known else limits.LINES_AT_ONCE):
            event = _event(conn_id, framed)
            if isinstance(event, ControlAsked):
                if conn_id in self._named:
                    self.asked(conn_id, event)
                    self._tell(ev.Received(conn_id, Heartbeat()))  # It is a sign of life, too.
                    continue
                # A worker that has no task, or speaks version 1, cannot ask anything.
                event = ev.Unknown(conn_id, "CONTROL", f"CONTROL {event.command[:80]!r}")
            if isinstance(event, ev.Received):
                self._known.add(conn_id)
            else:
                self._known.discard(conn_id)
                nonsense = True
            self._tell(event)
        if not known and conn_id in self._known:
            self.on_first_message()
        if stream.closed:
            self._drop(stream)
        elif stream.lines.pending:
            self._let_wait(conn_id, stream)
        else:
            self._watch(conn_id, stream, writes=bool(self._masks[conn_id] & selectors.EVENT_WRITE))
        return nonsense

    def _not_asked(self, conn_id: ConnId, asked: ControlAsked) -> None:
        self.reply(conn_id, {"error": "nobody answers here"})

    def _drop(self, stream: Stream) -> None:
        conn_id = ConnId(stream.conn_id)
        if self._streams.pop(conn_id, None) is None:
            return
        self._unsent.discard(conn_id)
        self._known.discard(conn_id)
        self._named.pop(conn_id, None)
        self._waiting.pop(conn_id, None)
        self._foreign.pop(conn_id, None)
        self._busy.pop(conn_id, None)
        if self._masks.pop(conn_id):
            self._selector.unregister(stream)
        stream.release()
        self.acceptor.room()
        self._tell(ev.Disconnected(conn_id, stream.reason))

    def _encode(self, command: Send) -> bytes:
        message, now = command.message, time.time()
        line = wire.encode(message, command.worker_id, now, v1=command.v1)
        if len(line) <= limits.INLINE_BYTES_MAX or command.v1:
            return line
        # No room for a file, or no descriptor: inline if it fits; otherwise the worker cannot read
        # it, reports that, and is asked again later.
        fits = len(line) <= limits.LINE_BYTES_MAX
        match message:
            case Task():
                message = self._with_file(message, 0, inline=fits)
            case Batch(tasks):
                small = limits.INLINE_BYTES_MAX // limits.BATCH_MAX
                message = Batch(tuple(self._with_file(t, small, inline=fits) for t in tasks))
            case _:
                return line
        return wire.encode(message, command.worker_id, now, v1=False)

    def _with_file(self, task: Task, small: int, *, inline: bool) -> Task:
        """Return the task with its payload in a file. A payload of at most ``small`` characters
        stays inline, and so, if ``inline``, does one whose file cannot be written."""
        text = json.dumps({**task.payload, "description": task.description})
        if len(text) <= small:
            return task
        self._files += 1
        file = self._payloads / f"{self._files}.payload.json"
        try:
            _write_private(file, text)
        except OSError:
            if inline:
                return task
        return replace(task, description="", payload={}, payload_file=str(file))


def _write_private(file: Path, text: str) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as out:
        out.write(text)


def _event(conn_id: ConnId, framed: Framed) -> Event | ControlAsked:
    if not isinstance(framed, Line):
        reason = "line too long" if isinstance(framed, TooLong) else "line without an end"
        return ev.Misread(conn_id, reason, _shown(framed.head))
    try:
        message = wire.parse(framed.text)
    except wire.UnknownType as error:
        return ev.Unknown(conn_id, error.kind, _shown(framed.text))
    except ProtocolError as error:
        return ev.Misread(conn_id, str(error), _shown(framed.text))
    if isinstance(message, ControlAsked):
        return message
    if isinstance(message, FromWorker):
        return ev.Received(conn_id, message)
    return ev.Misread(conn_id, "not a worker's message", _shown(framed.text))


def _shown(raw: bytes) -> str:
    return printable(raw[: limits.LOGGED_BYTES_MAX].decode("utf-8", "backslashreplace"))
